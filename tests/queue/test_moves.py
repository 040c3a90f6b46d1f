"""Every arrow of ``MOVES``, by the verb that it names; and no verb that has no arrow."""

from collections.abc import Callable

import pytest

from pgjobs.leases.reap import reap_lapsed
from pgjobs.leases.release import release
from pgjobs.queue import control
from pgjobs.queue.control import cancel, retry
from pgjobs.queue.models import Job
from pgjobs.queue.outcomes import Failed, Raised, Snoozed, Succeeded
from pgjobs.queue.states import MOVES, TERMINAL, JobStatus, Move
from tests.leases.factories import PROBLEM, claim, columns, end, lapse, pending, running

pytestmark = pytest.mark.django_db


def reach(status: JobStatus, **columns: int) -> int:
    if status is JobStatus.PENDING:
        return pending()[0]
    job = running(**columns)
    pk = job.lease.pk
    match status:
        case JobStatus.FAILED:
            end(job, Failed(PROBLEM))
        case JobStatus.DEAD:
            lapse(pk)
            reap_lapsed(Job, using="default")
        case JobStatus.CANCELLED:
            cancel([pk], actor="test")
    return pk


def claimed(pk: int) -> None:
    assert [job.lease.pk for job in claim(1)] == [pk]


def reaped(pk: int) -> None:
    lapse(pk)
    reap_lapsed(Job, using="default")


class Held:
    """A verb of the holder, who has the lease in hand."""

    def __init__(self, act: Callable[..., object], **columns: int) -> None:
        self.act = act
        self.columns = columns


VERBS: dict[str, Callable[[int], object] | Held] = {
    "claim": claimed,
    "cancel": lambda pk: cancel([pk], actor="test"),
    "finish": Held(lambda job: end(job, Succeeded())),
    "retry": Held(lambda job: end(job, Raised(PROBLEM, 0))),
    "snooze": Held(lambda job: end(job, Snoozed(0))),
    "release": Held(lambda job: release(Job, [job.lease], using="default")),
    "reap": Held(lambda job: reaped(job.lease.pk)),
    "fail": Held(lambda job: end(job, Failed(PROBLEM))),
    "give up": Held(lambda job: end(job, Raised(PROBLEM, 0)), max_attempts=1),
    "bury": Held(lambda job: reaped(job.lease.pk), max_crashes=1),
    "operator release": Held(lambda job: control.release([job.lease.pk], actor="test")),
    "operator retry": lambda pk: retry([pk], actor="test"),
}


@pytest.mark.parametrize("move", MOVES, ids=lambda move: f"{move.source}-{move.verb}")
def test_the_arrow_leads_where_it_says(move: Move) -> None:
    verb = VERBS[move.verb]
    if isinstance(verb, Held):
        job = running(**verb.columns)
        pk = job.lease.pk
        assert columns(pk, "status") == move.source
        verb.act(job)
    else:
        pk = reach(move.source, **({"max_crashes": 1} if move.source is JobStatus.DEAD else {}))
        assert columns(pk, "status") == move.source
        verb(pk)

    assert columns(pk, "status") == move.target


def test_no_verb_without_an_arrow() -> None:
    assert {move.verb for move in MOVES} == set(VERBS)


def test_terminal_means_that_only_a_person_moves_it() -> None:
    for status in JobStatus:
        leaving = {move.verb for move in MOVES if move.source is status}
        assert (status in TERMINAL) == (leaving <= {"operator retry"})


def test_success_is_final() -> None:
    assert not [move for move in MOVES if move.source is JobStatus.SUCCEEDED]
