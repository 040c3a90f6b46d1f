"""Why a waiting job is not running, as the page shows it."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from pgjobs.admin import queuerows
from pgjobs.admin.limits import Panel, panel
from pgjobs.health.why import FAIL, why

_MARKS = {"ok": "✓", "fail": "✖", "info": "–"}


def of(pk: int, site: Any) -> Panel:
    """The checks in their order, the first that fails marked as the reason."""
    return panel(lambda: _read(pk, site))


def _read(pk: int, site: Any) -> dict[str, Any]:
    found = why(pk)
    if found is None:
        return {"checks": [], "cure": ""}
    reason = found.reason
    checks = [
        {
            "state": check.state,
            "mark": _MARKS.get(check.state, "–"),
            "sentence": check.sentence,
            "first": check is reason and check.state == FAIL,
            "url": _target(check.kind, check.target, site),
        }
        for check in found.checks
    ]
    return {"checks": checks, "cure": found.cure}


def _target(kind: str, name: str, site: Any) -> str:
    if not name:
        return ""
    if kind == "queue":
        return queuerows.address(site, name)
    if kind == "job":
        return reverse("admin:pgjobs_job_change", args=[name], current_app=site.name)
    if kind == "worker":
        return reverse("admin:pgjobs_worker_changelist", current_app=site.name)
    return ""
