"""What the commands of operators have in common: who acts, how long "30m" is, exit codes, and what goes wrong."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser, SystemCheckError
from django.db import Error

from pgjobs.conf import get_settings
from pgjobs.connections import is_outage, migration, not_migrated
from pgjobs.exceptions import PgJobsError
from pgjobs.health.verdict import Verdict
from pgjobs.management.screen import clean, harmless
from pgjobs.queue.audit import Actor
from pgjobs.queue.names import unknown

SCHEMA = 1
"""Version of what ``--json`` prints."""

WRONG, SKIPPED, CANNOT_TELL, REFUSED = 1, 2, 3, 4
"""Exit codes beside 0: usage or a fault; some were skipped; the database cannot be asked; a conflict, or none done."""

FOUND, MISUSED = 1, 2
"""Of commands whose verdict is 1, so that wrong usage is not."""

BEFOREHAND = " If it is new, start its workers first: manage.py runworkers --queues NAME."
"""How jobs come to a queue that is not there yet."""

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


class OperatorParser(CommandParser):
    """A parser, also of a subcommand, whose errors leave with the exit code of usage: argparse's own is a verdict."""

    wrong = WRONG
    """That exit code."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and leave."""
        if not self.called_from_command_line:
            super().error(message)
        self.print_usage(sys.stderr)
        self.exit(self.wrong, f"{self.prog}: error: {message}\n")


class DatabaseCommand(BaseCommand):
    """Tables that are not there end in their cure, and a reader who has left in silence; neither in a traceback."""

    wrong = WRONG
    """Exit code of wrong usage: one that no verdict of this command has."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Django's parser, which is made without being asked of which class."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.__class__ = OperatorParser
        assert isinstance(parser, OperatorParser)
        parser.wrong = self.wrong
        return parser

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run it."""
        try:
            output = super().execute(*args, **options)
            self.stdout.flush()  # here, where a reader that has left is still known
        except BrokenPipeError:
            with suppress(OSError):  # what is left in the buffer goes nowhere when the process ends
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(128 + signal.SIGPIPE)
        except SystemCheckError as error:
            error.returncode = self.wrong
            raise
        except (Error, CommandError) as error:
            if not (told := _why_not(error)):
                raise
            raise CommandError(told, returncode=CANNOT_TELL) from error
        return output


class OperatorCommand(DatabaseCommand):
    """Errors of pgjobs and of the database end in a sentence and an exit code, never in a traceback."""

    requires_system_checks = ["pgjobs"]

    def handle(self, *args: Any, **options: Any) -> None:
        """Call :meth:`act`."""
        try:
            self.act(**options)
        except PgJobsError as error:
            raise CommandError(harmless(str(error)), returncode=WRONG) from error

    def act(self, **options: Any) -> None:
        """What the command does."""
        raise NotImplementedError

    def say(self, text: str) -> None:
        """One line for people. What comes from rows cannot steer their terminal."""
        self.stdout.write(harmless(text))

    def print_json(self, value: Mapping[str, Any]) -> None:
        """One object, with the version of its form."""
        self.stdout.write(json.dumps({"schema": SCHEMA, **value}, default=str))


def _why_not(error: Error | CommandError) -> str:
    """That the database cannot be asked, where that is what is behind the error; empty for other errors."""
    if isinstance(error, Error) and is_outage(error):
        return f"The database cannot be asked: {clean(error)}"
    cause = error.__cause__ if isinstance(error, CommandError) else error
    return clean(migration(cause, get_settings().database)) if isinstance(cause, Error) else ""


def check_migrated(verdict: Verdict) -> None:
    """Raises :class:`CommandError` where no rule could be looked at because the tables are not there: once for all."""
    whys = set(verdict.unknown.values())
    sentence = not_migrated(get_settings().database)
    if verdict.checked_at is None and len(whys) == 1 and (why := whys.pop()).startswith(sentence):
        raise CommandError(clean(why), returncode=CANNOT_TELL)


def add_actor(parser: CommandParser | argparse.ArgumentParser, *, reason_required: bool = False) -> None:
    """``--user``, ``--reason`` and ``--json``."""
    parser.add_argument(
        "--user",
        metavar="USERNAME",
        help="who does it, a user of this project; kept on the row and in the audit (default: the command line)",
    )
    required = "; must be given" if reason_required else ""
    parser.add_argument(
        "--reason",
        default="",
        required=reason_required,
        help=f"why; kept on the row and in the audit{required}",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def check_name(option: str, kind: str, name: str | None, cure: str = "") -> None:
    """Raises :class:`CommandError` for the name of a queue or a type that nothing is known of."""
    if name is not None and (told := unknown(kind, name)):
        raise CommandError(harmless(f"{option}: {told}{cure}"), returncode=WRONG)


def subcommands(parser: CommandParser) -> Any:
    """Where the subcommands of a command are added, one of which must be named."""
    return parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=OperatorParser
    )


def user_named(name: str, cure: str = "") -> Any:
    """The user of that name. Raises :class:`CommandError` where there is none: the audit would name nobody."""
    model: Any = get_user_model()
    try:
        return model._default_manager.get_by_natural_key(name)
    except model.DoesNotExist:
        told = f"There is no user {name!r}. --user takes the {model.USERNAME_FIELD} of one that there is"
        raise CommandError(harmless(f"{told}{cure}."), returncode=WRONG) from None


def actor(user: str | None) -> Actor:
    """The user that is named, or the command line; with the account of the shell beside it.

    Raises :class:`CommandError` where there is no such user.
    """
    try:
        account = getpass.getuser()
    except (KeyError, OSError):
        account = "unknown"  # an account without a name, as in some containers
    who = (
        Actor("the command line")
        if user is None
        else Actor.of(user_named(user, "; without it the command line acts"))
    )
    return replace(who, via="command", origin=f"{account}@{socket.gethostname()}")


def duration(text: str) -> timedelta:
    """ "30m", "90s", "2h" or "1d", also put together: "1h30m"."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write it as 90s, 30m, 2h, 1d or 1h30m")
    return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))


def exit_by(results: Iterable[str], verb: str) -> None:
    """End with an error when something was left as it is: a conflict, or nothing done, weighs more than a skip."""
    told = list(results)
    left = sum(result != "done" for result in told)
    if not left:
        return
    code = REFUSED if "conflict" in told or left == len(told) else SKIPPED
    raise CommandError(f"Left as before: {left} of {len(told)} ({verb}).", returncode=code)
