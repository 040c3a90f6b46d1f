"""Activity: what just happened, in order."""

from __future__ import annotations

import datetime as dt
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse

from pgjobs.admin import errorrows, marks
from pgjobs.admin.ages import moment
from pgjobs.admin.frames import ListPage
from pgjobs.admin.limits import panel
from pgjobs.admin.readonly import ReadOnlyAdmin
from pgjobs.admin.search import instant
from pgjobs.admin.window import as_id
from pgjobs.conf import get_settings
from pgjobs.health.happenings import TARGETS, Feed, Happening, Place, Wanted, feed, sentence
from pgjobs.queue.activity import Activity

_SECONDS = 5
_LONGEST = 200
_TEXTS = ("kind", "queue", "job_type", "workflow", "target")
_TIMES = ("since", "before")
_FILTERS = (*_TEXTS, *_TIMES)
_BAD = {"error_new", "job_died", "lease_reclaimed", "execution_failed"}
_HELD = {"paused", "execution_paused"}


class ActivityAdmin(ListPage, ReadOnlyAdmin):
    """The latest first; what is older is a page further."""

    view_permission = "pgjobs.view_activity"
    list_template, list_seconds = "pgjobs/admin/activity.html", _SECONDS

    def url_of(self, pk: Any) -> str:
        """There is no page of one row; the list has it all."""
        return reverse("admin:pgjobs_activity_changelist", current_app=self.admin_site.name)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The list, which asks for the permission."""
        return HttpResponseRedirect(self.url_of(object_id))

    def list_content(self, request: HttpRequest) -> dict[str, Any]:
        """What happened, as lines with links."""
        given = {name: request.GET.get(name, "").strip()[:_LONGEST] for name in _FILTERS}
        wanted, problems = _wanted(given)
        below = _place(request.GET.get("older", ""))
        kept = {name: value for name, value in given.items() if value}
        settings = get_settings()
        return {
            "given": given,
            "problems": problems,
            "kinds": [(value, label, value == given["kind"]) for value, label in Activity.Kind.choices],
            "filtered": bool(kept),
            "is_older": below is not None,
            "newest_url": f"?{urlencode(kept)}",
            "feed": panel(lambda: self._feed(feed(wanted, below=below), kept) if wanted else None),
            "days": f"{settings.activity_days:g}",
            "most": f"{settings.activity_rows:,}",
            **({"interval": 0} if below else {}),
        }

    def _feed(self, found: Feed, kept: dict[str, str]) -> dict[str, Any]:
        older = f"{found.older[0].isoformat()}_{found.older[1]}" if found.older else ""
        return {
            "rows": [self._row(each, found.clock) for each in found.rows],
            "older_url": f"?{urlencode({**kept, 'older': older})}" if older else "",
            "looked_back_to": moment(found.looked_back_to, found.clock) if found.looked_back_to else "",
        }

    def _row(self, each: Happening, clock: dt.datetime) -> dict[str, Any]:
        tone = "failed" if each.kind in _BAD else "paused" if each.kind in _HELD else "noted"
        label = dict(Activity.Kind.choices).get(each.kind, each.kind)
        return {
            "at": moment(each.at, clock),
            "kind": marks.state(tone, str(label)),
            "text": sentence(each),
            "links": [marks.link(url, text) for text, url in self._links(each) if url],
        }

    def _links(self, each: Happening) -> list[tuple[str, str]]:
        found = [(f"job {pk}", self._page("job", pk)) for pk in each.jobs]
        found += [(f"execution {pk}", self._page("execution", pk)) for pk in each.executions]
        if each.fingerprint:
            found.append(("error", errorrows.address(self.admin_site, each.fingerprint)))
        if each.queue:
            found.append((f"queue {each.queue}", self._page("queue", quote(each.queue))))
        if each.job_type and not each.workflow:
            found.append((f"task {each.job_type}", self._page("tasktype", quote(each.job_type))))
        if each.target_kind == "bulk" and as_id(each.target_id):
            found.append((f"bulk {each.target_id}", self._page("bulkoperation", each.target_id)))
        return found

    def _page(self, model: str, pk: Any) -> str:
        """Empty on a site that does not have the page."""
        try:
            return reverse(f"admin:pgjobs_{model}_change", args=[pk], current_app=self.admin_site.name)
        except NoReverseMatch:
            return ""


def _wanted(given: dict[str, str]) -> tuple[Wanted | None, list[str]]:
    """The conditions, or what of them makes no sense."""
    problems = []
    if any("\x00" in value for value in given.values()):
        return None, ["A NUL character is in no row."]
    if given["kind"] and given["kind"] not in Activity.Kind.values:
        problems.append(f"{given['kind']!r} is none of {', '.join(Activity.Kind.values)}.")
    kind, colon, name = given["target"].partition(":")
    if given["target"] and not (kind in TARGETS and colon and name):
        problems.append(f"{given['target']!r} is no target: KIND:ID, with one of {', '.join(TARGETS)}.")
    times: dict[str, Any] = {}
    for name in _TIMES:
        times[name] = instant(given[name]) if given[name] else None
        if given[name] and times[name] is None:
            problems.append(
                f"{name} {given[name]!r} is neither a span such as 90m, 2h, 3d nor a time such as 2026-11-30T01:40."
            )
    wanted = Wanted(
        given["kind"],
        given["queue"],
        given["job_type"],
        given["workflow"],
        target=given["target"],
        **times,
    )
    return (None, problems) if problems else (wanted, [])


def _place(text: str) -> Place | None:
    at, _, pk = text.rpartition("_")
    number = as_id(pk)
    try:
        return None if number is None else (dt.datetime.fromisoformat(at).astimezone(dt.UTC), number)
    except (ValueError, OverflowError):
        return None
