"""The app's own settings. Each is read at use, so that tests and the demo can change it."""

import environ
from django.conf import settings

_env = environ.Env()


def page_delay() -> float:
    """Seconds added to each page, so that a person can watch; 0 outside demonstrations."""
    return float(getattr(settings, "DOCUMENTS_PAGE_DELAY", _env.float("DOCUMENTS_PAGE_DELAY", default=0.0)))


def max_bytes() -> int:
    """The largest PDF the upload page takes, in bytes."""
    return int(getattr(settings, "DOCUMENTS_MAX_BYTES", _env.int("DOCUMENTS_MAX_BYTES", default=20_000_000)))
