"""Views for machines: whether the web site lives, is ready, whether the queue is well, and its metrics.

No session, no admin: a bearer token (``PGJOBS["HEALTH_TOKEN"]``) or the address of the caller (``HEALTH_ALLOW``).
"""

from __future__ import annotations

import difflib
import functools
import ipaddress
import threading
import time
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from django.db import Error, connections, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from pgjobs.conf import get_settings
from pgjobs.connections import rows
from pgjobs.exceptions import UnknownName
from pgjobs.health.examination import examine, narrowed
from pgjobs.health.verdict import CODES, Verdict
from pgjobs.metrics import collect

View = Callable[[HttpRequest], HttpResponse]
Value = TypeVar("Value")


class Lately(Generic[Value]):
    """What ``make`` answered, for a few seconds: many askers cost one look."""

    def __init__(self, make: Callable[[], Value], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._lock = threading.Lock()
        self._made: tuple[float, Value] | None = None

    def get(self) -> Value:
        """The value, made anew when it is too old."""
        with self._lock:
            if self._made is None or time.monotonic() - self._made[0] > self._seconds:
                value = self._make()
                # Its age counts from here: of a slow one those who waited take the same.
                self._made = (time.monotonic(), value)
            return self._made[1]

    def forget(self) -> None:
        """Make it anew next time."""
        with self._lock:
            self._made = None


verdicts: Lately[Verdict] = Lately(examine, 2.0)
metrics_texts: Lately[str] = Lately(collect, 5.0)


def for_machines(view: View) -> View:
    """GET and HEAD, without caching on the way and outside ATOMIC_REQUESTS, for those who may."""

    @functools.wraps(view)
    def guarded(request: HttpRequest) -> HttpResponse:
        refusal = refused(request)
        if refusal:
            return JsonResponse({"status": "refused", "why": refusal}, status=403)
        return view(request)

    made: View = transaction.non_atomic_requests(never_cache(require_safe(guarded)))
    return made


def refused(request: HttpRequest) -> str:
    """Why this caller may not read it; empty when they may."""
    settings = get_settings()
    if settings.health_token is None and not settings.health_allow:
        return (
            "Nobody may read this yet. Set PGJOBS['HEALTH_TOKEN'] and send it as 'Authorization: Bearer ...', or name "
            "the callers' networks in PGJOBS['HEALTH_ALLOW']."
        )
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if settings.health_token is not None and scheme.lower() == "bearer":
        if constant_time_compare(given.strip(), settings.health_token):
            return ""
        return "The bearer token is not PGJOBS['HEALTH_TOKEN']."
    if _is_allowed(request.META.get("REMOTE_ADDR", ""), settings.health_allow):
        return ""
    return "Send the token as 'Authorization: Bearer ...', or come from a network in PGJOBS['HEALTH_ALLOW']."


def _is_allowed(address: str, networks: Iterable[str]) -> bool:
    try:
        caller = ipaddress.ip_address(address)
    except ValueError:
        return False  # a unix socket says nothing of the caller
    mapped = getattr(caller, "ipv4_mapped", None)
    return any((mapped or caller) in ipaddress.ip_network(each, strict=False) for each in networks)


@for_machines
def live(request: HttpRequest) -> HttpResponse:
    """The web process answers. No database is asked."""
    return JsonResponse({"status": "ok"})


@for_machines
def ready(request: HttpRequest) -> HttpResponse:
    """The database answers and has the tables of this code. Says nothing of the queue: a late queue must not take the
    web site out of rotation."""
    using = get_settings().database
    try:
        rows(using, "SELECT 1", {})
        missing = _missing_migrations(using)
    except Error as error:
        return JsonResponse({"status": "unavailable", "why": " ".join(str(error).split())}, status=503)
    if missing:
        why = f"Migrations of pgjobs are not applied to {using!r}: {', '.join(missing)}."
        return JsonResponse({"status": "unavailable", "why": why}, status=503)
    return JsonResponse({"status": "ok"})


@for_machines
def health(request: HttpRequest) -> HttpResponse:
    """The rules: 200 when nothing is stuck, 503 when something is, or when it cannot be told; 400 for a name in
    ``check`` or ``queue`` that nothing is known of."""
    codes = [code for text in request.GET.getlist("check") for code in text.split(",") if code]
    for code in codes:
        if code not in CODES:
            near = difflib.get_close_matches(code.upper(), CODES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(CODES)}."
            why = f"check={code[:100]} names no rule; {hint}"
            return JsonResponse({"status": "refused", "why": why}, status=400)
    queues = request.GET.getlist("queue")
    if len(queues) > 1:
        why = f"queue= is there {len(queues)} times; ask for one queue a monitor, or for all without it."
        return JsonResponse({"status": "refused", "why": why}, status=400)
    try:
        verdict = narrowed(verdicts.get(), codes, queues[0] if queues else None)
    except UnknownName as error:
        return JsonResponse({"status": "refused", "why": f"queue={queues[0][:100]}: {error}"}, status=400)
    return JsonResponse(verdict.as_dict(), status=200 if verdict.state == "ok" else 503)


@for_machines
def metrics(request: HttpRequest) -> HttpResponse:
    """For Prometheus."""
    return HttpResponse(metrics_texts.get(), content_type="text/plain; version=0.0.4; charset=utf-8")


def _missing_migrations(using: str) -> list[str]:
    if using in _migrated:
        return []
    loader = MigrationLoader(None, load=False)
    loader.load_disk()
    on_disk = {name for app, name in loader.disk_migrations if app == "pgjobs"}
    applied = MigrationRecorder(connections[using]).applied_migrations()
    missing = sorted(on_disk - {name for app, name in applied if app == "pgjobs"})
    if not missing:
        _migrated.add(using)
    return missing


_migrated: set[str] = set()
