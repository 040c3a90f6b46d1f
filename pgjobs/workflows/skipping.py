"""Leaving out the block of a ``with`` statement: Python has no word for it, so the block is left at its first step.

A recorded atomic step must not run again, and its block stands in the workflow's own frame. Entering arms a trace
function for that one frame, which raises as soon as the ``as`` target is bound; leaving disarms it. Debuggers and
coverage get their trace function back.
"""

from __future__ import annotations

import dis
import sys
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

_BINDING = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "POP_TOP")


class BlockSkipped(BaseException):
    """Never seen outside: raised at the first step of the block, swallowed when it is left."""


class Skipper:
    """Arms and disarms one frame."""

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame
        self._depth: int | None = None
        self._previous: Any = None
        self._frame_trace: Any = None
        self._opcodes = False

    def arm(self) -> None:
        """From here on the frame gets no further than binding the ``as`` target."""
        self._previous = sys.gettrace()
        self._frame_trace, self._opcodes = self._frame.f_trace, self._frame.f_trace_opcodes
        self._frame.f_trace = self._leave
        self._frame.f_trace_opcodes = True
        sys.settrace(_ignore)

    def disarm(self) -> None:
        """Give tracing back as it was."""
        self._frame.f_trace, self._frame.f_trace_opcodes = self._frame_trace, self._opcodes
        sys.settrace(self._previous)

    def _leave(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            depth, _ = _protection(frame.f_code, frame.f_lasti)
            if self._depth is None:
                self._depth = (
                    depth  # of the with statement itself: its binding is the first thing it protects
                )
                if dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(_BINDING):
                    return self._leave
            # Beyond the statement's own protection the block was empty, and there is nothing to leave.
            if depth >= self._depth:
                raise BlockSkipped
        return self._leave


@lru_cache(maxsize=256)
def _ranges(code: CodeType) -> list[tuple[int, int, int, int]]:
    entries: Any = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    return [(entry.start, entry.end, entry.depth, entry.target) for entry in entries]


def _protection(code: CodeType, offset: int) -> tuple[int, int]:
    """Stack depth and target of the innermost exception handler that covers ``offset``; (-1, -1) for none."""
    found = ((depth, target) for start, end, depth, target in _ranges(code) if start <= offset < end)
    return next(found, (-1, -1))


def begins_with_handler(frame: FrameType) -> bool:
    """Whether the block that ``frame`` is entering begins with ``try``.

    Such a block cannot be skipped: its own handlers would see the exception that skips it.
    """
    after = [i for i in dis.get_instructions(frame.f_code) if i.offset > frame.f_lasti]
    # A NOP stands for the line of a try, outside of any protection.
    binding, first = after[0], next(i for i in after[1:] if i.opname != "NOP")
    statement, own = _protection(frame.f_code, binding.offset), _protection(frame.f_code, first.offset)
    return own[0] >= statement[0] and own != statement


def _ignore(frame: FrameType, event: str, argument: Any) -> None:
    return None
