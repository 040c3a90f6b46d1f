"""What an execution is about: a generic relation whose ends need not be in the queue's database."""

from __future__ import annotations

from typing import Any

from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ObjectDoesNotExist


class SubjectKey(GenericForeignKey):
    """Finds content types and subjects where the project's routers keep them.

    Django's own looks for both in the database of the row that points at them.
    """

    def get_content_type(self, obj: Any = None, id: Any = None, using: Any = None, model: Any = None) -> Any:
        """The content type of an instance or a model, or the one with an id."""
        if id is None:
            return ContentType.objects.get_for_model(
                model if obj is None else obj, for_concrete_model=self.for_concrete_model
            )
        try:
            return _Kind(ContentType.objects.get_for_id(id))
        except ContentType.DoesNotExist:
            return _Kind(None)


class _Kind:
    """A content type that reads its objects by the routers. Without one there is no object either."""

    def __init__(self, content_type: ContentType | None) -> None:
        self._content_type = content_type

    def model_class(self) -> Any:
        return self._content_type and self._content_type.model_class()

    def get_object_for_this_type(self, using: str | None = None, **lookup: Any) -> Any:
        model = self.model_class()
        if model is None:
            raise ObjectDoesNotExist
        return model._base_manager.get(**lookup)

    def get_all_objects_for_this_type(self, **lookup: Any) -> Any:
        model = self.model_class()
        return ContentType.objects.none() if model is None else model._base_manager.filter(**lookup)
