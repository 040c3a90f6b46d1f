"""Values to and from the JSON that jsonb can hold and hand back unchanged; what it cannot hold is refused by path.

Beyond JSON's own types datetime, date, time, timedelta, Decimal and UUID survive, as an object with the one
key ``$datetime`` and so on. A dict of the caller's that looks like such a tag is wrapped in ``$dict``.
No class is ever looked up by a name found in the data.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from pgjobs.conf import get_settings
from pgjobs.exceptions import NotStorable

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_TO_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_MAX_INT_BITS = 14_000  # json refuses integers of more than 4,300 digits, about 14,280 bits
_SMALL = 2**63
_PLAIN = {int, float, bool, type(None), bytes, dt.date, dt.datetime, uuid.UUID}


def dumps(value: Any, *, label: str, max_bytes: int) -> str:
    """``value`` as JSON text for jsonb.

    ``label`` opens the path in errors ("payload", "result"). Raises :class:`NotStorable` for NUL and lone
    surrogates, NaN and infinities, keys that are not text, unknown types, values nested too deep or too large.
    """
    text = _flat_text(value) if type(value) is dict else None
    if text is None:
        text = _TO_JSON(_encode(value, label, 0))
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_bytes:
        raise NotStorable(
            label,
            f"{size:,} bytes of JSON are more than the limit of {max_bytes:,}",
            f"Store the data elsewhere and pass its id, or raise MAX_{label.upper()}_BYTES in PGJOBS.",
        )
    return text


def loads(text: str | bytes) -> Any:
    """The value that :func:`dumps` was given (a tuple comes back as a list)."""
    return decode(json.loads(text))


def decode(value: Any) -> Any:
    """Parsed JSON with the tags turned into values. An unknown or malformed tag stays as it is."""
    if isinstance(value, dict):
        if len(value) == 1:
            ((key, inner),) = value.items()
            if key == "$dict" and isinstance(inner, dict):
                return {k: decode(v) for k, v in inner.items()}
            read = _READERS.get(key)
            if read is not None and isinstance(inner, str):
                try:
                    return read(inner)
                except (ValueError, InvalidOperation, OverflowError):
                    return value
        return {k: decode(v) for k, v in value.items()}
    if isinstance(value, list):
        return [decode(v) for v in value]
    return value


def storable_text(text: str, max_bytes: int) -> str:
    """``text`` made fit for a text or jsonb column: replacement characters for what it cannot hold, middle cut out."""
    # Cut by characters first: replacing in 50 MB costs seconds, and no character is under one byte.
    if len(text) > 2 * max_bytes:
        text = text[:max_bytes] + text[-max_bytes:]
    clean = _UNSTORABLE.sub("\ufffd", text)
    raw = clean.encode()
    if len(raw) <= max_bytes:
        return clean
    mark = "\n… cut …\n"
    half = (max_bytes - len(mark.encode())) // 2
    if half < 1:
        return raw[:max_bytes].decode(errors="ignore")
    return raw[:half].decode(errors="ignore") + mark + raw[len(raw) - half :].decode(errors="ignore")


def check_text(value: str, path: str) -> str:
    """``value`` itself, or :class:`NotStorable` when it holds NUL or a lone surrogate."""
    bad = _UNSTORABLE.search(value)
    if bad:
        what = "a NUL character" if bad[0] == "\x00" else f"a lone surrogate ({bad[0]!a})"
        raise NotStorable(
            path, f"{what} at position {bad.start()} cannot be stored by PostgreSQL", "Remove or replace it."
        )
    return value


def is_flat(value: dict[Any, Any]) -> bool:
    """Whether ``value`` holds text and small numbers only: no code of its values runs when it is written as JSON."""
    for key, inner in value.items():
        kind = type(inner)
        plain = kind is str or inner is None or kind is bool or (kind is int and -_SMALL < inner < _SMALL)
        if not plain or type(key) is not str or key[:1] == "$":
            return False
    return True


def _flat_text(value: dict[Any, Any]) -> str | None:
    """JSON of a flat dict, which most payloads are; None for what needs a closer look."""
    if not is_flat(value):
        return None
    text = _TO_JSON(value)
    if "\\u0000" in text or (not text.isascii() and _UNSTORABLE.search(text)):
        return None
    return text


def _encode(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return check_text(value, path)
    if kind is bool or value is None:
        return value
    if kind is int:
        return _whole(value, path)
    if kind is float:
        return _float(value, path)
    if depth >= get_settings().max_json_depth:
        raise NotStorable(path[:200], f"nested deeper than {depth} levels", "Flatten the value.")
    if kind is dict:
        return _dict(value, path, depth)
    if kind is list or kind is tuple:
        return [_encode(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    return _tagged(value, path, depth)


def _whole(value: int, path: str) -> int:
    if value.bit_length() > _MAX_INT_BITS:
        raise NotStorable(path, "an integer of more than 4,200 digits", "Pass it as text.")
    return value


def _float(value: float, path: str) -> Any:
    if not math.isfinite(value):
        raise NotStorable(path, f"{value!r} is not JSON", "Use None or text for a missing number.")
    if value.is_integer() and (abs(value) >= 1e16 or (value == 0 and math.copysign(1, value) < 0)):
        return {"$float": repr(value)}  # jsonb would hand back an int, and -0.0 as 0.0
    return value


def _dict(value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
    encoded = {}
    for key, inner in value.items():
        if type(key) is not str:
            if not isinstance(key, str):
                # The repr of a model may ask the database, in the middle of a COPY for instance.
                shown = f"the key {key!r}" if type(key) in _PLAIN else "a key"
                raise NotStorable(
                    path,
                    f"{shown} is {type(key).__name__}, not text",
                    "JSON keys are text: use str(key).",
                )
            key = str.__str__(key)
        check_text(key, f"{path} (a key)")
        encoded[key] = _encode(inner, f"{path}.{key}", depth + 1)
    if len(encoded) == 1 and next(iter(encoded)).startswith("$"):
        return {"$dict": encoded}
    return encoded


def _tagged(value: Any, path: str, depth: int) -> Any:
    own = type(value)  # not isinstance: a lazy object claims the class of what it has not evaluated yet
    for kind, tag, write in _WRITERS:
        if issubclass(own, kind):
            return {tag: write(value)}
    for base in (str, int, float):  # subclasses: choices, IntEnum, SafeString
        if issubclass(own, base):
            return _encode(base(value) if base is not str else str.__str__(value), path, depth)
    if issubclass(own, dict):
        return _dict(value, path, depth)
    if issubclass(own, list | tuple):
        return _encode(list(value), path, depth)
    raise NotStorable(
        path,
        f"a {type(value).__module__}.{type(value).__qualname__} is not storable as JSON",
        "Pass an id or plain data; str, int, float, bool, None, dict, list, datetime, date, time, timedelta, "
        "Decimal and UUID are kept.",
    )


def _timedelta_text(value: dt.timedelta) -> str:
    return f"{value.days}:{value.seconds}:{value.microseconds}"


def _timedelta_read(text: str) -> dt.timedelta:
    days, seconds, microseconds = (int(part) for part in text.split(":"))
    return dt.timedelta(days, seconds, microseconds)


def _float_read(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_WRITERS: list[tuple[type, str, Callable[[Any], str]]] = [
    (dt.datetime, "$datetime", lambda v: v.isoformat()),  # before date, of which it is a subclass
    (dt.date, "$date", lambda v: v.isoformat()),
    (dt.time, "$time", lambda v: v.isoformat()),
    (dt.timedelta, "$timedelta", _timedelta_text),
    (Decimal, "$decimal", str),
    (uuid.UUID, "$uuid", str),
]
_READERS: dict[str, Callable[[str], Any]] = {
    "$datetime": dt.datetime.fromisoformat,
    "$date": dt.date.fromisoformat,
    "$time": dt.time.fromisoformat,
    "$timedelta": _timedelta_read,
    "$decimal": Decimal,
    "$uuid": uuid.UUID,
    "$float": _float_read,
}
