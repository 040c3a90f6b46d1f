"""Which names of queues and types anything is known of: a misspelt one must not read as one where nothing is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.exceptions import NotStorable
from pgjobs.queue.registry import registry
from pgjobs.queue.rollups import LIFETIME

_NEWEST = 10_000
_OFFERED = 500
_TOLD = 10

# The cheap and the lasting first: the sums of all times keep the name of every queue in which a job has ended.
_QUEUE = f"""
SELECT EXISTS (SELECT FROM pgjobs_minute WHERE minute = '{LIFETIME}' AND queue = %(name)s)
    OR EXISTS (SELECT FROM pgjobs_worker WHERE queues ? %(name)s)
    OR EXISTS (SELECT FROM pgjobs_job AS t WHERE t.status = 'pending' AND t.crash_count = 0 AND t.queue = %(name)s)
    OR EXISTS (SELECT FROM pgjobs_execution AS t
               WHERE t.status = 'enqueued' AND t.crash_count = 0 AND t.queue = %(name)s)
    OR EXISTS (SELECT FROM (SELECT t.queue FROM pgjobs_execution AS t ORDER BY t.id DESC LIMIT %(newest)s) AS newest
               WHERE queue = %(name)s)
    OR EXISTS (SELECT FROM (SELECT t.queue FROM pgjobs_job AS t ORDER BY t.id DESC LIMIT %(newest)s) AS newest
               WHERE queue = %(name)s)"""  # noqa: S608 - one constant

_TYPE = f"""
SELECT EXISTS (SELECT FROM pgjobs_minute WHERE minute = '{LIFETIME}' AND job_type = %(name)s)
    OR EXISTS (SELECT FROM pgjobs_worker WHERE handlers ? %(name)s)
    OR EXISTS (SELECT FROM (SELECT t.workflow_name AS name FROM pgjobs_execution AS t
                            ORDER BY t.id DESC LIMIT %(newest)s) AS newest WHERE name = %(name)s)
    OR EXISTS (SELECT FROM (SELECT t.job_type AS name FROM pgjobs_job AS t
                            ORDER BY t.id DESC LIMIT %(newest)s) AS newest WHERE name = %(name)s)"""  # noqa: S608

_NEAR = {
    "queue": f"""
SELECT queue FROM pgjobs_minute WHERE minute = '{LIFETIME}'
UNION SELECT queue FROM (SELECT t.queue FROM pgjobs_job AS t ORDER BY t.id DESC LIMIT 1000) AS newest
UNION SELECT jsonb_array_elements_text(CASE jsonb_typeof(queues) WHEN 'array' THEN queues ELSE '[]' END)
FROM pgjobs_worker LIMIT %(offered)s""",  # noqa: S608
    "type": f"""
SELECT job_type FROM pgjobs_minute WHERE minute = '{LIFETIME}'
UNION SELECT job_type FROM (SELECT t.job_type FROM pgjobs_job AS t ORDER BY t.id DESC LIMIT 1000) AS newest
LIMIT %(offered)s""",  # noqa: S608
}
_KNOWN = {"queue": _QUEUE, "type": _TYPE}

Names = Callable[[], Iterable[tuple[str, str]]]
"""Type and queue of each that this process can run."""

_declared: list[Names] = [lambda: ((each.job_type, each.queue) for each in registry.entries())]


def declare(names: Names) -> None:
    """Say where further types of this process are to be asked for."""
    _declared.append(names)


def unknown(kind: str, name: str, *, using: str | None = None) -> str:
    """Why ``name`` is taken for misspelt, with what may have been meant; empty when something is known of it.

    ``kind`` is "queue" or "type". Known is what the code here declares, what a worker names, and what there are or
    were rows of. At most two bounded reads. Raises what the database raises.
    """
    using = using or get_settings().database
    here = {pair[kind == "queue"] for names in _declared for pair in names()}
    if name in here:
        return ""
    if not name.strip():
        return _sentence(kind, name, here)
    try:
        codec.check_text(name, kind)
    except NotStorable:
        return _sentence(kind, name, here)
    ((known,),) = rows(using, _KNOWN[kind], {"name": name, "newest": _NEWEST})
    if known:
        return ""
    near = {found for (found,) in rows(using, _NEAR[kind], {"offered": _OFFERED}) if found}
    return _sentence(kind, name, here | near)


def _sentence(kind: str, name: str, names: Iterable[str]) -> str:
    known = sorted(names)
    near = difflib.get_close_matches(name, known, n=1)
    more = f" and {len(known) - _TOLD} more" if len(known) > _TOLD else ""
    hint = (
        f"did you mean {near[0]!r}?"
        if near
        else f"known are {', '.join(map(repr, known[:_TOLD])) or 'none'}{more}."
    )
    nothing = "no code declares it, no worker names it, and no row has it"
    return f"Nothing is known of a {kind} {name[:200]!r}: {nothing}; {hint}"
