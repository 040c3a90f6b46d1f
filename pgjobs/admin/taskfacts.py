"""What is in force for one type of job: the policy of its handler in this process, and who can run it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.utils.safestring import SafeString

from pgjobs.admin import marks
from pgjobs.admin.ages import seconds_in_words
from pgjobs.backoff import Backoff
from pgjobs.queue.registry import Handler, registry
from pgjobs.queue.stats import live_workers


def settings(name: str) -> SafeString | str:
    """Names and values; empty for a type without a handler in this process."""
    handler = registry.find(name)
    return "" if handler is None else marks.facts(_pairs(handler))


def served(name: str) -> list[tuple[str, str]]:
    """Versions of the code of live workers that know the type, with the number of workers, most first."""
    versions = live_workers().filter(handlers__contains=[name]).values_list("code_version", "version")
    found = Counter(code or f"pgjobs {package}" for code, package in versions)
    return [(version, str(count)) for version, count in found.most_common(10)]


def _pairs(handler: Handler) -> list[tuple[str, Any]]:
    function = handler.function
    timeout = handler.timeout
    return [
        ("Code", f"{function.__module__}.{getattr(function, '__qualname__', '?')}"),
        ("Queue", handler.queue),
        ("Attempts", str(handler.max_attempts)),
        ("Retry", _retry(handler.retry)),
        ("Timeout", "none" if timeout is None else seconds_in_words(timeout)),
        ("Runs", "on the event loop" if handler.is_async else "in a thread"),
        ("Hidden", ", ".join(handler.redact)),
    ]


def _retry(policy: Any) -> str:
    if not isinstance(policy, Backoff):
        return f"by {getattr(policy, '__module__', '?')}.{getattr(policy, '__qualname__', repr(policy))}"[
            :200
        ]
    base, cap = seconds_in_words(policy.base), seconds_in_words(policy.cap)
    return f"after {base}, then ×{policy.factor:g} each time, at most {cap}, ±{policy.jitter:.0%}"
