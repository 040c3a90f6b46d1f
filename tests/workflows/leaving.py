"""Functions with a ``with a() as s`` whose block is left in every way, for one look at the frame. Plain Python."""
# ruff: noqa

from contextlib import ExitStack, contextmanager, suppress

ROUNDS = [1, 2]


def falls_off(a):
    with a() as s:
        s.output = 1


def goes_on(a):
    with a() as s:
        s.output = 1
    return s.output


def goes_on_to_a_plain_return(a):
    with a():
        len(ROUNDS)
    return


def branches(a):
    with a() as s:
        if a:
            s.output = 1
        elif s:
            s.output = 2
        else:
            s.output = 3
    return s


def loops_inside(a):
    with a() as s:
        for n in ROUNDS:
            if n:
                continue
            break
        while s:
            break
    return s


def in_a_for(a):
    for n in ROUNDS:
        with a() as s:
            s.output = n
    return s


def in_a_for_with_more(a):
    for n in ROUNDS:
        with a() as s:
            if n:
                s.output = n
        if n:
            continue
        repr(s)
    else:
        repr(a)
    return s


def in_a_while(a):
    left = 2
    while left > 0:
        with a() as s:
            left -= 1
        left -= 1
    return s


def last_in_a_while(a):
    left = 2
    while left > 0 and a:
        with a() as s:
            if left:
                left -= 2
            else:
                left = 0


def before_a_break(a):
    for n in ROUNDS:
        with a() as s:
            s.output = n
        break
    return s


def in_try(a):
    try:
        with a() as s:
            s.output = 1
    except KeyError:
        return 2
    finally:
        len(ROUNDS)
    return s


def in_finally(a):
    try:
        len(ROUNDS)
    finally:
        with a() as s:
            s.output = 1
    return s


def in_with(a):
    with suppress(KeyError):
        with a() as s:
            s.output = 1
        return s
    return 1


def handlers_inside(a):
    with a() as s:
        s.output = 1
        try:
            pass
        except KeyError as error:
            s.output = error
        else:
            s.output = 2
        finally:
            s.output = 3
    return s


def with_inside(a):
    with a() as s:
        s.output = 1
        with suppress(KeyError):
            s.output = 2
    return s


def lambdas_inside(a):
    with a() as s:
        s.output = [x for x in ROUNDS if x]

        def inner():
            return 1

    return inner


def always_raises(a):
    with a():
        len(ROUNDS)
        raise KeyError


def asserts(a):
    with a() as s:
        assert s, "no"
    return s


def in_a_match(a):
    match a:
        case 1:
            with a() as s:
                s.output = 1
        case _:
            with a() as s:
                s.output = 2
    return s


def returns(a):
    with a() as s:
        s.output = 1
        return s.output


def returns_a_constant(a):
    with a():
        len(ROUNDS)
        return 7


def returns_a_constant_then_more(a):
    with a():
        if a:
            return 7
    return 8


def returns_nothing_before_more(a):
    with a():
        if a:
            return
    repr(a)


def returns_from_a_handler(a):
    with a() as s:
        s.output = 1
        try:
            pass
        except KeyError:
            return s
    return 1


def returns_through_finally(a):
    with a() as s:
        s.output = 1
        try:
            return s
        finally:
            pass
    return 1


def returns_in_a_loop(a):
    for n in ROUNDS:
        with a() as s:
            if n:
                return s
    return None


def breaks(a):
    for n in ROUNDS:
        with a() as s:
            if n:
                break
    return s


def breaks_a_while(a):
    while a:
        with a() as s:
            if s:
                break
        len(ROUNDS)
    return s


def continues(a):
    for n in ROUNDS:
        with a() as s:
            if n:
                continue
        repr(s)
    return s


def breaks_in_with(a):
    for n in ROUNDS:
        with suppress(KeyError), a() as s:
            s.output = n
            break
    return s


STAYS = [
    falls_off, goes_on, goes_on_to_a_plain_return, branches, loops_inside, in_a_for, in_a_for_with_more, in_a_while,
    last_in_a_while, before_a_break, in_try, in_finally, in_with, handlers_inside, with_inside, lambdas_inside,
    always_raises, asserts, in_a_match,
]  # fmt: skip
LEAVES = [
    returns, returns_a_constant, returns_a_constant_then_more, returns_nothing_before_more, returns_from_a_handler,
    returns_through_finally, returns_in_a_loop, breaks, breaks_a_while, continues, breaks_in_with,
]  # fmt: skip


def by_a_generator(a):
    def inner():
        with a() as s:
            yield s

    return list(inner())


def by_contextmanager(a):
    @contextmanager
    def inner():
        with a() as s:
            yield s

    with inner() as s:
        s.output = 1
    return s


def by_exit_stack(a):
    with ExitStack() as stack:
        s = stack.enter_context(a())
    return s


def by_hand(a):
    block = a()
    s = block.__enter__()
    block.__exit__(None, None, None)
    return s


ELSEWHERE = [by_a_generator, by_contextmanager, by_exit_stack, by_hand]
