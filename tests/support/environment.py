"""The environment of a child process that works on a database of the tests."""

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections

from tests.support import own_database
from tests.support.database import url_of

ROOT = Path(__file__).resolve().parent.parent.parent


def child_environment(alias: str = "default", **more: Any) -> dict[str, str]:
    """Built at the call: a fixture may have turned the connection or the media folder since."""
    queue = {}
    if own_database.ON:
        queue = {"QUEUE_DATABASE_URL": url_of(connections[own_database.ALIAS].settings_dict)}
    return {
        **os.environ,
        **queue,
        "DATABASE_URL": url_of(connections[alias].settings_dict),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DEBUG": "False",
        "SECRET_KEY": settings.SECRET_KEY,
        "MEDIA_ROOT": str(settings.MEDIA_ROOT),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
        "PYTHONUNBUFFERED": "1",
        **{name: str(value) for name, value in more.items()},
    }
