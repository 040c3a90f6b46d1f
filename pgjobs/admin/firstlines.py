"""The beginning of an error for a list, without the secrets of the row's payload; large payloads are not read."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, F, Func, IntegerField, JSONField, Q, When
from django.db.models.expressions import Combinable
from django.db.models.functions import Left
from django.db.models.lookups import LessThanOrEqual

from pgjobs.redaction import PAYLOAD_READ, TEXT_READ, redacted_start

SHOWN = 160
"""Characters of it."""


def columns(payload: str) -> dict[str, Combinable]:
    """What a list reads beside its columns; ``payload`` is the one that may name secrets."""
    told = ~Q(last_error="") | ~Q(note="")
    size = Func(
        F(payload), function="pg_column_size", output_field=IntegerField()
    )  # as stored: read from the row
    small = Q(LessThanOrEqual(size, PAYLOAD_READ))
    return {
        "error_start": Left("last_error", TEXT_READ),
        "known_payload": Case(When(told & small, then=F(payload)), output_field=JSONField()),
    }


def of(row: Any, *texts: str, job_type: str | None = None, workflow: str | None = None) -> str:
    """The first line of the first text that is not empty; "-" when all are."""
    text = next(filter(None, texts), "")
    shown = redacted_start(text, payload=row.known_payload, job_type=job_type, workflow=workflow)
    return (shown.splitlines() or ["-"])[0][:SHOWN]
