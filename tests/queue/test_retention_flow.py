"""Tables and indexes keep their size while jobs flow through and old ones are retired."""

import json

import pytest

from pgjobs.models import ArchivedJob
from pgjobs.queue.attempts import Ended
from pgjobs.queue.outcomes import Succeeded
from pgjobs.queue.retention import Policy, Retention, Walk
from pgjobs.queue.settle import settle
from tests.leases.factories import KIND, claim
from tests.queue.ended import fetch, live

pytestmark = pytest.mark.django_db(transaction=True)


def sizes() -> dict[str, int]:
    """Bytes of the live table and of each of its indexes."""
    return dict(
        fetch(
            "SELECT relname, pg_relation_size(oid) FROM pg_class WHERE oid = 'pgjobs_job'::regclass"
            " OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'pgjobs_job'::regclass)"
        )
    )


class Flow:
    """Jobs enqueued, claimed, settled and retired by the verbs, round by round; one round is what is kept."""

    def __init__(self, retention: Retention) -> None:
        fetch("TRUNCATE pgjobs_job RESTART IDENTITY CASCADE")
        self._walk = Walk(using="default")
        self._retention = retention
        self.sizes: list[dict[str, int]] = []
        """After each round, before what autovacuum does."""

    def round(self, jobs: int) -> None:
        [[self._began]] = fetch("SELECT clock_timestamp()")
        fetch("INSERT INTO pgjobs_job (job_type) SELECT %s FROM generate_series(1, %s)", KIND, jobs)
        while claimed := claim(1_000):
            settle([Ended(job, Succeeded(json.dumps(n))) for n, job in enumerate(claimed)], using="default")
            self._walk.step(self._policy())
        while not self._walk.step(self._policy()).pass_ended:
            pass
        self.sizes.append(sizes())
        fetch("VACUUM ANALYZE pgjobs_job")

    def _policy(self) -> Policy:
        """Whatever ended before this round is old."""
        [[seconds]] = fetch("SELECT extract(epoch FROM clock_timestamp() - %s)::float8", self._began)
        return Policy(seconds, seconds, self._retention)

    def assert_level(self, after: int) -> None:
        """From round `after` on nothing has grown by more than a tenth, or a few pages.

        One round may have met an analysis by autovacuum, whose snapshot keeps dead rows: what grows stays grown.
        """
        then = self.sizes[after - 1]
        peaks = {name: sorted(each[name] for each in self.sizes[after:])[-2] for name in then}
        grown = {name: (then[name], peak) for name, peak in peaks.items() if peak > then[name] * 1.1 + 32_768}
        assert then["pgjobs_job"] > 0 and grown == {}, self.sizes


@pytest.mark.parametrize("retention", ["archive", "delete"])
def test_the_table_keeps_its_size_while_jobs_flow_through(retention: Retention) -> None:
    flow = Flow(retention)
    for _ in range(12):
        flow.round(1_000)

    flow.assert_level(after=4)
    assert live() == set(range(11_001, 12_001))
    assert ArchivedJob.objects.count() == (11_000 if retention == "archive" else 0)


@pytest.mark.campaign
@pytest.mark.large
@pytest.mark.timeout(600)
def test_200_000_jobs_leave_table_and_indexes_as_they_were() -> None:
    flow = Flow("archive")
    for _ in range(20):
        flow.round(10_000)

    flow.assert_level(after=5)
    assert live() == set(range(190_001, 200_001)) and ArchivedJob.objects.count() == 190_000
