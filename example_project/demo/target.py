"""Points this process and its children at the demo's own database and folder, whatever DATABASE_URL says."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import environ
from django.db import connections
from django.test.utils import override_settings

# Set before the first query, so that nothing of the demo reaches the database of the settings by accident.
TAKEN_OVER = {"ENGINE": "", "NAME": "", "USER": "", "PASSWORD": "", "HOST": "", "PORT": "", "OPTIONS": {}}


@contextmanager
def pointed_at(url: str, media: Path, *, page_delay: float) -> Iterator[None]:
    """Work on the database ``url``, uploads in ``media``; children inherit both through the environment."""
    connection = connections["default"]
    connection.close()
    fresh = environ.Env.db_url_config(url)
    before = {key: connection.settings_dict[key] for key in TAKEN_OVER if key in connection.settings_dict}
    connection.settings_dict.update({key: fresh.get(key, TAKEN_OVER[key]) for key in TAKEN_OVER})
    environment = {
        "DATABASE_URL": url,
        "MEDIA_ROOT": str(media),
        "DOCUMENTS_PAGE_DELAY": str(page_delay),
        "DEBUG": "False",
        "SECRET_KEY": secrets.token_urlsafe(40),
        "ALLOWED_HOSTS": "localhost,127.0.0.1",
    }
    inherited = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        with override_settings(MEDIA_ROOT=str(media), DEBUG=False):
            yield
    finally:
        connection.close()
        connection.settings_dict.update(before)
        for name, value in inherited.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
