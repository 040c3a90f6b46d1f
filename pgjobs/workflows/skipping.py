"""Leaving out the block of a ``with`` statement: Python has no word for it, so the block is left at its first step.

A recorded atomic step must not run again, and its block stands in the workflow's own frame. Entering arms a trace
function for that one frame, which raises as soon as the ``as`` target is bound; leaving disarms it. Debuggers and
coverage get their trace function back.

No Python function may be called while the frame is armed. Up to CPython 3.11 a traced call first looks whether anything
is pending in the process, and looks again for as long as it is: an exception that is to be raised in some other thread,
as a timeout is, and that thread sits in C, and the call never begins. Hence the ``as`` target is a name, whose binding
calls nothing, the exception ends the tracing before ``__exit__`` is called, and an empty block is not armed at all.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

_PLAIN = "Write `with ctx.atomic(name) as step:` in a plain function, or pass one: ctx.atomic(name, function, ...)."
_GENERATES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_JUMPS = frozenset([*dis.hasjrel, *dis.hasjabs])
_GOTO = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
_ENDS = ("RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS")
_BINDING = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "POP_TOP")


class BlockSkipped(BaseException):
    """Never seen outside: raised at the first step of the block, swallowed when it is left."""


class Skipper:
    """Arms and disarms one frame."""

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame
        self._began = False
        self._previous: Any = None
        self._frame_trace: Any = None
        self._opcodes = False

    def arm(self) -> None:
        """From here on the frame gets no further than binding the ``as`` target."""
        self._previous = sys.gettrace()
        self._frame_trace, self._opcodes = self._frame.f_trace, self._frame.f_trace_opcodes
        self._frame.f_trace = self._leave
        self._frame.f_trace_opcodes = True
        try:
            sys.settrace(_ignore)
        except BaseException:  # a timeout arrives here: the block is not entered, and nobody would disarm
            self.disarm()
            raise

    def disarm(self) -> None:
        """Give tracing back as it was."""
        self._frame.f_trace, self._frame.f_trace_opcodes = self._frame_trace, self._opcodes
        sys.settrace(self._previous)

    def _leave(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            # A long index is in a prefix, after which the binding itself may be an event or none.
            bound = not name.startswith(_BINDING) and (self._began or name != "EXTENDED_ARG")
            self._began = True
            if bound:
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


def is_empty(frame: FrameType) -> bool:
    """Whether the block that ``frame`` is entering does nothing, so that there is nothing to leave out."""
    _, statement, own = _beginning(frame.f_code, frame.f_lasti)
    return own[0] < statement[0]


@lru_cache(maxsize=256)
def _beginning(code: CodeType, entering: int) -> tuple[str, tuple[int, int], tuple[int, int]]:
    """The instruction that binds the target, its protection, and that of the block's first instruction."""
    after = [i for i in dis.get_instructions(code) if i.offset > entering and i.opname != "EXTENDED_ARG"]
    # A NOP stands for the line of a try or of a pass, outside of any protection.
    binding, first = after[0], next(i for i in after[1:] if i.opname != "NOP")
    return binding.opname, _protection(code, binding.offset), _protection(code, first.offset)


def misuse(frame: FrameType) -> tuple[str, str] | None:
    """Why a replay could not leave out the block that ``frame`` is entering, and the cure; None when it can."""
    if frame.f_code.co_flags & _GENERATES:
        return "its with statement is in a generator, which a replay would leave elsewhere", _PLAIN
    if frame.f_globals.get("__name__") == "contextlib" or not _in_with(frame):
        return "it is not entered by a with statement of its own, so there is no block to leave out", _PLAIN
    binding, statement, own = _beginning(frame.f_code, frame.f_lasti)
    if not binding.startswith(_BINDING):
        return (
            "it is bound to more than a name, which a replay would leave out with the block",
            "Write `as step`, and hand the step on after the block.",
        )
    # Handlers of the block's own would see the exception that leaves it out.
    if own[0] >= statement[0] and own != statement:
        return (
            "its block begins with try, whose handlers a replay could not leave out",
            "Put the try around the block or another line before it, or pass a function: "
            "ctx.atomic(name, function, ...).",
        )
    if _leaves_early(frame.f_code, frame.f_lasti):
        return (
            "its block is left by return, break or continue, which a replay would leave out with the block",
            "Set step.output in the block, and decide by it after the block.",
        )
    return None


def _in_with(frame: FrameType) -> bool:
    # Later versions have no instruction of its own for it.
    name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return name == "BEFORE_WITH" or "BEFORE_WITH" not in dis.opmap


@lru_cache(maxsize=256)
def _leaves_early(code: CodeType, entering: int) -> bool:
    """Whether control can leave the block to elsewhere than behind it.

    Leaving it out ends where an exception ends that ``__exit__`` swallowed; each other way out must end there too.
    """
    flow = _Flow(code)
    handler = _protection(code, flow.after(entering))[1]
    behind = flow.behind_handler(handler)
    if behind is None:
        return False
    for way in flow.ways_out(handler):
        went = flow.behind_exit(way)
        if went is None or not flow.same(went, behind):
            return True
    return False


class _Flow:
    """Where control goes in a function's bytecode."""

    def __init__(self, code: CodeType) -> None:
        self._code = code
        found = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
        # A prefix of an instruction stands for it.
        self._at: dict[int, int] = {}
        self._listed: list[dis.Instruction] = []
        for instruction in found:
            self._at[instruction.offset] = len(self._listed)
            if instruction.opname != "EXTENDED_ARG":
                self._listed.append(instruction)

    def after(self, offset: int) -> int:
        return self._listed[self._at[offset] + 1].offset

    def within(self, offset: int, handler: int) -> bool:
        """Whether an exception here comes to ``handler``, through handlers in the block or at once."""
        target = _protection(self._code, offset)[1]
        passed = set()
        while target not in (-1, handler) and target not in passed:
            passed.add(target)
            target = _protection(self._code, target)[1]
        return target == handler

    def ways_out(self, handler: int) -> list[int]:
        """The first offsets beyond the block that ``handler`` protects."""
        inside = [one.offset for one in self._listed if self.within(one.offset, handler)]
        left = [way for offset in inside for way in self.successors(offset)]
        seen: set[int] = set()
        found = []
        while left:
            way = self.settled(left.pop())
            if way in seen or self.within(way, handler):
                continue
            seen.add(way)
            if (
                self._listed[self._at[way]].opcode in _JUMPS
            ):  # a branch cannot raise, so it may be unprotected
                left += self.successors(way)
            else:
                found.append(way)
        return found

    def successors(self, offset: int) -> list[int]:
        one = self._listed[self._at[offset]]
        found = [one.argval] if one.opcode in _JUMPS else []
        if one.opname not in _GOTO and one.opname not in _ENDS:
            found.append(self.after(offset))
        return found

    def settled(self, offset: int) -> int:
        """``offset``, or where it leads to without doing anything."""
        passed = set()
        while offset not in passed:
            passed.add(offset)
            one = self._listed[self._at[offset]]
            if one.opname == "NOP":
                offset = self.after(one.offset)
            elif one.opname in _GOTO:
                offset = one.argval
            else:
                return one.offset
        return offset

    def behind_exit(self, offset: int) -> int | None:
        """Where control goes after ``__exit__(None, None, None)`` is called here; None when a value is carried out."""
        names = ["LOAD_CONST", "LOAD_CONST", "LOAD_CONST", "CALL", "POP_TOP"]
        for name in names:
            one = self._skip(offset, "NOP", "PRECALL")
            if one.opname != name:
                return None
            offset = self.after(one.offset)
        return self.settled(offset)

    def behind_handler(self, handler: int) -> int | None:
        """Where control goes when ``__exit__`` has swallowed an exception; None in code of an unknown shape."""
        one = self._skip(handler, "PUSH_EXC_INFO", "WITH_EXCEPT_START", "TO_BOOL", "NOP")
        if not one.opname.startswith("POP_JUMP") or not one.opname.endswith("IF_TRUE"):
            return None
        offset = one.argval
        for name in ["POP_TOP", "POP_EXCEPT", *["POP_TOP"] * (2 if "BEFORE_WITH" in dis.opmap else 3)]:
            one = self._skip(offset, "NOP")
            if one.opname != name:
                return None
            offset = self.after(one.offset)
        return self.settled(offset)

    def same(self, one: int, other: int) -> bool:
        """Whether the same is done from both offsets on: the compiler copies short ends of functions."""
        for _, (at, *does), (at_too, *does_too) in zip(
            self._listed, self._run(one), self._run(other), strict=False
        ):
            if at == at_too:
                return True
            if does != does_too:
                return False
        return True

    def _run(self, offset: int) -> Iterator[tuple[int, str, Any]]:
        """What is done from ``offset`` on, to the end or for ever; instructions that do two things are split."""
        while True:
            one = self._listed[self._at[self.settled(offset)]]
            twice = one.opname.count("_FAST") == 2
            names = one.opname.replace("FAST_", "FAST ").split() if twice else [one.opname]
            values = one.argval if twice else [one.argval]
            for name, value in zip(names, values, strict=True):
                yield one.offset, name.removesuffix("_CHECK"), value
            if one.opname in _ENDS:
                return
            offset = self.after(one.offset)

    def _skip(self, offset: int, *names: str) -> dis.Instruction:
        one = self._listed[self._at[offset]]
        while one.opname in names:
            one = self._listed[self._at[self.after(one.offset)]]
        return one


def _ignore(frame: FrameType, event: str, argument: Any) -> None:
    return None
