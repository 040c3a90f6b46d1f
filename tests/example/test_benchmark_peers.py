"""`manage.py benchmark --peers`: who is measured, when it is refused, and what the rounds come to.

The peers themselves are installed and run only when PEER_TESTS names some, as in PEER_TESTS=procrastinate.
"""

import csv
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from example_project.benchmark.bench import Sizes
from example_project.benchmark.fleet import Fleet
from example_project.benchmark.ground import GroundRefused
from example_project.benchmark.peers import chart, report
from example_project.benchmark.peers.arena import LOCK, MARK, PREFIX, arena
from example_project.benchmark.peers.comparison import MARKS, MEASURES, Line, compare
from example_project.benchmark.peers.contest import Outcome, hold, rotated
from example_project.benchmark.peers.entrant import Entrant
from example_project.benchmark.peers.entrants import ALWAYS, PEERS
from example_project.benchmark.peers.entrants.bare import BARE
from example_project.benchmark.peers.entrants.pgjobs import PGJOBS
from example_project.benchmark.peers.environments import EntrantUnavailable, environment
from example_project.benchmark.peers.run import chosen
from example_project.benchmark.peers.turn import PARTS, Samples
from tests.support.measuring import Measuring, new_database

TINY = Sizes(jobs=300, singles=5, pickups=2, idle_seconds=0.2, executions=2, steps=5)
TINY_OPTIONS = ("--rounds", "1", "--jobs", "300", "--singles", "5", "--pickups", "2", "--idle-seconds", "0.2")
WANTED = os.environ.get("PEER_TESTS", "")


@pytest.fixture
def benchmarks(tmp_path: Path) -> Iterator[list[Measuring]]:
    started: list[Measuring] = []
    yield started
    for benchmark in started:
        benchmark.kill()


def databases(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [PREFIX])
        return {name for (name,) in found}


def outcome(name: str, *rounds: Samples) -> Outcome:
    return Outcome(replace(BARE, name=name), "1.0", list(rounds))


def line(lines: list[Line], measure: str, entrant: str) -> Line:
    (found,) = [each for each in lines if (each.measure.name, each.entrant) == (measure, entrant)]
    return found


@pytest.mark.workers
@pytest.mark.timeout(120)
def test_the_command_measures_beside_the_bare_loop(
    postgres_url: str, tmp_path: Path, benchmarks: list[Measuring]
) -> None:
    """Nothing is installed for these two."""
    table, page = tmp_path / "rounds.csv", tmp_path / "page.html"
    files = ("--csv", str(table), "--chart", str(page), "--peer-dir", str(tmp_path / "none"))
    with new_database(postgres_url, "somebodys") as url:
        options = ("--peers", "bare", "--only", "drain", "--database-url", url, *TINY_OPTIONS, *files)
        benchmark = Measuring(tmp_path, "benchmark", *options)
        benchmarks.append(benchmark)
        assert benchmark.end(100) == 0, benchmark.output()
        benchmark.assert_no_process_left()
        assert databases(url) == set()
    rows = list(csv.DictReader(table.read_text().splitlines()))
    found = {(row["measure"], row["entrant"], row["round"]): float(row["value"]) for row in rows}
    assert set(found) == {
        (m, e, r) for m in ("drain", "bulk") for e in ("pgjobs", "bare") for r in ("1", "all")
    }
    assert all(value > 0 for value in found.values())
    ratio = next(
        row["pgjobs_times_better"]
        for row in rows
        if (row["measure"], row["entrant"], row["round"]) == ("drain", "bare", "all")
    )
    assert float(ratio) == pytest.approx(
        found["drain", "pgjobs", "1"] / found["drain", "bare", "1"], rel=1e-3
    )
    for told in ("fsync off", "SKIP LOCKED", "mean nothing", "first claim to last completion"):
        assert told in benchmark.output() and told in page.read_text()
    assert "at least 0.75" in benchmark.output()
    assert not (tmp_path / "none").exists()


@pytest.mark.workers
@pytest.mark.timeout(60)
def test_who_did_not_do_all_its_work_is_left_out_and_the_others_go_on(
    postgres_url: str, tmp_path: Path
) -> None:
    idler = replace(BARE, name="idler", program="bare", succeeded="SELECT count(*) - 1 FROM job")
    stranger = replace(BARE, name="stranger", program="bare", unfinished="SELECT true FROM no_such_table")
    said: list[str] = []
    with new_database(postgres_url, "somebodys") as url, arena(url) as here, Fleet() as fleet:
        sizes = replace(TINY, jobs=50)
        outcomes = hold(
            [idler, stranger, BARE], 2, tmp_path, here, fleet, sizes, said.append, parts=["drain"]
        )
    by_name = {each.entrant.name: each for each in outcomes}
    assert "49 jobs succeeded at their first attempt instead of 50" in by_name["idler"].fault
    assert "no_such_table" in by_name["stranger"].fault
    assert [len(by_name[name].rounds) for name in ("idler", "stranger", "bare")] == [0, 0, 2]
    assert any("idler is left out" in text for text in said)
    assert any("LEFT OUT after 0 rounds: 49 jobs" in text for text in report.remarks(by_name["idler"]))


def test_a_server_in_use_or_with_somebody_elses_database_is_left_alone(postgres_url: str) -> None:
    with new_database(postgres_url, "somebodys") as url, psycopg.connect(url, autocommit=True) as other:
        other.execute(LOCK, [MARK])
        with pytest.raises(GroundRefused, match="Another run"), arena(url):
            pass
        other.execute("SELECT pg_advisory_unlock_all()")
        precious = f"{PREFIX}precious"
        other.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(precious)))
        try:
            with pytest.raises(GroundRefused, match="precious"), arena(url):
                pass
            assert databases(url) == {precious}
        finally:
            other.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(precious)))


def test_what_a_killed_run_left_is_dropped(postgres_url: str) -> None:
    with new_database(postgres_url, "somebodys") as url:
        with arena(url) as here:
            here.create("left")
            assert databases(url) == {f"{PREFIX}left"}
        assert databases(url) == set()


def test_the_lead_is_the_median_of_the_rounds_own_ratios() -> None:
    """One slow round of the machine meets both, so it must not move the ratio as it moves the values."""
    lines = compare(
        [
            outcome("pgjobs", {"drain": [1000.0]}, {"drain": [100.0]}, {"drain": [900.0]}),
            outcome("pgqueuer", {"drain": [200.0]}, {"drain": [20.0]}, {"drain": [300.0]}),
        ]
    )
    assert line(lines, "drain", "pgjobs").value == 900 and line(lines, "drain", "pgjobs").lead is None
    peer = line(lines, "drain", "pgqueuer")
    assert (peer.value, peer.lead, peer.mark, peer.verdict) == (200, 5, 4, "met")
    assert [each.entrant for each in lines] == ["pgjobs", "pgqueuer"]


def test_where_less_is_better_the_lead_turns_round_and_percentiles_take_all_samples() -> None:
    lines = compare(
        [
            outcome("pgjobs", {"pickup_ms": [1.0, 2.0]}, {"pickup_ms": [3.0, 100.0]}),
            outcome("slow", {"pickup_ms": [500.0, 520.0]}, {"pickup_ms": [540.0, 1000.0]}),
        ]
    )
    assert (line(lines, "pickup_p50", "slow").value, line(lines, "pickup_p50", "slow").lead) == (520, 260)
    assert (line(lines, "pickup_p99", "slow").value, line(lines, "pickup_p99", "slow").lead) == (1000, 10)
    assert lines[0].entrant == "pgjobs"


def test_a_mark_can_be_missed_and_a_measure_can_be_lacking() -> None:
    lines = compare(
        [outcome("pgjobs", {"drain": [70.0]}), outcome("bare", {"drain": [100.0]}), outcome("none")]
    )
    assert line(lines, "drain", "bare").verdict == "missed"
    assert {each.entrant for each in lines} == {"pgjobs", "bare"}
    assert compare([outcome("bare", {"drain": [100.0]})])[0].lead is None


def test_marks_and_entrants_are_of_known_names() -> None:
    names = {entrant.name for entrant in ALWAYS} | set(PEERS)
    assert {measure for measure, _ in MARKS} <= {measure.name for measure in MEASURES}
    assert {entrant for _, entrant in MARKS} <= names
    for entrant in [*ALWAYS, *PEERS.values()]:
        assert entrant.settings and entrant.succeeded and (entrant.span or entrant.clock == "observed"), (
            entrant
        )


def test_everybody_begins_a_round_in_turn() -> None:
    three = [outcome(name) for name in "abc"]
    order = [[each.entrant.name for each in rotated(three, number)] for number in range(4)]
    assert order == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_pgjobs_and_the_bare_loop_always_take_part_and_nobody_twice() -> None:
    assert chosen("dbos, bare") == [PGJOBS, BARE, PEERS["dbos"]]
    assert chosen("all") == [PGJOBS, BARE, *PEERS.values()]
    with pytest.raises(
        ValueError, match=r"'procrastinat' is unknown; it can be all, or some of pgjobs,bare,"
    ):
        chosen("procrastinat")


def test_the_name_of_a_distribution_is_what_stands_before_its_extras_and_conditions() -> None:
    packages = ("pgqueuer[asyncpg]", "django-tasks; python_version < '3.12'", "dbos>=3")
    assert Entrant("x", (), packages).distributions == ("pgqueuer", "django-tasks", "dbos")


def test_who_needs_a_python_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    newest = replace(BARE, packages=("no-matter",), python=(3, 99))
    with pytest.raises(EntrantUnavailable, match=r"needs Python 3\.99 or newer"):
        environment(newest, tmp_path)


def test_texts_of_a_chart_are_escaped() -> None:
    drawn = chart.bars([chart.Bar("<a>", 1.0, "b & c", ours=True)], 'the "title"')
    assert (
        "&lt;a&gt;" in drawn and "b &amp; c" in drawn and "&quot;title&quot;" in drawn and "<a>" not in drawn
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--peers", "resque"), "'resque' is unknown; it can be all"),
        (("--peers", "bare", "--only", "idle"), f"it can be {', '.join(PARTS)}"),
        (("--peers", "bare", "--rounds", "0"), "--rounds is 0; it must be above 0"),
    ],
)
def test_nonsense_is_refused(
    tmp_path: Path, benchmarks: list[Measuring], options: tuple[str, ...], words: str
) -> None:
    benchmark = Measuring(tmp_path, "benchmark", *options)
    benchmarks.append(benchmark)
    assert benchmark.end(40) == 1
    assert words in benchmark.output()


@pytest.mark.workers
@pytest.mark.timeout(900)
@pytest.mark.skipif(not WANTED, reason="installs other queues; set PEER_TESTS to their names or to all")
def test_peers_do_all_their_work(postgres_url: str, tmp_path: Path) -> None:
    peers = chosen(WANTED)
    folder = Path(os.environ.get("PEER_DIR", tmp_path / "peers"))
    with new_database(postgres_url, "somebodys") as url, arena(url) as here, Fleet() as fleet:
        outcomes = hold(peers, 1, folder.resolve(), here, fleet, TINY, print)
    unavailable = [each for each in outcomes if not each.versions]
    for each in outcomes:
        assert each in unavailable or not each.fault, each.fault
    if unavailable:
        pytest.skip("; ".join(f"{each.entrant.name}: {each.fault}" for each in unavailable))
