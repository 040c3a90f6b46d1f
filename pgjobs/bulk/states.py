"""The states of a bulk operation, and from where each verb takes it."""

from __future__ import annotations

from django.db import models


class BulkState(models.TextChoices):
    """Where a bulk operation stands."""

    PREVIEWED = "previewed", "previewed"
    """Planned: the filter and the highest id are fixed, nothing has been done."""
    RUNNING = "running", "running"
    """Any worker, or ``pgjobs_bulk run``, carries it on."""
    WAITING = "waiting", "waiting for release"
    """The canary is out; a person looks at how it does."""
    PAUSED = "paused", "paused"
    """Held by a person."""
    STOPPED = "stopped", "stopped"
    """Ended early, by a person or by the stop rule. What was done stays done."""
    DONE = "done", "done"
    """Every job that matched has had its turn."""


_S = BulkState

SOURCES: dict[str, frozenset[BulkState]] = {
    "start": frozenset({_S.PREVIEWED}),
    "pause": frozenset({_S.RUNNING}),
    "resume": frozenset({_S.PAUSED}),
    "release_canary": frozenset({_S.WAITING}),
    "stop": frozenset({_S.PREVIEWED, _S.RUNNING, _S.WAITING, _S.PAUSED}),
}
"""By verb, the states that it applies to."""

ENDED = frozenset({_S.STOPPED, _S.DONE})
