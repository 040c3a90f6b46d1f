"""Bulk operations: how far they are, what they came to, and the verbs that hold or end them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import path, reverse
from django.utils.safestring import SafeString

from pgjobs.admin import audited, charts, marks
from pgjobs.admin.ages import moment, seconds_in_words
from pgjobs.admin.filters import NamedFilter
from pgjobs.admin.frames import RowPage
from pgjobs.admin.guards import guarded
from pgjobs.admin.limits import panel
from pgjobs.admin.pages import changed
from pgjobs.admin.readonly import ReadOnlyAdmin
from pgjobs.admin.verbs import ReasonForm, actor_of, back, denied, lacking, stated, valid
from pgjobs.admin.window import LARGEST_ID
from pgjobs.bulk import control, runner
from pgjobs.bulk.filters import COUNT_LIMIT, in_words
from pgjobs.bulk.states import ENDED, BulkState
from pgjobs.conf import get_settings
from pgjobs.queue import rights, stats
from pgjobs.queue.control import VerbOutcome
from pgjobs.redaction import redacted_text

_SECONDS = 2
_KIND = "bulk"
_Act = Callable[..., VerbOutcome]
_VERBS: dict[str, tuple[str, _Act, str]] = {
    "release_canary": ("Release", control.release_canary, "the first did well: do the rest."),
    "pause": ("Pause", control.pause, "held after the batch that is on its way."),
    "resume": ("Resume", control.resume, "it goes on from where it was held."),
    "stop": ("Stop", control.stop, "it ends here; what was done stays done."),
    "start": ("Start", control.start, "it begins."),
}


class StateFilter(NamedFilter):
    """By state."""

    title = "state"
    parameter_name = "state"

    def names(self) -> Iterable[str]:
        """All states."""
        return BulkState.values


class BulkAdmin(RowPage, ReadOnlyAdmin):
    """All bulk operations, the latest first: the log of incidents."""

    view_permission = "pgjobs.view_bulkoperation"
    row_template, row_seconds = "pgjobs/admin/bulk.html", _SECONDS
    row_word, missing_title = "Bulk operation", "Not found"
    large_columns = ("watched", "conflicts")
    list_display = ("id", "verb", "what", "shown_state", "progress", "actor", "when", "why")
    list_filter = (StateFilter,)

    def get_urls(self) -> list[Any]:
        """One address per verb, beside Django's own."""
        wrap = guarded(self)
        verbs = [
            path(
                f"<int:object_id>/{name}/",
                wrap(partial(self.verb_view, name=name)),
                name=f"pgjobs_bulkoperation_{name}",
            )
            for name in _VERBS
        ]
        return [*verbs, *super().get_urls()]

    def url_of(self, pk: Any) -> str:
        """The page of one operation."""
        return reverse("admin:pgjobs_bulkoperation_change", args=[pk], current_app=self.admin_site.name)

    def page(self, request: HttpRequest, row: Any) -> HttpResponse:
        """How far it is."""
        return self.framed(request, f"Bulk {row.pk}: {row.verb}", lambda: self._content(request, row))

    def _content(self, request: HttpRequest, operation: Any) -> dict[str, Any]:
        ended = operation.state in ENDED
        running = operation.state == BulkState.RUNNING
        return {
            "interval": 0 if ended else _SECONDS,
            "state": self.shown_state(operation),
            "note": redacted_text(operation.note),
            "facts": self._facts(operation),
            "gauge": charts.gauge(_share(operation), self.progress(operation)),
            "progress": self.progress(operation),
            "buttons": [] if ended else self._buttons(request, operation),
            "expected": operation.state,
            "conflicts": [str(each) for each in operation.conflicts[:200]]
            if isinstance(operation.conflicts, list)
            else [],
            "watched": panel(lambda: self._watched(operation)) if operation.watched and not ended else None,
            "carried": not running or panel(lambda: stats.live_workers().exists()).value is not False,
            "command": f"manage.py pgjobs_bulk run {operation.pk}",
            "audit": audited.panel_of(_KIND, operation.pk, operation.clock),
        }

    def _facts(self, operation: Any) -> list[tuple[str, Any]]:
        clock = operation.clock
        pairs = [
            ("Does", operation.verb.replace("_", " ")),
            ("To", self.what(operation)),
            ("Reason", self.why(operation)),
            ("By", f"{operation.actor} via {operation.via}"),
            ("Pace", f"{operation.pace:g} a second" if operation.pace else "as fast as it goes"),
            ("Canary", _canary(operation)),
            ("Stops", _rule(operation)),
            ("Planned", moment(operation.created_at, clock)),
            ("Started", moment(operation.started_at, clock)),
            ("Latest progress", moment(operation.progress_at, clock)),
            ("Ended", moment(operation.ended_at, clock)),
            ("Latest batch by", operation.carried_by),
            ("Time left", _left(operation)),
        ]
        return [(name, value) for name, value in pairs if value not in (None, "", "-")]

    def _watched(self, operation: Any) -> str:
        failed, untried = runner.watched(operation, using=get_settings().database)
        count = len(operation.watched)
        return f"Of the first {count}: {failed} ended without success again, {untried} have yet to be tried."

    def _buttons(self, request: HttpRequest, operation: Any) -> list[dict[str, Any]]:
        found = []
        for name, (label, _, effect) in _VERBS.items():
            right = rights.right(_KIND, name)
            if operation.state in right.states and request.user.has_perm(right.permission):
                url = reverse(
                    f"admin:pgjobs_bulkoperation_{name}",
                    args=[operation.pk],
                    current_app=self.admin_site.name,
                )
                found.append({"label": label, "url": url, "fits": True, "confirm": False, "text": effect})
        return found

    def verb_view(self, request: HttpRequest, object_id: int, name: str) -> HttpResponse:
        """Hold, release or end it. POST only."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if permission := lacking(self, request, rights.right(_KIND, name).permission):
            return denied(request, name, permission, kind=_KIND, ids=[object_id])
        form = ReasonForm(request.POST)
        if not valid(request, form):
            return back(request, self.url_of(object_id))
        outcome = _VERBS[name][1](
            min(object_id, LARGEST_ID),
            actor=actor_of(request),
            reason=form.cleaned_data["reason"],
            expected=stated(request, "expected", f"bulk operation {object_id}"),
        )
        changed()
        if outcome.done:
            messages.success(request, f"Bulk operation {object_id}: {outcome.message}.")
        else:
            messages.warning(request, f"Nothing was done: {outcome.message}.")
        return back(request, self.url_of(object_id))

    @admin.display(description="what")
    def what(self, operation: Any) -> str:
        """The filter for people."""
        return in_words(operation.filter) if isinstance(operation.filter, dict) else str(operation.filter)

    @admin.display(description="state")
    def shown_state(self, operation: Any) -> SafeString:
        """As text, with a class for its colour."""
        return marks.state(operation.state, operation.get_state_display())

    @admin.display(description="progress")
    def progress(self, operation: Any) -> str:
        """What became of how many."""
        total = marks.count(operation.total, COUNT_LIMIT)
        parts = [f"{_seen(operation):,} of {total}: done {operation.done:,}"]
        for name in ("skipped", "conflict", "failed"):
            if number := getattr(operation, name):
                word = "failed again" if name == "failed" else name
                parts.append(f"{word} {number:,}")
        return ", ".join(parts)

    @admin.display(description="reason")
    def why(self, operation: Any) -> str:
        """Without what looks like a secret, as everywhere."""
        return redacted_text(operation.reason)

    @admin.display(description="when")
    def when(self, operation: Any) -> SafeString | str:
        """By the clock of the database."""
        return moment(operation.created_at, operation.clock)


def _seen(operation: Any) -> int:
    return int(operation.done + operation.skipped + operation.conflict)


def _share(operation: Any) -> float:
    if operation.state == BulkState.DONE:
        return 1.0
    return _seen(operation) / operation.total if operation.total else 0.0


def _canary(operation: Any) -> str:
    if operation.canary is None:
        return ""
    return f"first {operation.canary}, " + (
        "released" if operation.canary_released_at else "then wait for a person"
    )


def _rule(operation: Any) -> str:
    if operation.stop_share is None:
        return ""
    return f"when more than {operation.stop_share:.0%} of the first {operation.stop_first} fail again"


def _left(operation: Any) -> str:
    """A guess by the pace so far."""
    if operation.state != BulkState.RUNNING or not operation.started_at or operation.total > COUNT_LIMIT:
        return ""
    seen, spent = _seen(operation), (operation.clock - operation.started_at).total_seconds()
    left = operation.total - seen
    return f"about {seconds_in_words(spent / seen * left)}" if seen and left > 0 else ""
