"""Buttons and actions: each calls the verb of the same name, says per job what came of it, and leaves a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import helpers
from django.contrib.admin.models import CHANGE, LogEntry
from django.db import transaction
from django.http import HttpRequest

from pgjobs.conf import get_settings
from pgjobs.queue import control
from pgjobs.queue.control import VerbOutcome
from pgjobs.queue.models import Job
from pgjobs.queue.states import CANCELLABLE, RETRYABLE, JobStatus

_LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing a person may do to jobs."""

    name: str
    done: str
    act: Callable[..., list[VerbOutcome]]
    sources: frozenset[JobStatus]
    effect: str
    """What pressing the button does, for people."""

    @property
    def permission(self) -> str:
        """The full name of the permission it needs."""
        return f"pgjobs.{self.name}_job"

    @property
    def rule(self) -> str:
        """When it applies."""
        return f"only {', '.join(sorted(self.sources))} jobs"


RETRY = Verb(
    "retry", "retried", control.retry, RETRYABLE, "Back to the queue, due at once; the history stays."
)
CANCEL = Verb(
    "cancel",
    "cancelled",
    control.cancel,
    CANCELLABLE,
    "A waiting job will not run; a running handler loses its lease and can change nothing.",
)
VERBS = {verb.name: verb for verb in (RETRY, CANCEL)}


class ReasonForm(forms.Form):
    """Why a person does it; kept on the job and in the log."""

    reason = forms.CharField(max_length=200, required=False)


def ticked(request: HttpRequest) -> list[int]:
    """The ids that were ticked, also of jobs that have left the page's filters since it was shown."""
    ids = {int(pk) for pk in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME) if pk.isdecimal()}
    return sorted(pk for pk in ids if pk <= _LARGEST_ID)


def perform(request: HttpRequest, verb: Verb, ids: Iterable[int], reason: str = "") -> None:
    """Do it, log it for each job that moved, and tell the user what was done and what was skipped and why.

    Verb and log entries are one commit when they live in the same database.
    """
    using = get_settings().database
    with transaction.atomic(using=using):
        outcomes = verb.act(ids, actor=request.user.get_username(), reason=reason)
        _log(request, verb, [outcome.id for outcome in outcomes if outcome.done], reason, using)
    done = sum(outcome.done for outcome in outcomes)
    if done:
        messages.success(request, f"{done} {'job' if done == 1 else 'jobs'} {verb.done}.")
    if done < len(outcomes):
        messages.warning(request, _skipped(verb, outcomes))


def _skipped(verb: Verb, outcomes: list[VerbOutcome]) -> str:
    """One sentence per reason, each with the ids it holds for."""
    refused = [outcome for outcome in outcomes if not outcome.done]
    reasons = Counter(outcome.message for outcome in refused)
    sentences = [f"{len(refused)} skipped, not {verb.done}:"]
    for reason, count in reasons.most_common():
        ids = [str(outcome.id) for outcome in refused if outcome.message == reason]
        more = f" and {count - 5} more" if count > 5 else ""
        sentences.append(f"{', '.join(ids[:5])}{more} ({reason}).")
    return " ".join(sentences)


def _log(request: HttpRequest, verb: Verb, ids: list[int], reason: str, using: str) -> None:
    jobs: Any = Job._base_manager.using(using).filter(pk__in=ids).only("pk", "job_type").order_by("pk")
    user: Any = request.user
    LogEntry.objects.log_actions(
        user_id=user.pk,
        queryset=jobs,
        action_flag=CHANGE,
        change_message=f"{verb.done.capitalize()}" + (f": {reason}" if reason else "."),
    )
