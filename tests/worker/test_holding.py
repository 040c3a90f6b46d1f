"""What a process holds: who claims it again or locks its bookkeeping keeps nothing else from being renewed or ended."""

import pytest

from pgjobs.models import Minute, Worker
from pgjobs.queue.attempts import Ended
from pgjobs.queue.control import release
from pgjobs.queue.outcomes import Problem, Raised
from pgjobs.queue.rollups import LIFETIME
from pgjobs.worker import clock, deadlines, registration
from pgjobs.worker.heartbeat import Heartbeat
from pgjobs.worker.holdings import Holdings
from pgjobs.worker.options import WorkerOptions
from pgjobs.worker.registration import Vitals
from pgjobs.worker.statistics import Statistics
from tests.leases.factories import claim, running
from tests.leases.sessions import sessions, transaction_open
from tests.support.own_database import QUEUE

OPTIONS = WorkerOptions(name="holder")


def beat(holdings: Holdings) -> Heartbeat:
    return Heartbeat(QUEUE, OPTIONS, holdings, Vitals, lambda holding: None)


@pytest.mark.django_db(transaction=True)
def test_who_holds_the_row_of_a_worker_or_the_figures_holds_neither_renewals_nor_claims() -> None:
    """Somebody tidies up by hand, and has not committed yet."""
    registration.register(OPTIONS, [], using=QUEUE)
    told = running()
    figures = Statistics(using=QUEUE)
    figures.settled([Ended(told, Raised(Problem("error", "ValueError", "no"), 5))])
    figures.flush()
    figures.settled([Ended(told, Raised(Problem("error", "ValueError", "no"), 5))])
    holdings = Holdings(30)
    [holding] = holdings.add([told], clock.now() - 20)

    def tidy_up() -> None:
        Worker.objects.update(busy=99)
        Minute.objects.update(retried=99)

    with sessions("operator") as [operator]:
        held = transaction_open(operator, tidy_up)
        beat(holdings)._renew()
        registration.close(OPTIONS.name, using=QUEUE)
        figures.flush()
        assert figures.seconds_until_due() > 0
        held.finish()

    assert holding.good_until > clock.now() + 20
    figures.flush()
    assert set(Minute.objects.filter(minute=LIFETIME).values_list("retried", flat=True)) == {100}
    beat(holdings)._renew()
    assert Worker.objects.get().busy == 0


@pytest.mark.django_db
def test_a_row_that_the_same_process_claims_again_ends_its_first_attempt() -> None:
    """Somebody released it: the first handler must learn of it, and its timeout must hold as before."""
    told = running()
    holdings = Holdings(30)
    [first] = holdings.add([told], clock.now())
    release([told.lease.pk], actor="ann")
    [again] = holdings.add(claim(), clock.now())

    assert again.place == first.place and first.lost and not again.lost
    first.deadline = clock.now() - 60
    first.timed_out = True
    assert deadlines.enforce(holdings.all(), 5) == [first]
    holdings.drop([first])
    assert holdings.all() == [again] and len(holdings) == 1
