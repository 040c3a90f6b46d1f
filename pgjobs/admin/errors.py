"""Errors: how many causes, since when, what the jobs of one have in common, and what is safe to retry."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from pgjobs.admin import bulkplan, errorrows, navigation, tracebacks
from pgjobs.admin.frames import ListPage, RowPage
from pgjobs.admin.joblist import LedToJobAdmin
from pgjobs.admin.limits import panel
from pgjobs.health.errors import error_groups, group_detail
from pgjobs.queue.proxies import ErrorGroup
from pgjobs.queue.states import JobStatus


@admin.register(ErrorGroup)
class ErrorAdmin(ListPage, RowPage, LedToJobAdmin):
    """A page of causes in the place of a list of rows; the id of a cause is its fingerprint."""

    list_template, list_seconds = "pgjobs/admin/errors.html", 10
    row_template = "pgjobs/admin/error.html"

    def page_at(self, request: HttpRequest, name: str) -> HttpResponse:
        """One cause."""
        name = name[:64]
        fingerprint = "" if name == errorrows.UNNAMED or "\x00" in name else name
        return self.framed(request, f"Error {name[:12]}", lambda: self._one(request, fingerprint))

    def list_content(self, request: HttpRequest) -> dict[str, Any]:
        """One row per cause."""
        wanted = {name: request.GET.get(name, "") for name in ("queue", "job_type")}
        lately = request.GET.get("lately") == "1"
        site = self.admin_site

        def read() -> dict[str, Any]:
            found, at = error_groups(), errorrows.clock()
            shown = [
                group
                for group in found.groups
                if wanted["queue"] in ("", group.queue)
                and wanted["job_type"] in ("", group.job_type)
                and (group.last_hour or not lately)
            ]
            if found.complete:
                navigation.keep_badges(site, errorgroup=f"{len(found.groups):,}")
            return {
                "rows": [errorrows.row(group, at, site) for group in shown],
                "complete": found.complete,
                "causes": str(len(shown)),
            }

        return {
            "groups": panel(read),
            "filters": {name: value for name, value in wanted.items() if value},
            "lately": lately,
        }

    def _one(self, request: HttpRequest, fingerprint: str) -> dict[str, Any]:
        site = self.admin_site
        group = panel(lambda: self._head(fingerprint))
        detail = panel(lambda: self._detail(fingerprint))
        jobs = reverse("admin:pgjobs_job_changelist", current_app=site.name)
        return {
            "group": group,
            "detail": detail,
            "fingerprint": fingerprint or "no fingerprint",
            "jobs_url": f"{jobs}?{urlencode({'q': f'fp:{fingerprint}'})}" if fingerprint else "",
            "bulk_url": self.bulk_url(request, fingerprint),
            "ticket": _ticket(group.value, detail.value),
        }

    def bulk_url(self, request: HttpRequest, fingerprint: str) -> str:
        """Where all dead jobs of a cause are acted upon; empty for those who may not."""
        status = JobStatus.DEAD.value
        if not fingerprint or not bulkplan.offered(request, status):
            return ""
        return bulkplan.address(self.admin_site, status=status, fingerprint=fingerprint)

    def _head(self, fingerprint: str) -> dict[str, Any] | None:
        at = errorrows.clock()
        for group in error_groups().groups:
            if group.fingerprint == fingerprint:
                return errorrows.row(group, at, self.admin_site)
        return None

    def _detail(self, fingerprint: str) -> dict[str, Any] | None:
        found = group_detail(fingerprint)
        if found is None:
            return None
        text = str(found.sample.get("traceback") or "")
        return {
            "looked_at": str(found.looked_at),
            "shared": [
                (trait, [(value, str(count), count == found.looked_at) for value, count in values])
                for trait, values in found.shared.items()
            ],
            "newest": [(str(pk), self.url_of(pk)) for pk in found.newest_ids],
            "oldest": [(str(pk), self.url_of(pk)) for pk in found.oldest_ids],
            "message": ": ".join(
                str(found.sample[key]) for key in ("type", "message") if found.sample.get(key)
            ),
            "traceback": tracebacks.shown(text) if text else "",
            "text": text,
        }


def _ticket(group: Any, detail: Any) -> str:
    """The cause as Markdown, for a ticket."""
    if not group or not detail:
        return ""
    shared = ", ".join(
        f"{trait} {values[0][0]} ({values[0][1]})" for trait, values in detail["shared"] if values
    )
    lines = [
        f"### {group['error']}: {group['message']}",
        f"- job type `{group['job_type']}`, {group['jobs']} jobs, fingerprint `{group['fingerprint']}`",
        f"- the newest {detail['looked_at']} share: {shared}",
        f"- newest jobs: {', '.join(pk for pk, _ in detail['newest'])}",
        "```",
        detail["text"][-4_000:],
        "```",
    ]
    return "\n".join(lines)
