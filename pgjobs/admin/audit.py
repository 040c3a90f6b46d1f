"""The record of what people did: who, what, why, and what came of it. Nobody changes it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, StreamingHttpResponse
from django.urls import path, reverse
from django.utils.safestring import SafeString

from pgjobs.admin import audited
from pgjobs.admin.ages import moment
from pgjobs.admin.filters import NamedFilter
from pgjobs.admin.limits import LIST_SECONDS, panel
from pgjobs.admin.readonly import ReadOnlyAdmin
from pgjobs.admin.tree import tree
from pgjobs.admin.window import as_id
from pgjobs.queue.models import OperatorAction
from pgjobs.redaction import redacted_text, redacted_texts

EXPORTED = 10_000
"""Rows of one export, the latest first."""
_COLUMNS = (
    "id",
    "at",
    "actor",
    "user_id",
    "via",
    "verb",
    "target_kind",
    "target_ids",
    "target_count",
    "reason",
    "done",
    "skipped",
    "refused",
)


class ViaFilter(NamedFilter):
    """By the face it came through."""

    title = "via"
    parameter_name = "via"

    def names(self) -> Iterable[str]:
        """All faces."""
        return OperatorAction.Via.values


class KindFilter(NamedFilter):
    """By what it was done to."""

    title = "target"
    parameter_name = "target_kind"

    def names(self) -> Iterable[str]:
        """All kinds."""
        return OperatorAction.Target.values


class AuditAdmin(ReadOnlyAdmin):
    """All operations, the latest first."""

    view_permission = "pgjobs.view_operatoraction"
    list_display = ("when", "actor", "via", "verb", "target", "why", "came_to")
    list_display_links = ("when",)
    list_filter = (ViaFilter, KindFilter)
    search_fields = ("id",)
    search_help_text = "The exact name of who did it, or the id or name of what it was done to."
    fields = ("when", "actor", "user_id", "via", "verb", "target", "targets", "why", "came_to", "more")
    readonly_fields = fields

    def get_urls(self) -> list[Any]:
        """The export, beside Django's own."""
        view = self.admin_site.admin_view(self.export_view)
        return [path("export.csv", view, name="pgjobs_operatoraction_export"), *super().get_urls()]

    def url_of(self, pk: Any) -> str:
        """The page of one operation."""
        return reverse("admin:pgjobs_operatoraction_change", args=[pk], current_app=self.admin_site.name)

    def matching(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        """By who did it, or by id or name of what it was done to."""
        named = rows.filter(target_ids__contains=[term])
        if pk := as_id(term):
            named |= rows.filter(target_ids__contains=[pk])
        return named | rows.filter(actor=term)

    def export_view(self, request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
        """The latest rows as CSV."""
        if request.method != "GET":
            return HttpResponseNotAllowed(["GET"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = self.get_queryset(request).order_by("-pk").values_list(*_COLUMNS)[:EXPORTED]
        # Read at once: a cursor that outlives the view has no limit of time, and PgBouncer gives it no session.
        exported = panel(lambda: list(found), seconds=LIST_SECONDS)
        if exported.problem:
            return HttpResponse(exported.problem, content_type="text/plain; charset=utf-8", status=503)
        answer = StreamingHttpResponse(_lines(exported.value), content_type="text/csv; charset=utf-8")
        answer["Content-Disposition"] = 'attachment; filename="operator-actions.csv"'
        return answer

    @admin.display(description="when")
    def when(self, action: Any) -> SafeString | str:
        """By the clock of the database."""
        return moment(action.at, action.clock)

    @admin.display(description="target")
    def target(self, action: Any) -> str:
        """The kind and the first few."""
        shown = ", ".join(str(each) for each in action.target_ids[:3])
        more = f" and {action.target_count - 3:,} more" if action.target_count > 3 else ""
        return f"{action.get_target_kind_display()} {shown}{more}"

    @admin.display(description="targets")
    def targets(self, action: Any) -> SafeString:
        """All that are named."""
        return tree(action.target_ids)

    @admin.display(description="reason")
    def why(self, action: Any) -> str:
        """Without what looks like a secret, as everywhere."""
        return redacted_text(action.reason)

    @admin.display(description="result")
    def came_to(self, action: Any) -> str:
        """Done, skipped and refused."""
        return audited.result(action)

    @admin.display(description="details")
    def more(self, action: Any) -> SafeString:
        """Options, before and after."""
        return tree(redacted_texts(action.details))


_FORMULA = "=+-@\t\r\n＝＋－＠"


class _Echo:
    def write(self, text: str) -> str:
        return text


def _lines(rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    writer: Any = csv.writer(_Echo())
    yield writer.writerow(_COLUMNS)
    for row in rows:
        shown = dict(zip(_COLUMNS, row, strict=True))
        shown["reason"] = redacted_text(shown["reason"])
        yield writer.writerow([_harmless(value) for value in shown.values()])


def _harmless(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in _FORMULA else value
