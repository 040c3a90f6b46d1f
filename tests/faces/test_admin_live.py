"""How pages are kept up to date: fragments, what is served twice, and whose token stands in a form."""

import re

import pytest
from django.core.cache import cache
from django.test import Client
from django.test.utils import CaptureQueriesContext

from pgjobs.admin import pages
from tests.faces.pages import address, as_seen, person, text_of
from tests.faces.rows import make_job, make_worker
from tests.support.own_database import connection
from tests.workflows.rows import approval, execution

pytestmark = pytest.mark.django_db

LIVE = ["overview", "errorgroup", "runningjob", "queue", "worker"]


def regions(text: str) -> list[str]:
    return re.findall(r'data-pgjobs-region="([^"]+)"', text)


@pytest.mark.parametrize("name", LIVE)
def test_a_fragment_is_the_content_of_the_page_with_the_same_regions(name: str) -> None:
    make_worker()
    make_job("running")
    client = person("ann")
    page, fragment = (text_of(client, address(f"{name}_changelist") + end) for end in ("", "?fragment=1"))

    assert regions(page) and regions(page) == regions(fragment)
    assert len(set(regions(page))) == len(regions(page))
    assert "<html" in page and "<html" not in fragment
    assert re.search(r'data-pgjobs-live data-url="\?fragment=1" data-interval="[1-9]', page)
    assert "data-pgjobs-status" in page and "data-pgjobs-pause" in page


def test_a_fragment_keeps_the_filters_of_its_page() -> None:
    text = text_of(person("ann"), address("runningjob_changelist") + "?queue=a%26b")

    assert 'data-url="?queue=a%26b&amp;fragment=1"' in text


@pytest.mark.parametrize(
    ("status", "interval"), [("pending", "5"), ("running", "5"), ("succeeded", "0"), ("dead", "0")]
)
def test_a_job_is_refreshed_until_it_has_ended(status: str, interval: str) -> None:
    text = text_of(person("ann"), address("job_change", make_job(status).pk))

    assert f'data-interval="{interval}"' in text


@pytest.mark.parametrize(("status", "interval"), [("waiting", "5"), ("failed", "0")])
def test_an_execution_is_refreshed_until_it_has_ended(status: str, interval: str) -> None:
    text = text_of(person("ann"), address("execution_change", execution(status).pk))

    assert f'data-interval="{interval}"' in text


def test_many_tabs_cost_what_one_costs() -> None:
    page = address("overview_changelist")
    first, second = person("ann"), person("bob")
    text_of(first, page)
    with CaptureQueriesContext(connection) as sent:
        text_of(second, f"{page}?fragment=1")
        text_of(first, f"{page}?fragment=1")

    assert not [query["sql"] for query in sent.captured_queries if "pgjobs_" in query["sql"]]


def test_who_may_do_less_is_not_served_what_was_made_for_others() -> None:
    make_job("running")
    page = address("runningjob_changelist")
    canceller, viewer = person("ann", "cancel_job"), person("bob")

    assert "Cancel" in text_of(canceller, page)
    assert "Cancel" not in text_of(viewer, page)


def test_each_person_has_their_own_token_in_what_is_served_twice() -> None:
    make_job("running")
    page = address("runningjob_changelist")
    tokens = []
    for name in ("ann", "bob"):
        client = person(name, "cancel_job", client=Client(enforce_csrf_checks=True))
        text = text_of(client, page)
        token = re.search(r'id="content-main".*?name="csrfmiddlewaretoken" value="(\w+)"', text, re.DOTALL)
        assert token
        tokens.append(token[1])
        answer = client.post(
            address("job_cancel_ticked"), {"csrfmiddlewaretoken": token[1], "_selected_action": []}
        )
        assert answer.status_code == 302
    assert tokens[0] != tokens[1]
    assert "csrf-" not in text


def test_after_a_verb_nobody_is_served_what_was_before() -> None:
    job = make_job("running")
    page = address("runningjob_changelist")
    client, other = person("ann", "cancel_job"), person("bob", "cancel_job")
    assert str(job.pk) in text_of(other, page)
    client.post(address("job_cancel", job.pk), as_seen(job))

    assert "Nothing is running" in text_of(client, page)
    assert "Nothing is running" in text_of(other, page)


def test_what_depends_on_a_person_is_made_for_each() -> None:
    asked = approval(permission="pgjobs.retry_job")
    page = address("wait_change", asked.pk)

    assert "You cannot decide this" in text_of(person("ann"), page)
    assert "You cannot decide this" not in text_of(person("bob", "retry_job"), page)


def test_a_broken_cache_costs_statements_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise ConnectionError("the cache is away")

    monkeypatch.setattr(cache, "get", broken)
    monkeypatch.setattr(cache, "set", broken)

    assert "Nothing is running" in text_of(person("ann"), address("runningjob_changelist"))


def test_the_clock_of_the_database_is_shown_and_a_skew_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    client = person("ann")
    assert "differs from the database" not in text_of(client, address("worker_changelist"))
    cache.clear()
    monkeypatch.setattr(pages, "_SKEW_SECONDS", -1)

    assert "Database <time datetime=" in text_of(client, address("worker_changelist"))


def test_a_panel_that_cannot_be_read_says_so_and_shows_no_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.admin.limits.PANEL_SECONDS", 0.5)
    slow = "SELECT pg_sleep(2), 1, 1, 1, 1, 1"
    monkeypatch.setattr("pgjobs.health.errors._GROUPS", slow)

    response = person("ann").get(address("errorgroup_changelist"))

    text = response.content.decode()
    assert response.status_code == 200
    assert "Not available: took longer than 0.5 s" in text and "Try again" in text
    assert "No dead or failed jobs" not in text
