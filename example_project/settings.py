"""Settings of the example project. Everything a deployment changes comes from the environment."""

from pathlib import Path

import environ
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()

# An example is tried before it is deployed, so it starts in development mode. Set DEBUG=False for anything
# that runs long: with DEBUG on, Django keeps the text of every query in memory.
DEBUG = env.bool("DEBUG", default=True)
SECRET_KEY = env.str("SECRET_KEY", default="insecure-key-for-development-only" if DEBUG else "")
if not SECRET_KEY:
    raise ImproperlyConfigured(
        "SECRET_KEY is empty while DEBUG is off. Set the SECRET_KEY environment variable to a long random "
        "text, or set DEBUG=True on a development machine."
    )
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=[])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("CSRF_TRUSTED_ORIGINS", default=[])

# Without DATABASE_URL: a database called pgjobs on the local server, over its unix socket.
DATABASES = {"default": env.db_url("DATABASE_URL", default="postgres:///pgjobs")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Settings of pgjobs that are worth turning without an edit, e.g. PGJOBS_LEASE_SECONDS=10.
PGJOBS_FROM_ENVIRONMENT = {
    "LEASE_SECONDS": env.float,
    "HEARTBEAT_SECONDS": env.float,
    "POLL_SECONDS": env.float,
    "REAP_SECONDS": env.float,
    "SHUTDOWN_GRACE_SECONDS": env.float,
    "NOTIFY": env.bool,
}
PGJOBS = {
    key: read(f"PGJOBS_{key}")
    for key, read in PGJOBS_FROM_ENVIRONMENT.items()
    if f"PGJOBS_{key}" in env.ENVIRON
}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "pgjobs",
    "example_project.documents",
    "example_project.incidents",
    "example_project.benchmark",
    "example_project.lab",
    "example_project.screenshots",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "example_project.security.content_security_policy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
ASGI_APPLICATION = "example_project.asgi.application"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = env.str("STATIC_ROOT", default=str(BASE_DIR / "static"))
MEDIA_URL = "media/"
MEDIA_ROOT = env.str("MEDIA_ROOT", default=str(BASE_DIR / "media"))

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {"pgjobs": {"level": "INFO"}},
}
