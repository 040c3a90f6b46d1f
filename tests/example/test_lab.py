"""`manage.py lab`, tiny: relations between what it measures, never times. And what it leaves behind: nothing."""

import csv
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from example_project.benchmark.ground import GroundRefused, own_schema
from example_project.lab import sentences
from example_project.lab.plan import QUICK
from example_project.lab.throughput import Cell
from tests.support.measuring import Measuring, new_database, schemas
from tests.support.waiting import wait_until

JOBS, WORKERS = 40, 4
TINY = {
    "--workers": str(WORKERS),
    "--jobs": str(JOBS),
    "--milliseconds": "10",
    "--activity-milliseconds": "200",
    "--completed": "3000",
    "--future": "3000",
    "--dead": "300",
    "--job-seconds": "1",
    "--lease-seconds": "1",
}
# Enough to have processes and tables, and then something that goes on.
STARTED = (
    "--quick",
    "--strategies",
    "held",
    "--workers",
    f"{WORKERS},{WORKERS + 1}",
    "--milliseconds",
    "100",
)

pytestmark = [pytest.mark.workers, pytest.mark.timeout(170)]


@dataclass(frozen=True)
class Run:
    """What a tiny lab wrote, and what it left in its database."""

    folder: Path
    output: str
    left: set[str]

    def rows(self, name: str) -> list[dict[str, str]]:
        with (self.folder / f"{name}.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def row(self, name: str, **wanted: str) -> dict[str, str]:
        (found,) = [row for row in self.rows(name) if wanted.items() <= row.items()]
        return found

    @property
    def report(self) -> str:
        return (self.folder / "report.html").read_text()


@pytest.fixture(scope="module")
def tiny(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("lab")
    options = [part for pair in TINY.items() for part in pair]
    with new_database(postgres_url, "pgjobs_lab") as url:
        lab = Measuring(folder, "lab", "--quick", "--database-url", url, "--out", str(folder), *options)
        try:
            assert lab.end(150) == 0, lab.output()
            lab.assert_no_process_left()
            yield Run(folder, lab.output(), schemas(url))
        finally:
            lab.kill()


@pytest.fixture
def labs(tmp_path: Path) -> Iterator[list[Measuring]]:
    """Labs to be ended with the test, whatever it did."""
    started: list[Measuring] = []
    yield started
    for lab in started:
        lab.kill()


def test_only_naive_hands_a_job_out_twice(tiny: Run) -> None:
    executions = {
        row["strategy"]: int(row["executions"]) for row in tiny.rows("benchmark") if row["workers"] == "4"
    }
    assert executions.pop("naive") > JOBS
    assert executions == {"blocking": JOBS, "held": JOBS, "skip_locked": JOBS, "pgjobs": JOBS}


def test_attempt_count_drifts_with_the_duplicates(tiny: Run) -> None:
    for row in tiny.rows("benchmark"):
        assert int(row["attempt_drift"]) == int(row["duplicates"]) == int(row["executions"]) - JOBS


def test_the_claim_log_has_every_hand_out(tiny: Run) -> None:
    log = [row for row in tiny.rows("claims") if row["strategy"] == "naive"]
    cell = tiny.row("benchmark", strategy="naive")
    assert len(log) == int(cell["executions"])
    worst = {row["worker"] for row in log if row["job"] == cell["worst_job"]}
    assert len(worst) == int(cell["worst_workers"]) > 1


def test_held_keeps_a_transaction_open_for_each_worker(tiny: Run) -> None:
    rows = {row["strategy"]: row for row in tiny.rows("activity")}
    assert int(rows["held"]["idle_in_transaction"]) == WORKERS
    assert int(rows["skip_locked"]["idle_in_transaction"]) == 0
    assert float(rows["pgjobs"]["idle_in_transaction_median"]) == 0
    assert int(rows["held"]["dead_after_vacuum"]) > int(rows["skip_locked"]["dead_after_vacuum"])
    assert all(int(row["samples"]) > 0 for row in rows.values())


def test_the_claim_reads_the_partial_index_at_both_depths(tiny: Run) -> None:
    shallow = tiny.row("buried", table="nothing beneath")
    deep = tiny.row("buried", table="completed rows beneath")
    bare = tiny.row("buried", table="the same without the index")
    for depth in (shallow, deep):
        assert (depth["node"], depth["index"]) == ("Index Scan", "pgjobs_job_claim")
        assert 0 < int(depth["find_buffers"]) <= 20
    assert bare["node"] == "Seq Scan"
    assert int(bare["find_buffers"]) > int(deep["find_buffers"])
    partial, full = tiny.rows("indexes")
    assert int(partial["bytes"]) < int(full["bytes"])


def test_the_lost_job_is_finished_at_its_second_attempt(tiny: Run) -> None:
    samples = tiny.rows("crash")
    last = {row["job"]: row for row in samples}
    assert [row["status"] for row in last.values()] == ["succeeded"] * 3
    lost = next(row["job"] for row in samples if row["worker"] == "A")
    assert {job: row["attempts"] for job, row in last.items()} == {
        job: "2" if job == lost else "1" for job in last
    }
    overdue = [
        row for row in samples if row["job"] == lost and row["lease_left"] and float(row["lease_left"]) < 0
    ]
    assert overdue and {row["status"] for row in overdue} == {"running"}
    assert any(row["job"] == lost and row["status"] == "pending" for row in samples)


def test_the_report_stands_alone(tiny: Run) -> None:
    report = tiny.report
    assert not re.search(r"<script|<link|\ssrc=|\shref=|url\(|@import|https?://", report)
    assert "prefers-color-scheme: dark" in report
    assert report.count("<svg") == 6
    for published in ("1,286 for 400 jobs", "10,216 buffers", "2.52 s", "attempt_count 2"):
        assert published in report
    assert "not in this run" in report  # 16 workers were not asked for
    assert "PostgreSQL" in report and "fsync" in report
    assert "went to" in report


def test_nothing_is_left_behind(tiny: Run) -> None:
    assert tiny.left == set()
    assert tiny.output.startswith("This should take about ")


def test_an_interrupted_lab_leaves_no_process_and_no_table(
    postgres_url: str, tmp_path: Path, labs: list[Measuring]
) -> None:
    with new_database(postgres_url, "pgjobs_lab") as url:
        lab = Measuring(tmp_path, "lab", *STARTED, "--database-url", url, "--out", str(tmp_path / "out"))
        labs.append(lab)
        lab.wait_for("throughput: held, 5 workers")  # so the 4 of the step before have been started
        assert len(lab.processes()) > WORKERS and schemas(url) == {"pgjobs_lab"}
        lab.process.send_signal(signal.SIGINT)
        assert lab.end(40) == 128 + signal.SIGINT
        lab.assert_no_process_left()
        assert schemas(url) == set()
    assert not (tmp_path / "out").exists()


def test_a_killed_lab_leaves_no_process(postgres_url: str, tmp_path: Path, labs: list[Measuring]) -> None:
    with new_database(postgres_url, "pgjobs_lab") as url:
        lab = Measuring(tmp_path, "lab", *STARTED, "--database-url", url)
        labs.append(lab)
        lab.wait_for("throughput: held, 5 workers")
        assert len(lab.processes()) > WORKERS
        lab.process.kill()
        lab.end()
        lab.assert_no_process_left()


def test_a_database_that_is_not_the_labs_own_is_refused(
    postgres_url: str, tmp_path: Path, labs: list[Measuring]
) -> None:
    with new_database(postgres_url, "production") as url:
        lab = Measuring(tmp_path, "lab", "--quick", "--database-url", url)
        labs.append(lab)
        assert lab.end(40) == 1
        assert "production" in lab.output() and "--i-know" in lab.output()
        assert schemas(url) == set()


def test_a_schema_of_somebody_else_is_left_alone(postgres_url: str) -> None:
    with new_database(postgres_url, "pgjobs_lab") as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE SCHEMA pgjobs_lab")
            connection.execute("CREATE TABLE pgjobs_lab.precious ()")
        with pytest.raises(GroundRefused, match="not made by this command"), own_schema(url, "pgjobs_lab"):
            pass
        with psycopg.connect(url) as connection:
            connection.execute("SELECT FROM pgjobs_lab.precious")


def test_two_runs_do_not_share_a_schema_and_leftovers_are_dropped(postgres_url: str) -> None:
    with new_database(postgres_url, "pgjobs_lab") as url:
        with own_schema(url, "pgjobs_lab"):
            with pytest.raises(GroundRefused, match="Another run"), own_schema(url, "pgjobs_lab"):
                pass
            with psycopg.connect(url) as connection:
                mark = "SELECT obj_description('pgjobs_lab'::regnamespace)"
                (comment,) = connection.execute(mark).fetchone() or ("",)
        with psycopg.connect(url, autocommit=True) as connection:  # as a killed run leaves it
            connection.execute("CREATE SCHEMA pgjobs_lab")
            connection.execute("CREATE TABLE pgjobs_lab.leftover ()")
            connection.execute(
                psycopg.sql.SQL("COMMENT ON SCHEMA pgjobs_lab IS {}").format(psycopg.sql.Literal(comment))
            )

        def made_again() -> bool:  # the server ends the first run's session a moment after its client
            try:
                with own_schema(url, "pgjobs_lab") as inside, psycopg.connect(inside) as connection:
                    return connection.execute("SELECT to_regclass('leftover')").fetchone() == (None,)
            except GroundRefused:
                return False

        wait_until(made_again, 10, "the schema made afresh")
        assert schemas(url) == set()


def test_sentences_say_what_a_run_shows() -> None:
    clean = cell(executions=10, duplicates=0, worst_workers=1)
    assert sentences.of_handouts([clean]) == [
        "naive: every job was handed out exactly once, with 4 workers (10 hand-outs for 10 jobs).",
        "No job went to two workers in this run.",
    ]
    torn = cell(executions=17, duplicates=7, worst_workers=3)
    first, worst = sentences.of_handouts([torn])
    assert first.startswith("naive: 17 hand-outs for 10 jobs with 4 workers, 70 % more work")
    assert worst == "Job 7 (naive, 4 workers) went to 3 workers within 2.20 ms."


def test_the_quick_run_foresees_less_than_90_seconds() -> None:
    assert QUICK.seconds() < 90


def cell(*, executions: int, duplicates: int, worst_workers: int) -> Cell:
    return Cell(
        strategy="naive",
        workers=4,
        processes=4,
        slots=1,
        jobs=10,
        milliseconds=25,
        executions=executions,
        duplicates=duplicates,
        wasted=duplicates / 10,
        seconds=1,
        jobs_per_second=10,
        claim_p50_ms=1,
        claim_p95_ms=1,
        attempt_drift=duplicates,
        worst_job=7,
        worst_handouts=worst_workers,
        worst_workers=worst_workers,
        worst_within_ms=2.2,
    )
