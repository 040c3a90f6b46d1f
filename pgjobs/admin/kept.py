"""The cache of the project, for what pages keep a moment. Without it they cost statements, and nothing else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from django.core.cache import cache

logger = logging.getLogger("pgjobs.admin")

_guard = threading.Lock()
_making: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()


def get(key: str) -> Any:
    """What was kept; None when nothing is, or when the cache does not answer."""
    try:
        return cache.get(key)
    except Exception as error:  # each cache has its own
        logger.warning("the cache does not answer: %s", error)
        return None


def keep(key: str, value: Any, seconds: float) -> None:
    """Keep a value, if the cache takes it."""
    try:
        cache.set(key, value, seconds)
    except Exception as error:  # each cache has its own
        logger.warning("the cache does not answer: %s", error)


def once(key: str, make: Callable[[], Any], seconds: float) -> Any:
    """What is kept, else what ``make`` gives, kept for so long. Threads that ask meanwhile wait for it.

    They wait no longer than the value would have lived: a page that takes its time holds nobody up for ever.
    """
    value = get(key)
    if value is not None:
        return value
    with _guard:
        lock = _making.setdefault(key, threading.Lock())
    mine = lock.acquire(timeout=seconds)
    try:
        value = get(key)
        if value is None:
            value = make()
            keep(key, value, seconds)
        return value
    finally:
        if mine:
            lock.release()
