"""The one place that reads ``settings.PGJOBS``: a frozen object, unknown keys refused with the nearest known one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, Literal

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from pgjobs.exceptions import SettingsError

Retention = Literal["archive", "delete"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Every knob with its default. Durations are seconds, sizes are bytes."""

    database: str = "default"
    """Alias in ``DATABASES`` that holds the tables of pgjobs."""
    listen_database: str | None = None
    """Alias that workers LISTEN through: the same database, past a pooler. None is ``DATABASE``."""
    lease_seconds: float = 30
    """How long a claim lasts without a renewal; a dead host's jobs wait this long."""
    heartbeat_seconds: float = 10
    """Time between renewals; at most a third of the lease, so that two may be missed."""
    poll_seconds: float = 1
    """Longest time a due job waits unseen when no notification arrives and the worker is not idle."""
    idle_poll_seconds: float = 5
    """Polling slows to this while nothing is due and notifications are known to arrive."""
    reap_seconds: float = 2
    """Time between two looks for lapsed leases; an idle process looks when the next one may lapse."""
    reap_batch: int = 500
    """Rows one pass of the reaper takes."""
    shutdown_grace_seconds: float = 30
    """After SIGTERM, how long running jobs may finish before they are handed back."""
    stuck_grace_seconds: float = 30
    """How long a handler may ignore its timeout before its process is replaced."""
    concurrency: int = 10
    """Jobs that one worker process runs at a time."""
    max_prefetch: int = 400
    """Jobs that a process may hold beyond those that run: short ones, and others a moment before a slot is free."""
    processes: int = 1
    """Worker processes of one ``runworkers``."""
    isolated_processes: int = 2
    """Suspects (jobs whose worker died) that may run at a time in one ``runworkers``, each alone in its process."""
    crash_delay_seconds: float = 1
    """Delay of a job after its worker died; doubles with each further death."""
    crash_delay_cap_seconds: float = 300
    """Longest such delay."""
    notify: bool = True
    """Send and hear NOTIFY. Polling alone is enough."""
    prepare: bool = True
    """Keep prepared statements on a worker's own sessions, where no pooler is between."""
    max_payload_bytes: int = 1_000_000
    """Largest JSON of one job's arguments."""
    max_result_bytes: int = 1_000_000
    """Largest JSON of one job's result."""
    max_error_bytes: int = 16_000
    """Longest text kept of one error; the middle is cut out."""
    max_errors: int = 20
    """Ended attempts kept in a job's history; the oldest are dropped."""
    max_json_depth: int = 200
    """Deepest nesting of a stored value."""
    worker_history_seconds: float = 7 * 86_400
    """How long the row of a stopped worker is kept."""
    workflow_retention_seconds: float | None = None
    """How long an ended execution stays in the live tables; None keeps it for ever."""
    workflow_retention_failed_seconds: float | None = None
    """The same for failed ones; None: as long as the others."""
    workflow_retention_cancelled_seconds: float | None = None
    """The same for cancelled ones; None: as long as the others."""
    workflow_retention: Retention = "archive"
    """What becomes of it then: moved to the archive table with its whole story, or deleted."""
    workflow_warn_calls: int = 1_000
    """Durable calls of one execution at which its worker advises ``ctx.continue_as_new``: each turn replays them
    all."""
    workflow_max_calls: int = 10_000
    """Most durable calls of one execution; it is paused before it makes another."""
    workflow_max_gather: int = 10_000
    """Most jobs of one ``ctx.gather``; they are enqueued in one transaction."""
    workflow_slow_turn_seconds: float = 300
    """How long a turn may go on without a durable call before its worker says where it stands."""
    job_retention_seconds: float | None = None
    """How long an ended job stays in the live table; None keeps it for ever."""
    job_retention_failed_seconds: float | None = None
    """The same for failed and dead jobs; None: as long as the others."""
    job_retention: Retention = "archive"
    """What becomes of an ended job then: moved to the archive, partitioned by month, or deleted."""
    job_archive_retention_seconds: float | None = None
    """Age, counted from the end of its jobs, at which a month of the archive is dropped; None keeps all."""
    audit_days: float | None = 365
    """How long the record of what operators did is kept; None keeps it for ever."""
    activity_days: float = 7
    """How long the record of what happened is kept (workers, pauses, new errors, dead jobs, …)."""
    activity_rows: int = 100_000
    """The most rows of it; the oldest go first."""
    redact: Sequence[str] = ()
    """Further keys to hide on pages, in commands and exports, beside those with API, AUTH, TOKEN, KEY, SECRET, PASS or
    SIGNATURE in them: words that a key contains, or paths such as ``customer.email``; ``!author`` shows that key all
    the same."""
    code_version: str | Callable[[], str] | None = None
    """The version of the project's code that workers report, or a function that says it; None is the environment
    variable ``PGJOBS_CODE_VERSION``."""
    statistics_days: float = 14
    """How long the figures per minute are kept."""
    queue_slo_seconds: float = 300
    """A queue whose oldest due job waits longer is late."""
    queue_slo: Mapping[str, float] = field(default_factory=dict)
    """The same for single queues: ``{"mail": 60}``."""
    dead_alert: int = 1_000
    """Dead and failed jobs in the table from which on their number is a problem of its own."""
    health_stale_seconds: float = 30
    """A claim loop that has not turned for so long, nor for five polls, stands still: its worker is not alive."""
    health_token: str | None = None
    """Bearer token that opens the health and metrics endpoints."""
    health_allow: Sequence[str] = ()
    """Addresses and networks that may read them without a token: ``["10.0.0.0/8", "::1"]``."""

    def loop_stale_seconds(self, poll_seconds: float | None = None) -> float:
        """A claim loop that has not turned for so long stands still. ``poll_seconds`` replaces the setting."""
        poll = self.poll_seconds if poll_seconds is None else poll_seconds
        return max(self.health_stale_seconds, 5 * max(poll, self.idle_poll_seconds))


@cache
def get_settings() -> Settings:
    """The settings in force.

    Raises :class:`SettingsError` for an unknown key or a value of the wrong kind, so that a typo never
    runs on defaults in silence.
    """
    given = getattr(django_settings, "PGJOBS", {})
    if not isinstance(given, dict):
        raise SettingsError(
            f"PGJOBS is {given!r}; it must be a dict such as PGJOBS = {{'LEASE_SECONDS': 30}}."
        )
    return Settings(**{name: value for key, value in given.items() for name in [_field_of(key, value)]})


def _field_of(key: Any, value: Any) -> str:
    """The field that ``key`` sets, once key and value have been found usable."""
    known = {f.name.upper(): f for f in fields(Settings)}
    if key not in known:
        near = difflib.get_close_matches(str(key).upper(), known, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(sorted(known))}."
        raise SettingsError(f"PGJOBS has an unknown key {key!r}. {hint}")
    setting = known[key]
    rule, fits = _RULES[str(setting.type)]
    if not fits(value):
        default = "empty" if setting.default is MISSING else repr(setting.default)
        raise SettingsError(f"PGJOBS[{key!r}] is {value!r}; it must be {rule}. The default is {default}.")
    return setting.name


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a non-empty string", lambda v: isinstance(v, str) and v != ""),
    "str | None": ("a non-empty string or None", lambda v: v is None or (isinstance(v, str) and v != "")),
    "bool": ("True or False", lambda v: isinstance(v, bool)),
    "int": ("a positive whole number", lambda v: isinstance(v, int) and _is_number(v)),
    "float": ("a positive number", _is_number),
    "float | None": ("a positive number or None", lambda v: v is None or _is_number(v)),
    "Sequence[str]": (
        "a list of non-empty strings",
        lambda v: isinstance(v, list | tuple) and all(isinstance(each, str) and each for each in v),
    ),
    "Mapping[str, float]": (
        "a dict from names to positive numbers",
        lambda v: isinstance(v, dict) and all(isinstance(k, str) and _is_number(n) for k, n in v.items()),
    ),
    "str | Callable[[], str] | None": (
        "a non-empty string, a function that returns one, or None",
        lambda v: v is None or callable(v) or (isinstance(v, str) and v != ""),
    ),
    "Retention": (
        "'archive' or 'delete'",
        lambda v: isinstance(v, str) and v in ("archive", "delete"),
    ),
}


def _reset(*, setting: str, **kwargs: Any) -> None:
    if setting == "PGJOBS":
        get_settings.cache_clear()


setting_changed.connect(_reset)
