"""The life of a job as a Hypothesis state machine: the database against a plain Python model.

Whatever is done, a status that changes does so by an arrow of ``MOVES``.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pgjobs.leases.reap import reap_lapsed
from pgjobs.leases.release import release
from pgjobs.leases.renew import renew
from pgjobs.queue.attempts import ClaimedJob
from pgjobs.queue.control import cancel, retry
from pgjobs.queue.models import Job, JobResult
from pgjobs.queue.outcomes import Abandoned, Failed, Outcome, Raised, Snoozed, Succeeded
from pgjobs.queue.states import CANCELLABLE, MOVES, RETRYABLE
from tests.leases.factories import PROBLEM, claim, end, lapse, make_due, pending

MAX_ERRORS = 4
OUTCOMES = st.sampled_from(
    [
        Succeeded('"x"'),
        Failed(PROBLEM),
        Raised(PROBLEM, 0),
        Raised(PROBLEM, 0),
        Raised(PROBLEM, 60),
        Snoozed(0),
        Abandoned(),
    ]
)


@dataclass
class Model:
    """What the documentation says of one job."""

    priority: int
    max_attempts: int
    max_crashes: int
    key: str | None
    status: str = "pending"
    attempts: int = 0
    crashes: int = 0
    kinds: list[str] = field(default_factory=list)
    note_of_result: bool = False

    def ended_by(self, outcome: Outcome) -> None:
        match outcome:
            case Succeeded():
                self.status = "succeeded"
            case Failed():
                self.status = "failed"
                self.kinds.append("error")
            case Raised():
                self.kinds.append("error")
                self.status = "dead" if self.attempts - self.crashes >= self.max_attempts else "pending"
            case Snoozed() | Abandoned():
                self.status = "pending"
                self.attempts -= 1
        self.kinds = self.kinds[-MAX_ERRORS:]

    def reaped(self) -> None:
        self.crashes += 1
        self.status = "dead" if self.crashes >= self.max_crashes else "pending"
        self.kinds = [*self.kinds, "lost"][-MAX_ERRORS:]

    def retried(self, max_attempts: int | None) -> None:
        self.status = "pending"
        self.max_attempts = max(self.max_attempts, max_attempts or 0, self.attempts - self.crashes + 1)
        self.max_crashes = max(self.max_crashes, self.crashes + 1)


class JobLife(RuleBasedStateMachine):
    """Leases that were given out are kept for ever: late words of old holders come at any time."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        Job.objects.all().delete()
        JobResult.objects.all().delete()
        self.jobs: dict[int, Model] = {}
        self.held: dict[int, ClaimedJob] = {}
        self.producers: dict[str, int] = {}
        self.before: dict[int, str] = {}

    @initialize()
    def one_job(self) -> None:
        self.enqueue(100, 2, 2, None)

    @rule(
        priority=st.sampled_from([1, 100]),
        max_attempts=st.integers(1, 3),
        max_crashes=st.integers(1, 3),
        key=st.sampled_from([None, None, "a", "b"]),
    )
    def enqueue(self, priority: int, max_attempts: int, max_crashes: int, key: str | None) -> None:
        columns: dict[str, Any] = {
            "priority": priority,
            "max_attempts": max_attempts,
            "max_crashes": max_crashes,
            "idempotency_key": key,
        }
        [pk] = pending(**columns)
        self.jobs[pk] = Model(priority, max_attempts, max_crashes, key)

    @rule(target=leases, suspect=st.booleans())
    def claim(self, suspect: bool) -> Any:
        make_due(*self.jobs)
        got = claim(1, suspects=suspect)
        waiting = [
            (model.priority, pk)
            for pk, model in self.jobs.items()
            if model.status == "pending" and bool(model.crashes) == suspect
        ]
        if not waiting:
            assert got == []
            return multiple()
        # Delays have been moved about by the test, so only the priority of the choice is certain.
        [job] = got
        pk = job.lease.pk
        model = self.jobs[pk]
        assert (model.priority, pk) in waiting and model.priority == min(waiting)[0]
        model.status = "running"
        model.attempts += 1
        assert (job.attempt, job.crash_count) == (model.attempts, model.crashes)
        assert job.already_produced == (model.key in self.producers)
        self.held[pk] = job
        return job

    def _any_held(self, data: Any) -> ClaimedJob:
        return self.held[data.draw(st.sampled_from(sorted(self.held)))]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), outcome=OUTCOMES)
    def settle(self, data: Any, outcome: Outcome) -> None:
        job = self._any_held(data)
        pk = job.lease.pk
        assert end(job, outcome) == {pk}
        del self.held[pk]
        model = self.jobs[pk]
        if isinstance(outcome, Succeeded) and model.key is not None:
            model.note_of_result = self.producers.setdefault(model.key, pk) != pk
        model.ended_by(outcome)

    @rule(job=leases, outcome=OUTCOMES)
    def speak_late(self, job: ClaimedJob, outcome: Outcome) -> None:
        if self.held.get(job.lease.pk) is not job:
            assert end(job, outcome) == set()
            assert release(Job, [job.lease], using="default") == set()

    @rule(job=leases)
    def renew(self, job: ClaimedJob) -> None:
        alive = renew(Job, [job.lease], lease_seconds=60, using="default").held
        assert alive == ({job.lease.pk} if self.held.get(job.lease.pk) is job else set())

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: Any) -> None:
        job = self._any_held(data)
        assert release(Job, [job.lease], using="default") == {job.lease.pk}
        del self.held[job.lease.pk]
        model = self.jobs[job.lease.pk]
        model.status = "pending"
        model.attempts -= 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def reap(self, data: Any) -> None:
        pk = self._any_held(data).lease.pk
        lapse(pk)
        reaped = reap_lapsed(Job, using="default")
        del self.held[pk]
        self.jobs[pk].reaped()
        assert [*reaped.requeued, *reaped.exhausted] == [pk]
        assert bool(reaped.exhausted) == (self.jobs[pk].status == "dead")

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        pk = data.draw(st.sampled_from(sorted(self.jobs)))
        [outcome] = cancel([pk], actor="test")
        model = self.jobs[pk]
        assert outcome.done == (model.status in CANCELLABLE)
        if outcome.done:
            model.status = "cancelled"
            self.held.pop(pk, None)
        assert outcome.status == model.status

    @precondition(lambda self: any(model.status in RETRYABLE for model in self.jobs.values()))
    @rule(data=st.data(), max_attempts=st.sampled_from([None, 1, 5]))
    def retry(self, data: Any, max_attempts: int | None) -> None:
        pk = data.draw(st.sampled_from(sorted(self.jobs)))
        [outcome] = retry([pk], actor="test", max_attempts=max_attempts)
        model = self.jobs[pk]
        assert outcome.done == (model.status in RETRYABLE)
        if outcome.done:
            model.retried(max_attempts)
        assert outcome.status == model.status

    @invariant()
    def the_rows_are_as_the_model_says(self) -> None:
        rows = Job.objects.in_bulk()
        assert rows.keys() == self.jobs.keys()
        for pk, model in self.jobs.items():
            row = rows[pk]
            assert (row.status, row.attempt_count, row.crash_count, row.max_attempts, row.max_crashes) == (
                model.status,
                model.attempts,
                model.crashes,
                model.max_attempts,
                model.max_crashes,
            )
            assert [entry["kind"] for entry in row.errors] == model.kinds
            assert (row.completed_at is not None) == (model.status not in ("pending", "running"))
            token = self.held[pk].lease.token if pk in self.held else None
            assert (row.lease_token, row.lease_owner is None) == (token, token is None)
            if model.status == "succeeded":
                assert row.note.startswith("result already existed") == model.note_of_result
        self._check_moves({pk: row.status for pk, row in rows.items()})
        assert dict(JobResult.objects.values_list("idempotency_key", "job_id")) == self.producers

    def _check_moves(self, now: dict[int, str]) -> None:
        moves = {(was, now[pk]) for pk, was in self.before.items() if now[pk] != was}
        assert moves <= {(move.source.value, move.target.value) for move in MOVES}
        self.before = now


@pytest.mark.django_db
def test_the_database_agrees_with_the_model(settings: Any) -> None:
    settings.PGJOBS = {"MAX_ERRORS": MAX_ERRORS}
    run_state_machine_as_test(JobLife, settings=EFFORT)


EFFORT = hypothesis_settings(
    max_examples=100,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
