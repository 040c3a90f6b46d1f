"""``manage.py pgjobs_events``: what just happened, in order; with ``--follow`` as it happens."""

from __future__ import annotations

import datetime as dt
import json
import time
from argparse import ArgumentTypeError
from dataclasses import replace
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pgjobs.health.happenings import TARGETS, Feed, Happening, Wanted, feed, sentence
from pgjobs.management.operators import SCHEMA, WRONG, OperatorCommand, check_name, duration
from pgjobs.management.screen import ended_by_signals
from pgjobs.queue.activity import Activity

MOST = 10_000
_EVERY = 1.0
_OVERLAP = dt.timedelta(seconds=30)
"""What a transaction wrote that took so long to commit is not missed."""


class Command(OperatorCommand):
    """The oldest first, as a log is read."""

    help = (
        "Show what happened: workers that came and went, leases taken back, pauses, new errors, dead jobs, "
        "workflows, approvals, and what people did."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Which rows, and in which form."""
        add = parser.add_argument
        add("--kind", choices=Activity.Kind.values, metavar="KIND", help=", ".join(Activity.Kind.values))
        add("--queue", help="of this queue")
        add("--type", dest="job_type", help="of this job type")
        add("--workflow", help="of this workflow")
        add("--target", metavar="KIND:ID", type=_target, help="to what: worker:NAME, execution:12, job:7")
        add("--since", type=duration, metavar="TIME", help="of the last 2h, 1d")
        add("--limit", type=int, default=50, metavar="N", help="the latest N rows (default: 50)")
        add("--follow", action="store_true", help="go on as things happen, until interrupted")
        add("--json", action="store_true", help="print a JSON object a line")

    def act(self, **options: Any) -> None:
        """Print them."""
        limit = options["limit"]
        if not 1 <= limit <= MOST:
            raise CommandError(f"--limit is {limit}; give a number from 1 to {MOST:,}.", returncode=WRONG)
        for option, of, name in (
            ("--queue", "queue", "queue"),
            ("--type", "type", "job_type"),
            ("--workflow", "type", "workflow"),
        ):
            check_name(option, of, options[name])
        kind, queue, job_type, workflow = (
            options[name] or "" for name in ("kind", "queue", "job_type", "workflow")
        )
        wanted = Wanted(
            kind, queue, job_type, workflow, since=options["since"], target=options["target"] or ""
        )
        # Looked at before what is printed: what happens in between is printed, and not taken for old.
        old = _lately(wanted, feed(wanted, most=1).clock).rows if options["follow"] else []
        look = feed(wanted, most=limit)
        self._print(look.rows, options["json"])
        if options["follow"]:
            with ended_by_signals():
                self._follow(wanted, look.clock, {each.id for each in (*old, *look.rows)}, options["json"])

    def _follow(self, wanted: Wanted, clock: dt.datetime, seen: set[int], as_json: bool) -> None:
        """Look again and again, some seconds back each time; what was seen before is not printed."""
        while True:
            time.sleep(_EVERY)
            look = _lately(wanted, clock)
            self._print([each for each in look.rows if each.id not in seen], as_json)
            seen, clock = {each.id for each in look.rows}, look.clock

    def _print(self, rows: list[Happening], as_json: bool) -> None:
        for each in reversed(rows):
            if as_json:
                self.stdout.write(json.dumps({"schema": SCHEMA, **each.as_dict()}))
            else:
                self.say(f"{each.at:%Y-%m-%d %H:%M:%S %Z}  {each.kind:16} {sentence(each)}")
        self.stdout.flush()


def _target(text: str) -> str:
    kind, colon, name = text.partition(":")
    if kind not in TARGETS or not (colon and name) or "\x00" in name:
        raise ArgumentTypeError(f"{text!r} is not KIND:ID; its kind is one of {', '.join(TARGETS)}.")
    return text


def _lately(wanted: Wanted, clock: dt.datetime) -> Feed:
    """Everything since so long before ``clock``, however much that is."""
    pages = [feed(wanted, after=(clock - _OVERLAP, 0), most=MOST)]
    while pages[-1].older:
        pages.append(feed(wanted, after=(clock - _OVERLAP, 0), below=pages[-1].older, most=MOST))
    return replace(pages[0], rows=[each for page in pages for each in page.rows], older=None)
