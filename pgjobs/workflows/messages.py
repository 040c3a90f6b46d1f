"""Signals: a mailbox for each execution. Sent before, during or after the wait, never lost and never taken twice."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.exceptions import InvalidOption, WorkflowError
from pgjobs.queue.acting import LARGEST_ID
from pgjobs.workflows.continuing import last_of_chain
from pgjobs.workflows.expected import Seen, difference
from pgjobs.workflows.models import Execution
from pgjobs.workflows.states import TERMINAL
from pgjobs.workflows.waits import wake

_SEND = """
INSERT INTO pgjobs_message (execution_id, name, payload)
VALUES (%(execution)s, %(name)s, %(payload)s::jsonb) RETURNING id"""

# The oldest message of a name to the oldest open wait of that name. Compare-and-set on both ends.
_DELIVER = """
WITH open AS MATERIALIZED (
    SELECT id FROM pgjobs_wait
    WHERE execution_id = %(execution)s AND kind = 'signal' AND name = %(name)s AND resolved_at IS NULL
    ORDER BY id LIMIT 1
),
letter AS MATERIALIZED (
    SELECT message.id, message.payload FROM pgjobs_message AS message
    WHERE message.execution_id = %(execution)s AND message.name = %(name)s AND message.consumed_by_id IS NULL
    ORDER BY message.id LIMIT 1
),
taken AS (
    UPDATE pgjobs_message AS message SET consumed_by_id = open.id FROM open, letter
    WHERE message.id = letter.id AND message.consumed_by_id IS NULL
    RETURNING open.id AS wait_id, letter.payload
)
UPDATE pgjobs_wait AS wait
SET resolved_at = clock_timestamp(), resolution = jsonb_build_object('payload', taken.payload)
FROM taken WHERE wait.id = taken.wait_id AND wait.resolved_at IS NULL
RETURNING wait.id"""


def send(execution_id: int, name: str, payload: Any = None, *, expected: Seen | None = None) -> None:
    """Send a signal in the caller's transaction; to the last of its continuations when it continued as new.

    Raises :class:`WorkflowError` when there is no such execution, it has ended, or it stands otherwise than
    ``expected`` (status and attempt_count), :class:`NotStorable` for a payload that is no JSON.
    """
    text = check(name, payload)
    using = get_settings().database
    with transaction.atomic(using=using):
        execution_id, status, attempt_count = _lock(execution_id, using)
        if status is not None and (told := difference(expected, status, attempt_count)):
            raise WorkflowError(f"execution {execution_id}: {told}. Nothing was sent.")
        if status is None or status in TERMINAL:
            told = "does not exist" if status is None else f"has ended ({status})"
            raise WorkflowError(
                f"execution {execution_id} {told}, so the signal {name!r} would never be heard. Nothing was sent."
            )
        rows(using, _SEND, {"execution": execution_id, "name": name, "payload": text})
        wake([(execution_id, wait) for wait in deliver(execution_id, name, using=using)], using=using)


def check(name: str, payload: Any) -> str:
    """The payload as JSON text. Raises :class:`InvalidOption` or :class:`NotStorable`."""
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise InvalidOption("name", name, "give a signal's name of 1 to 200 characters.")
    codec.check_text(name, "name")
    return codec.dumps(payload, label="payload", max_bytes=get_settings().max_payload_bytes)


def _lock(execution_id: int, using: str) -> tuple[int, str | None, int]:
    """Lock the execution, or the one as which it goes on: its id, status and number of turns."""
    while True:
        if not 0 < execution_id <= LARGEST_ID:
            return execution_id, None, 0
        found = Execution._base_manager.using(using).select_for_update(no_key=True).filter(pk=execution_id)
        status, attempt_count = found.values_list("status", "attempt_count").first() or (None, 0)
        if status is not None and status not in TERMINAL:
            return execution_id, status, attempt_count
        following = last_of_chain(execution_id, using=using)
        if following == execution_id:
            return execution_id, status, attempt_count
        execution_id = following


def deliver(execution_id: int, name: str, *, using: str) -> list[int]:
    """Give the oldest waiting message to the oldest open wait of that name; the ids of resolved waits.

    The execution must be locked.
    """
    return [pk for (pk,) in rows(using, _DELIVER, {"execution": execution_id, "name": name})]
