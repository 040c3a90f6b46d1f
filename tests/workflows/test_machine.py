"""A state machine of waits and wakes against a plain model: what the model says, the tables say, after every move."""

import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pgjobs.exceptions import LeaseLost
from pgjobs.leases.release import release
from pgjobs.leases.states import Lease
from pgjobs.models import Execution, Job, Message, Wait
from pgjobs.queue.control import cancel as cancel_jobs
from pgjobs.queue.outcomes import Succeeded
from pgjobs.workflows.claiming import claim_executions
from pgjobs.workflows.control import cancel, pause, resume
from pgjobs.workflows.lifecycle import NewWait, Standing, finish, open_waits
from pgjobs.workflows.messages import send
from pgjobs.workflows.sweep import sweep_due
from tests.jobsapp.jobs import ok
from tests.leases.factories import claim as claim_jobs
from tests.leases.factories import end as end_job
from tests.workflows.carrier import FAILED
from tests.workflows.rows import NAME

NAMES = ("a", "b")
SELDOM = st.integers(0, 19).map(lambda n: n == 13)


@dataclass
class Waiting:
    """The model's wait."""

    step_id: str
    kind: str
    name: str = ""
    timed: bool = False
    resolution: Any = None
    group: str = ""


@dataclass
class Model:
    """What an execution should look like."""

    status: str = "enqueued"
    waits: list[Waiting] = field(default_factory=list)
    mailbox: list[list[Any]] = field(default_factory=list)
    """[name, payload, step id of the wait that took it, or None]"""
    asked: list[str] = field(default_factory=list)
    """Step ids of what the body waits for at present."""
    rule: tuple[int | None, int] = (None, 0)

    def wait(self, step_id: str) -> Waiting:
        [found] = [wait for wait in self.waits if wait.step_id == step_id]
        return found

    def enough(self, members: list[Waiting]) -> bool:
        least, tolerated = self.rule
        ended = [wait.resolution for wait in members if wait.resolution is not None]
        good = sum(told == "succeeded" for told in ended)
        if not members[0].group:
            return bool(ended)
        if least is not None:  # it alone decides: so many may fail that it can still be reached
            tolerated = len(members) - least
            if good >= least:
                return True
        return len(ended) == len(members) or len(ended) - good > tolerated

    def resolve(self, wait: Waiting, told: Any) -> None:
        wait.resolution = told
        members = [peer for peer in self.waits if peer.group == wait.group] if wait.group else [wait]
        if self.status == "waiting" and self.enough(members):
            self.status = "enqueued"

    def deliver(self, name: str) -> None:
        open_waits = [w for w in self.waits if w.kind == "signal" and w.name == name and w.resolution is None]
        letters = [letter for letter in self.mailbox if letter[0] == name and letter[2] is None]
        if open_waits and letters:
            letters[0][2] = open_waits[0].step_id
            self.resolve(open_waits[0], ("payload", letters[0][1]))

    def park(self) -> None:
        """The body comes to what it asks for: it goes on, or waits."""
        members = [self.wait(step_id) for step_id in self.asked]
        self.status = "running" if self.enough(members) else "waiting"
        if self.status == "running":
            self.asked = []


class WaitsAndWakes(RuleBasedStateMachine):
    """One execution, its jobs, its mailbox, and everybody who moves them."""

    def __init__(self) -> None:
        super().__init__()
        self.outer = transaction.atomic()
        self.outer.__enter__()
        self.model = Model()
        self.lease: Lease | None = None
        self.calls = 0
        self.jobs: dict[int, str] = {}

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.outer.__exit__(None, None, None)

    @initialize()
    def start(self) -> None:
        self.execution = Execution.objects.create(workflow_name=NAME)

    # The body

    @precondition(lambda self: self.model.status == "enqueued")
    @rule()
    def claim(self) -> None:
        token = uuid.uuid4()
        [claimed] = claim_executions(
            owner="worker-a",
            token=token,
            limit=5,
            lease_seconds=60,
            names=[NAME],
            queues=(),
            suspects=False,
            using="default",
        )
        self.lease = claimed.lease
        self.model.status = "running"
        known = {step_id: record.resolved for step_id, record in claimed.history.records.items()}
        assert known == {wait.step_id: wait.resolution is not None for wait in self.model.waits}
        if self.model.asked:  # a body comes back to what it asked for
            self._open([self._new(self.model.wait(step_id)) for step_id in self.model.asked])

    @precondition(lambda self: self.model.status == "running")
    @rule(name=st.sampled_from(NAMES), timed=st.booleans())
    def wait_for_a_signal(self, name: str, timed: bool) -> None:
        wait = self._add(Waiting(self._step_id(name), "signal", name, timed))
        self.model.deliver(name)
        self._open([self._new(wait)])

    @precondition(lambda self: self.model.status == "running")
    @rule()
    def sleep(self) -> None:
        self._open([self._new(self._add(Waiting(self._step_id("nap"), "sleep", timed=True)))])

    @precondition(lambda self: self.model.status == "running")
    @rule(count=st.integers(1, 4), least=st.none() | st.integers(1, 3), tolerated=st.integers(0, 3))
    def gather(self, count: int, least: int | None, tolerated: int) -> None:
        least = None if least is None else min(least, count)
        group = self._step_id("gather")
        self.model.rule = (least, min(tolerated, count))
        waits = [self._add(Waiting(f"{group}[{n}]", "job", group=group)) for n in range(count)]
        self._open([self._new(wait) for wait in waits], jobs=True)
        found = Wait.objects.filter(execution=self.execution, group=group).values_list("target_id", "step_id")
        self.jobs |= dict(found)

    @precondition(lambda self: self.model.status == "running")
    @rule()
    def lose_the_lease(self) -> None:
        """Handed back: the body starts again elsewhere."""
        assert self.lease is not None
        assert release(Execution, [self.lease], using="default")
        self.model.status = "enqueued"

    @precondition(lambda self: self.model.status == "running")
    @rule(really=SELDOM)
    def succeed(self, really: bool) -> None:
        if not really:
            return
        assert self.lease is not None
        finish(self.lease, None, using="default")
        self.model.status = "succeeded"

    @precondition(lambda self: self.lease is not None and self.model.status != "running")
    @rule()
    def a_zombie_parks(self) -> None:
        assert self.lease is not None
        with pytest.raises(LeaseLost):
            open_waits(
                self.lease,
                [NewWait("zombie#1", "sleep", 0, delay=5)],
                enough=lambda s: False,
                using="default",
            )

    # The world

    @precondition(lambda self: self.model.status not in ("succeeded", "cancelled"))
    @rule(name=st.sampled_from(NAMES), payload=st.integers(0, 9) | st.none())
    def signal(self, name: str, payload: int | None) -> None:
        send(self.execution.pk, name, payload)
        self.model.mailbox.append([name, payload, None])
        self.model.deliver(name)

    @precondition(lambda self: any(w.timed and w.resolution is None for w in self.model.waits))
    @rule(data=st.data())
    def time_passes(self, data: st.DataObject) -> None:
        due = [wait for wait in self.model.waits if wait.timed and wait.resolution is None]
        wait = data.draw(st.sampled_from(due))
        Wait.objects.filter(execution=self.execution, step_id=wait.step_id).update(
            wake_at=Now() - timedelta(seconds=1)
        )
        assert sweep_due(using="default") == 1
        self.model.resolve(wait, "slept" if wait.kind == "sleep" else "timeout")

    @rule()
    def a_sweep_finds_nothing(self) -> None:
        assert sweep_due(using="default") == 0

    @precondition(lambda self: bool(self.jobs))
    @rule(data=st.data())
    def a_job_succeeds(self, data: st.DataObject) -> None:
        self._job_ends("succeeded", data)

    @precondition(lambda self: bool(self.jobs))
    @rule(how=st.sampled_from(["succeeded", "failed", "cancelled"]), data=st.data())
    def a_job_ends(self, how: str, data: st.DataObject) -> None:
        self._job_ends(how, data)

    def _job_ends(self, how: str, data: st.DataObject) -> None:
        pk = data.draw(st.sampled_from(sorted(self.jobs)))
        if how == "cancelled":
            assert cancel_jobs([pk], actor="test")[0].done
        else:
            found = claim_jobs(100, kinds=["jobsapp.ok"])
            [claimed] = [job for job in found if job.lease.pk == pk]
            end_job(claimed, Succeeded("1") if how == "succeeded" else FAILED)
            release(Job, [job.lease for job in found if job is not claimed], using="default")
        wait = self.model.wait(self.jobs.pop(pk))
        if wait.resolution is None:
            self.model.resolve(wait, how)

    @precondition(lambda self: self.model.status in ("waiting", "enqueued"))
    @rule()
    def hold_and_resume(self) -> None:
        """What comes meanwhile is taken note of; the body finds out when it goes on."""
        assert pause([self.execution.pk], actor="test")[0].done
        send(self.execution.pk, "a", "while paused")
        self.model.status = "paused"
        self.model.mailbox.append(["a", "while paused", None])
        self.model.deliver("a")
        assert resume([self.execution.pk], actor="test")[0].done
        self.model.status = "enqueued"

    @precondition(lambda self: self.model.status not in ("succeeded", "cancelled"))
    @rule(really=SELDOM)
    def cancel(self, really: bool) -> None:
        if not really:
            return
        assert cancel([self.execution.pk], actor="test")[0].done
        self.model.status = "cancelled"
        for wait in self.model.waits:
            if wait.resolution is None:
                wait.resolution = "cancelled"
        pending = Job.objects.filter(status="pending").values_list("pk", flat=True)
        assert not pending, "jobs that nobody awaits any more are not begun"
        self.jobs = {}

    # What must hold

    @invariant()
    def the_tables_say_what_the_model_says(self) -> None:
        if not hasattr(self, "execution"):
            return
        row = Execution.objects.get(pk=self.execution.pk)
        assert row.status == self.model.status
        assert (row.lease_token is not None) == (row.status == "running")
        waits = Wait.objects.filter(execution=self.execution).order_by("id")
        assert [(w.step_id, told(w)) for w in waits] == [(w.step_id, w.resolution) for w in self.model.waits]
        letters = Message.objects.order_by("id").values_list("name", "payload", "consumed_by__step_id")
        assert [list(letter) for letter in letters] == self.model.mailbox

    @invariant()
    def nobody_sleeps_through_what_came(self) -> None:
        if self.model.status == "waiting":
            members = [self.model.wait(step_id) for step_id in self.model.asked]
            assert members and not self.model.enough(members)

    # Helpers of the rules

    def _step_id(self, name: str) -> str:
        self.calls += 1
        return f"{name}#{self.calls}"

    def _add(self, wait: Waiting) -> Waiting:
        self.model.waits.append(wait)
        return wait

    def _new(self, wait: Waiting) -> NewWait:
        least, tolerated = self.model.rule
        terms = {"min_successful": least, "tolerated_failures": tolerated} if wait.group else {}
        return NewWait(
            wait.step_id,
            wait.kind,
            0,
            name=wait.name,
            group=wait.group,
            rule=terms,
            delay=3600.0 if wait.timed else None,
        )

    def _open(self, waits: list[NewWait], *, jobs: bool = False) -> None:
        assert self.lease is not None
        self.model.asked = [wait.step_id for wait in waits]
        calls = [(ok.s(1).new(), '{"value": 1}', None) for _ in waits] if jobs else ()

        def enough(standings: list[Standing]) -> bool:
            return self.model.enough([self.model.wait(standing.step_id) for standing in standings])

        parked, standings = open_waits(self.lease, waits, enough=enough, calls=calls, using="default")
        self.model.park()
        assert parked == (self.model.status == "waiting")
        assert [standing.step_id for standing in standings] == [wait.step_id for wait in waits]
        assert [standing.resolved for standing in standings] == [
            self.model.wait(wait.step_id).resolution is not None for wait in waits
        ]


def told(wait: Wait) -> Any:
    """A resolution in the model's words."""
    match wait.resolution:
        case None:
            return None
        case {"payload": payload}:
            return ("payload", payload)
        case {"status": status}:
            return status
        case {"slept": True}:
            return "slept"
        case {"timeout": True}:
            return "timeout"
        case {"cancelled": True}:
            return "cancelled"
    raise AssertionError(wait.resolution)


@pytest.mark.django_db
def test_waits_and_wakes() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        WaitsAndWakes,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
