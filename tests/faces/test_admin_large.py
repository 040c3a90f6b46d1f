"""The same budgets on 5,000,000 jobs. Seeding takes minutes, so this runs when it is asked for."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from tests.faces.conftest import ClientOf
from tests.faces.rows import make_job, make_worker, seed, unseed
from tests.faces.test_admin_bounds import BUDGETS, DEAD, JOBS, buffers, statements
from tests.workflows.rows import approval, step

ROWS = int(os.environ.get("PGJOBS_TEST_LARGE", "0"))

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.large,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(not ROWS, reason="set PGJOBS_TEST_LARGE=5000000 to seed so many jobs"),
]

# Further tabs and the far end of a list, where cost would show that grows with the table.
FURTHER = [
    (f"{JOBS}?status=scheduled", 8, 1_500),
    (f"{JOBS}?status=cancelled", 8, 1_500),
    (f"{JOBS}?q=payload.customer.id:49999", 8, 26_000),
    (f"{JOBS}?before_id=1000000&queue=queue-3", 8, 26_000),
    (f"{DEAD}?p=2", 7, 1_500),
]


@pytest.fixture(scope="module")
def seeded(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """All of them, committed once for the module."""
    with django_db_blocker.unblock():
        seed(ROWS)
        yield
        unseed()


@pytest.fixture
def table(seeded: None, client_of: ClientOf) -> Client:
    make_worker()
    for _ in range(50):
        make_job("running")
    step(approval().execution, 0)
    return client_of("superuser")


@pytest.mark.parametrize(("address", "most_statements", "most_buffers"), [*BUDGETS, *FURTHER])
def test_what_a_page_costs_does_not_grow_with_the_table(
    table: Client, address: str, most_statements: int, most_buffers: int
) -> None:
    sent = statements(table, address)
    assert len(sent) <= most_statements
    most_buffers += 1_500  # what waits is counted to 10,000 in each of 21 lanes, from the index alone
    used = {sql: buffers(sql) for sql in sent}
    assert sum(used.values()) <= most_buffers, sorted(used.items(), key=lambda item: -item[1])[:3]
