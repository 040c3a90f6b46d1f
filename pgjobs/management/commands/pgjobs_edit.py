"""``manage.py pgjobs_edit``: retry a job with another payload, from a shell."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pgjobs.management.operators import (
    BEFOREHAND,
    WRONG,
    OperatorCommand,
    actor,
    add_actor,
    check_name,
    duration,
    exit_by,
)
from pgjobs.management.verbs import as_dict
from pgjobs.queue.editing import edit_copy


class Command(OperatorCommand):
    """The edited payload becomes a new job; the old row is kept as it ran."""

    help = (
        "Enqueue a job that ended without success anew with another payload. The old row is kept, and says what "
        "superseded it. Where the payload holds the mark «redacted», what is stored is kept."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Which job, what with, and how."""
        parser.add_argument("id", type=int, help="id of the job")
        parser.add_argument(
            "--payload", required=True, metavar="FILE", help="the whole payload as JSON; - is standard input"
        )
        parser.add_argument("--max-attempts", type=int, metavar="N", help="budget of the new job")
        parser.add_argument(
            "--run-after", type=duration, metavar="TIME", help="not at once, but in 30m, 2h, 1d"
        )
        parser.add_argument("--queue", metavar="NAME")
        parser.add_argument("--priority", type=int, metavar="N")
        add_actor(parser)

    def act(self, **options: Any) -> None:
        """Copy it, or say why not."""
        check_name("--queue", "queue", options["queue"], BEFOREHAND)
        outcome = edit_copy(
            options["id"],
            _read(options["payload"]),
            actor=actor(options["user"]),
            reason=options["reason"],
            max_attempts=options["max_attempts"],
            run_after=options["run_after"],
            queue=options["queue"],
            priority=options["priority"],
        )
        if options["json"]:
            self.print_json({"outcomes": [as_dict("job", outcome)]})
        else:
            self.say(f"job {outcome.id}: {outcome.message}")
        exit_by([outcome.result], "edit")


def _read(name: str) -> Any:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"--payload {name} cannot be read: {error}.", returncode=WRONG) from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CommandError(
            f"--payload {name} is no JSON: line {error.lineno}, column {error.colno}: {error.msg}.",
            returncode=WRONG,
        ) from error
