"""Rounds: everybody takes a turn in each, in another order, so that a slow minute of the machine meets all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg

from example_project.benchmark.bench import Sizes
from example_project.benchmark.fleet import Fleet
from example_project.benchmark.peers.arena import Arena
from example_project.benchmark.peers.entrant import Entrant
from example_project.benchmark.peers.environments import EntrantUnavailable, Environment, environment
from example_project.benchmark.peers.turn import PARTS, Samples, Turn
from example_project.demo.crew import DemoError


@dataclass
class Outcome:
    """What one entrant showed, a mapping for each round it finished; or why it is missing."""

    entrant: Entrant
    versions: str = ""
    rounds: list[Samples] = field(default_factory=list)
    fault: str = ""


def hold(
    entrants: Sequence[Entrant],
    rounds: int,
    folder: Path,
    arena: Arena,
    fleet: Fleet,
    sizes: Sizes,
    say: Callable[[str], None],
    parts: Sequence[str] = PARTS,
) -> list[Outcome]:
    """All rounds. Who cannot be installed or fails is told of and left out from there on; the others go on."""
    outcomes = [Outcome(entrant) for entrant in entrants]
    turns: dict[str, Turn] = {}
    for outcome in outcomes:
        say(f"installing {outcome.entrant.name} ...")
        place = _attempt(outcome, partial(environment, outcome.entrant, folder), say)
        if isinstance(place, Environment):
            outcome.versions = str(place)
            turn = Turn(outcome.entrant, place, arena, fleet, sizes)
            _attempt(outcome, turn.prepare, say)
            turns[outcome.entrant.name] = turn
    for number in range(rounds):
        for outcome in rotated(outcomes, number):
            if not outcome.fault:
                say(f"round {number + 1} of {rounds}: {outcome.entrant.name} ...")
                samples = _attempt(outcome, partial(turns[outcome.entrant.name].take, parts), say)
                if isinstance(samples, dict):
                    outcome.rounds.append(samples)
    return outcomes


def rotated(outcomes: Sequence[Outcome], number: int) -> list[Outcome]:
    """Begins with another one each round."""
    first = number % len(outcomes)
    return [*outcomes[first:], *outcomes[:first]]


def _attempt(outcome: Outcome, action: Callable[[], object], say: Callable[[str], None]) -> object:
    try:
        return action()
    except (EntrantUnavailable, DemoError, psycopg.ProgrammingError) as error:
        outcome.fault = str(error)
        say(f"{outcome.entrant.name} is left out: {error}")
        return None
