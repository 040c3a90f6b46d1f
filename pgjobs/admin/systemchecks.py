"""The checks of the system page: each with a state and what there is to say, whatever became of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings as django_settings
from django.utils import timezone

from pgjobs.admin.limits import Panel, panel
from pgjobs.conf import get_settings
from pgjobs.doctor.findings import CRITICAL, WARNING, Finding, Patient
from pgjobs.doctor.parts import PARTS, Part
from pgjobs.health.chores import Processes, chores, read_processes
from pgjobs.health.reading import Reader

SECONDS = 1.0
"""Longest statement of a check."""
STATES = ("fail", "warn", "unknown", "ok")
"""The worst first; what could not be looked at may be worse than it is fine."""

_SKEW = timedelta(seconds=2)
_CLOCKS = "Clocks"
_LOCAL_CACHES = {
    "django.core.cache.backends.locmem.LocMemCache": "each process of this site makes its pages for itself",
    "django.core.cache.backends.dummy.DummyCache": "nothing is kept, so each open tab costs its statements",
}


@dataclass(frozen=True, slots=True)
class Said:
    """One sentence of a check."""

    what: str
    measure: str = ""
    cure: str = ""
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the page."""

    title: str
    state: str
    said: list[Said] = field(default_factory=list)

    @property
    def tone(self) -> str:
        """The state by whose colour it is shown."""
        return {"fail": "problem", "warn": "waiting"}.get(self.state, self.state)


@dataclass(frozen=True, slots=True)
class Look:
    """The live workers, and how the two clocks stood when they were read."""

    processes: Processes
    ahead: timedelta
    """By how much this server's clock is ahead of the database's."""


def look() -> Panel:
    """A :class:`Look`, in time."""

    def read() -> Look:
        with Reader(get_settings().database) as reader:
            reader.within(lambda: None)  # its own statements come before the clocks are read
            before = timezone.now()
            processes = read_processes(reader)
            after = timezone.now()
        return Look(processes, before + (after - before) / 2 - processes.clock)

    return panel(read, seconds=SECONDS)


def checks(patient: Patient, seen: Panel, *, may_see_statements: bool) -> list[Check]:
    """All of them, the worst first. ``seen`` has the live workers."""
    found = [_part(each, patient, may_see_statements) for each in PARTS if not each.of_work]
    found += [*_chores(seen), _clock(seen), _cache()]
    return sorted(found, key=lambda check: STATES.index(check.state))


def counts(found: Iterable[Check]) -> list[tuple[str, str]]:
    """How many of each state, none left out, the good ones first."""
    counted = Counter(check.state for check in found)
    return [(state, str(counted[state])) for state in ("ok", "warn", "fail", "unknown")]


def _part(part: Part, patient: Patient, may_see_statements: bool) -> Check:
    looked = panel(lambda: list(part.probe(patient)), seconds=SECONDS)
    if looked.problem:
        return Check(part.title, "unknown", [Said(looked.problem)])
    findings: list[Finding] = looked.value
    severities = {finding.severity for finding in findings}
    state = "fail" if CRITICAL in severities else "warn" if WARNING in severities else "ok"
    said = [
        Said(each.what, each.measure, each.cure, each.statement if may_see_statements else "")
        for each in findings
    ]
    return Check(part.title, state, said or [Said(part.fine)])


def _chores(seen: Panel) -> list[Check]:
    if seen.problem:
        return [Check("Chores of the workers", "unknown", [Said(seen.problem)])]
    told = chores(seen.value.processes)
    return [Check(each.title, each.state, [Said(each.what, cure=each.cure)]) for each in told]


def _clock(seen: Panel) -> Check:
    if seen.problem:
        return Check(_CLOCKS, "unknown", [Said(seen.problem)])
    ahead: timedelta = seen.value.ahead
    milliseconds = round(ahead.total_seconds() * 1_000)
    told = f"The clock of this web server is {abs(milliseconds):,} ms {'ahead' if milliseconds > 0 else 'behind'}."
    if abs(ahead) <= _SKEW:
        return Check(_CLOCKS, "ok", [Said(told)])
    cure = "Let NTP set it. The queue goes by the database's clock alone; the logs of this server do not."
    return Check(_CLOCKS, "warn", [Said(told, cure=cure)])


def _cache() -> Check:
    backend = str(django_settings.CACHES.get("default", {}).get("BACKEND", ""))
    name = backend.rpartition(".")[2]
    if backend in _LOCAL_CACHES:
        return Check("Cache of the site", "ok", [Said(f"{name}: {_LOCAL_CACHES[backend]}.")])
    return Check("Cache of the site", "ok", [Said(f"{name}: a page is made once for all who may see it.")])
