"""The search box of the job list: words with a name, each a predicate that is exact. Unknown words are refused."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from django.db.models.functions import Now
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive, make_aware

from pgjobs.admin.filters import in_state
from pgjobs.admin.window import as_id
from pgjobs.conf import get_settings
from pgjobs.queue.models import JobResult
from pgjobs.queue.states import JobStatus
from pgjobs.workflows.models import Wait
from pgjobs.workflows.states import WaitKind

HELP = (
    "An id, an idempotency key or a job type; or words such as type:app.task queue:email state:dead worker:name "
    "key:order-1 wf:881 err:ValueError fp:9a3f payload.customer.id:49999 result.ok:false since:2h "
    "before:2026-11-30T01:40. All must hold."
)

_STATES = {"ready", "scheduled", "retry", *JobStatus.values}
_ALIASES = {"task": "type", "status": "state", "job_type": "type", "done": "succeeded"}
_SPAN = re.compile(r"(?P<count>\d{1,6})(?P<unit>[smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_MOST_JOBS = 1_000
_DEEPEST = 50  # names in a path


@dataclass(slots=True)
class Search:
    """What was asked for. ``problems`` says in words what could not be understood; then nothing is looked for."""

    condition: Q = field(default_factory=Q)
    ids: set[int] | None = None
    """The only rows that can match, where an index knows them."""
    state: str | None = None
    indexed: bool = False
    """Whether an index serves one of the words, so that everything is searched."""
    word: str | None = None
    """The one bare word, which is a key or a job type."""
    problems: list[str] = field(default_factory=list)

    def only(self, ids: set[int]) -> None:
        """One more set that a row must be in."""
        self.ids = ids if self.ids is None else self.ids & ids


def parse(text: str) -> Search:
    """Understand the text of the box. Never raises: what makes no sense is told in ``problems``."""
    found = Search()
    if "\x00" in text:
        found.problems.append("The text holds a NUL character, which no row can hold.")
        return found
    try:
        words = shlex.split(text)
    except ValueError:
        found.problems.append('A quotation mark is not closed. Quote a value with blanks like type:"a b".')
        return found
    for word in words:
        _take(word, found, alone=len(words) == 1)
    return found


def _take(word: str, found: Search, *, alone: bool) -> None:
    name, colon, value = word.partition(":")
    name = _ALIASES.get(name, name)
    if not colon or (name not in _WORDS and not name.startswith(("payload.", "result."))):
        _bare(word, found, alone)
    elif not value:
        found.problems.append(f"{name}: has no value.")
    elif name in _WORDS:
        _WORDS[name](value, found)
    else:
        _inside(name, value, found)


def _bare(word: str, found: Search, alone: bool) -> None:
    if alone:
        found.word = word
    elif pk := as_id(word):
        found.only({pk})
    else:
        known = ", ".join(f"{name}:" for name in sorted(_WORDS))
        found.problems.append(
            f"{word!r} is no word of the search. Known: {known}, payload.path:, result.path:."
        )


def _state(value: str, found: Search) -> None:
    value = _ALIASES.get(value, value)
    if value not in _STATES:
        found.problems.append(f"state:{value} is none of {', '.join(sorted(_STATES))}.")
        return
    found.state = value
    found.condition &= in_state(value)


def _worker(value: str, found: Search) -> None:
    found.condition &= Q(lease_owner=value) | Q(completed_by=value)


def _key(value: str, found: Search) -> None:
    results = JobResult._base_manager.using(get_settings().database).filter(pk=value)
    if ids := set(results.values_list("job_id", flat=True)):
        found.condition &= Q(idempotency_key=value) | Q(pk__in=ids)
    else:
        found.condition &= Q(idempotency_key=value)


def _workflow(value: str, found: Search) -> None:
    execution = as_id(value)
    if execution is None:
        found.problems.append(f"wf:{value} is not the id of a workflow execution.")
        return
    waits = Wait._base_manager.using(get_settings().database).filter(
        execution=execution, kind=WaitKind.JOB.value
    )
    found.only({pk for pk in waits.values_list("target_id", flat=True)[:_MOST_JOBS] if pk is not None})


def _since(value: str, found: Search) -> None:
    _time("since", "created_at__gte", value, found)


def _before(value: str, found: Search) -> None:
    _time("before", "created_at__lt", value, found)


def _fingerprint(value: str, found: Search) -> None:
    """Of jobs that ended badly: those are in the index."""
    bad = [JobStatus.DEAD.value, JobStatus.FAILED.value]
    found.condition &= Q(fingerprint=value, status__in=bad, discarded_at__isnull=True)
    found.indexed = True


def instant(text: str) -> datetime | timedelta | None:
    """A span before now such as 2h, or a time; None for what is neither."""
    if match := _SPAN.fullmatch(text):
        return timedelta(**{_UNITS[match["unit"]]: int(match["count"])})
    try:
        at = parse_datetime(text)
    except ValueError:
        return None
    return make_aware(at) if at is not None and is_naive(at) else at


def _time(name: str, lookup: str, value: str, found: Search) -> None:
    at = instant(value)
    if at is None:
        found.problems.append(
            f"{name}:{value} is neither a span such as 90m, 2h, 3d nor a time such as 2026-11-30T01:40."
        )
        return
    found.condition &= Q(**{lookup: Now() - at if isinstance(at, timedelta) else at})


def _inside(name: str, value: str, found: Search) -> None:
    """Containment, of the value as JSON and as text: people do not say which they mean."""
    column, *path = name.split(".")
    if not all(path) or len(path) > _DEEPEST:
        found.problems.append(
            f"{name[:100]}: is no path of 1 to {_DEEPEST} names; write {column}.customer.id:7."
        )
        return
    readings: list[Any] = [value]
    with suppress(ValueError, RecursionError):  # NaN and infinities are JSON to Python alone
        readings.append(json.loads(value, parse_constant=_no_number))
    either = Q()
    for reading in readings:
        for part in reversed(path):
            reading = {part: reading}
        either |= Q(**{f"{column}__contains": reading})
    found.condition &= either


def _no_number(name: str) -> Any:
    raise ValueError(name)


def _plain(column: str) -> Any:
    def take(value: str, found: Search) -> None:
        found.condition &= Q(**{column: value})

    return take


_WORDS: dict[str, Any] = {
    "type": _plain("job_type"),
    "queue": _plain("queue"),
    "state": _state,
    "worker": _worker,
    "key": _key,
    "wf": _workflow,
    "err": _plain("error_class"),
    "fp": _fingerprint,
    "since": _since,
    "before": _before,
}
