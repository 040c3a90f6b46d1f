"""Queues: which is late and why, and the pause that stops one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import path, reverse

from pgjobs.admin import figures, navigation, queuerows
from pgjobs.admin.ages import in_words
from pgjobs.admin.frames import ListPage, RowPage
from pgjobs.admin.guards import guarded
from pgjobs.admin.joblist import LedToJobAdmin
from pgjobs.admin.limits import PANEL_SECONDS, limited, panel
from pgjobs.admin.verbs import Unseen, actor_of, attempt, back, denied, lacking, stated, valid
from pgjobs.conf import get_settings
from pgjobs.health.examination import judge
from pgjobs.health.facts import Facts
from pgjobs.health.queues import QueueRow, queue_rows
from pgjobs.health.reading import Reader
from pgjobs.queue import pauses, rights, stats
from pgjobs.queue.models import Job

_SECONDS = 10
_OLDEST = 20
PERMISSION = rights.right("queue", "pause").permission


class PauseForm(forms.Form):
    """Why, and for how long."""

    name = forms.CharField(max_length=200)
    kind = forms.ChoiceField(choices=[(pauses.QUEUE, "queue"), (pauses.TYPE, "job type")])
    reason = forms.CharField(max_length=200)
    minutes = forms.IntegerField(min_value=1, max_value=525_600, required=False)


class QueueAdmin(ListPage, RowPage, LedToJobAdmin):
    """A page of figures in the place of a list of rows; the id of a queue is its name."""

    list_template, list_seconds = "pgjobs/admin/queues.html", _SECONDS
    row_template, row_seconds, row_word = "pgjobs/admin/queue.html", _SECONDS, "Queue"

    def get_urls(self) -> list[Any]:
        """The addresses of the verbs, beside Django's own."""
        wrap = guarded(self)
        return [
            path("pause/", wrap(self.pause_view), name="pgjobs_queue_pause"),
            path("resume/", wrap(self.resume_view), name="pgjobs_queue_resume"),
            *super().get_urls(),
        ]

    def page_at(self, request: HttpRequest, name: str) -> HttpResponse:
        """One queue; 404 for a name that nothing is known of, unless it is paused."""
        with limited(PANEL_SECONDS):
            if not pauses.heard_of(name, pauses.QUEUE):
                return self.missing_page(request, name)
        status = 200 if name.isprintable() else 404
        return self.framed(request, f"Queue {name}"[:200], lambda: self._one(request, name), status=status)

    def list_content(self, request: HttpRequest) -> dict[str, Any]:
        """One row per queue, and one per waiting job type that no handler here carries."""
        site = self.admin_site
        return {
            "queues": panel(lambda: queuerows.of(_table(), site)),
            "pauses": panel(queuerows.pauses_in_force),
            "unknown": panel(lambda: [self._unknown(each) for each in stats.unknown_waiting()]),
            **self._verbs(request),
        }

    def _one(self, request: HttpRequest, name: str) -> dict[str, Any]:
        site = self.admin_site
        every = panel(lambda: queuerows.of([row for row in _table() if row.name == name], site))
        held = panel(
            lambda: [
                each
                for each in queuerows.pauses_in_force()
                if each["name"] == name and each["kind"] == pauses.QUEUE
            ]
        )
        return {
            "name": name,
            "queues": every,
            "pauses": held,
            "is_paused": bool(held.value) or bool(held.problem),
            "charts": panel(lambda: self._charts(request, name)),
            "oldest": panel(lambda: self._oldest(name)),
            "jobs_url": self._jobs(status="ready", queue=name),
            "activity_url": navigation.activity(site, request, queue=name),
            "next": request.path,
            **self._verbs(request),
        }

    def _verbs(self, request: HttpRequest) -> dict[str, Any]:
        site = self.admin_site.name
        return {
            "may_pause": request.user.has_perm(PERMISSION),
            "pause_url": reverse("admin:pgjobs_queue_pause", current_app=site),
            "resume_url": reverse("admin:pgjobs_queue_resume", current_app=site),
        }

    def _charts(self, request: HttpRequest, name: str) -> list[Any]:
        wanted = request.GET.get("range", "60m")
        return list(figures.both(figures.chosen(wanted), name))

    def _oldest(self, name: str) -> list[dict[str, Any]]:
        if "\x00" in name:
            return []
        head: Any = self.waiting(name)
        return [
            {
                "id": str(job.pk),
                "url": self.url_of(job.pk),
                "job_type": job.job_type,
                "priority": str(job.priority),
                "when": self.when(job),
                "attempts": self.attempts(job),
            }
            for job in head[:_OLDEST]
        ]

    def waiting(self, name: str) -> Any:
        """The head of the queue, in the order of the claim."""
        waiting = Job._base_manager.using(get_settings().database).annotate(clock=Now())
        waiting = waiting.filter(status="pending", crash_count=0, queue=name)
        return waiting.order_by("queue", "priority", "available_at", "pk").defer(*self.large_columns)

    def _unknown(self, each: stats.UnknownWaiting) -> dict[str, Any]:
        due = each.oldest_wait.total_seconds() >= 0
        return {
            "job_type": each.job_type,
            "url": self._jobs(status="pending", queue=each.queue, job_type=each.job_type),
            "queue": each.queue,
            "jobs": f"{each.jobs}+" if each.jobs >= stats.HEAD_LIMIT else str(each.jobs),
            "oldest": in_words(each.oldest_wait) if due else "not due yet",
        }

    def _jobs(self, **filters: str) -> str:
        address = reverse("admin:pgjobs_job_changelist", current_app=self.admin_site.name)
        return f"{address}?{urlencode(filters)}"

    def pause_view(self, request: HttpRequest) -> HttpResponse:
        """Pause a queue or a job type. POST only."""
        refused, home = self._refused(request, "pause")
        if refused:
            return refused
        form = PauseForm(request.POST)
        if not valid(request, form):
            return back(request, home)
        given = form.cleaned_data
        verb = partial(
            pauses.pause,
            given["name"],
            kind=given["kind"],
            actor=actor_of(request),
            reason=given["reason"],
            until=timedelta(minutes=given["minutes"]) if given["minutes"] else None,
            expected=_expected(request, given["kind"], given["name"]),
        )
        return self._done(request, verb, home)

    def resume_view(self, request: HttpRequest) -> HttpResponse:
        """End a pause. POST only."""
        refused, home = self._refused(request, "resume")
        if refused:
            return refused
        kind, reason = request.POST.get("kind", pauses.QUEUE), request.POST.get("reason", "")[:200]
        name = request.POST.get("name", "")
        saw = stated(request, "expected", f"the pause of {kind} {name}"[:100])
        verb = partial(pauses.resume, name, kind=kind, actor=actor_of(request), reason=reason, expected=saw)
        return self._done(request, verb, home)

    def _done(self, request: HttpRequest, verb: Callable[[], pauses.PauseOutcome], home: str) -> HttpResponse:
        if outcome := attempt(request, verb):
            _say(request, outcome)
        return back(request, home)

    def _refused(self, request: HttpRequest, verb: str) -> tuple[HttpResponse | None, str]:
        home = reverse("admin:pgjobs_queue_changelist", current_app=self.admin_site.name)
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"]), home
        if permission := lacking(self, request, PERMISSION):
            kind = "type" if request.POST.get("kind") == pauses.TYPE else "queue"
            name = request.POST.get("name", "")[:200].replace("\x00", "")
            return denied(request, verb, permission, kind=kind, ids=[name]), home
        return None, home


def _expected(request: HttpRequest, kind: str, name: str) -> str:
    """The pause that the person saw on what they name: the form of one queue says it, the other lists all.

    Raises :class:`Unseen` for a form that does neither.
    """
    if "expected" in request.POST:
        return request.POST["expected"]
    if "shown" not in request.POST:
        raise Unseen(f"{kind} {name}", "expected or shown")
    shown = (text.split(":", 2) for text in request.POST.getlist("shown"))
    return next((parts[1] for parts in shown if parts[0] == kind and parts[2:] == [name]), "")


def _say(request: HttpRequest, outcome: pauses.PauseOutcome) -> None:
    say, nothing = (messages.success, "") if outcome.done else (messages.warning, "Nothing was done: ")
    say = messages.warning if outcome.doubt else say
    say(request, f"{outcome.kind.capitalize()} {outcome.name}: {nothing}{outcome.message}.")


def _table() -> list[QueueRow]:
    """All queues with the states that the examination gives them."""
    with Reader(get_settings().database) as reader:
        facts = Facts(reader)
        return queue_rows(facts, judge(facts).problems)
