"""Jobs as parallel steps: enqueued in one statement with their waits, gathered by the settlement of the last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pgjobs import codec
from pgjobs.conf import get_settings
from pgjobs.exceptions import DurableCallRefused, InvalidOption, JobsFailed, WaitTimeout
from pgjobs.queue.authoring import JobCall
from pgjobs.workflows.history import Record, hash_arguments
from pgjobs.workflows.lifecycle import NewWait, Standing
from pgjobs.workflows.replay import Replay
from pgjobs.workflows.states import StepKind, WaitKind
from pgjobs.workflows.stepping import encode_output
from pgjobs.workflows.values import Gathered, JobFailure

_KIND = StepKind.STEP.value
_TIMED_OUT = "timed out"


def gather(
    replay: Replay,
    calls: list[JobCall],
    *,
    name: str,
    key: str | None,
    min_successful: int | None,
    tolerated_failures: int,
    timeout: float | None,
) -> Gathered:
    """The results of ``calls``; see ``ctx.gather``.

    What it came to is recorded as a step of its own: jobs that end later must not change what replays see.
    """
    _check(name, calls, min_successful, tolerated_failures)
    step_id, ordinal = replay.enter("gather", name, key)
    arguments_hash = hash_arguments([(call.type.job_type, call.payload) for call in calls])
    rule = _rule(len(calls), min_successful, tolerated_failures)
    record = replay.history.records.get(step_id)
    if record is not None:
        replay.find(step_id, _KIND, ordinal, arguments_hash)
        recorded = json.loads(replay.output(record) or "{}")
        if not isinstance(recorded, dict) or "results" not in recorded:
            replay.refuse(step_id, "the history has a step here, the code calls a gather")
        return _answer(step_id, recorded, rule)
    waits = replay.history.group(step_id)
    if waits:
        _expect_same(replay, step_id, ordinal, arguments_hash, waits[0])
    else:
        replay.find(step_id, _KIND, ordinal, arguments_hash)  # nothing is recorded, or the code diverged
    if calls and not _enough(waits, rule, len(calls)):
        replay.wait_all(
            _new_waits(step_id, ordinal, arguments_hash, calls, rule, timeout),
            lambda standings: _enough(standings, rule, len(calls)),
            calls=[(call.new(), call.payload, call.type.options.idempotency_key) for call in calls],
        )
    told = _told(replay.history.group(step_id), rule)
    text = encode_output(step_id, told)
    row = replay.row(step_id, _KIND, ordinal, arguments_hash, text)
    if told["failed"]:
        # Like a step's: history only if the body goes on, else a retry may run the jobs again.
        replay.keep_failure_later(replace(row, error=_error(told)))
    else:
        replay.record(row)
    return _answer(step_id, json.loads(text), rule)


def _expect_same(replay: Replay, step_id: str, ordinal: int, arguments_hash: str, first: Record) -> None:
    """Judge a gather that is under way by its first wait, as if it stood for the whole.

    Other calls cannot be tolerated: the jobs of the old ones are under way, and their results would be taken for those
    of the new.
    """
    if arguments_hash != first.arguments_hash and first.arguments_hash:
        replay.refuse(
            step_id, f"its arguments are others (hash {first.arguments_hash} then, {arguments_hash} now)"
        )
    whole = Record(step_id, _KIND, first.ordinal, first.arguments_hash)
    replay.history.add(whole)
    try:
        replay.find(step_id, _KIND, ordinal, arguments_hash)
    finally:
        del replay.history.records[step_id]


def _new_waits(
    step_id: str,
    ordinal: int,
    arguments_hash: str,
    calls: list[JobCall],
    rule: dict[str, int | None],
    timeout: float | None,
) -> list[NewWait]:
    return [
        NewWait(
            f"{step_id}[{index}]",
            WaitKind.JOB.value,
            ordinal,
            arguments_hash,
            name=call.type.job_type,
            group=step_id,
            rule=rule,
            delay=timeout,
        )
        for index, call in enumerate(calls)
    ]


def _rule(count: int, min_successful: int | None, tolerated_failures: int) -> dict[str, int | None]:
    return {"min_successful": min_successful, "tolerated_failures": min(tolerated_failures, count)}


def _enough(waits: Sequence[Record | Standing], rule: dict[str, int | None], count: int) -> bool:
    """Whether it is certain what the gather comes to. The same rule wakes the execution (``waits.wake``)."""
    statuses = [_status(wait) for wait in waits if wait.resolved]
    succeeded = statuses.count("succeeded")
    if len(waits) < count:
        return False
    reached = rule["min_successful"] is not None and succeeded >= rule["min_successful"]
    return reached or len(statuses) == count or len(statuses) - succeeded > _tolerated(rule, count)


def _tolerated(rule: dict[str, int | None], count: int) -> int:
    """So many may end without success. A minimum says it alone: one more, and it cannot be reached."""
    least = rule["min_successful"]
    return (rule["tolerated_failures"] or 0) if least is None else count - least


def _status(wait: Record | Standing) -> str:
    text = wait.output if isinstance(wait, Record) else wait.resolution
    return str(json.loads(text or "{}").get("status", _TIMED_OUT))


def _told(waits: list[Record], rule: dict[str, int | None]) -> dict[str, Any]:
    """What the gather came to, as it is recorded."""
    results: list[Any] = []
    failures = []
    for index, wait in enumerate(waits):
        resolution = json.loads(wait.output or "{}") if wait.resolved else {}
        status = resolution.get("status", _TIMED_OUT)
        results.append(codec.decode(resolution.get("result")) if status == "succeeded" else None)
        if wait.resolved and status != "succeeded":
            failures.append([index, resolution.get("job_id", 0), status, resolution.get("error", "")])
    failed = len(failures) > _tolerated(rule, len(waits))
    return {"results": results, "failures": failures, "failed": failed}


def _error(told: dict[str, Any]) -> str:
    """As a failed step's error is recorded, for those who look at the row."""
    _, _, status, error = told["failures"][0]
    late = _only_late(told["failures"])
    message = (
        f"{len(told['failures'])} of its jobs ended without success; the first: {status} {error}".rstrip()
    )
    return json.dumps({"type": "WaitTimeout" if late else "JobsFailed", "message": message, "attempts": 1})


def _only_late(failures: list[Any]) -> bool:
    return all(failure[2] == _TIMED_OUT for failure in failures)


def _answer(step_id: str, recorded: Any, rule: dict[str, int | None]) -> Gathered:
    told = codec.decode(recorded)
    tolerated = _tolerated(rule, len(told["results"]))
    if told.get("failed", len(told["failures"]) > tolerated):
        if _only_late(told["failures"]):
            raise WaitTimeout(step_id)
        raise JobsFailed(step_id, [tuple(failure) for failure in told["failures"]], tolerated)
    return Gathered(told["results"], [JobFailure(*failure) for failure in told["failures"]])


def _check(name: str, calls: list[JobCall], min_successful: int | None, tolerated_failures: int) -> None:
    for call in calls:
        if not isinstance(call, JobCall):
            raise DurableCallRefused(
                f"ctx.gather({name!r})",
                f"{call!r} is not a job's call",
                "Give a list such as [extract.s(document_id=i) for i in ids].",
            )
    most = get_settings().workflow_max_gather
    if len(calls) > most:
        raise InvalidOption(
            "calls",
            f"{len(calls):,} jobs",
            f"give at most {most:,}, which is WORKFLOW_MAX_GATHER; gather them in parts, or raise the setting.",
        )
    if min_successful is not None and not 0 <= min_successful <= len(calls):
        raise InvalidOption("min_successful", min_successful, f"give 0 to {len(calls)}, the number of calls.")
    if tolerated_failures < 0:
        raise InvalidOption("tolerated_failures", tolerated_failures, "give 0 or more.")
