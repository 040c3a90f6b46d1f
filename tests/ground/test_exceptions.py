"""Every message says the value, the rule and the cure."""

from datetime import timedelta

import pytest

from pgjobs import Fail, LeaseLost, Retry, Snooze
from pgjobs.exceptions import (
    AlreadyProduced,
    CommitLost,
    DuplicateName,
    InvalidOption,
    JobTimeout,
    NotStorable,
    PgJobsError,
    SignatureMismatch,
    UnknownJobType,
)

MESSAGES = [
    (
        DuplicateName("job type", "a.b", "one.py:1", "two.py:2"),
        ["'a.b'", "one.py:1", "two.py:2", "exactly one function", "name="],
    ),
    (UnknownJobType("a.b", ["c.d", "e.f"]), ["'a.b'", "Only registered handlers run", "jobs.py", "c.d, e.f"]),
    (UnknownJobType("a.b", []), ["Registered here: none"]),
    (SignatureMismatch("a.b", "(x)", "missing 'x'"), ["a.b(x)", "missing 'x'", "No job was enqueued"]),
    (InvalidOption("priority", 99_999, "give less."), ["priority=99999", "give less."]),
    (NotStorable("payload.a", "NaN is not JSON", "Use None."), ["payload.a", "NaN is not JSON", "Use None."]),
    (LeaseLost("job", 7), ["job 7", "passed to somebody else", "Nothing was written", "stop working"]),
    (CommitLost(7), ["job 7", "did not commit", "closed or replaced", "ended by hand", "Do neither"]),
    (AlreadyProduced("k", 7), ["job 7", "'k'", "already has a result", "do not catch"]),
    (JobTimeout(7, 2.5), ["job 7", "timeout of 2.5 s"]),
]


@pytest.mark.parametrize(("error", "parts"), MESSAGES, ids=[type(error).__name__ for error, _ in MESSAGES])
def test_message(error: Exception, parts: list[str]) -> None:
    assert isinstance(error, PgJobsError)
    for part in parts:
        assert part in str(error)


def test_a_huge_value_does_not_make_a_huge_message() -> None:
    assert len(str(InvalidOption("queue", "x" * 1_000_000, "shorten it."))) < 200


def test_errors_of_the_caller_are_also_the_builtin_kind() -> None:
    assert isinstance(InvalidOption("a", 1, "b"), ValueError)
    assert isinstance(NotStorable("a", "b", "c"), ValueError)
    assert isinstance(SignatureMismatch("a", "()", "c"), TypeError)


def test_words_of_a_handler_are_no_errors_of_pgjobs() -> None:
    """``except PgJobsError`` in a handler must not swallow its own ``raise Retry``."""
    for word in (Fail("x"), Retry("x"), Snooze(1)):
        assert not isinstance(word, PgJobsError)


def test_words_of_a_handler_carry_what_was_said() -> None:
    assert (Fail("broken file").reason, str(Fail("broken file"))) == ("broken file", "broken file")
    assert Fail().reason and Retry().reason
    assert Retry("later", after=timedelta(seconds=3)).after == timedelta(seconds=3)
    assert Retry("later").after is None
    assert Snooze(timedelta(hours=1), "night").delay == timedelta(hours=1)
    assert str(Snooze(5)) == "snoozed for 5"
