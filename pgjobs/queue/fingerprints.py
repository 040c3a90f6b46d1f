"""Fingerprints: failures of one cause get one, however their messages differ in ids, numbers and names."""

from __future__ import annotations

import hashlib
import re

LOST = "WorkerLost"
"""The error class of an attempt whose worker died."""

_LENGTH = 40  # hexadecimal digits
_CONSIDERED = 500  # characters of a message; what tells causes apart stands at its beginning

_VARYING = (
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b\w+://[^\s'\"]+"), "<address>"),
    (re.compile(r"[^\s'\"<>@]{1,100}@[^\s'\"<>@]{1,100}"), "<address>"),
    (re.compile(r"\"[^\"]*\"|'[^']*'|«[^»]*»|`[^`]*`"), "<text>"),
    (re.compile(r"\b0x[0-9a-f]+\b|\b(?=[a-f]*\d)[0-9a-f]{8,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
)

# The same for a row that a reaper takes back, in SQL over the alias `leased`; a test compares the two.
LOST_FINGERPRINT = (
    "left(encode(sha256(convert_to(concat_ws(E'\\n', leased.job_type, '"
    + LOST
    + f"', '', ''), 'UTF8')), 'hex'), {_LENGTH})"
)


def fingerprint(job_type: str, error_class: str, frame: str, message: str) -> str:
    """40 hexadecimal digits. ``frame`` is the innermost of the project, as "module:function", without a line."""
    text = "\n".join((job_type, error_class, frame, normalised(message)))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_LENGTH]


def normalised(message: str) -> str:
    """The message with ids, numbers, addresses and quoted texts replaced."""
    text = message[:_CONSIDERED]
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return " ".join(text.split())
