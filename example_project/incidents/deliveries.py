"""What GitHub's deliveries say: which of them tell of a failure, of what, and where."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from pgjobs import codec
from pgjobs.exceptions import NotStorable

FAILED_CONCLUSIONS = frozenset({"failure", "timed_out", "startup_failure"})
"""Of check runs and suites. A cancelled or skipped check is nobody's incident."""

FAILED_STATES = frozenset({"failure", "error"})
"""Of deployments and commit statuses."""


class BadDelivery(ValueError):
    """The body cannot be used; the text says why, for whoever set the webhook up."""


@dataclass(frozen=True)
class Report:
    """One delivery, understood."""

    kind: str
    repository: str
    title: str
    outcome: str
    failed: bool
    commit: str = ""


def parse(body: bytes, *, max_bytes: int) -> dict[str, Any]:
    """The body as an object that the database can hold. Raises :class:`BadDelivery`."""
    try:
        payload = json.loads(body, parse_constant=_refuse_constant)
    except RecursionError:
        raise BadDelivery("The body is nested too deep.") from None
    except ValueError as error:
        raise BadDelivery(f"The body is no JSON: {error}. Set the webhook's content type to JSON.") from None
    if not isinstance(payload, dict):
        raise BadDelivery(f"The body is a JSON {type(payload).__name__}; GitHub sends an object.")
    try:
        # The same text with another length: escapes come out shorter or longer, hence the room.
        codec.dumps(payload, label="body", max_bytes=2 * max_bytes)
    except NotStorable as error:
        raise BadDelivery(f"The body cannot be stored: {error}") from None
    return payload


def understand(event: str, payload: dict[str, Any]) -> Report | None:
    """What a delivery of this event (``X-GitHub-Event``) tells, None for events that are not watched.

    Raises :class:`BadDelivery` when the body is not what the event promises.
    """
    read = READERS.get(event)
    if read is None:
        return None
    try:
        return read(event, payload)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadDelivery(
            f"This is no body of the event {event!r}: {type(error).__name__} {error}."
        ) from None


def _check(event: str, payload: dict[str, Any]) -> Report:
    check = payload[event]
    name = check.get("name") or (check.get("app") or {}).get("name") or "checks"
    conclusion = str(check["conclusion"] or "no conclusion")
    return Report(
        kind=event,
        repository=_repository(payload),
        title=f"{name}: {conclusion}"[:300],
        outcome=conclusion[:40],
        failed=payload["action"] == "completed" and conclusion in FAILED_CONCLUSIONS,
        commit=_commit(check["head_sha"]),
    )


def _deployment(event: str, payload: dict[str, Any]) -> Report:
    state, deployment = str(payload["deployment_status"]["state"]), payload["deployment"]
    return Report(
        kind=event,
        repository=_repository(payload),
        title=f"deployment to {deployment['environment']}: {state}"[:300],
        outcome=state[:40],
        failed=state in FAILED_STATES,
        commit=_commit(deployment["sha"]),
    )


def _status(event: str, payload: dict[str, Any]) -> Report:
    state = str(payload["state"])
    return Report(
        kind=event,
        repository=_repository(payload),
        title=f"{payload['context']}: {state}"[:300],
        outcome=state[:40],
        failed=state in FAILED_STATES,
        commit=_commit(payload["sha"]),
    )


READERS: dict[str, Callable[[str, dict[str, Any]], Report]] = {
    "check_run": _check,
    "check_suite": _check,
    "deployment_status": _deployment,
    "status": _status,
}


def _repository(payload: dict[str, Any]) -> str:
    return str(payload["repository"]["full_name"])[:200]


def _commit(sha: Any) -> str:
    return str(sha)[:64]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not in JSON")
