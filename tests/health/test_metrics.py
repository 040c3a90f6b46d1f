"""Metrics: well-formed, right, bounded in labels; what cannot be read is missing, never zero."""

from typing import Any

import pytest
from django.test.utils import CaptureQueriesContext

from pgjobs import metrics
from pgjobs.metrics import Family, collect, rendered
from pgjobs.queue import rollups
from pgjobs.queue.models import Minute
from pgjobs.queue.rollups import Tally
from tests.health.exposition import parsed
from tests.health.situations import approval, execution, job, minute, pause, run, worker
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db


def counted(queue: str, **ends: int) -> None:
    tally = Tally(**ends)
    for seconds in (0.005, 3, 1e6):
        tally.measure(seconds, seconds / 10)
    rollups.add({(queue, "jobsapp.ok"): tally}, using=QUEUE)


def test_an_empty_queue_has_metrics_that_parse() -> None:
    found = parsed(collect())
    assert {name: m.samples for name, m in found.items()}["pgjobs_problem"] == {}
    assert set(found["pgjobs_collector_up"].samples.values()) == {1.0}
    assert found["pgjobs_dead"].value() == 0 and found["pgjobs_scrape_seconds"].value() > 0


def test_each_figure_is_there() -> None:
    worker("w-1", queues='["mail"]', slots=4, version="v1")
    worker("w-2", beat=100)
    job(queue="mail", ago=50)
    job(queue="mail", ago=-50)
    job("running", queue="mail", ago=100)
    job("dead", ago=5)
    execution("paused")
    approval(ago=100)
    pause("reports", ago=5)
    counted("mail", done=3, dead=1)
    counted("mail", retried=2)
    found = parsed(collect())
    queues = {
        name: found[f"pgjobs_queue_{name}"].value(queue="mail")
        for name in ("ready", "ready_capped", "due_later", "running", "capacity", "paused")
    }
    assert queues == {"ready": 1, "ready_capped": 0, "due_later": 1, "running": 1, "capacity": 4, "paused": 0}
    assert 50 <= found["pgjobs_queue_oldest_claimable_age_seconds"].value(queue="mail") < 55
    assert found["pgjobs_queue_paused"].value(queue="reports") == 1
    finished = found["pgjobs_jobs_finished_total"]
    assert [finished.value(queue="mail", outcome=o) for o in ("succeeded", "failed", "dead", "retried")] == [
        3,
        0,
        1,
        2,
    ]
    waits = found["pgjobs_job_wait_seconds"]
    assert waits.value("_count", queue="mail") == waits.value("_bucket", queue="mail", le="+Inf") == 6
    assert waits.value("_bucket", queue="mail", le="0.01") == 2
    assert waits.value("_bucket", queue="mail", le="5.12") == 4
    assert waits.value("_sum", queue="mail") == pytest.approx(2_000_006.01)
    assert found["pgjobs_job_run_seconds"].value("_bucket", queue="mail", le="0.32") == 4
    assert found["pgjobs_workers"].value(state="live", version="v1") == 1
    assert found["pgjobs_workers"].value(state="silent", version="") == 1
    assert (found["pgjobs_leases_expired"].value(), found["pgjobs_dead"].value()) == (1, 1)
    assert (found["pgjobs_executions_paused"].value(), found["pgjobs_approvals_overdue"].value()) == (1, 1)
    assert 0 <= found["pgjobs_stats_age_seconds"].value() < 120


def test_counters_do_not_fall_when_old_figures_are_removed() -> None:
    counted("mail", done=3)
    Minute._base_manager.using(QUEUE).filter(minute__year__gt=1970).update(done=3)
    run("DELETE FROM pgjobs_minute WHERE minute > '1971-01-01'")
    minute(30 * 86_400, queue="mail", done=3)
    before = parsed(collect())["pgjobs_jobs_finished_total"].samples
    assert rollups.prune(14, using=QUEUE) == 1
    assert parsed(collect())["pgjobs_jobs_finished_total"].samples == before != {}


def test_what_cannot_be_read_is_missing_and_said() -> None:
    run("ALTER TABLE pgjobs_minute RENAME TO elsewhere")
    found = parsed(collect())
    up = {
        labels["collector"]: found["pgjobs_collector_up"].value(**labels)
        for labels in found["pgjobs_collector_up"].labels()
    }
    assert {name for name, value in up.items() if not value} == {"queues", "ends", "statistics", "problems"}
    assert not [name for name in found if name.startswith(("pgjobs_queue_", "pgjobs_jobs_", "pgjobs_stats_"))]
    assert found["pgjobs_dead"].value() == 0


def test_labels_are_bounded_and_the_rest_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LABELS", 3)
    for n in range(6):
        for _ in range(n + 1):
            job(queue=f"q{n}", ago=100 - n)
        counted(f"q{n}", done=1)
        worker(f"w-{n}", queues='["none"]', version=f"v{n}")
    found = parsed(collect())
    ready = found["pgjobs_queue_ready"]
    assert len(ready.samples) == 4 and sum(ready.samples.values()) == 21
    assert ready.value(queue="other") >= 4
    assert 97 <= found["pgjobs_queue_oldest_claimable_age_seconds"].value(queue="other") < 105
    assert found["pgjobs_jobs_finished_total"].value(queue="other", outcome="succeeded") == 3
    assert found["pgjobs_job_wait_seconds"].value("_count", queue="other") == 9
    assert len(found["pgjobs_workers"].samples) == 5
    assert found["pgjobs_problem"].value(code="NO_WORKER", queue="other") == 3
    assert found["pgjobs_problem"].value(code="VERSION_SKEW", queue="") == 1


@pytest.mark.parametrize(("labels", "rest"), [(1, 6), (2, None)])
def test_queues_that_are_no_more_are_part_of_the_rest_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, labels: int, rest: int | None
) -> None:
    monkeypatch.setattr(metrics, "LABELS", labels)
    for queue, done in (("", 4), ("a", 1), ("b", 2)):
        counted(queue, done=done)
    told = {
        dict(named)["queue"]: value
        for (_, named), value in parsed(collect())["pgjobs_jobs_finished_total"].samples.items()
        if dict(named)["outcome"] == "succeeded"
    }
    assert told == ({"a": 1, "other": rest} if rest else {"a": 1, "b": 2})


def test_a_queue_of_the_name_of_the_rest_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "LABELS", 2)
    for n, name in enumerate(("other", "q1", "q2")):
        job(queue=name, ago=100 - n)
    text = collect()
    ready = [line for line in text.splitlines() if line.startswith("pgjobs_queue_ready{")]
    assert sorted(ready) == ['pgjobs_queue_ready{queue="other"} 2', 'pgjobs_queue_ready{queue="q1"} 1']


def test_hostile_names_are_escaped() -> None:
    name = 'a"b\\c\nd{}'
    job(queue=name, ago=5)
    found = parsed(collect())
    assert found["pgjobs_queue_ready"].value(queue=name) == 1
    assert found["pgjobs_problem"].value(code="NO_WORKER", queue=name) == 1


def test_the_format_by_hand() -> None:
    family = Family("a_b", "gauge", "first\nsecond \\ third")
    family.add(0.1)
    family.add(10_000_000, x='"')
    assert rendered([family]) == (
        '# HELP a_b first\\nsecond \\\\ third\n# TYPE a_b gauge\na_b 0.1\na_b{x="\\""} 10000000\n'
    )


def test_a_scrape_is_bounded_in_statements() -> None:
    job(queue="mail", ago=1_000)  # what waits for long is looked at for its type
    counted("mail", done=1)
    with CaptureQueriesContext(connection) as captured:
        found = parsed(collect())
    reads = [
        q
        for q in captured.captured_queries
        if q["sql"].lstrip().startswith(("SELECT", "WITH")) and "set_config" not in q["sql"]
    ]
    assert found["pgjobs_collector_up"].value(collector="ends") == 1
    assert len(reads) <= 12, [q["sql"][:100] for q in reads]


@pytest.mark.parametrize("value", [0, 1.5, 1e20, 12345678901234567890])
def test_numbers_are_read_back(value: Any) -> None:
    assert float(metrics._number(value)) == float(value)
