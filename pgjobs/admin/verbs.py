"""What buttons and actions share: who asks, what they saw, and what they are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from django import forms
from django.contrib import messages
from django.contrib.admin import helpers
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.defaults import permission_denied

from pgjobs.admin.limits import Undone, acting
from pgjobs.admin.pages import changed
from pgjobs.admin.window import as_id
from pgjobs.conf import get_settings
from pgjobs.exceptions import PgJobsError
from pgjobs.queue import audit, rights
from pgjobs.queue.audit import Actor
from pgjobs.queue.control import VerbOutcome
from pgjobs.redaction import redacted_text

Expected = dict[int, tuple[str, int]]
Outcome = TypeVar("Outcome")


class Governed:
    """A verb as the table of rights has it."""

    __slots__ = ()
    kind: ClassVar[str]
    """What it is done to."""
    name: str
    done: str
    """What has become of a row to which it was done."""
    act: Callable[..., list[VerbOutcome]]

    @property
    def permission(self) -> str:
        """The full name of the permission it needs."""
        return rights.right(self.kind, self.name).permission

    @property
    def sources(self) -> frozenset[str]:
        """The statuses that it applies to."""
        return rights.right(self.kind, self.name).states


class ReasonForm(forms.Form):
    """Why a person does it; kept on the row and in the record."""

    reason = forms.CharField(max_length=200, required=False)


class TickedForm(helpers.ActionForm):
    """Beside the choice of what is done to ticked rows: why."""

    reason = forms.CharField(max_length=200, required=False, label="Reason")


class NeededReasonForm(forms.Form):
    """The same where a reason is asked for."""

    reason = forms.CharField(max_length=200)


def problems(form: forms.Form) -> list[str]:
    """What is wrong with a form, field by field."""
    return [f"{name}: {' '.join(map(str, errors))}" for name, errors in form.errors.items()]


def valid(request: HttpRequest, form: forms.Form, otherwise: str = "Nothing was done") -> bool:
    """Whether a form makes sense; the person is told where it does not."""
    if form.is_valid():
        return True
    messages.error(request, f"{otherwise}. {'; '.join(problems(form))}")
    return False


def attempt(request: HttpRequest, act: Callable[[], Outcome]) -> Outcome | None:
    """What ``act`` answers, in the transaction of a verb; None where a rule forbids it, which the person is told."""
    try:
        with acting():
            outcome = act()
    except PgJobsError as error:
        messages.error(request, f"Nothing was done: {error}")
        return None
    changed()
    return outcome


def actor_of(request: HttpRequest) -> Actor:
    """The person behind a request."""
    return Actor.of(request.user, via="admin")


def ticked(request: HttpRequest) -> list[int]:
    """The ids that were ticked, also of rows that have left the page's filters since it was shown."""
    return sorted({pk for text in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME) if (pk := as_id(text))})


def expected(row: Any) -> str:
    """How a row stands, as its forms carry it."""
    return f"{row.status}:{row.attempt_count}"


class Unseen(Undone):
    """A form that does not say how things stood when the person looked: a verb acts only on what was seen."""

    def __init__(self, what: str, field: str, given: str = "") -> None:
        said = repr(given[:40]) if given else "nothing"
        super().__init__(
            f"Nothing was done: the form says {said} ({field}) of how {what} stood when you looked, and a verb acts "
            f"only on what was seen. Load the page again and press the button there."
        )


def seen(request: HttpRequest, noun: str, ids: Iterable[int]) -> Expected:
    """How each row stood when the person looked, as the form says. Raises :class:`Unseen` where it does not."""
    found: Expected = {}
    wanted = set(ids)
    alone = next(iter(wanted)) if len(wanted) == 1 else None
    for text in request.POST.getlist("seen"):
        pk, _, state = text.partition(":")
        number = as_id(pk)
        if number in wanted and (parsed := _state(state)):
            found[number] = parsed
    given = request.POST.get("expected", "")
    if alone is not None and (one := _state(given)):
        found[alone] = one
    if missing := sorted(wanted - found.keys()):
        what = f"{noun} {some([str(pk) for pk in missing])}"
        raise Unseen(what, "seen" if alone is None else "expected or seen", given)
    return found


def stated(request: HttpRequest, field: str, what: str) -> str:
    """What one field of the form says of how ``what`` stood; it may be empty. Raises :class:`Unseen` without it."""
    if field not in request.POST:
        raise Unseen(what, field)
    return request.POST[field]


def some(names: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _state(text: str) -> tuple[str, int] | None:
    status, _, attempts = text.partition(":")
    return (status, int(attempts)) if status and attempts.isdecimal() and len(attempts) < 10 else None


def denied(
    request: HttpRequest, verb: str, permission: str, *, kind: str, ids: Iterable[int | str]
) -> HttpResponse:
    """The answer 403, which leaves a row in the record.

    An answer rather than an exception: with ``ATOMIC_REQUESTS`` an exception would take the row back.
    """
    reason = request.POST.get("reason", "")[:200].replace("\x00", "")
    audit.record_denied(
        verb, target_kind=kind, target_ids=ids, actor=actor_of(request), permission=permission, reason=reason
    )
    return permission_denied(request, PermissionDenied())


def lacking(model_admin: Any, request: HttpRequest, *permissions: str) -> str:
    """The first that a person has not, of those that a verb needs: whoever may not look may not act either."""
    for permission in permissions:
        if not request.user.has_perm(permission):
            return permission
    return "" if model_admin.has_view_permission(request) else str(model_admin.view_permission)


def back(request: HttpRequest, otherwise: str) -> HttpResponseRedirect:
    """To the page that the person came from, filters included, when it is one of this site."""
    wanted = request.POST.get("next", "")
    safe = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return HttpResponseRedirect(wanted if wanted and safe else otherwise)


def perform(
    request: HttpRequest, verb: Governed, model: Any, ids: Iterable[int], reason: str, **options: Any
) -> list[VerbOutcome]:
    """Do it, log it for each row that moved, and tell the user what was done and what was skipped and why.

    Verb, record and log entries are one commit when they live in the same database.
    """
    using, wanted = get_settings().database, list(ids)
    with acting():
        outcomes = verb.act(
            wanted,
            actor=actor_of(request),
            reason=reason,
            expected=seen(request, verb.kind, wanted),
            **options,
        )
        log(request, model, [outcome.id for outcome in outcomes if outcome.done], verb.done, reason, using)
    tell(request, verb.kind, verb.done, outcomes)
    return outcomes


def tell(request: HttpRequest, noun: str, done: str, outcomes: list[VerbOutcome]) -> None:
    """What was done, and what was skipped and why, one sentence per reason with the ids it holds for."""
    changed()
    moved = sum(outcome.done for outcome in outcomes)
    if moved:
        messages.success(request, f"{moved} {noun if moved == 1 else noun + 's'} {done}.")
    refused = [outcome for outcome in outcomes if not outcome.done]
    if not refused:
        return
    sentences = [f"{len(refused)} skipped, not {done}:" if len(outcomes) > 1 else "Nothing was done:"]
    for reason, _ in Counter(outcome.message for outcome in refused).most_common():
        ids = [str(outcome.id) for outcome in refused if outcome.message == reason]
        sentences.append(f"{some(ids)} ({reason}).")
    messages.warning(request, " ".join(sentences))


def log(request: HttpRequest, model: Any, ids: list[int], done: str, reason: str, using: str) -> None:
    """The entries that Django's own History page shows, for few rows; the record holds every operation.

    That page shows them as they are, so secrets are taken out here.
    """
    if not ids:
        return
    rows: Any = model._base_manager.using(using).filter(pk__in=ids).order_by("pk")
    user: Any = request.user
    LogEntry.objects.log_actions(
        user_id=user.pk,
        queryset=rows,
        action_flag=CHANGE,
        change_message=f"{done.capitalize()}" + (f": {redacted_text(reason)}" if reason else "."),
    )
