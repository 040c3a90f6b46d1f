"""How PostgreSQL carries out the statements of the protocol on a large table: by nodes and buffers, never by time.

The table holds 500 due jobs, and beneath them 200,000 succeeded ones, 100,000 that wait for their time at a better
priority, 100,000 due ones of another queue, and 100 suspects.
"""

import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection

from pgjobs.leases.claim import _claim_sql
from pgjobs.leases.due import outlook, suspects_waiting
from pgjobs.leases.reap import _params, _reap_batch, reap_lapsed
from pgjobs.leases.release import release, release_claim, release_owner
from pgjobs.leases.renew import renew
from pgjobs.queue.attempts import Ended
from pgjobs.queue.claiming import _COLUMNS
from pgjobs.queue.models import Job
from pgjobs.queue.outcomes import Raised, Succeeded
from pgjobs.queue.pauses import pause
from pgjobs.queue.progress import write_progress
from pgjobs.queue.settle import settle
from tests.leases.factories import KIND, PROBLEM, claim, lapse
from tests.leases.plans import Plan, Recorder, explain, plan_of, statements_kept
from tests.leases.sessions import sessions

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clean_table")]

CLAIM, SUSPECT, RUNNING, PRIMARY = (
    "pgjobs_job_claim",
    "pgjobs_job_suspect",
    "pgjobs_job_running",
    "pgjobs_job_pkey",
)
SMALL = {"pgjobs_jobresult", "pgjobs_queuepause"}  # hold next to nothing here
MOST = 60  # buffers of one claim's search

DUE = """INSERT INTO pgjobs_job (job_type, payload)
    SELECT 'tests.work', jsonb_build_object('n', n) FROM generate_series(1, 500) AS n"""
SUCCEEDED = """INSERT INTO pgjobs_job (job_type, payload, status, completed_at, completed_by, attempt_count)
    SELECT 'tests.work', jsonb_build_object('n', n), 'succeeded', now(), 'worker-a', 1
    FROM generate_series(1, 200000) AS n"""
FUTURE = """INSERT INTO pgjobs_job (job_type, priority, available_at)
    SELECT 'tests.work', 1, now() + make_interval(secs => 3600 + n) FROM generate_series(1, 100000) AS n"""
OTHER_QUEUE = """INSERT INTO pgjobs_job (job_type, queue, priority)
    SELECT 'tests.work', 'other', 1 FROM generate_series(1, 100000) AS n"""
SUSPECTS = """INSERT INTO pgjobs_job (job_type, crash_count, available_at)
    SELECT 'tests.work', 1, now() - make_interval(secs => n) FROM generate_series(1, 100) AS n"""


OUTCOMES: dict[str, Any] = {
    "settled without results": Succeeded(),
    "settled with results": Succeeded("1"),
    "settled with errors": Raised(PROBLEM, 5),
}


def run(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture(scope="module", params=["in full", "kept"])
def measured(
    django_db_setup: None, django_db_blocker: Any, request: pytest.FixtureRequest
) -> Iterator[dict[str, Plan]]:
    """Seeds the table; gives the claim's plans from before anything lay beneath the 500 due jobs, and from after."""
    with django_db_blocker.unblock(), statements_kept() if request.param == "kept" else nullcontext():
        try:
            run("TRUNCATE pgjobs_job RESTART IDENTITY CASCADE", *[DUE] * 40, "VACUUM ANALYZE pgjobs_job")
            flood = claim_plan(limit=160)
            settled = settlement_plans(160)
            run("TRUNCATE pgjobs_job RESTART IDENTITY CASCADE", DUE, "VACUUM ANALYZE pgjobs_job")
            plans = {
                "flood": flood,
                **settled,
                "all, alone": claim_plan(),
                "named, alone": claim_plan(["default"]),
            }
            run(SUCCEEDED, FUTURE, OTHER_QUEUE, SUSPECTS, "VACUUM ANALYZE pgjobs_job")
            plans |= {"all": claim_plan(), "named": claim_plan(["default"])}
            yield plans
        finally:
            run("TRUNCATE pgjobs_job RESTART IDENTITY CASCADE")
            connection.close()


@pytest.fixture
def clean_table(measured: dict[str, Plan], db: None) -> None:
    """Vacuums what the test before has left dead, in a session of its own: a transaction cannot."""
    with sessions("vacuum") as [vacuum]:
        vacuum.run(run, "VACUUM pgjobs_job")


def claim_plan(queues: list[str] | None = None, *, suspects: bool = False, limit: int = 10) -> Plan:
    sql = _claim_sql(Job, "suspects" if suspects else "named" if queues else "all", _COLUMNS, "default")
    return explain(
        sql,
        {
            "owner": "w",
            "token": str(uuid.uuid4()),
            "lease_seconds": 30,
            "kinds": [KIND],
            "queues": queues or [],
            "limit": limit,
        },
    )


def settlement_plans(number: int) -> dict[str, Plan]:
    def plan(outcome: Any) -> Plan:
        return plan_of(
            settle, [Ended(job, outcome) for job in claim(number, queues=["default"])], using="default"
        )

    # Of errors that the process has noted before, as all but the first are.
    with patch("pgjobs.queue.settle._notes.wanted", return_value=set()):
        return {name: plan(outcome) for name, outcome in OUTCOMES.items()}


def check(plan: Plan, *indexes: str, most: int = MOST) -> None:
    assert plan.seq_scans() == [] or set(plan.seq_scans()) <= SMALL, str(plan)
    assert set(indexes) <= plan.indexes(), str(plan)
    assert plan.buffers <= most, str(plan)
    assert plan.sorted_rows() <= 1_000, str(plan)


@pytest.mark.parametrize("which", ["all", "named"])
def test_the_claim_does_not_feel_what_lies_beneath(measured: dict[str, Plan], which: str) -> None:
    """Succeeded rows and future rows at a better priority are not read, nor another queue's when queues are named."""
    alone, due = measured[f"{which}, alone"].part("due"), measured[which].part("due")

    check(alone, CLAIM)
    check(due, CLAIM)
    assert due.buffers <= 2 * alone.buffers, str(due)


def test_the_claim_of_an_empty_queue_reads_next_to_nothing() -> None:
    check(claim_plan(["empty"]).part("due"), CLAIM, most=8)


def test_the_rows_claimed_are_found_by_primary_key() -> None:
    plan = claim_plan(["default"])

    check(plan, CLAIM, PRIMARY, most=400)


def test_a_large_claim_from_a_middling_table_does_not_read_the_table(measured: dict[str, Plan]) -> None:
    """A join of 160 ids with 20,000 rows is cheaper by a scan of them all, as the planner reckons."""
    check(measured["flood"], CLAIM, PRIMARY, most=3_000)
    assert measured["flood"].scans_of("leased") == 1, str(measured["flood"])


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_large_settlement_goes_through_the_keys_once(measured: dict[str, Plan], name: str) -> None:
    """A probe a row, each with all the keys of the statement to compare with, cost as much as the update itself."""
    check(measured[name], PRIMARY, most=3_200)
    assert measured[name].scans_of("leased") == 1, str(measured[name])


def test_a_claim_of_500_is_still_by_index() -> None:
    due = claim_plan(["default"], limit=500).part("due")

    check(due, CLAIM, most=1_600)


@pytest.mark.parametrize("queues", [None, ["default"]])
def test_the_claim_of_suspects(queues: list[str] | None) -> None:
    due = claim_plan(queues, suspects=True, limit=1).part("due")

    check(due, SUSPECT, most=10)


def test_without_its_index_the_claim_would_be_seen_here() -> None:
    run(f"DROP INDEX {CLAIM}")
    due = claim_plan(["default"]).part("due")

    assert due.seq_scans() and due.buffers > 1_000


@pytest.mark.parametrize("queues", [[], ["default"]])
def test_seconds_until_due(queues: list[str]) -> None:
    check(plan_of(outlook, Job, kinds=[KIND], queues=queues, using="default"), CLAIM, most=48)


@pytest.mark.parametrize("queues", [[], ["default"]])
def test_suspects_waiting(queues: list[str]) -> None:
    check(plan_of(suspects_waiting, Job, kinds=[KIND], queues=queues, using="default"), SUSPECT, most=120)


def test_renewal() -> None:
    leases = [job.lease for job in claim(10, queues=["default"])]
    plan = plan_of(renew, Job, leases, lease_seconds=30, using="default")

    check(plan, PRIMARY, most=300)


def test_progress() -> None:
    told = [(job.lease, "{}") for job in claim(10, queues=["default"])]

    check(plan_of(write_progress, told, using="default"), PRIMARY, most=300)


@pytest.mark.parametrize("outcome", [Succeeded("1"), Raised(PROBLEM, 5)])
def test_settlement(outcome: Any) -> None:
    ended = [Ended(job, outcome) for job in claim(10, queues=["default"])]

    check(plan_of(settle, ended, using="default"), PRIMARY, most=500)


def test_release_of_leases() -> None:
    leases = [job.lease for job in claim(10, queues=["default"])]

    check(plan_of(release, Job, leases, using="default"), PRIMARY, most=500)


def test_release_by_owner_and_by_token() -> None:
    token = uuid.uuid4()
    claim(10, queues=["default"], token=token)

    check(plan_of(release_claim, Job, token, using="default"), RUNNING, most=500)
    claim(10, queues=["default"])
    check(plan_of(release_owner, Job, "worker-a", using="default"), RUNNING, most=500)


def test_reaping() -> None:
    lapse(*[job.lease.pk for job in claim(10, queues=["default"])])

    recorder = Recorder()
    with connection.execute_wrapper(recorder):
        reap_lapsed(Job, using="default")
    looking, taking = recorder.plans
    check(looking, RUNNING, most=200)
    check(taking, RUNNING, PRIMARY, most=500)


def test_reaping_when_nothing_has_lapsed() -> None:
    claim(10, queues=["default"])

    check(plan_of(reap_lapsed, Job, using="default"), RUNNING, most=200)


def test_taking_back_a_known_death() -> None:
    claim(10, queues=["default"], owner="worker-z")
    check(plan_of(_first_pass, "worker-z"), RUNNING, PRIMARY, most=500)


def _first_pass(owner: str) -> None:
    _reap_batch(Job, "lease_owner = %(owner)s", {**_params(None), "owner": owner}, "default", None)


def test_pauses_cost_the_claim_a_page_or_two() -> None:
    """However many rows a paused queue has."""
    before = claim_plan(["default"]).part("due")
    pause("other", actor="ann", reason="test")
    pause("tests.gone", kind="type", actor="ann", reason="test")

    check(claim_plan().part("due"), CLAIM, most=MOST + 20)  # past a hundred thousand rows
    due = claim_plan(["default"]).part("due")
    check(due, CLAIM)
    assert due.buffers <= before.buffers + 4, str(due)
    check(plan_of(outlook, Job, kinds=[KIND], queues=[], using="default"), CLAIM, most=48)
