"""``manage.py benchmark --peers``: the whole contest, from the server to the files."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psycopg

from example_project.benchmark import machine
from example_project.benchmark.bench import Sizes
from example_project.benchmark.fleet import Fleet
from example_project.benchmark.ground import given_url, server
from example_project.benchmark.peers import report
from example_project.benchmark.peers.arena import arena
from example_project.benchmark.peers.comparison import compare
from example_project.benchmark.peers.contest import hold
from example_project.benchmark.peers.entrant import Entrant
from example_project.benchmark.peers.entrants import ALWAYS, PEERS
from example_project.benchmark.peers.turn import PARTS
from example_project.benchmark.unwinding import signals_unwind


@dataclass(frozen=True)
class Order:
    """From the command line."""

    peers: Sequence[Entrant]
    rounds: int
    folder: Path
    """Of the virtual environments."""
    database_url: str | None
    csv: Path | None
    page: Path | None
    parts: Sequence[str] = PARTS


def chosen(names: str) -> list[Entrant]:
    """Entrants by name, ``all`` for everybody. Raises ValueError for a name nobody has."""
    wanted = list(PEERS) if names == "all" else [name.strip() for name in names.split(",") if name.strip()]
    known = {entrant.name: entrant for entrant in ALWAYS} | PEERS
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"--peers {unknown[0]!r} is unknown; it can be all, or some of {','.join(known)}.")
    return [known[name] for name in dict.fromkeys([*(entrant.name for entrant in ALWAYS), *wanted])]


def run(order: Order, sizes: Sizes, say: Callable[[str], None]) -> list[str]:
    """Hold it, write the files, and return the text."""
    with signals_unwind(), ExitStack() as stack:
        given = given_url(order.database_url)
        # An embedded server is ours alone; its database only leads to those of the contest.
        url = stack.enter_context(server(given, "pgjobs_contest"))
        here = stack.enter_context(arena(url))
        fleet = stack.enter_context(Fleet())
        with psycopg.connect(url, autocommit=True) as connection:
            told = machine.describe(connection) | _caution(connection)
        told["sizes"] = ", ".join(f"{name} {value:g}" for name, value in sizes_of_contest(sizes).items())
        told["rounds"] = f"{order.rounds}, in another order each"
        outcomes = hold(
            order.peers, order.rounds, order.folder.resolve(), here, fleet, sizes, say, order.parts
        )
    lines = compare(outcomes)
    if order.csv is not None:
        report.write_csv(order.csv, outcomes, lines)
    if order.page is not None:
        report.write_page(order.page, outcomes, lines, told)
    return list(report.text(outcomes, lines, told))


def _caution(connection: psycopg.Connection) -> dict[str, str]:
    """A word of warning about a given server that loses what it acknowledged."""
    weak = [
        name
        for name in ("fsync", "synchronous_commit", "full_page_writes")
        if connection.execute("SELECT current_setting(%s)", [name]).fetchone() == ("off",)
    ]
    return {"caution": f"{' and '.join(weak)} off: these figures mean nothing"} if weak else {}


def sizes_of_contest(sizes: Sizes) -> dict[str, float]:
    names = ("jobs", "concurrency", "singles", "pickups", "idle_seconds", "executions", "steps")
    return {name: getattr(sizes, name) for name in names}
