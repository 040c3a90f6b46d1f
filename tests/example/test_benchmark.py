"""`manage.py benchmark`, tiny: every figure is there and means something; how large it is, is no matter here."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from example_project.benchmark.figures import MEANINGS, Mark, as_rows, number, percent, percentile
from pgjobs.conf import get_settings
from tests.support.measuring import Measuring, new_database, schemas

TINY = ("--jobs", "200", "--singles", "20", "--bulk", "200", "--pickups", "5", "--idle-seconds", "1")

pytestmark = [pytest.mark.workers, pytest.mark.timeout(120)]


@pytest.fixture
def benchmarks(tmp_path: Path) -> Iterator[list[Measuring]]:
    started: list[Measuring] = []
    yield started
    for benchmark in started:
        benchmark.kill()


@pytest.mark.campaign
def test_every_figure_is_measured(postgres_url: str, tmp_path: Path, benchmarks: list[Measuring]) -> None:
    file = tmp_path / "figures.json"
    with new_database(postgres_url, "somebodys") as url:
        benchmark = Measuring(tmp_path, "benchmark", "--database-url", url, "--json", str(file), *TINY)
        benchmarks.append(benchmark)
        assert benchmark.end(100) == 0, benchmark.output()
        benchmark.assert_no_process_left()
        assert schemas(url) == set()
    document = json.loads(file.read_text())
    assert set(document["values"]) | {"idle_pss_mb"} == set(MEANINGS)
    positive = {
        name: value for name, value in document["values"].items() if name != "idle_statements_per_second"
    }
    assert all(value > 0 for value in positive.values()), positive
    most = document["settings"]["concurrency"] + get_settings().max_prefetch  # short jobs are claimed ahead
    assert 1 <= document["values"]["claim_rows"] <= most
    assert document["values"]["claim_p50_ms"] <= document["values"]["claim_p95_ms"]
    assert document["settings"]["jobs"] == 200
    for told in ("at least 1,500", "at least 20,000", "below 60", "fsync", "PostgreSQL"):
        assert told in benchmark.output()


def test_an_interrupted_benchmark_leaves_nothing(
    postgres_url: str, tmp_path: Path, benchmarks: list[Measuring]
) -> None:
    with new_database(postgres_url, "somebodys") as url:
        benchmark = Measuring(tmp_path, "benchmark", "--database-url", url, "--only", "idle")
        benchmarks.append(benchmark)
        benchmark.wait_for("measuring idle")
        benchmark.process.send_signal(signal.SIGINT)
        assert benchmark.end(40) == 128 + signal.SIGINT
        benchmark.assert_no_process_left()
        assert schemas(url) == set()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--only", "drian"), "it can be drain, enqueue, pickup, idle"),
        (("--jobs", "0"), "--jobs is 0; it must be above 0"),
        (("--database-url", "mysql://x/y"), "must begin with postgres://"),
    ],
)
def test_nonsense_is_refused(
    tmp_path: Path, benchmarks: list[Measuring], options: tuple[str, ...], words: str
) -> None:
    benchmark = Measuring(tmp_path, "benchmark", *options)
    benchmarks.append(benchmark)
    assert benchmark.end(40) == 1
    assert words in benchmark.output()


def test_percentiles_are_values_that_occurred() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [percentile(values, p) for p in (1, 20, 50, 95, 100)] == [1, 1, 3, 5, 5]


def test_a_mark_is_met_from_its_own_side() -> None:
    assert Mark(10, more_is_better=True).met(10) and not Mark(10, more_is_better=True).met(9.9)
    assert Mark(10, more_is_better=False).met(9.9) and not Mark(10, more_is_better=False).met(10)


def test_numbers_for_people() -> None:
    assert [number(value) for value in (0, 0.0321, 1.5, 44.04, 999.6, 12345.6)] == [
        "0", "0.0321", "1.50", "44.0", "1,000", "12,346"
    ]  # fmt: skip
    assert [percent(0.5), percent(-0.035, 1, signed=True)] == ["50 %", "-3.5 %"]


def test_the_table_says_whether_a_mark_was_missed() -> None:
    (row,) = as_rows({"drain_jobs_per_second": 1.0})
    assert row[1:] == ["1.00", "jobs/s", MEANINGS["drain_jobs_per_second"].mark, "missed"]
