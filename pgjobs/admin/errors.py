"""Errors: how many causes, since when, who knows of them, and what is safe to retry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse

from pgjobs.admin import audited, bulkplan, errordetail, errorrows, errorverbs, navigation
from pgjobs.admin.frames import ListPage, RowPage
from pgjobs.admin.joblist import LedToJobAdmin
from pgjobs.admin.limits import PANEL_SECONDS, limited, panel
from pgjobs.admin.pages import FRAGMENT
from pgjobs.health.errorgroup import heard_of
from pgjobs.health.errors import error_groups
from pgjobs.queue.standing import OPEN
from pgjobs.queue.states import JobStatus

_TABS = ("open", "acknowledged", "all")
_FLAGS = ("lately", "new")
_NAMES = ("queue", "job_type")


class ErrorAdmin(ListPage, RowPage, LedToJobAdmin):
    """A page of causes in the place of a list of rows; the id of a cause is its fingerprint."""

    list_template, list_seconds = "pgjobs/admin/errors.html", 10
    row_template, row_seconds, row_word = "pgjobs/admin/error.html", 10, "Error"

    def get_urls(self) -> list[Any]:
        """The addresses of the verbs, beside Django's own."""
        return [*errorverbs.urls(self), *super().get_urls()]

    def page_at(self, request: HttpRequest, name: str) -> HttpResponse:
        """One cause; 404 for a fingerprint that nothing ever ended by, as far as is known."""
        fingerprint = "" if name == errorrows.UNNAMED else name
        with limited(PANEL_SECONDS):
            if "\x00" in name or not heard_of(fingerprint):
                return self.missing_page(request, name)
        return self.framed(request, f"Error {name[:12]}", lambda: self._one(request, fingerprint))

    def list_content(self, request: HttpRequest) -> dict[str, Any]:
        """One row per cause."""
        given = _given(request)
        site = self.admin_site
        return {
            "groups": panel(lambda: self._rows(given)),
            "tabs": [_tab(name, given) for name in _TABS],
            "filters": {name: given[name] for name in (*_NAMES, *_FLAGS) if given[name]},
            "given": given,
            "next": _address(request),
            "plans": bulkplan.offered(request, JobStatus.DEAD.value),
            **errorverbs.context(request, site),
        }

    def _rows(self, given: dict[str, str]) -> dict[str, Any]:
        site, found = self.admin_site, error_groups()
        if found.complete:
            still_open = sum(group.state == OPEN for group in found.groups)
            navigation.keep_badges(site, errorgroup=f"{still_open:,}")
        shown = found.chosen(
            state=given["state"],
            queue=given["queue"],
            job_type=given["job_type"],
            lately=bool(given["lately"]),
            new=bool(given["new"]),
        )
        return {
            "rows": [errorrows.row(group, found, site) for group in shown],
            "complete": found.complete,
            "causes": str(len(shown)),
            "version": found.deployed.version if found.deployed else "",
            "queues": _choices((group.queue for group in found.groups), given["queue"]),
            "job_types": _choices((group.job_type for group in found.groups), given["job_type"]),
            "cleared": None if found.groups else audited.last_cleared(),
        }

    def _one(self, request: HttpRequest, fingerprint: str) -> dict[str, Any]:
        return errordetail.content(self, request, fingerprint)


def _given(request: HttpRequest) -> dict[str, str]:
    given = {name: request.GET.get(name, "") for name in _NAMES}
    given |= {name: "1" if request.GET.get(name) == "1" else "" for name in _FLAGS}
    state = request.GET.get("state", "")
    return {**given, "state": state if state in _TABS else OPEN}


def _address(request: HttpRequest) -> str:
    """Of the page, filters included, whichever of its tabs' refreshes asks."""
    params = request.GET.copy()
    params.pop(FRAGMENT, None)
    return f"{request.path}?{params.urlencode()}"


def _tab(name: str, given: dict[str, str]) -> dict[str, Any]:
    params = {key: value for key, value in {**given, "state": name}.items() if value}
    return {"label": name, "url": f"?{urlencode(params)}", "current": given["state"] == name}


def _choices(names: Iterable[str], chosen: str) -> list[str]:
    """What may be chosen, the present choice among it even where nothing has it any more."""
    return sorted({*names, *([chosen] if chosen else [])})
