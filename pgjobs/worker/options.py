"""What one ``runworkers`` was asked to do; handed to its children as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from pgjobs.conf import Settings, get_settings
from pgjobs.exceptions import SettingsError

RENEWALS_PER_LEASE = 3
"""A lease lives through two missed renewals."""

START_AHEAD = 1.0
"""Seconds before a suspect is due at which its process may be started: about what an interpreter takes to load."""
SUSPECTS = b"\0"
"""What a child writes to its supervisor; other bytes there are numbers of signals, none of which is 0."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Settings, with what the command line replaced. Durations are seconds."""

    queues: tuple[str, ...] = ()
    """Empty: all queues."""
    processes: int = 1
    concurrency: int = 10
    lease_seconds: float = 30
    heartbeat_seconds: float = 10
    poll_seconds: float = 1
    grace_seconds: float = 30
    drain: bool = False
    """End when nothing is runnable."""
    reaper: bool = True
    name: str = ""
    """Of one child; new at every start."""
    suspect: bool = False
    """This child runs one suspect, alone, and ends."""

    def __post_init__(self) -> None:
        if self.heartbeat_seconds * RENEWALS_PER_LEASE > self.lease_seconds:
            raise SettingsError(
                f"heartbeat of {self.heartbeat_seconds:g} s is too long for a lease of {self.lease_seconds:g} s: it "
                f"must outlive two missed renewals. Use a heartbeat of at most {self.lease_seconds / 3:g} s."
            )
        for name in ("processes", "concurrency", "poll_seconds", "grace_seconds", "heartbeat_seconds"):
            if getattr(self, name) <= 0 and name != "grace_seconds":
                raise SettingsError(f"{name} is {getattr(self, name)!r}; it must be above 0.")

    @classmethod
    def from_settings(cls, settings: Settings | None = None, **given: object) -> WorkerOptions:
        """Settings, with every value of ``given`` that is not None in their place."""
        s = settings or get_settings()
        values: dict[str, object] = {
            "processes": s.processes,
            "concurrency": s.concurrency,
            "lease_seconds": s.lease_seconds,
            "heartbeat_seconds": s.heartbeat_seconds,
            "poll_seconds": s.poll_seconds,
            "grace_seconds": s.shutdown_grace_seconds,
        }
        values.update({key: value for key, value in given.items() if value is not None})
        return cls(**values)  # type: ignore[arg-type]

    def to_json(self) -> str:
        """For a child's command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerOptions:
        """What :meth:`to_json` wrote."""
        data = json.loads(text)
        known = {f.name for f in fields(cls)}
        values = {key: value for key, value in data.items() if key in known}
        return cls(**{**values, "queues": tuple(values.get("queues", ()))})
