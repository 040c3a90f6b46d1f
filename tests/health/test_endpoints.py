"""The endpoints for machines: who may read them, and what they answer."""

import threading
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from pgjobs import endpoints
from pgjobs.endpoints import Lately
from pgjobs.queue.rollups import LIFETIME
from tests.health.exposition import parsed
from tests.health.situations import execution, job, minute, pause, run, worker

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.health.urls")]

TOKEN = {"HTTP_AUTHORIZATION": "Bearer t0ken"}
PATHS = ("live", "ready", "health", "metrics")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    endpoints.verdicts.forget()
    endpoints.metrics_texts.forget()


def get(path: str, query: dict[str, str] | None = None, **headers: Any) -> Any:
    return Client().get(f"/pgjobs/{path}", query, **headers)


@pytest.fixture
def token(settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "HEALTH_TOKEN": "t0ken"}


@pytest.mark.parametrize("path", PATHS)
def test_nobody_may_read_until_somebody_is_allowed(path: str) -> None:
    answer = get(path, **TOKEN)
    assert answer.status_code == 403 and "HEALTH_TOKEN" in answer.json()["why"]


@pytest.mark.parametrize("path", PATHS)
def test_the_token_opens(token: None, path: str) -> None:
    assert get(path, **TOKEN).status_code == 200
    assert get(path, HTTP_AUTHORIZATION="bearer t0ken").status_code == 200
    for wrong in ({}, {"HTTP_AUTHORIZATION": "Bearer t0ke"}, {"HTTP_AUTHORIZATION": "Basic t0ken"}):
        answer = get(path, **wrong)
        assert answer.status_code == 403 and "t0ken" not in answer.content.decode()


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("10.1.2.3", 200),
        ("192.0.2.1", 403),
        ("::ffff:10.1.2.3", 200),
        ("2001:db8::7", 200),
        ("", 403),
        ("::1", 403),
    ],
)
def test_networks_open(settings: Any, address: str, status: int) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "HEALTH_ALLOW": ["10.0.0.0/8", "2001:db8::/32"]}
    assert get("live", REMOTE_ADDR=address).status_code == status
    assert get("live", REMOTE_ADDR=address, HTTP_X_FORWARDED_FOR="10.0.0.1").status_code == status


@pytest.mark.parametrize("path", PATHS)
def test_they_only_read(token: None, path: str) -> None:
    assert Client().post(f"/pgjobs/{path}", **TOKEN).status_code == 405
    answer = get(path, **TOKEN)
    assert "no-cache" in answer["Cache-Control"] and "Set-Cookie" not in answer


def test_live_asks_no_database(token: None, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert get("live", **TOKEN).json() == {"status": "ok"}


def test_ready_does_not_depend_on_the_queue(token: None) -> None:
    job(ago=10_000)
    assert get("ready", **TOKEN).status_code == 200
    assert get("health", **TOKEN).status_code == 503


def test_ready_wants_the_tables_of_this_code(token: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "_migrated", set())
    run("DELETE FROM django_migrations WHERE app = 'pgjobs' AND name = '0010_statistics'")
    answer = get("ready", **TOKEN)
    assert answer.status_code == 503 and "0010_statistics" in answer.json()["why"]


def test_ready_without_a_database(token: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any) -> Any:
        raise OperationalError("connection refused")

    monkeypatch.setattr(endpoints, "rows", away)
    assert get("ready", **TOKEN).status_code == 503


def test_health_has_one_monitor_per_concern(token: None) -> None:
    worker("w-1", queues='["mail"]')
    job(queue="mail", ago=400)
    job(queue="other", ago=400)
    answer = get("health", **TOKEN)
    told = answer.json()
    assert answer.status_code == 503 and told["status"] == "problem" and told["schema"] == 1
    assert {p["code"] for p in told["problems"]} == {"NO_WORKER", "LATE"}
    assert get("health?check=WEDGED,DEAD_NEW", **TOKEN).status_code == 200
    one = get("health?check=LATE&check=WEDGED&queue=mail", **TOKEN)
    assert one.status_code == 503 and [p["queue"] for p in one.json()["problems"]] == ["mail"]
    wrong = get("health?check=NO_WORKERS", **TOKEN)
    assert wrong.status_code == 400 and "did you mean NO_WORKER?" in wrong.json()["why"]


def test_a_monitor_of_a_queue_that_is_not_there_does_not_read_well(
    token: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker("w-1", queues='["mail", "billing"]')
    minute(60, queue="reports")
    minute(60, queue="", job_type="")  # sums of what is no more
    run("UPDATE pgjobs_minute SET minute = %s", LIFETIME)
    execution("waiting", queue="flows")
    for known in ("mail", "reports", "flows", "default"):  # named, ended, stored, declared
        assert get("health", {"queue": known}, **TOKEN).status_code == 200, known

    misspelt = get("health", {"queue": "biling"}, **TOKEN)
    assert misspelt.status_code == 400 and misspelt.json()["status"] == "refused"
    assert (
        "a queue 'biling'" in misspelt.json()["why"] and "did you mean 'billing'?" in misspelt.json()["why"]
    )
    for wrong in ("", "Mail", "x\x00y", "q" * 5_000):
        assert get("health", {"queue": wrong}, **TOKEN).status_code == 400, wrong
    assert "one queue a monitor" in get("health?queue=mail&queue=billing", **TOKEN).json()["why"]
    pause("biling", ago=5)
    endpoints.verdicts.forget()
    assert get("health", {"queue": "biling"}, **TOKEN).json()["status"] == "problem"

    def away(*args: Any, **kwargs: Any) -> Any:
        raise OperationalError("canceling statement")

    monkeypatch.setattr("pgjobs.health.examination.names.unknown", away)
    unsure = get("health", {"queue": "mail"}, **TOKEN)
    assert unsure.status_code == 503 and "canceling statement" in unsure.json()["unknown"]["queue"]


def test_health_that_cannot_tell_is_not_well(token: None) -> None:
    run("ALTER TABLE pgjobs_minute RENAME TO elsewhere")
    answer = get("health", **TOKEN)
    assert answer.status_code == 503 and answer.json()["status"] == "unknown"
    assert get("health?check=NO_WORKER", **TOKEN).status_code == 200


def test_many_askers_cost_one_look(token: None, django_assert_num_queries: Any) -> None:
    get("health", **TOKEN)
    get("metrics", **TOKEN)
    with django_assert_num_queries(0):
        for _ in range(5):
            get("health", **TOKEN)
            get("metrics", **TOKEN)


def test_metrics_are_text(token: None) -> None:
    answer = get("metrics", **TOKEN)
    assert answer["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "pgjobs_dead" in parsed(answer.content.decode())


def test_a_value_is_made_once_however_many_ask_at_a_time() -> None:
    made: list[int] = []
    lately = Lately(lambda: made.append(1) or len(made), 60)
    threads = [threading.Thread(target=lately.get) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1] and lately.get() == 1
    lately.forget()
    assert lately.get() == 2


def test_a_slow_value_serves_those_who_waited_for_it() -> None:
    """A look that takes longer than its answer is kept must not be taken once for each who asks."""
    made: list[int] = []
    everybody = threading.Barrier(5)

    def slow() -> int:
        made.append(1)
        threading.Event().wait(0.3)
        return len(made)

    lately = Lately(slow, 0.2)

    def ask() -> None:
        everybody.wait(10)
        lately.get()

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]
