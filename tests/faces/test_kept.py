"""What pages keep a moment: made by one thread, for all that ask meanwhile."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.cache import cache

from pgjobs.admin import kept


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    cache.clear()


def test_threads_that_ask_meanwhile_wait_for_the_one_that_makes_it() -> None:
    asked, may_end, made = threading.Semaphore(0), threading.Event(), []

    def make() -> str:
        made.append(threading.get_ident())
        asked.release()
        may_end.wait(20)
        return "content"

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(kept.once, "page", make, 20)
        assert asked.acquire(timeout=20)
        others = [threads.submit(kept.once, "page", make, 20) for _ in range(3)]
        may_end.set()
        got = [each.result(20) for each in (first, *others)]

    assert (got, len(made)) == (["content"] * 4, 1)


def test_a_maker_that_fails_does_not_stop_the_next() -> None:
    with pytest.raises(ValueError, match="no"):
        kept.once("page", lambda: int("no"), 20)

    assert kept.once("page", lambda: "content", 20) == "content"


def test_nobody_waits_longer_than_it_would_live() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        may_end.wait(20)
        return "slow"

    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(kept.once, "page", slow, 20)
        assert begun.wait(20)
        assert kept.once("page", lambda: "mine", 0.05) == "mine"
        may_end.set()
        assert first.result(20) == "slow"
