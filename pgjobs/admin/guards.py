"""Addresses of verbs answer, whatever the database does: a form that cannot be shown says so, and so does a verb."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.db import DatabaseError, InterfaceError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from pgjobs.admin import navigation
from pgjobs.admin.limits import PANEL_SECONDS, Undone, told, undone
from pgjobs.admin.pages import respond
from pgjobs.admin.verbs import back

View = Callable[..., HttpResponse]


def guarded(model_admin: Any) -> Callable[[View], View]:
    """What makes a view of verbs one of the site.

    Verbs act in :func:`pgjobs.admin.limits.acting` and ask the database nothing afterwards that may fail; so what
    fails outside of it comes before it.
    """

    def guard(view: View) -> View:
        @wraps(view)
        def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            try:
                return view(request, *args, **kwargs)
            except Undone as error:
                text = str(error)
            except (DatabaseError, InterfaceError) as error:
                if request.method != "POST":
                    return _unavailable(model_admin, request, told(error, PANEL_SECONDS))
                text = undone(error, PANEL_SECONDS, committing=True)
            messages.error(request, text)
            return back(request, _home(model_admin, kwargs.get("object_id")))

        wrapped: View = model_admin.admin_site.admin_view(answered)
        return wrapped

    return guard


def _unavailable(model_admin: Any, request: HttpRequest, problem: str) -> HttpResponse:
    name = model_admin.opts.model_name
    return respond(
        model_admin,
        request,
        "pgjobs/admin/panel.html",
        lambda: {"problem": problem},
        title=str(model_admin.opts.verbose_name).capitalize(),
        crumbs=navigation.crumbs(model_admin.admin_site, name),
        shared=False,
    )


def _home(model_admin: Any, pk: Any) -> str:
    """The page of the row, else the list."""
    if pk is not None:
        return str(model_admin.url_of(pk))
    name = f"admin:pgjobs_{model_admin.opts.model_name}_changelist"
    return reverse(name, current_app=model_admin.admin_site.name)
