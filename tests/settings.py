"""Settings of the test suite: the example project plus the app with the test job handlers."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("DEBUG", "False")
os.environ.setdefault("SECRET_KEY", "key-of-the-tests")

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS, PGJOBS, env

INSTALLED_APPS = [*INSTALLED_APPS, "tests.jobsapp"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# The `media_root` fixture gives a test a folder of its own; worker processes learn it by the environment.
MEDIA_ROOT = env.str("MEDIA_ROOT", default=str(Path(tempfile.gettempdir()) / "pgjobs-test-media"))
# Any setting of pgjobs for the workers of one test, as JSON.
PGJOBS = {**PGJOBS, **env.json("PGJOBS_OVERRIDES", default={})}
