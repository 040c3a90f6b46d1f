"""Bodies with atomic blocks, in every way to write one."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.db import transaction

from tests.jobsapp.models import Effect


def deed(key: str) -> None:
    Effect.objects.create(key=key, pid=0)


def deeds() -> list[str]:
    return list(Effect.objects.values_list("key", flat=True))


# Each body runs its blocks once. What it returns must be the same when all blocks are left out.


def named(ctx: Any) -> Any:
    with ctx.atomic("a") as a:
        deed("a")
        a.output = {"n": 1}
    return a.output


def unnamed(ctx: Any) -> Any:
    with ctx.atomic("a"):
        deed("a")
    return ctx.step(lambda: 1, name="next")


def one_line(ctx: Any) -> Any:
    with ctx.atomic("a") as a: deed("a"); a.output = 2  # noqa: E701, E702  # fmt: skip
    return a.output


def one_line_unnamed(ctx: Any) -> Any:
    with ctx.atomic("a"): deed("a")  # noqa: E701  # fmt: skip
    return 3


def last_in_its_function(ctx: Any) -> Any:
    with ctx.atomic("a"):
        deed("a")


def empty(ctx: Any) -> Any:
    with ctx.atomic("a"):
        pass
    with ctx.atomic("b") as b:
        pass
    return b.output


def in_a_loop(ctx: Any) -> Any:
    got = []
    for n in range(3):
        with ctx.atomic("a", key=str(n)) as a:
            deed(f"a{n}")
            a.output = n
        got.append(a.output)
    return got


def branching(ctx: Any) -> Any:
    with ctx.atomic("a") as a:
        if ctx.key is None:
            deed("a")
        else:
            deed("other")
        for n in range(3):
            a.output = n
    return a.output


def with_handlers_inside(ctx: Any) -> Any:
    with ctx.atomic("a") as a:
        deed("a")
        try:
            with transaction.atomic():
                deed("undone")
                raise KeyError
        except BaseException as error:
            a.output = type(error).__name__
        finally:
            deed("finally")
    return a.output


def inside_try(ctx: Any) -> Any:
    try:
        with ctx.atomic("a") as a:
            deed("a")
            a.output = 1
    except BaseException as error:
        return f"saw {error!r}"
    finally:
        ctx.step(lambda: 1, name="after")
    return a.output


def inside_with(ctx: Any) -> Any:
    with pytest.raises(ZeroDivisionError):
        with ctx.atomic("a") as a:
            deed("a")
            a.output = 5
        1 / 0  # noqa: B018
    return a.output


def closure(ctx: Any) -> Any:
    def inner() -> Any:
        nonlocal held
        with ctx.atomic("a") as held:
            deed("a")
            held.output = 7
        return held

    held: Any = None
    return inner().output + held.output


def helper(ctx: Any) -> Any:
    with ctx.atomic("a") as a:
        deed("a")
        a.output = 1
    return a.output


def in_a_helper(ctx: Any) -> Any:
    return [helper(ctx), ctx.atomic("called", lambda x: deed("called") or x, 4), helper(ctx)]


def two_in_a_row(ctx: Any) -> Any:
    with ctx.atomic("a") as a:
        deed("a")
        a.output = 1
    with ctx.atomic("b") as b:
        deed("b")
        b.output = a.output + 1
    deed_count = ctx.step(lambda: 1, name="c")
    return [a.output, b.output, deed_count]


def to_an_attribute(ctx: Any) -> Any:
    class Box:
        step: Any = None

    box = Box()
    with ctx.atomic("a") as box.step:
        deed("a")
        box.step.output = 3
    return 3


def empty_in_others(ctx: Any) -> Any:
    got = []
    for n in range(2):
        try:
            with ctx.atomic("a", key=str(n)) as a:
                pass
        finally:
            got.append(a.output)
    return got


def wrapped_lines(ctx: Any) -> Any:
    with ctx.atomic(
        "a",
        key="k",
    ) as a:
        deed(
            "a",
        )
        a.output = [
            1,
            2,
        ]
    return a.output


def begins_with_try(ctx: Any) -> Any:
    with ctx.atomic("a") as a:
        try:
            deed("a")
        except BaseException as error:
            return f"saw {error!r}"
        finally:
            deed("finally")
            a.output = 1
    return a.output


def begins_with_try_unnamed(ctx: Any) -> Any:
    with ctx.atomic("a"):
        try:
            deed("a")
        except BaseException as error:
            return f"saw {error!r}"
    return 1


def begins_with_with(ctx: Any) -> Any:
    with ctx.atomic("a"):
        with suppress(BaseException):
            deed("a")
        deed("b")
    return 2


def several_in_one_with(ctx: Any) -> Any:
    with ctx.atomic("a") as a, suppress(BaseException):
        deed("a")
        a.output = 3
    return a.output


def second_of_several(ctx: Any) -> Any:
    with suppress(BaseException), ctx.atomic("a") as a:
        deed("a")
        a.output = 4
    return a.output


def begins_with_a_loop(ctx: Any) -> Any:
    with ctx.atomic("a") as a:
        while True:
            deed("a")
            a.output = 5
            break
    return a.output


BODIES: list[Callable[[Any], Any]] = [
    named,
    unnamed,
    one_line,
    one_line_unnamed,
    last_in_its_function,
    empty,
    in_a_loop,
    branching,
    with_handlers_inside,
    inside_try,
    inside_with,
    closure,
    in_a_helper,
    two_in_a_row,
    empty_in_others,
    wrapped_lines,
    begins_with_with,
    several_in_one_with,
    second_of_several,
    begins_with_a_loop,
]
