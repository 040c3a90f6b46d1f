"""Retention: ended jobs leave the live table after a time, to the archive or for good. Results by key stay.

The table is walked by primary key from its oldest end, a window at a time, so that no index has to be kept for it
by every settlement, and no pass reads the whole table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from django.db import DatabaseError, transaction

from pgjobs.conf import Retention, get_settings
from pgjobs.connections import OUTAGE, rows, sqlstate
from pgjobs.queue.models import ArchivedJob
from pgjobs.queue.partitions import bound_locks, create_months

logger = logging.getLogger("pgjobs.retention")

WINDOW = 1_000
"""Rows that one step looks at, and most that it moves."""
LOOK_BACK_EVERY = 60
"""Passes between two that begin at the very first row: for ids committed late, and for what was refused."""

_LOCKED = "55P03"
_CENTURY = 3.2e9  # seconds; longer times would leave the range of timestamps

# Months before this one are not archived: their partition would be dropped at once.
_FIRST_KEPT = """COALESCE(date_trunc('month', statement_timestamp() - make_interval(
    secs => %(archive_seconds)s::float8), 'UTC'), '-infinity')"""

_OLD = """COALESCE(job.completed_at >= '1970-01-01 00:00:00+00' AND job.completed_at < statement_timestamp()
    - make_interval(secs => CASE WHEN job.status IN ('dead', 'failed') THEN %(failed_seconds)s::float8
                                 WHEN job.status IN ('cancelled', 'succeeded') THEN %(seconds)s::float8 END), false)"""

_LOOK = f"""
SELECT job.id, {_OLD},
       CASE WHEN job.completed_at >= {_FIRST_KEPT}
            THEN to_char(job.completed_at AT TIME ZONE 'UTC', 'YYYYMM') END,
       job.created_at >= statement_timestamp()
           - make_interval(secs => LEAST(%(seconds)s::float8, %(failed_seconds)s::float8))
FROM (SELECT id, status, created_at, completed_at FROM pgjobs_job
      WHERE id > %(after)s ORDER BY id LIMIT %(window)s) AS job
ORDER BY job.id"""  # noqa: S608

# succeeded, failed, dead, cancelled -> out of the table. Fence: status and age, read under the row's lock, so a
# retry that came first wins. Locks: in id order, skipping held rows. A wait that is still open keeps its job.
# Deleted by an array, not a join: a join of so many rows may be planned as a scan of the whole table.
_RETIRE = f"""
WITH old AS MATERIALIZED (
    SELECT job.id FROM pgjobs_job AS job
    WHERE job.id = ANY(%(ids)s::bigint[]) AND {_OLD}
      AND NOT EXISTS (SELECT FROM pgjobs_wait AS wait
                      WHERE wait.target_id = job.id AND wait.kind = 'job' AND wait.resolved_at IS NULL)
    ORDER BY job.id FOR UPDATE OF job SKIP LOCKED
),
gone AS (
    DELETE FROM pgjobs_job WHERE id = ANY(ARRAY(SELECT id FROM old)) RETURNING *
){{archived}}
SELECT id FROM gone"""  # noqa: S608

_COLUMNS = ", ".join(str(f.column) for f in ArchivedJob._meta.concrete_fields if f.column != "archived_at")
_ARCHIVED = f""",
archived AS (
    INSERT INTO pgjobs_archivedjob ({_COLUMNS})
    SELECT {_COLUMNS} FROM gone WHERE completed_at >= {_FIRST_KEPT}
)"""  # noqa: S608
_RETIRE_SQL: dict[Retention, str] = {
    "archive": _RETIRE.format(archived=_ARCHIVED),
    "delete": _RETIRE.format(archived=""),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """What is kept, and for how long. Seconds since the job ended; None: for ever."""

    seconds: float | None
    failed_seconds: float | None
    """For failed and dead jobs."""
    retention: Retention
    archive_seconds: float | None = None

    @classmethod
    def from_settings(cls) -> Self:
        """The policy in force."""
        settings = get_settings()
        seconds, failed = settings.job_retention_seconds, settings.job_retention_failed_seconds
        return cls(
            seconds,
            seconds if failed is None else failed,
            settings.job_retention,
            settings.job_archive_retention_seconds,
        )

    @property
    def shortest(self) -> float | None:
        """The time after which the first jobs go; None when all stay."""
        return min((each for each in (self.seconds, self.failed_seconds) if each is not None), default=None)

    def params(self) -> dict[str, Any]:
        """For the statements of this module."""
        return {
            name: None if value is None else min(value, _CENTURY)
            for name, value in (
                ("seconds", self.seconds),
                ("failed_seconds", self.failed_seconds),
                ("archive_seconds", self.archive_seconds),
            )
        }


class Step(NamedTuple):
    """What one step did."""

    moved: int
    pass_ended: bool
    """The rest of the table is too young; the next step begins another pass."""


class _Seen(NamedTuple):
    """One row of a window."""

    pk: int
    old: bool
    month: str | None
    young: bool


class Walk:
    """One process's way through the table, pass after pass. Two walks never harm each other.

    A pass begins at the oldest row that the last one left, not at the first: what lies before it is dead, and
    behind a snapshot that somebody holds it would be read every time.
    """

    def __init__(self, *, using: str, strict: bool = False) -> None:
        self._using = using
        self._strict = strict
        """Raise when the archive is locked or may not be written, instead of saying so in the log."""
        self._after = 0
        self._kept: int | None = None
        self._limit = WINDOW
        self._passes = 0
        self._refused: set[int] = set()
        self._complained = False

    def step(self, policy: Policy) -> Step:
        """Look at one window and move what is old: short transactions, at most :data:`WINDOW` rows.

        A row that the database refuses to give up (another table refers to it) is logged and left; the others go.
        Raises what an outage raises.
        """
        params = {**policy.params(), "after": self._after, "window": WINDOW}
        seen = [_Seen(*row) for row in rows(self._using, _LOOK, params)]
        taken, last = self._take(seen)
        try:
            moved = self._move(taken, policy)
        except DatabaseError as error:
            return self._not_moved(taken, error)
        self._limit = min(self._limit * 2, WINDOW)
        looked_at = [each.pk for each in seen if each.pk <= last]
        self._kept = next((pk for pk in (self._kept, *looked_at) if pk is not None and pk not in moved), None)
        self._after = last
        ended = (not seen or last == seen[-1].pk) and (len(seen) < WINDOW or all(s.young for s in seen))
        if ended:
            self._begin_again()
        return Step(len(moved), ended)

    def _take(self, seen: list[_Seen]) -> tuple[list[_Seen], int]:
        """The rows to move now, and the id up to which this step then has looked."""
        taken: list[_Seen] = []
        last = self._after
        for each in seen:
            if each.old and each.pk not in self._refused:
                if len(taken) == self._limit:
                    break
                taken.append(each)
            last = each.pk
        return taken, last

    def _move(self, taken: list[_Seen], policy: Policy) -> set[int]:
        if not taken:
            return set()
        if policy.retention == "archive":
            create_months((each.month for each in taken if each.month), using=self._using)
        params = {**policy.params(), "ids": [each.pk for each in taken]}
        with transaction.atomic(using=self._using):
            bound_locks(self._using)
            moved = {pk for (pk,) in rows(self._using, _RETIRE_SQL[policy.retention], params)}
        return moved

    def _not_moved(self, taken: list[_Seen], error: DatabaseError) -> Step:
        """Halve the batch until the row to blame is alone. A lock or a missing right ends the pass instead."""
        code = sqlstate(error)
        if isinstance(error, OUTAGE) and code != _LOCKED:
            raise error
        if code == _LOCKED or code.startswith("42"):
            if self._strict:
                raise error
            self._complain(error)
            self._begin_again()
            return Step(0, True)
        if len(taken) > 1:
            self._limit = len(taken) // 2
        else:
            self._refused.add(taken[0].pk)
            self._limit = WINDOW
            logger.error("job %s cannot leave the table and is left as it is: %s", taken[0].pk, error)
        return Step(0, False)

    def _complain(self, error: DatabaseError) -> None:
        if not self._complained:
            self._complained = True
            logger.error(
                "Ended jobs cannot be archived now, and stay: %s. If the worker's role may not create tables, have "
                "a role that may run 'manage.py pgjobs_prune --months-ahead 3' every month.",
                " ".join(str(error).split()),
            )

    def _begin_again(self) -> None:
        self._passes += 1
        self._after = self._after if self._kept is None else self._kept - 1
        self._kept = None
        if self._passes % LOOK_BACK_EVERY == 0:
            self._after = 0
            self._refused.clear()
            self._complained = False


def retire(policy: Policy, *, using: str, on_step: Callable[[int], object] = lambda moved: None) -> int:
    """One whole pass; how many jobs left the table. ``on_step`` is told the number of each batch.

    Raises what the database raises, but for rows that other tables refer to: those are logged and left.
    """
    walk, total, ended = Walk(using=using, strict=True), 0, False
    while not ended:
        moved, ended = walk.step(policy)
        total += moved
        on_step(moved)
    return total
