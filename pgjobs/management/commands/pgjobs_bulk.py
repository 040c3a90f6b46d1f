"""``manage.py pgjobs_bulk``: bulk operations from a shell, and the way to carry one when no worker lives."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pgjobs.bulk import control
from pgjobs.bulk.control import Preview
from pgjobs.bulk.filters import KEYS, VERBS
from pgjobs.bulk.models import BulkOperation
from pgjobs.bulk.runner import Batch, carry
from pgjobs.bulk.states import BulkState
from pgjobs.conf import get_settings
from pgjobs.health.phrases import many
from pgjobs.management.operators import (
    WRONG,
    OperatorCommand,
    actor,
    add_actor,
    check_name,
    duration,
    exit_by,
    subcommands,
)
from pgjobs.management.verbs import as_dict
from pgjobs.queue.control import VerbOutcome
from pgjobs.queue.stats import live_workers
from pgjobs.redaction import redacted_text

AT_ONCE_SECONDS = 1.0
"""How long the command that starts an operation carries it itself."""

_MOVES: dict[str, tuple[Callable[..., VerbOutcome], str]] = {
    "pause": (control.pause, "hold it after the batch that is on its way"),
    "resume": (control.resume, "let it go on"),
    "release": (control.release_canary, "the canary did well: do the rest"),
    "stop": (control.stop, "end it; what was done stays done"),
}


class Command(OperatorCommand):
    """Preview by default; --yes starts."""

    help = (
        "One verb on every job that matches a filter, in paced batches that workers carry. Without --yes nothing is "
        "done: it says how many match."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """One subcommand for each verb, and those on operations."""
        commands = subcommands(parser)
        for verb in VERBS:
            self._add_verb(commands.add_parser(verb, help=f"{verb} all jobs that match"), verb)
        for name, (_, what) in _MOVES.items():
            moving = commands.add_parser(name, help=what)
            moving.add_argument("id", type=int)
            add_actor(moving)
        listing = commands.add_parser("list", help="the latest operations")
        listing.add_argument("--json", action="store_true")
        for name, what in (
            ("show", "one operation"),
            ("run", "carry it on in this process until it ends or waits"),
        ):
            one = commands.add_parser(name, help=what)
            one.add_argument("id", type=int)
            one.add_argument("--json", action="store_true")

    def _add_verb(self, parser: argparse.ArgumentParser, verb: str) -> None:
        add = parser.add_argument
        default = "dead" if verb != "cancel" else "pending"
        add("--status", choices=sorted(VERBS[verb].sources), default=default, help=f"default: {default}")
        add("--queue", metavar="NAME")
        add("--type", metavar="NAME", dest="job_type", help="job type")
        for name in set(KEYS) - {"status", "queue", "job_type"}:
            add(f"--{name.replace('_', '-')}", metavar="TEXT")
        speed = parser.add_mutually_exclusive_group()
        speed.add_argument("--rate", type=float, metavar="N", help="jobs a second")
        speed.add_argument("--spread", type=duration, metavar="TIME", help="over 5m, 1h")
        add("--canary", type=int, metavar="N", help="so many first, then wait for 'release'")
        if verb == "retry":
            add("--more-attempts", type=int, metavar="N", help="attempts that a job then has left")
            add(
                "--stop-share",
                type=float,
                metavar="SHARE",
                help="stop when more of the first end without success again",
            )
            add(
                "--stop-first",
                type=int,
                metavar="N",
                default=100,
                help="how many the first are (default: 100)",
            )
        add("--yes", action="store_true", help="do it")
        add_actor(parser)

    def act(self, **options: Any) -> None:
        """The subcommand."""
        command = options["command"]
        if command in VERBS:
            self._begin(command, options)
        elif command in _MOVES:
            self._move(command, options)
        elif command == "list":
            self._list(options)
        else:
            operation = _operation(options["id"])
            if command == "run":
                self._run(operation, options)
            self._show(_operation(options["id"]), options)

    def _begin(self, verb: str, options: dict[str, Any]) -> None:
        seen = control.preview({name: options.get(name) for name in KEYS}, verb)
        if not seen.count:
            check_name("--queue", "queue", options["queue"])
            check_name("--type", "type", options["job_type"])
        if not options["yes"]:
            self._preview(seen, options)
            return
        who = actor(options["user"])
        more = {"more_attempts": options["more_attempts"]} if verb == "retry" else {}
        rule = (
            {"stop_share": options["stop_share"], "stop_first": options["stop_first"]}
            if verb == "retry"
            else {}
        )
        planned = control.plan(
            verb,
            seen.filter,
            actor=who,
            reason=options["reason"],
            upper_id=seen.upper_id,
            pace=_pace(seen, options["rate"], options["spread"]),
            canary=options["canary"],
            options=more,
            **rule,
        )
        control.start(planned.pk, actor=who, reason=options["reason"])
        carry(planned.pk, by=str(who), seconds=AT_ONCE_SECONDS)
        self._show(_operation(planned.pk), options)

    def _preview(self, seen: Preview, options: dict[str, Any]) -> None:
        if options["json"]:
            told = {"verb": seen.verb, "filter": seen.filter, "count": seen.count, "more": seen.more}
            self.print_json({"preview": {**told, "upper_id": seen.upper_id, "sample": seen.sample}})
            return
        number = many(seen.count + seen.more, "job", seen.count)
        self.say(f"{seen.verb} of {number} that match: {seen.words}")
        for queue, job_type, jobs in seen.groups[:10]:
            self.say(f"  {queue}  {job_type}  {jobs:,}")
        if seen.sample:
            self.say(f"  for instance {', '.join(map(str, seen.sample))}")
        self.say("Nothing was done. Add --yes and --reason to do it.")

    def _move(self, command: str, options: dict[str, Any]) -> None:
        act, _ = _MOVES[command]
        outcome = act(options["id"], actor=actor(options["user"]), reason=options["reason"])
        if options["json"]:
            self.print_json({"outcomes": [as_dict("bulk", outcome)]})
        else:
            self.say(f"bulk {outcome.id}: {outcome.message}")
        exit_by([outcome.result], command)

    def _list(self, options: dict[str, Any]) -> None:
        found = BulkOperation._base_manager.using(get_settings().database).order_by("-id")[:50]
        if options["json"]:
            self.print_json({"operations": [_as_dict(operation) for operation in found]})
            return
        for operation in found:
            self.say(_line(operation))

    def _run(self, operation: BulkOperation, options: dict[str, Any]) -> None:
        if operation.state == BulkState.PREVIEWED:
            raise CommandError(f"bulk {operation.pk} has not been started.", returncode=WRONG)

        def tell(batch: Batch) -> None:
            if batch.moved and not options["json"]:
                self.say(f"bulk {operation.pk}: {batch.moved} more")

        carry(operation.pk, by="the command line", on_batch=tell)

    def _show(self, operation: BulkOperation, options: dict[str, Any]) -> None:
        workers = live_workers().exists()
        if options["json"]:
            self.print_json({"operation": _as_dict(operation), "live_workers": workers})
            return
        self.say(_line(operation))
        if operation.note:
            self.say(f"  {redacted_text(operation.note)}")
        for pk, why in operation.conflicts[:20]:
            self.say(f"  conflict: job {pk}: {why}")
        if operation.state == BulkState.RUNNING and not workers:
            self.say(f"  No worker lives to carry it on. Run: manage.py pgjobs_bulk run {operation.pk}")


def _operation(pk: int) -> BulkOperation:
    found = BulkOperation._base_manager.using(get_settings().database).filter(pk=pk).first()
    if found is None:
        raise CommandError(
            f"There is no bulk operation {pk}. See: manage.py pgjobs_bulk list", returncode=WRONG
        )
    return found


def _pace(seen: Preview, rate: float | None, spread: timedelta | None) -> float | None:
    return rate if spread is None else max(seen.count, 1) / spread.total_seconds()


def _line(operation: BulkOperation) -> str:
    number = f"{min(operation.total, 10_000):,}{'+' if operation.total > 10_000 else ''}"
    told = f"done {operation.done}, skipped {operation.skipped}, conflict {operation.conflict} of {number}"
    by = f"by {operation.actor} {operation.created_at:%Y-%m-%d %H:%M:%S %Z}"
    return f'bulk {operation.pk}: {operation.verb} "{redacted_text(operation.reason)}" {operation.state}: {told}, {by}'


def _as_dict(operation: BulkOperation) -> dict[str, Any]:
    names = [field.attname for field in BulkOperation._meta.concrete_fields]
    told = {name: getattr(operation, name) for name in names}
    return {**told, "reason": redacted_text(operation.reason), "note": redacted_text(operation.note)}
