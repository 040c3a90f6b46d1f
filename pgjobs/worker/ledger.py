"""Which rows a process has begun, and its pulse, in memory that its supervisor can read, also after its death.

A death charges the rows whose code may have run; rows that were only claimed ahead are handed back unspent.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections import deque
from dataclasses import dataclass

from pgjobs.worker import clock

_ENTRIES = 4096
_ENTRY = struct.Struct("q")
_OVERFLOW = _ENTRIES  # an entry of its own: set when more was begun than fits
_SIGNED_OFF = _ENTRIES + 1  # another: set when the process has handed everything back
_TURNED = _ENTRIES + 2  # when the claim loop last turned, in milliseconds of the clock; 0: not yet
_BEAT = _ENTRIES + 3  # the same of the heartbeat's thread
_STATE = _ENTRIES + 4
_WORKED = _ENTRIES + 5  # set when the first row is begun
_AWAKE = (
    _ENTRIES + 6
)  # when a thread that waits for nothing last ran, in milliseconds of the clock; 0: not yet
_SIZE = (_ENTRIES + 7) * _ENTRY.size

STARTING, READY, WITHOUT_DATABASE, STOPPING = range(4)
"""What a process says of itself."""


class Ledger:
    """The child's side. Every entry is written by one thread at a time."""

    def __init__(self, fd: int) -> None:
        if os.fstat(fd).st_size < _SIZE:  # of a supervisor that was started before its code was replaced
            os.ftruncate(fd, _SIZE)
        self._memory = mmap.mmap(fd, _SIZE)
        self._free = deque(range(_ENTRIES))
        self._worked = False

    def begin(self, label: str, pk: int) -> int | None:
        """Note that a row is begun; the place to give to :meth:`end`."""
        if not self._worked:
            self._worked = True
            _ENTRY.pack_into(self._memory, _WORKED * _ENTRY.size, 1)
        try:
            place = self._free.pop()
        except IndexError:
            _ENTRY.pack_into(self._memory, _OVERFLOW * _ENTRY.size, 1)
            return None
        _ENTRY.pack_into(self._memory, place * _ENTRY.size, pk if label == "job" else -pk)
        return place

    def end(self, place: int | None) -> None:
        """The row is settled, or no longer ours."""
        if place is not None:
            _ENTRY.pack_into(self._memory, place * _ENTRY.size, 0)
            self._free.append(place)

    def turned(self) -> None:
        """The claim loop goes round, whatever its last round came to."""
        self._stamp(_TURNED)

    def beat(self) -> None:
        """The heartbeat's thread goes round."""
        self._stamp(_BEAT)

    def awake(self) -> None:
        """A thread runs that asks nobody anything: the process is neither stopped nor starved."""
        self._stamp(_AWAKE)

    def state(self, state: int) -> None:
        """How the process is; from :data:`STOPPING` there is no way back."""
        if _ENTRY.unpack_from(self._memory, _STATE * _ENTRY.size) != (STOPPING,):
            _ENTRY.pack_into(self._memory, _STATE * _ENTRY.size, state)

    def _stamp(self, place: int) -> None:
        _ENTRY.pack_into(self._memory, place * _ENTRY.size, int(clock.now() * 1000))

    def sign_off(self) -> None:
        """Everything is settled or handed back. An exit code alone proves nothing: a handler may have made it."""
        _ENTRY.pack_into(self._memory, _SIGNED_OFF * _ENTRY.size, 1)


def create() -> int:
    """A file descriptor for a new ledger, to be inherited by the child and read after its end."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("pgjobs-ledger")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, _SIZE)
    return fd


def begun(fd: int) -> dict[str, list[int]] | None:
    """Ids of begun rows by table, or None when that is not known and all must be taken for begun."""
    data = os.pread(fd, _SIZE, 0)
    if len(data) < _SIZE:
        return None
    values = [value for (value,) in _ENTRY.iter_unpack(data)]
    if values[_OVERFLOW]:
        return None
    entries = values[:_ENTRIES]
    return {
        "job": sorted(pk for pk in entries if pk > 0),
        "execution": sorted(-pk for pk in entries if pk < 0),
    }


@dataclass(frozen=True, slots=True)
class Pulse:
    """How a process is, by what it last wrote."""

    turned_age: float | None
    """Seconds since its claim loop turned; None: it has not yet."""
    beat_age: float | None
    """Seconds since its heartbeat's thread turned."""
    state: int


def pulse(fd: int) -> Pulse:
    """Feel it. Raises OSError when the descriptor is closed, ValueError when it is something else's."""
    data = os.pread(fd, 3 * _ENTRY.size, _TURNED * _ENTRY.size)
    if len(data) < 3 * _ENTRY.size:
        raise ValueError(f"descriptor {fd} is no ledger")
    turned, beat, state = (value for (value,) in _ENTRY.iter_unpack(data))
    now = clock.now()
    turned_age, beat_age = (now - stamp / 1000 if stamp else None for stamp in (turned, beat))
    return Pulse(turned_age, beat_age, state)


def silent_for(fd: int) -> float | None:
    """Seconds since any thread of the process was known to run; None: it has not come so far yet."""
    ((stamp,),) = _ENTRY.iter_unpack(os.pread(fd, _ENTRY.size, _AWAKE * _ENTRY.size))
    return clock.now() - stamp / 1000 if stamp else None


def signed_off(fd: int) -> bool:
    """Whether the process had handed everything back before it ended."""
    return any(os.pread(fd, _ENTRY.size, _SIGNED_OFF * _ENTRY.size))


def worked(fd: int) -> bool:
    """Whether the process has ever begun a row."""
    return any(os.pread(fd, _ENTRY.size, _WORKED * _ENTRY.size))
