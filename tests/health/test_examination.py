"""Each rule on a seeded situation, what is unknown, and that nothing is invented."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import OperationalError

from pgjobs.health import examination, facts, work, workers
from pgjobs.health.examination import RULES, examine
from pgjobs.health.verdict import CODES, Problem, ranked
from tests.health.situations import SITUATIONS, Situation, job, run, worker
from tests.house.documents import DOCS
from tests.support.own_database import connection

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
def test_each_situation_is_told_and_no_other(situation: Situation) -> None:
    situation.seed()
    verdict = examine()
    assert verdict.unknown == {}
    assert tuple((p.code, p.queue) for p in verdict.problems) == situation.codes, verdict.problems
    assert verdict.state == ("problem" if situation.codes else "ok")
    assert verdict.checked_at is not None
    for problem in verdict.problems:
        assert problem.why and problem.cure
    if situation.since_ago is not None:
        since = verdict.problems[0].since
        assert since is not None
        assert abs((verdict.checked_at - since).total_seconds() - situation.since_ago) < 5
    for words in situation.says:
        assert words in verdict.problems[0].why


def test_dead_jobs_above_the_limit(settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "DEAD_ALERT": 3}
    for status in ("dead", "failed", "dead"):
        job(status, ago=90_000)
    assert examine().problems == []
    job("failed", ago=5)
    (problem,) = examine().problems
    assert (
        problem.code == "DEAD_TOTAL"
        and "3+ dead and failed jobs" in problem.why
        and "1 of them" in problem.why
    )


def test_a_queue_may_have_its_own_limit(settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "QUEUE_SLO_SECONDS": 100, "QUEUE_SLO": {"slow": 1000}}
    worker()
    job(ago=120, queue="slow")
    job(ago=120, queue="mail")
    assert [p.queue for p in examine().problems] == ["mail"]


@pytest.mark.django_db(transaction=True)
def test_an_old_transaction_holds_back_vacuum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "OLD_TRANSACTION_SECONDS", 0)
    params = {
        k: v for k, v in connection.get_connection_params().items() if k not in ("cursor_factory", "context")
    }
    assert examine().problems == []
    with psycopg.connect(**params, application_name="long report") as other:
        other.execute("SELECT txid_current()")
        (problem,) = examine().problems
        assert problem.code == "DB_HORIZON" and "long report" in problem.why
        assert str(other.info.backend_pid) in problem.cure
        assert problem.since is not None


def test_a_rule_that_takes_too_long_is_unknown_and_the_others_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job(ago=30)

    def slow(facts: Any) -> Any:
        facts.reader.ask("SELECT pg_sleep(5)")
        yield

    monkeypatch.setitem(examination.RULES, "LATE", slow)
    verdict = examine()
    assert verdict.unknown == {"LATE": "took longer than 500ms"}
    assert [p.code for p in verdict.problems] == ["NO_WORKER"]
    assert verdict.state == "problem" and verdict.only(["LATE"]).state == "unknown"
    assert verdict.only(["WEDGED"]).state == "ok"


def test_more_queues_than_are_looked_at_are_unknown_not_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "LANES", 3)
    for n in range(3):
        job(queue=f"q{n}")
    worker(handlers=None)
    assert examine().state == "ok"
    job(queue="q3")
    verdict = examine()
    assert set(verdict.unknown) == {"NO_WORKER", "STALLED", "LATE", "UNKNOWN_TYPES"}
    assert verdict.state == "unknown"


def test_more_workers_or_running_rows_than_are_looked_at_are_unknown_not_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "MOST", 2)
    monkeypatch.setattr(work, "RUNNING", 2)
    worker("w-1")
    worker("w-2", beat=9_000, poll=9_000)
    job("running", ago=-9)
    assert examine().state == "ok", "the second died long ago, and the rest before it"
    worker("w-3")
    job("running", ago=-9)
    unknown = examine().unknown
    assert set(unknown) == examination.OF_WORKERS | examination.OF_HELD
    assert unknown["WEDGED"].startswith("more than 2 workers are alive")
    assert unknown["LEASE_LOST"] == "more than 2 jobs or executions run; the rest was not looked at"


def test_the_last_of_many_queues_is_looked_at() -> None:
    for n in range(300):
        job(queue=f"q{n:03}", ago=0 if n < 299 else 3600)
    worker(handlers=None)
    verdict = examine()
    assert [(p.code, p.queue) for p in verdict.problems] == [("LATE", "q299")]


def test_a_table_that_cannot_be_read_is_unknown_not_fine() -> None:
    run("ALTER TABLE pgjobs_minute RENAME TO elsewhere")
    verdict = examine()
    assert set(verdict.unknown) == {"DEAD_NEW", "STATS_STALE"} and verdict.state == "unknown"
    assert "Cannot tell" in verdict.sentence and "pgjobs_minute" in verdict.sentence


def test_a_database_that_is_away_leaves_everything_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any) -> Any:
        raise OperationalError("connection refused")

    monkeypatch.setattr("pgjobs.health.reading.rows", away)
    monkeypatch.setattr(examination, "drop", lambda using: None)
    verdict = examine()
    assert set(verdict.unknown) == set(RULES) and set(verdict.unknown.values()) == {"connection refused"}
    assert (verdict.state, verdict.checked_at, verdict.problems) == ("unknown", None, [])


def test_the_limit_of_the_caller_holds_again_afterwards() -> None:
    run("SET LOCAL statement_timeout = '7s'")
    examine()
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("7s",)


def test_problems_are_ranked_by_code_and_age() -> None:
    clock = examine().checked_at
    assert clock is not None
    late = [Problem("LATE", "w", "c", clock - timedelta(n), queue=str(n)) for n in (1, 3, 2)]
    told = ranked([*late, Problem("STATS_STALE", "w", "c"), Problem("NO_WORKER", "w", "c")])
    assert [(p.code, p.queue) for p in told] == [
        ("NO_WORKER", ""),
        ("LATE", "3"),
        ("LATE", "2"),
        ("LATE", "1"),
        ("STATS_STALE", ""),
    ]


def test_every_rule_has_a_code_and_every_code_a_rule() -> None:
    assert set(RULES) == set(CODES)


def test_the_page_has_every_rule() -> None:
    page = (DOCS / "monitoring.md").read_text(encoding="utf-8")
    for code, (severity, text) in CODES.items():
        assert f"| `{code}` | {severity.value} | {text} |" in page
