"""``manage.py pgjobs_audit``: who did what, when, why, and what came of it."""

from __future__ import annotations

import difflib
import json
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet
from django.db.models.functions import Now

from pgjobs.conf import get_settings
from pgjobs.management.operators import SCHEMA, WRONG, OperatorCommand, duration
from pgjobs.management.screen import harmless
from pgjobs.queue.models import OperatorAction
from pgjobs.queue.rights import RIGHTS
from pgjobs.redaction import redacted_texts

MOST = 100_000
"""Rows of one export."""


class Command(OperatorCommand):
    """The newest first."""

    help = "Show what operators did, tried and were refused, the newest first."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which rows, and in which form."""
        add = parser.add_argument
        add("--actor", metavar="NAME", help="who")
        add("--verb", metavar="NAME", help="what: retry, pause, …")
        add("--target", metavar="KIND[:ID]", help="to what: job, job:7, queue:billing, execution:12")
        add("--since", type=duration, metavar="TIME", help="of the last 2h, 1d")
        add("--limit", type=int, default=100, metavar="N", help="at most so many rows (default: 100)")
        form = parser.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="print one JSON object")
        form.add_argument("--ndjson", action="store_true", help="print a JSON object a line, for export")

    def act(self, **options: Any) -> None:
        """Print them."""
        limit = options["limit"]
        if not 1 <= limit <= MOST:
            raise CommandError(f"--limit is {limit}; give a number from 1 to {MOST:,}.", returncode=WRONG)
        found = _found(options)[:limit]
        if options["ndjson"]:
            for action in found.iterator(chunk_size=1_000):
                self.stdout.write(json.dumps({"schema": SCHEMA, **_as_dict(action)}))
        elif options["json"]:
            self.print_json({"actions": [_as_dict(action) for action in found]})
        else:
            for action in found:
                self.say(_line(action))
            if not found:
                self.stderr.write(harmless(_nothing(options)))


def _found(options: dict[str, Any]) -> QuerySet[OperatorAction]:
    found = OperatorAction._base_manager.using(get_settings().database).order_by("-id")
    if options["actor"]:
        found = found.filter(actor=options["actor"])
    if options["verb"]:
        found = found.filter(verb=options["verb"])
    if options["since"]:
        found = found.filter(at__gte=Now() - options["since"])
    if options["target"]:
        kind, _, name = options["target"].partition(":")
        if kind not in OperatorAction.Target.values:
            known = ", ".join(OperatorAction.Target.values)
            raise CommandError(
                f"--target is {options['target']!r}; its kind is one of {known}.", returncode=WRONG
            )
        found = found.filter(target_kind=kind)
        if name:
            named = kind in ("queue", "type") or not name.isdecimal()
            found = found.filter(target_ids__contains=[name if named else int(name)])
    return found


def _nothing(options: dict[str, Any]) -> str:
    """That nothing was found, with the verb that may have been meant."""
    given = ", ".join(
        f"--{name} {options[name]}" for name in ("actor", "verb", "target", "since") if options[name]
    )
    verbs = sorted({each.verb for each in RIGHTS})
    if options["verb"] is None or options["verb"] in verbs:
        return f"Nothing is recorded{f' with {given}' if given else ''}."
    near = difflib.get_close_matches(options["verb"], verbs, n=1)
    return f"Nothing is recorded with {given}; " + (
        f"did you mean --verb {near[0]}?" if near else f"verbs are {', '.join(verbs)}."
    )


def _as_dict(action: OperatorAction) -> dict[str, Any]:
    names = [field.attname for field in OperatorAction._meta.concrete_fields]
    told = {name: getattr(action, name) for name in names}
    hidden = {name: redacted_texts(told[name]) for name in ("reason", "details")}
    return {**told, **hidden, "at": action.at.isoformat()}


def _line(action: OperatorAction) -> str:
    ids = ", ".join(str(each) for each in action.target_ids[:5])
    more = f" and {action.target_count - 5} more" if action.target_count > 5 else ""
    counts = {"done": action.done, "skipped": action.skipped, "refused": action.refused}
    came = ", ".join(f"{number} {name}" for name, number in counts.items() if number) or "nothing yet"
    missing = action.details.get("missing_permission")
    why = f' "{redacted_texts(action.reason)}"' if action.reason else ""
    return (
        f"{action.at:%Y-%m-%d %H:%M:%S %Z}  {action.actor} ({action.via})  {action.verb} {action.target_kind} "
        f"{ids}{more}{why}: {came}" + (f" (no {missing})" if missing else "")
    )
