"""The app's own settings: from Django's settings or the environment, read at use so that tests can change them.

Waiting times are read when an incident starts and then belong to its execution: a workflow's body must not read
settings, or a replay after a change would call something else than the history tells.
"""

import environ
from django.conf import settings

_env = environ.Env()


def webhook_secret() -> str:
    """What GitHub signs its deliveries with; empty while nobody has set it."""
    return str(
        getattr(settings, "INCIDENTS_WEBHOOK_SECRET", _env.str("INCIDENTS_WEBHOOK_SECRET", default=""))
    )


def webhook_max_bytes() -> int:
    """The largest delivery that is read. Django's DATA_UPLOAD_MAX_MEMORY_SIZE holds as well."""
    default = _env.int("INCIDENTS_WEBHOOK_MAX_BYTES", default=1_000_000)
    return int(getattr(settings, "INCIDENTS_WEBHOOK_MAX_BYTES", default))


def approval_seconds() -> float:
    """How long people have to decide on a fix."""
    return _seconds("INCIDENTS_APPROVAL_SECONDS", 2 * 3600.0)


def cool_down_seconds() -> float:
    """Time between the approval and the change, in which the execution can still be cancelled."""
    return _seconds("INCIDENTS_COOL_DOWN_SECONDS", 300.0)


def step_delay() -> float:
    """Seconds that the slow steps take longer, so that a person can watch, or pull the plug; 0 outside demos."""
    return _seconds("INCIDENTS_STEP_DELAY", 0.0)


def fix_failures() -> int:
    """How often the stand-in model of the fix step is out of reach before it answers; 0 outside demos and tests."""
    return int(_seconds("INCIDENTS_FIX_FAILURES", 0.0))


def _seconds(name: str, default: float) -> float:
    return float(getattr(settings, name, _env.float(name, default=default)))
