"""From an exception to something that can always be stored, whatever the exception does when it is looked at."""

from __future__ import annotations

import traceback
from functools import cache, lru_cache
from pathlib import Path

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
        frame=project_frame(error),
    )


def project_frame(error: BaseException) -> str:
    """Where in the project's own code it was raised, as "module:function"; empty when that was in none of it."""
    found = ""
    try:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if _is_projects(frame.f_code.co_filename):
                found = f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"
    except Exception:
        return found
    return storable_text(found, 500)


@lru_cache(maxsize=4096)
def _is_projects(file: str) -> bool:
    """Whether a file is neither of Python, nor of an installed package, nor of pgjobs."""
    path = Path(file)
    if file.startswith("<") or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not any(path.is_relative_to(folder) for folder in _foreign())


@cache
def _foreign() -> tuple[str | Path, ...]:
    import sysconfig  # its thousand variables of Python's build are a megabyte: not before something fails

    return sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), Path(__file__).parent.parent


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
