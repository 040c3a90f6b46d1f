"""How causes of failures stand: open, acknowledged or muted. One read, by which pages, rules, commands and verbs go.

An acknowledgement is over by itself when the cause comes back on a version of the code that no worker had when it was
given, a mute when its time has come. Both are found out by whoever looks: nothing has to run for it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from pgjobs.conf import get_settings
from pgjobs.connections import rows

OPEN, ACKNOWLEDGED, MUTED = "open", "acknowledged", "muted"

MOST = 1_000
"""Acknowledgements that are in force at a time, the latest; a cause whose own is beyond them is open."""
_RECENT, _NEWEST = 200, 10

# Whether a cause came back: looked for only where workers of a version have started that is not among those of the
# acknowledgement, among the latest failures of all causes and the newest jobs of each. A crash leaves completed_by
# empty and the worker's name in the history.
_JOB = """t.fingerprint, t.job_type, t.queue, t.error_class, t.completed_at,
           COALESCE(t.completed_by, t.errors -> -1 ->> 'worker') AS worker"""
_LATEST = f"""
    (SELECT {_JOB} FROM pgjobs_job AS t
     WHERE t.status = '{{status}}' AND t.discarded_at IS NULL AND EXISTS (SELECT 1 FROM deployed)
     ORDER BY t.completed_at DESC LIMIT %(recent)s)"""  # noqa: S608 - constants
_STANDING = f"""
WITH held AS MATERIALIZED (
    SELECT fingerprint, "by", since, until, note, link, versions FROM pgjobs_acknowledgement
    WHERE (until IS NULL OR until > statement_timestamp())
      AND (%(only)s::text[] IS NULL OR fingerprint = ANY(%(only)s::text[]))
    ORDER BY since DESC, fingerprint LIMIT %(most)s
),
deployed AS MATERIALIZED (
    SELECT held.fingerprint, worker.name, worker.code_version FROM held JOIN pgjobs_worker AS worker
    ON worker.code_version <> '' AND NOT held.versions ? worker.code_version WHERE held.until IS NULL
),
again AS MATERIALIZED (
    {_LATEST.format(status="dead")}
    UNION ALL {_LATEST.format(status="failed")}
    UNION ALL
    SELECT newest.* FROM (SELECT DISTINCT fingerprint FROM deployed) AS named CROSS JOIN LATERAL (
        SELECT {_JOB} FROM pgjobs_job AS t
        WHERE t.status IN ('dead', 'failed') AND t.discarded_at IS NULL AND t.fingerprint = named.fingerprint
        ORDER BY t.id DESC LIMIT %(newest)s) AS newest
)
SELECT held.fingerprint, held."by", held.since, held.until, held.note, held.link,
       back.code_version, back.completed_at, back.job_type, back.queue, back.error_class
FROM held LEFT JOIN LATERAL (
    SELECT again.*, deployed.code_version FROM again JOIN deployed
    ON deployed.fingerprint = again.fingerprint AND deployed.name = again.worker
    WHERE again.fingerprint = held.fingerprint AND again.completed_at > held.since
    ORDER BY again.completed_at LIMIT 1) AS back ON true
ORDER BY held.fingerprint"""  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class Standing:
    """An acknowledgement, or a mute that has not ended."""

    fingerprint: str
    by: str
    since: dt.datetime
    until: dt.datetime | None
    """The end of a mute; None for an acknowledgement."""
    note: str
    link: str
    version: str | None = None
    """On which the cause came back; then the acknowledgement is over. What follows is of the job that did."""
    back_at: dt.datetime | None = None
    job_type: str | None = None
    queue: str | None = None
    error_class: str | None = None

    @property
    def holds(self) -> bool:
        """Whether the cause is known to somebody, and need not be told."""
        return self.version is None

    @property
    def state(self) -> str:
        """ "acknowledged", "muted", or "open" when it came back."""
        if not self.holds:
            return OPEN
        return ACKNOWLEDGED if self.until is None else MUTED

    def told(self) -> str:
        """In words: who, since when, and until when."""
        ends = "" if self.until is None else f" until {instant(self.until)}"
        return f"{self.state if self.holds else ACKNOWLEDGED} by {self.by} since {instant(self.since)}{ends}"


def standing(only: Iterable[str] | None = None, *, using: str | None = None) -> dict[str, Standing]:
    """Acknowledgements and mutes by fingerprint, those that are over because the cause came back among them."""
    params = {"only": None if only is None else sorted(set(only)), "most": MOST}
    found = rows(
        using or get_settings().database, _STANDING, {**params, "recent": _RECENT, "newest": _NEWEST}
    )
    return {row[0]: Standing(*row) for row in found}


def mark(known: Standing | None) -> str:
    """How a cause stands, as a form carries it; empty for an open one."""
    if known is None or not known.holds:
        return ""
    parts = (known.since, known.until, known.by, known.note, known.link)
    return hashlib.sha256(repr([str(each) for each in parts]).encode()).hexdigest()[:16]


def instant(at: dt.datetime) -> str:
    """To the second, with its zone."""
    return f"{at:%Y-%m-%d %H:%M:%S %Z}"
