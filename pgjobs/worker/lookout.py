"""What an idle process asks the database: one statement for due rows, lapsed leases, suspects and chores together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgjobs.bulk.models import RUNNING_SQL
from pgjobs.connections import rows
from pgjobs.leases.due import outlook_sql, suspect_sql
from pgjobs.leases.reap import lapse_sql
from pgjobs.worker.kinds import KINDS, Kind
from pgjobs.worker.options import START_AHEAD
from pgjobs.workflows.sweep import SECONDS_TO_WAIT_SQL


@dataclass(frozen=True, slots=True)
class View:
    """What there is to do for one process."""

    due: bool
    """A row that it may claim."""
    seconds: float
    """Until the next future row; infinity when there is none."""
    lapse_seconds: float
    """Until the next lease of whatever kind ends, if nobody renews it; below 0: the reaper would take a row back."""
    suspects: bool
    """A row whose worker died, due by the time that a process for it has started."""
    wait_seconds: float
    """Until the next wait of a workflow is due, 0 or below when one is; infinity when there is none."""
    bulk: bool
    """A bulk operation that is to be carried."""


class Lookout:
    """Looks for the kinds and queues of one process."""

    def __init__(self, kinds: Sequence[Kind], queues: Sequence[str], *, using: str) -> None:
        self._using = using
        self._params: dict[str, Any] = {"queues": list(queues), "ahead": START_AHEAD}
        views, suspects = [], ["false"]
        for kind in kinds:
            label = kind.model.LEASE.label
            self._params[label] = kind.names()
            views.append(f"({outlook_sql(kind.model, named=bool(queues), kinds=label)})")
            suspects.append(suspect_sql(kind.model, kinds=label))
        lapse = ", ".join(lapse_sql(kind.model) for kind in KINDS)
        self._sql = (
            f"SELECT COALESCE(bool_or(due), false), min(seconds), LEAST({lapse}), {' OR '.join(suspects)}, "  # noqa: S608
            f"{SECONDS_TO_WAIT_SQL}, {RUNNING_SQL} "
            f"FROM ({' UNION ALL '.join(views) or 'SELECT false, NULL::float8'}) AS view(due, seconds)"
        )

    def look(self) -> View:
        """Ask once."""
        ((due, seconds, lapse, suspects, wait, bulk),) = rows(
            self._using, self._sql, self._params, often=True
        )
        return View(due, _or_never(seconds), _or_never(lapse), suspects, _or_never(wait), bulk)


def _or_never(seconds: float | None) -> float:
    return math.inf if seconds is None else float(seconds)
