"""``manage.py pgjobs_roles``: the groups of permissions that most projects want."""

from __future__ import annotations

import json
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from pgjobs.queue.rights import OPERATOR, RIGHTS

VIEWER, OPERATORS, ADMIN = "pgjobs viewer", "pgjobs operator", "pgjobs admin"


class Command(BaseCommand):
    """Creates the groups, and gives them what they lack; takes nothing away."""

    help = (
        f"Make the groups '{VIEWER}' (sees all, secrets redacted), '{OPERATORS}' (single and ticked rows, pauses) "
        f"and '{ADMIN}' (everything, payloads and bulk operations included). Run again, it adds what is new."
    )
    requires_system_checks = ["pgjobs"]

    def add_arguments(self, parser: CommandParser) -> None:
        """For people or for programs."""
        parser.add_argument("--json", action="store_true", help="print the groups as one JSON object")

    def handle(self, **options: Any) -> None:
        """Make them, and say what each may do."""
        codes = {each.permission.partition(".")[2] for each in RIGHTS} | {"bulk_job"}
        found = {p.codename: p for p in Permission.objects.filter(content_type__app_label="pgjobs")}
        missing = sorted({*codes} - found.keys())
        if missing:
            raise CommandError(f"There are no permissions {', '.join(missing)} yet. Run: manage.py migrate")
        views = {name for name in found if name.startswith("view_") and name != "view_payload"}
        roles = {VIEWER: views, OPERATORS: views | {*OPERATOR}, ADMIN: views | codes}
        with transaction.atomic():
            for name, wanted in roles.items():
                group, _ = Group.objects.get_or_create(name=name)
                group.permissions.add(*(found[code] for code in wanted))
        if options["json"]:
            self.stdout.write(json.dumps({"schema": 1, "groups": {k: sorted(v) for k, v in roles.items()}}))
            return
        for name, wanted in roles.items():
            self.stdout.write(f"{name}: {', '.join(sorted(wanted))}")
