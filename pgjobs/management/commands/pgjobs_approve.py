"""``manage.py pgjobs_approve``: a named user's decision on an approval, from a shell."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from pgjobs.management.operators import REFUSED, WRONG, OperatorCommand, user_named
from pgjobs.management.screen import harmless
from pgjobs.workflows.approvals import decide, reason_missing


class Command(OperatorCommand):
    """Approve or reject, with the rights of the user that is named."""

    help = "Approve or reject what a workflow asks, in the name of a user who has the right to decide it."

    def add_arguments(self, parser: CommandParser) -> None:
        """What, which way, who, and why."""
        parser.add_argument("wait_id", type=int, help="id of the approval")
        way = parser.add_mutually_exclusive_group(required=True)
        way.add_argument("--approve", action="store_true", dest="approved", default=None)
        way.add_argument("--reject", action="store_false", dest="approved")
        parser.add_argument("--user", required=True, metavar="USERNAME", help="who decides")
        parser.add_argument("--reason", default="", help="why; kept with the decision; a rejection needs it")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def act(self, **options: Any) -> None:
        """Decide, or say why not."""
        wait_id, approved, reason = options["wait_id"], options["approved"], options["reason"]
        if missing := reason_missing(approved, reason):
            raise CommandError(f"Nothing was decided. --reason: {missing}", returncode=WRONG)
        decision = decide(
            wait_id, approved=approved, actor=user_named(options["user"]), reason=reason, via="command"
        )
        if options["json"]:
            self.print_json({"approval": wait_id, "done": decision.done, "message": decision.message})
        elif decision.done:
            self.say(f"approval {wait_id}: {decision.message}")
        if not decision.done:
            raise CommandError(f"Nothing was changed: {harmless(decision.message)}.", returncode=REFUSED)
