"""Pages of docs/ that are made from the code: `python -m tests.house.documents` writes them anew."""

import ast
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def attribute_docs(owner: type) -> dict[str, str]:
    """The string below each attribute of a class, which Python itself forgets."""
    [body] = [
        node.body for node in ast.parse(inspect.getsource(owner)).body if isinstance(node, ast.ClassDef)
    ]
    told: dict[str, str] = {}
    for statement, following in pairwise(body):
        target = (
            statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        )
        text = getattr(getattr(following, "value", None), "value", None)
        if isinstance(target, ast.Name) and isinstance(text, str):
            told[target.id] = inspect.cleandoc(text)
    return told


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *[list(row) for row in rows]]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def diagram(start: str, moves: Iterable[Any], terminal: Iterable[str]) -> str:
    arrows: dict[tuple[str, str], list[str]] = {}
    for move in moves:
        arrows.setdefault((move.source.value, move.target.value), []).append(move.verb)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {start}"]
    lines += [f"    {source} --> {target}: {', '.join(verbs)}" for (source, target), verbs in arrows.items()]
    lines += [f"    {status} --> [*]" for status in terminal]
    return "\n".join([*lines, "```"])


def machine(
    statuses: Any, start: str, moves: Iterable[Any], terminal: Iterable[Any], verbs: Mapping[str, str]
) -> str:
    """Diagram, statuses and arrows of one kind of row."""
    told = attribute_docs(statuses)
    final = [status for status in statuses if status in set(terminal)]

    def when(move: Any) -> str:
        return (
            getattr(move, "meaning", "") or verbs.get(f"{move.verb} {move.target.value}") or verbs[move.verb]
        )

    arrows = [(f"`{m.source.value}`", f"`{m.target.value}`", m.verb, when(m)) for m in moves]
    return "\n\n".join(
        [
            diagram(start, moves, [status.value for status in final]),
            table(
                ["Status", "Meaning", "Ended"],
                [(f"`{s.value}`", told[s.name], "yes" if s in final else "") for s in statuses],
            ),
            table(["From", "To", "Verb", "When"], arrows),
        ]
    )


EXECUTION_VERBS = {
    "claim": "a worker takes the lease and replays the body up to where it stood",
    "park": "the body waits: a sleep, an approval, a signal, jobs or a child",
    "release": "the worker shut down in order, or the body hands its turn back",
    "postpone": "the turn broke off for a fault that passes by itself; the next one begins after a delay",
    "reap": "the worker died; a crash is spent",
    "reap paused": "the worker died and the crash budget is spent: a person must look",
    "pause": "the code diverged from the history, or a person paused it",
    "finish": "the body returned",
    "fail": "the body raised",
    "wake": "what it waits for has come, or its time has",
    "resume": "a person lets it go on",
    "retry": "a person tries again; recorded steps are kept",
    "cancel": "stopped by a person or by code; a holder loses its lease",
}


def states() -> str:
    from pgjobs.queue import states as jobs
    from pgjobs.workflows import states as executions

    job = machine(jobs.JobStatus, "pending", jobs.MOVES, jobs.TERMINAL, {})
    execution = machine(
        executions.ExecutionStatus, "enqueued", executions.MOVES, executions.TERMINAL, EXECUTION_VERBS
    )
    return f"""# States

Made from `pgjobs.queue.states` and `pgjobs.workflows.states`, the tables that the constraints of the database and the
verbs of the code are built from. Every arrow is one function with its guard inside; nothing else assigns a status.
Every arrow that leaves `running` names the row's id, the status and the lease token, so only the present holder (or
the reaper, once the lease has lapsed, or a person who cancels) can take it.

## Jobs

{job}

A `running` row has an owner, a token and an expiry, and no other row has any of them: a CHECK constraint of the
database. Exceptions spend `max_attempts`, deaths of workers spend `max_crashes`; a shutdown in order and a snooze
spend neither.

## Executions

{execution}
"""


def settings() -> str:
    from pgjobs.conf import Settings

    told = attribute_docs(Settings)
    rows = []
    for field in fields(Settings):
        default = "" if field.default is MISSING else f"`{field.default!r}`"
        meaning = " ".join(told[field.name].replace("``", "`").split())
        rows.append((f"`{field.name.upper()}`", default, meaning))
    return f"""# Settings

All of them are keys of one dict in the project's settings, and all have a default:

```python
PGJOBS = {{"LEASE_SECONDS": 60, "HEARTBEAT_SECONDS": 15}}
```

Durations are in seconds, sizes in bytes. An unknown key is refused with the nearest known one, a value of the wrong
kind with the rule; both at the first use, and by the [system checks](checks.md), which also compare keys with each
other. Options of `runworkers` replace settings for that command.

{table(["Key", "Default", "Meaning"], rows)}
"""


PAGES: dict[str, Callable[[], str]] = {"states.md": states, "settings.md": settings}


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django

    django.setup()
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")
