"""From an exception to something that can always be stored, whatever the exception does when it is looked at."""

from __future__ import annotations

import traceback

from pgjobs.codec import storable_text
from pgjobs.conf import get_settings
from pgjobs.queue.outcomes import Problem


def describe(error: BaseException, kind: str = "error") -> Problem:
    """``error`` as a :class:`Problem`: storable, capped, without local variables (they hold secrets)."""
    limit = get_settings().max_error_bytes
    return Problem(
        kind=kind,
        type=storable_text(
            f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins."), 300
        ),
        message=storable_text(_message(error), min(limit, 2_000)),
        traceback=storable_text(_traceback(error), limit),
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as inner:
        return f"<its text cannot be rendered: __str__ raised {type(inner).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        told = traceback.TracebackException.from_exception(
            error, limit=50, lookup_lines=True, max_group_width=5
        )
        return "".join(told.format())
    except Exception as inner:
        return f"<its traceback cannot be rendered: {type(inner).__name__}>"
