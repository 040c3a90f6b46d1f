"""Turns that go on and on: a body that comes to no durable call holds its slot, in silence unless it is told of."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable

from pgjobs.worker import clock
from pgjobs.worker.holdings import Holding

logger = logging.getLogger("pgjobs.worker")

_FRAMES = 3  # innermost, where it stands


def tell(holdings: Iterable[Holding], after: float) -> list[Holding]:
    """Log those that have made no durable call for ``after`` seconds, and again each time that has doubled."""
    told, now = [], clock.now()
    for holding in holdings:
        if holding.called_at is None or holding.ended or holding.lost:
            continue
        age = now - holding.called_at
        if age < after * 2**holding.told:
            continue
        holding.told += 1
        told.append(holding)
        logger.warning(
            "execution=%s workflow=%s has made no durable call for %.0f s and holds its slot; it is at %s. Give its "
            "steps timeout=, and put long work of the body into steps",
            holding.lease.pk,
            holding.execution.workflow_name,
            age,
            _place(holding.body_thread),
        )
    return told


def _place(thread_id: int | None) -> str:
    frame = sys._current_frames().get(thread_id or 0)
    if frame is None:
        return "an unknown place"
    stack = traceback.extract_stack(frame)[-_FRAMES:]
    return " < ".join(f"{each.filename}:{each.lineno} in {each.name}" for each in reversed(stack))
