"""How many rows have come since a list was made. The list itself never moves under the person who ticks its rows."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import render
from django.template.defaultfilters import pluralize
from django.urls import path

from pgjobs.admin import marks
from pgjobs.admin.limits import panel
from pgjobs.admin.window import LARGEST_ID

MOST = 1_000
"""Newer rows are counted so far."""


def urls(model_admin: Any) -> list[Any]:
    """One address: what is newer than a row."""
    view = model_admin.admin_site.admin_view(partial(newer_view, model_admin))
    return [path("newer/<int:pk>/", view, name=f"pgjobs_{model_admin.opts.model_name}_newer")]


def newer_view(model_admin: Any, request: HttpRequest, pk: int) -> HttpResponse:
    """The part of the list that says so, and nothing else of it."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponseNotAllowed(["GET"])
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    rows = model_admin.get_queryset(request).filter(pk__gt=min(pk, LARGEST_ID)).order_by("pk")
    found = panel(lambda: rows.values("pk")[: MOST + 1].count())
    name = model_admin.opts.verbose_name
    context = {
        "newer": marks.count(found.value or 0, MOST) if found.value else "",
        "name": f"{name}{pluralize(found.value or 0)}",
        "newer_url": request.path,
    }
    return render(request, "pgjobs/admin/newer.html", context)
