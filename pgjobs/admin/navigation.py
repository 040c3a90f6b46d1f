"""The strip of pages at the top of each, with the counts that need a person."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.text import capfirst

from pgjobs.admin import kept
from pgjobs.conf import get_settings

_ORDER = (
    "overview",
    "errorgroup",
    "runningjob",
    "job",
    "deadjob",
    "queue",
    "worker",
    "execution",
    "wait",
    "tasktype",
    "activity",
    "bulkoperation",
    "operatoraction",
    "system",
)
_BADGE_SECONDS = 60


def links(site: Any, request: HttpRequest, here: str) -> list[dict[str, Any]]:
    """The pages that the user may open, in the order of the strip; ``here`` is the model of the present one."""
    admins = {
        model._meta.model_name: each
        for model, each in site._registry.items()
        if model._meta.app_label == "pgjobs"
    }
    badges = _badges(site)
    return [
        {
            "label": label(name),
            "url": reverse(f"admin:pgjobs_{name}_changelist", current_app=site.name),
            "current": name == here,
            "badge": badges.get(name, ""),
        }
        for name in _ORDER
        if name in admins and admins[name].has_view_permission(request)
    ]


def label(name: str | None) -> str:
    """What the list of a model is called: in the strip, in Django's sidebar and at its head."""
    return capfirst(str(apps.get_model("pgjobs", name or "")._meta.verbose_name_plural))


def activity(site: Any, request: HttpRequest, **wanted: str) -> str:
    """The page of what happened, of one thing alone; empty for those who may not open it, or where there is none."""
    if not request.user.has_perm("pgjobs.view_activity"):
        return ""
    try:
        address = reverse("admin:pgjobs_activity_changelist", current_app=site.name)
    except NoReverseMatch:
        return ""
    return f"{address}?{urlencode(wanted)}"


def crumbs(site: Any, name: str | None) -> tuple[tuple[str, str], ...]:
    """The list of a model, as what stands above a page."""
    return ((label(name), reverse(f"admin:pgjobs_{name}_changelist", current_app=site.name)),)


def keep_badges(site: Any, **badges: str) -> None:
    """Remember counts that a page has just read, so that the strip costs no statement."""
    known = {name: text for name, text in (_badges(site) | badges).items() if text != "0"}
    kept.keep(_key(site), known, _BADGE_SECONDS)


def _badges(site: Any) -> dict[str, str]:
    return kept.get(_key(site)) or {}


def _key(site: Any) -> str:
    return f"pgjobs:badges:{site.name}:{get_settings().database}"
