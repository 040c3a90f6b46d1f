"""``@job`` and ``using``: forms, names, and what is refused where it is written."""

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any

import pytest

from pgjobs import Backoff, job
from pgjobs.backoff import MAX_DELAY_SECONDS
from pgjobs.exceptions import InvalidHandler, InvalidOption, PgJobsError, UnknownJobType
from pgjobs.queue.registry import registry
from tests.jobsapp import jobs

pytestmark = pytest.mark.usefixtures("scratch")


def test_without_and_with_brackets() -> None:
    plain, bracketed = job(add_one), job(name="bracketed")(add_one)
    configured = job(name="configured", queue="documents", priority=5, max_attempts=9, max_crashes=2)(
        no_context
    )

    assert (plain(1), bracketed(1), job()(add_one)(1)) == (2, 2, 2)
    assert (plain.options.queue, plain.options.priority, plain.options.max_attempts) == ("default", 100, 5)
    options = configured.options
    assert (options.queue, options.priority, options.max_attempts, options.max_crashes) == (
        "documents",
        5,
        9,
        2,
    )


def test_calling_a_job_with_context_passes_the_context_as_given() -> None:
    @job(name="work", takes_context=True)
    def work(ctx: Any, n: int) -> tuple[Any, int]:
        return ctx, n

    assert work("context", n=3) == ("context", 3)
    assert str(work.signature) == "(n: int)"


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(None, None), (3, 3.0), (0.5, 0.5), (dt.timedelta(minutes=2), 120.0)]
)
def test_timeout_in_seconds_or_as_timedelta(timeout: Any, seconds: float | None) -> None:
    @job(name="work", timeout=timeout)
    def work() -> None: ...

    assert work.handler.timeout == seconds


def test_the_retry_policy_may_be_a_backoff_or_a_function() -> None:
    def policy(attempt: int, error: BaseException) -> float | None:
        return None

    @job(name="one", retry=policy)
    def one() -> None: ...

    @job(name="two", retry=Backoff(base=9))
    def two() -> None: ...

    assert one.handler.retry is policy and two.handler.retry == Backoff(base=9)


def test_coroutine_functions_are_known_as_such() -> None:
    assert jobs.async_effect.handler.is_async and not jobs.ok.handler.is_async


def test_rows_carry_the_app_label_and_the_functions_name() -> None:
    assert jobs.ok.job_type == "jobsapp.ok"
    assert registry.get("jobsapp.ok") is jobs.ok.handler


def test_outside_an_app_the_folder_stands_for_the_label() -> None:
    assert job(no_context).job_type == "queue.no_context"  # of the module tests.queue.test_authoring


def test_a_given_name_is_taken_as_it_is() -> None:
    @job(name="billing/émettre v2")
    def work() -> None: ...

    assert work.job_type == "billing/émettre v2" and "billing/émettre v2" in registry.names()


@pytest.mark.parametrize("name", ["x" * 201, " ", "a\x00b"])
def test_a_name_that_no_row_can_carry(name: str) -> None:
    with pytest.raises(InvalidHandler, match=r"is not usable: give 1 to 200 characters, no NUL"):

        @job(name=name)
        def work() -> None: ...


def test_a_name_declared_twice_is_refused_naming_both_places() -> None:
    @job(name="twice")
    def first() -> None: ...

    with pytest.raises(PgJobsError) as caught:

        @job(name="twice")
        def second() -> None: ...

    for line in (
        first.handler.function.__code__.co_firstlineno,
        first.handler.function.__code__.co_firstlineno + 5,
    ):
        assert f"{__file__}:{line}" in str(caught.value)
    assert "'twice' is declared twice" in str(caught.value) and "another name" in str(caught.value)
    assert registry.get("twice") is first.handler


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnknownJobType, match=r"job type 'no\.such'.*jobsapp\.ok"):
        registry.get("no.such")


def no_context() -> None: ...
def add_one(n: int) -> int:
    return n + 1


def star(*args: int) -> None: ...
def slash(a: int, /) -> None: ...
def generator() -> Any:
    yield 1


async def asynchronous_generator() -> Any:
    yield 1


class Callable_:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "takes_context", "problem"),
    [
        (star, False, "cannot be filled by name"),
        (slash, False, "cannot be filled by name"),
        (generator, False, "is a generator"),
        (asynchronous_generator, False, "is a generator"),
        (no_context, True, "has no parameter for it"),
        (Callable_(), False, "needs a plain function"),
        (Callable_, False, "needs a plain function"),
        (functools.partial(star, 1), False, "needs a plain function"),
        (7, False, "needs a plain function"),
    ],
)
def test_what_keyword_arguments_cannot_call(function: Any, takes_context: bool, problem: str) -> None:
    with pytest.raises(InvalidHandler, match=problem):
        job(takes_context=takes_context)(function)


def test_a_decorated_function_keeps_its_signature() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @job(name="logged")
    @logged
    def work(n: int) -> int:
        return n

    assert str(work.signature) == "(n: int)" and work(3) == 3


WRONG_OPTIONS = [
    ("queue", ["", " ", "q" * 101, "a\x00", 7, None]),
    ("priority", [-32_769, 32_768, 1.5, "1", True, None]),
    ("max_attempts", [0, -1, 10_001, 2.0, True, None]),
    ("max_crashes", [0, 1_001, "3", False]),
]
WRONG_USING = [
    *WRONG_OPTIONS,
    ("idempotency_key", ["", " ", "k" * 256, "\ud800", 7]),
    ("run_after", [dt.datetime(2030, 1, 1), dt.date(2030, 1, 1), dt.timedelta(seconds=-1), 5, "tomorrow"]),
    ("run_after", [dt.timedelta(days=36_701)]),
]
WRONG_DECLARED = [
    *WRONG_OPTIONS,
    ("timeout", [0, -1, MAX_DELAY_SECONDS + 1, "5", True, float("nan"), dt.timedelta(0)]),
    ("retry", [5, None, "2s"]),
]


@pytest.mark.parametrize(("option", "values"), WRONG_DECLARED)
def test_wrong_options_are_refused_at_import(option: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises((InvalidOption, ValueError)) as caught:
            job(**{option: value})(no_context)
        assert option in str(caught.value)


@pytest.mark.parametrize(("option", "values"), WRONG_USING)
def test_wrong_options_are_refused_at_using(option: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=option):
            jobs.ok.using(**{option: value})


def test_boundaries_of_options() -> None:
    fitting = jobs.ok.using(
        priority=-32_768,
        queue="q" * 100,
        max_attempts=10_000,
        max_crashes=1_000,
        idempotency_key="k" * 255,
        run_after=dt.timedelta(0),
    )

    assert fitting.options.priority == -32_768


def test_using_makes_copies() -> None:
    first = jobs.ok.using(priority=1)
    second = first.using(queue="other", max_attempts=2)
    third = second.using(priority=50).using(idempotency_key="k").using(idempotency_key=None)

    assert (jobs.ok.options.priority, jobs.ok.options.queue) == (100, "default")
    assert (first.options.priority, first.options.queue) == (1, "default")
    assert (second.options.priority, second.options.queue, second.options.max_attempts) == (1, "other", 2)
    assert (third.options.priority, third.options.queue, third.options.idempotency_key) == (50, "other", None)
    assert third.job_type == "jobsapp.ok" and third(4) == 4


def test_job_types_are_frozen() -> None:
    with pytest.raises(AttributeError):
        jobs.ok.options = None  # type: ignore[misc, assignment]
