"""Settings of the test suite: the example project plus the app with the test job handlers."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("DEBUG", "False")
os.environ.setdefault("SECRET_KEY", "key-of-the-tests")

from example_project.settings import *  # noqa: F403
from example_project.settings import DATABASES, INSTALLED_APPS, PGJOBS, env
from tests.support import own_database

INSTALLED_APPS = [*INSTALLED_APPS, "tests.jobsapp"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# The `media_root` fixture gives a test a folder of its own; worker processes learn it by the environment.
MEDIA_ROOT = env.str("MEDIA_ROOT", default=str(Path(tempfile.gettempdir()) / "pgjobs-test-media"))
if own_database.ON:
    main = env.str("DATABASE_URL", default="postgres:///pgjobs")
    DATABASES[own_database.ALIAS] = env.db_url("QUEUE_DATABASE_URL", default=own_database.beside(main))
    DATABASE_ROUTERS = ["tests.support.own_database.BesideTheQueue", "pgjobs.routers.PgJobsRouter"]
    PGJOBS = {**PGJOBS, "DATABASE": own_database.ALIAS}
# Where the workers of one test may reach the server past a pooler.
if "DIRECT_DATABASE_URL" in env.ENVIRON:
    DATABASES["direct"] = env.db_url("DIRECT_DATABASE_URL")
# Any setting of pgjobs for the workers of one test, as JSON.
PGJOBS = {**PGJOBS, **env.json("PGJOBS_OVERRIDES", default={})}
