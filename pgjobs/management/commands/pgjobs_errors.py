"""``manage.py pgjobs_errors``: causes of failures from a shell, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pgjobs.health.errorgroup import group_detail
from pgjobs.health.errors import error_groups
from pgjobs.management.causes import detail_dict, group_dict, line, lines_of, outcome_dict
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
from pgjobs.queue import acknowledging
from pgjobs.queue.acknowledging import ErrorOutcome
from pgjobs.queue.standing import OPEN

_STATES = (OPEN, "acknowledged", "all")
_SHORTEST = 4
UNNAMED = "none"
"""Stands for jobs without a fingerprint."""


class Command(OperatorCommand):
    """What the pages of errors show and do."""

    help = (
        "Causes of dead and failed jobs. A fingerprint may be cut after its first characters, as long as one only "
        "begins so."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Looking, and the verbs."""
        commands = subcommands(parser)
        listing = commands.add_parser("list", help="the causes, the latest first")
        listing.add_argument(
            "--state", choices=_STATES, default=OPEN, help="default: open; muted is acknowledged"
        )
        listing.add_argument("--queue", metavar="NAME")
        listing.add_argument("--type", metavar="NAME", dest="job_type", help="job type")
        listing.add_argument("--lately", action="store_true", help="with failures in the last hour")
        listing.add_argument(
            "--new", action="store_true", help="first seen on the newest version of the code"
        )
        listing.add_argument("--json", action="store_true", help="print one JSON object")
        show = commands.add_parser("show", help="one cause")
        show.add_argument("fingerprint")
        show.add_argument("--json", action="store_true", help="print one JSON object")
        for name, what in (
            ("ack", "known: open again when it happens on another version of the code"),
            ("mute", "not told for a time, whatever happens"),
            ("unack", "open again"),
        ):
            verb = commands.add_parser(name, help=what)
            verb.add_argument("fingerprint", nargs="+")
            add_actor(verb, reason_required=name != "unack")
            if name != "unack":
                verb.add_argument("--link", default="", metavar="ADDRESS", help="of the ticket")
            if name == "mute":
                verb.add_argument(
                    "--for", type=duration, required=True, metavar="TIME", dest="lasting", help="30m, 2h, 1d"
                )

    def act(self, **options: Any) -> None:
        """The subcommand."""
        command = options["command"]
        if command == "list":
            self._list(options)
        elif command == "show":
            self._show(options)
        else:
            self._know(command, options)

    def _list(self, options: dict[str, Any]) -> None:
        check_name("--queue", "queue", options["queue"])
        check_name("--type", "type", options["job_type"])
        found = error_groups()
        shown = found.chosen(
            state=options["state"],
            queue=options["queue"],
            job_type=options["job_type"],
            lately=options["lately"],
            new=options["new"],
        )
        if options["json"]:
            deployed = found.deployed.version if found.deployed else None
            told = {
                "checked_at": found.at.isoformat(),
                "complete": found.complete,
                "newest_version": deployed,
            }
            self.print_json({**told, "errors": [group_dict(group, found) for group in shown]})
            return
        for group in shown:
            self.say(line(group, found))
        if not shown:
            self.say("No such errors.")
        if not found.complete:
            self.say(
                "There are more than are told apart: these are the causes of the newest dead and failed jobs."
            )

    def _show(self, options: dict[str, Any]) -> None:
        given = options["fingerprint"]
        group = group_detail("" if given == UNNAMED else _full(given))
        if group is None:
            raise CommandError(_missing(given), returncode=WRONG)
        if options["json"]:
            self.print_json({"error": detail_dict(group)})
            return
        for each in lines_of(group):
            self.say(each)

    def _know(self, command: str, options: dict[str, Any]) -> None:
        names = [_full(name) for name in options["fingerprint"]]
        given: dict[str, Any] = {"actor": actor(options["user"]), "reason": options["reason"]}
        act: Callable[..., list[ErrorOutcome]] = acknowledging.unacknowledge
        if command != "unack":
            act, given["link"] = acknowledging.acknowledge, options["link"]
        if command == "mute":
            act, given["until"] = acknowledging.mute, options["lasting"]
        outcomes = act(names, **given)
        if options["json"]:
            self.print_json({"outcomes": [outcome_dict(each) for each in outcomes]})
        else:
            for each in outcomes:
                self.say(f"error {each.fingerprint}: {each.message}")
        exit_by((each.result for each in outcomes), command)


def _full(given: str) -> str:
    """The fingerprint that begins so. Raises CommandError where several do."""
    if not given or "\x00" in given:
        raise CommandError(
            f"{given!r} is no fingerprint. See: manage.py pgjobs_errors list", returncode=WRONG
        )
    names = [group.fingerprint for group in error_groups().groups]
    if given in names or len(given) < _SHORTEST:
        return given
    alike = [name for name in names if name.startswith(given)]
    if len(alike) > 1:
        raise CommandError(
            f"{len(alike)} fingerprints begin with {given!r}. Give more of it.", returncode=WRONG
        )
    return alike[0] if alike else given


def _missing(given: str) -> str:
    return (
        f"No dead or failed job has the fingerprint {given!r} (any more). "
        f"See: manage.py pgjobs_errors list --state all"
    )
