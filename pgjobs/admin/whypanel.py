"""Why a job is not running, or an execution does not go on, as their pages show it."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from pgjobs.admin import queuerows
from pgjobs.admin.limits import Panel, panel
from pgjobs.health.answer import FAIL, Why
from pgjobs.health.why import why
from pgjobs.health.why_execution import why_execution

_PAGES = {"job": "job", "execution": "execution", "approval": "wait"}
_MARKS = {"ok": "✓", "fail": "✖", "info": "–"}


def of(pk: int, site: Any) -> Panel:
    """The checks of a job in their order, the first that fails marked as the reason."""
    return panel(lambda: _shown(why(pk), site))


def of_execution(pk: int, site: Any) -> Panel:
    """The same of an execution."""
    return panel(lambda: _shown(why_execution(pk), site))


def _shown(found: Why | None, site: Any) -> dict[str, Any]:
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
    if kind in _PAGES:
        return reverse(f"admin:pgjobs_{_PAGES[kind]}_change", args=[name], current_app=site.name)
    if kind == "worker":
        return reverse("admin:pgjobs_worker_changelist", current_app=site.name)
    return ""
