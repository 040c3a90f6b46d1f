"""Jobs as parallel steps: enqueued in one statement with their waits, gathered by the settlement of the last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pgjobs import codec
from pgjobs.exceptions import DurableCallRefused, InvalidOption, JobsFailed
from pgjobs.queue.authoring import JobCall
from pgjobs.workflows.history import Record, hash_arguments
from pgjobs.workflows.lifecycle import NewWait, Standing
from pgjobs.workflows.replay import Replay
from pgjobs.workflows.states import StepKind, WaitKind
from pgjobs.workflows.stepping import encode_output
from pgjobs.workflows.values import Gathered, JobFailure

_KIND = StepKind.STEP.value


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
    record = replay.history.records.get(step_id)
    if record is not None:
        replay.find(step_id, _KIND, ordinal, arguments_hash)
        return _answer(step_id, json.loads(replay.output(record) or "{}"), tolerated_failures)
    waits = replay.history.group(step_id)
    if waits:
        _expect_same(replay, step_id, ordinal, arguments_hash, waits[0])
    else:
        replay.find(step_id, _KIND, ordinal, arguments_hash)  # nothing is recorded, or the code diverged
    rule = _rule(len(calls), min_successful, tolerated_failures)
    if calls and not _enough(waits, rule, len(calls)):
        replay.wait_all(
            _new_waits(step_id, ordinal, arguments_hash, calls, rule, timeout),
            lambda standings: _enough(standings, rule, len(calls)),
            calls=[(call.new(), call.payload, call.type.options.idempotency_key) for call in calls],
        )
    text = encode_output(step_id, _told(replay.history.group(step_id)))
    replay.record(replay.row(step_id, _KIND, ordinal, arguments_hash, text))
    return _answer(step_id, json.loads(text), tolerated_failures)


def _expect_same(replay: Replay, step_id: str, ordinal: int, arguments_hash: str, first: Record) -> None:
    """Judge a gather that is under way by its first wait, as if it stood for the whole."""
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
    """Whether the gather can go on: whole, its minimum reached, or its tolerance exceeded."""
    statuses = [_status(wait) for wait in waits if wait.resolved]
    succeeded = statuses.count("succeeded")
    least, tolerated = rule["min_successful"], rule["tolerated_failures"] or 0
    if len(waits) < count:
        return False
    if least is not None and succeeded >= least:
        return True
    return len(statuses) == count or len(statuses) - succeeded > tolerated


def _status(wait: Record | Standing) -> str:
    text = wait.output if isinstance(wait, Record) else wait.resolution
    return str(json.loads(text or "{}").get("status", "timed out"))


def _told(waits: list[Record]) -> dict[str, Any]:
    """What the gather came to, as it is recorded."""
    results: list[Any] = []
    failures = []
    for index, wait in enumerate(waits):
        resolution = json.loads(wait.output or "{}") if wait.resolved else {}
        status = resolution.get("status", "timed out")
        results.append(codec.decode(resolution.get("result")) if status == "succeeded" else None)
        if wait.resolved and status != "succeeded":
            failures.append([index, resolution.get("job_id", 0), status, resolution.get("error", "")])
    return {"results": results, "failures": failures}


def _answer(step_id: str, recorded: Any, tolerated: int) -> Gathered:
    told = codec.decode(recorded)
    failures = [JobFailure(*failure) for failure in told["failures"]]
    if len(failures) > tolerated:
        raise JobsFailed(step_id, [(f.index, f.job_id, f.status, f.error) for f in failures], tolerated)
    return Gathered(told["results"], failures)


def _check(name: str, calls: list[JobCall], min_successful: int | None, tolerated_failures: int) -> None:
    for call in calls:
        if not isinstance(call, JobCall):
            raise DurableCallRefused(
                f"ctx.gather({name!r})",
                f"{call!r} is not a job's call",
                "Give a list such as [extract.s(document_id=i) for i in ids].",
            )
    if min_successful is not None and not 0 <= min_successful <= len(calls):
        raise InvalidOption("min_successful", min_successful, f"give 0 to {len(calls)}, the number of calls.")
    if tolerated_failures < 0:
        raise InvalidOption("tolerated_failures", tolerated_failures, "give 0 or more.")
