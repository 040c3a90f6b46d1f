"""The frame of the pages: who may open one, what stands above it, and what is said where its row is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from pgjobs.admin import navigation
from pgjobs.admin.pages import respond

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    Base = ModelAdmin[Any]
else:
    Base = object

_MISSING_SHOWN = 40


class ListPage(Base):
    """Figures in the place of a list of rows. Mixed into an admin, before its other bases."""

    list_template: str
    list_seconds: int = 0
    """Between two refreshes; 0: none."""

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The page, named as in the strip."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return respond(
            self,
            request,
            self.list_template,
            lambda: self.list_content(request),
            title=navigation.label(self.opts.model_name),
            interval=self.list_seconds,
        )

    def list_content(self, request: HttpRequest) -> Mapping[str, Any]:
        """What the page shows."""
        raise NotImplementedError


class RowPage(Base):
    """A page of our own for one row. Mixed into an admin, before its other bases."""

    row_template: str
    row_seconds: int = 0
    """Between two refreshes; 0: none."""
    row_word = ""
    """What a row is called where it is missing."""
    missing_title = ""
    """Heads the page of a missing row, in place of "<word> not found"."""
    row_above = ""
    """The model whose list stands above the page; empty: its own."""
    row_shared = True
    """Whether all who may do the same are shown the same."""

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The page, or a 404 that says why there is none. It only shows: verbs have addresses of their own."""
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        return self.page_at(request, unquote(object_id))

    def page_at(self, request: HttpRequest, name: str) -> HttpResponse:
        """The page of the row of that id."""
        row: Any = self.get_object(request, name)
        return self.missing_page(request, name) if row is None else self.page(request, row)

    def page(self, request: HttpRequest, row: Any) -> HttpResponse:
        """The page of a row that was found."""
        raise NotImplementedError

    def missing_page(self, request: HttpRequest, name: str) -> HttpResponse:
        """Says that the row is gone, and where to look."""
        context = {"what": self.row_word, "id": name[:_MISSING_SHOWN]}
        return respond(
            self,
            request,
            "pgjobs/admin/missing.html",
            lambda: context,
            title=self.missing_title or f"{self.row_word} not found",
            shared=self.row_shared,
            status=404,
        )

    def framed(
        self, request: HttpRequest, title: str, build: Callable[[], Mapping[str, Any]], *, status: int = 200
    ) -> HttpResponse:
        """What ``build`` gives, below the crumb of the list."""
        return respond(
            self,
            request,
            self.row_template,
            build,
            title=title,
            crumbs=navigation.crumbs(self.admin_site, self.row_above or self.opts.model_name),
            interval=self.row_seconds,
            shared=self.row_shared,
            status=status,
        )
