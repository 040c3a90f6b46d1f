"""The example app: people upload PDFs, workers read them."""

import logging
from importlib.util import find_spec

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured

if find_spec("pypdf") is None:
    raise ImproperlyConfigured(
        'The example project reads PDFs with pypdf, which is not installed. Run: pip install -e ".[demo]"'
    )


class DocumentsConfig(AppConfig):
    name = "example_project.documents"
    label = "documents"
    verbose_name = "Documents"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # pypdf warns once per font of a page; what matters of a bad file is in the document's own row.
        logging.getLogger("pypdf").setLevel(logging.ERROR)
