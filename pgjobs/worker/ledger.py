"""Which rows a process has begun, in memory that its supervisor can read after the process has died.

A death charges the rows whose code may have run; rows that were only claimed ahead are handed back unspent.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections import deque

_ENTRIES = 4096
_ENTRY = struct.Struct("q")
_OVERFLOW = _ENTRIES  # an entry of its own: set when more was begun than fits
_SIGNED_OFF = _ENTRIES + 1  # another: set when the process has handed everything back
_SIZE = (_ENTRIES + 2) * _ENTRY.size


class Ledger:
    """The child's side. Every entry is written by one thread at a time."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, _SIZE)
        self._free = deque(range(_ENTRIES))

    def begin(self, label: str, pk: int) -> int | None:
        """Note that a row is begun; the place to give to :meth:`end`."""
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
    *entries, overflow, _ = (value for (value,) in _ENTRY.iter_unpack(data))
    if overflow:
        return None
    return {
        "job": sorted(pk for pk in entries if pk > 0),
        "execution": sorted(-pk for pk in entries if pk < 0),
    }


def signed_off(fd: int) -> bool:
    """Whether the process had handed everything back before it ended."""
    return any(os.pread(fd, _ENTRY.size, _SIGNED_OFF * _ENTRY.size))
