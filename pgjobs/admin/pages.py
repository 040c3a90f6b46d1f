"""How a page of ours comes about: its content is made once in two seconds for all who may see the same."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any

from django import VERSION
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.safestring import SafeString, mark_safe

from pgjobs.admin import kept, navigation
from pgjobs.admin.limits import panel
from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.queue.rights import RIGHTS

FRESH_SECONDS = 2
"""How long the content of a page serves everybody who would be shown the same."""
FRAGMENT = "fragment"
"""The parameter that asks for the content alone."""

_GENERATION = "pgjobs:generation"
_VIEWS = ("job", "worker", "execution", "wait", "operatoraction", "bulkoperation", "system", "activity")
_ASKED = sorted({*(each.permission for each in RIGHTS), *(f"pgjobs.view_{name}" for name in _VIEWS)})
_SKEW_SECONDS = 2
_CLOCK = "SELECT clock_timestamp()"


def respond(
    model_admin: Any,
    request: HttpRequest,
    template: str,
    build: Callable[[], Mapping[str, Any]],
    *,
    title: str,
    interval: int = 0,
    crumbs: tuple[tuple[str, str], ...] = (),
    shared: bool = True,
    status: int = 200,
) -> HttpResponse:
    """The page, or its content alone when ``?fragment=1`` asks for it.

    ``build`` gives the context of ``template``; it may set ``interval``, the seconds between two refreshes (0: none),
    anew. ``shared=False`` is for what depends on the person rather than on what they may do.
    """
    site = model_admin.admin_site
    request.current_app = site.name

    def render() -> str:
        context = {"interval": interval, "request_path": request.path, **build()}
        return render_to_string(template, {**_frame(request), **context, "csrf_token": mark}, request)

    mark = f"csrf-{secrets.token_hex(16)}"
    key = _key(site, request, shared) if request.method == "GET" else None
    made = kept.once(key, lambda: (mark, render()), FRESH_SECONDS) if key else (mark, render())
    content = _with_token(request, *made)
    if request.method == "GET" and FRAGMENT in request.GET:
        return HttpResponse(content, status=status)
    context = {
        **site.each_context(request),
        **chrome(model_admin, request),
        "title": title,
        "crumbs": crumbs,
        "list_crumbs": VERSION >= (6, 1),
        "content": content,
    }
    return TemplateResponse(request, "pgjobs/admin/page.html", context, status=status)


def _with_token(request: HttpRequest, mark: str, content: str) -> SafeString:
    """Whoever is shown the content gets a token of their own in its forms."""
    return trusted(content.replace(mark, get_token(request)) if mark in content else content)


def chrome(model_admin: Any, request: HttpRequest) -> dict[str, Any]:
    """What surrounds the content of each page, our own and Django's."""
    return {
        "opts": model_admin.opts,
        "media": model_admin.media,
        "navigation": navigation.links(model_admin.admin_site, request, model_admin.opts.model_name),
    }


def _frame(request: HttpRequest) -> dict[str, Any]:
    """The clock of the database and where to ask for the content again."""
    found = panel(lambda: rows(get_settings().database, _CLOCK, {})[0][0])
    skew = abs((timezone.now() - found.value).total_seconds()) if found.value else 0
    params = request.GET.copy()
    params[FRAGMENT] = "1"
    return {
        "clock": found.value,
        "clock_text": f"{found.value.astimezone(UTC):%H:%M:%S}" if found.value else "",
        "clock_problem": found.problem,
        "skew": round(skew) if skew > _SKEW_SECONDS else 0,
        "fragment_url": f"?{params.urlencode()}",
    }


def _key(site: Any, request: HttpRequest, shared: bool) -> str:
    user: Any = request.user
    # Asked one by one: a backend may answer has_perm without listing what it would say yes to.
    may = ",".join(name for name in _ASKED if user.has_perm(name))
    params = sorted((name, values) for name, values in request.GET.lists() if name != FRAGMENT)
    who = "" if shared else f"user {user.pk}"
    generation = kept.get(_GENERATION) or 0
    parts = (
        site.name,
        get_settings().database,
        generation,
        request.path,
        request.get_host(),
        params,
        may,
        who,
    )
    return "pgjobs:page:" + hashlib.sha256(repr(parts).encode()).hexdigest()


def changed() -> None:
    """A verb has moved something: what was made before is shown no more."""
    kept.keep(_GENERATION, secrets.token_hex(8), 10 * FRESH_SECONDS)


def trusted(text: str) -> SafeString:
    """Markup that this app has made of escaped parts."""
    return mark_safe(text)
