"""Secrets stay secret: what pages, commands and exports show of stored values and texts. The one place that decides.

A key is secret by Django's own words (``API``, ``AUTH``, ``TOKEN``, ``KEY``, ``SECRET``, ``PASS``, ``SIGNATURE``), by
``PGJOBS["REDACT"]``, and by ``redact=`` of its job type or workflow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from pgjobs.codec import CUT
from pgjobs.conf import get_settings
from pgjobs.exceptions import InvalidOption, MarkLeft

MARK = "«redacted»"
"""Stands where a secret is."""

_WORDS = ("api", "auth", "token", "key", "secret", "pass", "signature", "http_cookie")
_SHORTEST_SECRET = 4  # shorter values would be found by chance in every text

TEXT_READ = 8_000
"""Characters of a text that lists read: a secret that begins where they still show something must be in it whole."""
PAYLOAD_READ = 8_000
"""Bytes, as stored, of a payload that lists read to look for its secrets; larger ones stay in the table."""
UNSEEN = "(not shown here: its payload is too large to look for secrets in a list)"
"""Stands in a list where a text is whose payload was not read."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which keys are secret. Entries are in lower case."""

    words: tuple[str, ...] = _WORDS
    """A key that contains one of them is secret."""
    paths: tuple[Path, ...] = ()
    """A key at the end of such a path is secret; ``*`` is any key."""
    shown: tuple[Path, ...] = ()
    """Keys at the end of these are not, whatever else says so."""

    def hides(self, path: Path) -> bool:
        """Whether the value under the last key of ``path`` is secret."""
        lowered = tuple(key.lower() for key in path)
        if any(_ends_with(lowered, shown) for shown in self.shown):
            return False
        return any(word in lowered[-1] for word in self.words) or any(
            _ends_with(lowered, hidden) for hidden in self.paths
        )

    def hides_name(self, name: str) -> bool:
        """The same for a key in a text, where what stands above it is not known: a doubt hides."""
        lowered = name.lower()
        if any(len(shown) == 1 and fnmatchcase(lowered, shown[0]) for shown in self.shown):
            return False
        return any(word in lowered for word in self.words) or any(
            fnmatchcase(lowered, path[-1]) and path[-1] != "*" for path in self.paths
        )


Lookup = Callable[[str], Sequence[str]]
"""The ``redact=`` entries of a name; none for an unknown name."""

_lookups: dict[str, Lookup] = {}


def declare(kind: str, lookup: Lookup) -> None:
    """Say where the entries of one kind of name ("job_type", "workflow") are to be asked for."""
    _lookups[kind] = lookup


def rules_for(*, job_type: str | None = None, workflow: str | None = None) -> Rules:
    """The rules for what belongs to that job type or workflow."""
    entries = [*get_settings().redact]
    for kind, name in (("job_type", job_type), ("workflow", workflow)):
        if name is not None and kind in _lookups:
            entries += _lookups[kind](name)
    return _compiled(tuple(entries))


def checked_entries(entries: Any) -> tuple[str, ...]:
    """``entries`` as given to ``redact=``. Raises :class:`InvalidOption`."""
    if isinstance(entries, str) or not all(isinstance(each, str) and each.strip("!. ") for each in entries):
        raise InvalidOption(
            "redact", entries, 'give a list of keys, or paths with dots: redact=["iban", "customer.email"].'
        )
    return tuple(entries)


def redacted(value: Any, *, job_type: str | None = None, workflow: str | None = None) -> Any:
    """A copy of a JSON value with :data:`MARK` in the place of every secret. An empty place (null) stays empty."""
    return _redacted(value, (), rules_for(job_type=job_type, workflow=workflow))


def merged(edited: Any, stored: Any, *, job_type: str | None = None, workflow: str | None = None) -> Any:
    """``edited`` with what is stored in the place of every mark, so that no mask is ever written.

    Raises :class:`MarkLeft` where nothing is stored at that place, or where it is not certain what is: the mark
    inside a longer text, and lists whose items were moved, added or removed.
    """
    shown = redacted(stored, job_type=job_type, workflow=workflow)
    return _merged(edited, stored, shown, ())


def redacted_text(
    text: str, *, payload: Any = None, job_type: str | None = None, workflow: str | None = None
) -> str:
    """A text, such as an error's, without its secrets.

    Those are the secret values of ``payload`` wherever they stand; what follows a secret key as ``key=value``,
    ``"key": "value"`` or ``key: value``; headers that carry credentials; passwords in addresses.
    """
    rules = rules_for(job_type=job_type, workflow=workflow)
    forms: list[str] = []
    for secret in sorted(set(_secrets(payload, (), rules, secret=False)), key=len, reverse=True):
        forms += {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    whole, *rest = text.split(CUT)
    return CUT.join(
        [
            _redacted_part(whole, forms, rules),
            *(_redacted_part(_begun(each, forms), forms, rules) for each in rest),
        ]
    )


def _redacted_part(text: str, forms: list[str], rules: Rules) -> str:
    """A text that may end within a secret: it was cut there, or is the beginning of a longer one."""
    for form in forms:
        text = _without_end(text.replace(form, MARK), form)
    text = _HEADER.sub(lambda found: found["before"] + MARK, text)
    text = _ADDRESS.sub(lambda found: f"{found['before']}{MARK}@", text)
    text = _ADDRESS_CUT.sub(lambda found: found["before"] + MARK, text)
    return _without_members(text, rules)


def _begun(text: str, forms: list[str]) -> str:
    """What comes after a cut, without what may be the end of a secret: one that a payload names, or the line's rest."""
    for form in forms:
        start = text[:_SHORTEST_SECRET]
        at = form.find(start) if len(start) == _SHORTEST_SECRET else -1
        while at >= 0 and not text.startswith(form[at:]):
            at = form.find(start, at + 1)
        if at >= 0:
            text = MARK + text[len(form) - at :]
    return _REST_OF_LINE.sub("…", text, count=1)


def _without_end(text: str, form: str) -> str:
    """The text without the beginning of a secret with which it ends."""
    start, at = form[:_SHORTEST_SECRET], max(len(text) - len(form) + 1, 0)
    at = text.find(start, at)
    while at >= 0 and not form.startswith(text[at:]):
        at = text.find(start, at + 1)
    return text if at < 0 else text[:at] + MARK


def redacted_start(
    text: str, *, payload: Any, job_type: str | None = None, workflow: str | None = None
) -> str:
    """:func:`redacted_text` of a text's beginning, to be cut by the caller: half a secret would not be found.

    ``payload`` is None where it was not read: then nothing of the text is shown.
    """
    if payload is None and text:
        return UNSEEN
    return redacted_text(text, payload=payload, job_type=job_type, workflow=workflow)


def redacted_texts(
    value: Any, *, payload: Any = None, job_type: str | None = None, workflow: str | None = None
) -> Any:
    """A JSON value with every text in it :func:`redacted_text`: the history of errors, the details of a record."""
    if isinstance(value, str):
        return redacted_text(value, payload=payload, job_type=job_type, workflow=workflow)
    if isinstance(value, list):
        return [redacted_texts(each, payload=payload, job_type=job_type, workflow=workflow) for each in value]
    if isinstance(value, dict):
        return {
            key: redacted_texts(each, payload=payload, job_type=job_type, workflow=workflow)
            for key, each in value.items()
        }
    return value


def _ends_with(path: Path, ending: Path) -> bool:
    tail = path[-len(ending) :]
    return len(tail) == len(ending) and all(map(fnmatchcase, tail, ending))


@lru_cache(maxsize=256)
def _compiled(entries: tuple[str, ...]) -> Rules:
    words, paths, shown = list(_WORDS), [], []
    for entry in entries:
        path = tuple(entry.lstrip("!").lower().split("."))
        if entry.startswith("!"):
            shown.append(path)
        elif len(path) == 1:
            words.append(path[0])
        else:
            paths.append(path)
    return Rules(tuple(words), tuple(paths), tuple(shown))


def _redacted(value: Any, path: Path, rules: Rules) -> Any:
    if isinstance(value, dict):
        return {key: _redacted_member(inner, (*path, str(key)), rules) for key, inner in value.items()}
    if isinstance(value, list):
        return [_redacted(item, path, rules) for item in value]
    return value


def _redacted_member(value: Any, path: Path, rules: Rules) -> Any:
    return MARK if value is not None and rules.hides(path) else _redacted(value, path, rules)


def _secrets(value: Any, path: Path, rules: Rules, *, secret: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            below = (*path, str(key))
            yield from _secrets(inner, below, rules, secret=secret or rules.hides(below))
    elif isinstance(value, list):
        for item in value:
            yield from _secrets(item, path, rules, secret=secret)
    elif secret and value is not None and not isinstance(value, bool) and len(str(value)) >= _SHORTEST_SECRET:
        yield str(value)


def _merged(edited: Any, stored: Any, shown: Any, path: Path) -> Any:
    if isinstance(edited, str):
        return _merged_text(edited, stored, path)
    if isinstance(edited, dict):
        known = stored if isinstance(stored, dict) else {}
        seen = shown if isinstance(shown, dict) else {}
        for key in edited:
            if MARK in key and key not in known:
                raise MarkLeft(_place((*path, key)), "it is a key")
        return {
            key: _merged(inner, known.get(key, _NOTHING), seen.get(key), (*path, key))
            for key, inner in edited.items()
        }
    if isinstance(edited, list):
        return _merged_list(edited, stored, shown, path)
    return edited


def _merged_text(edited: str, stored: Any, path: Path) -> Any:
    if edited == MARK:
        if stored is _NOTHING:
            raise MarkLeft(_place(path), "nothing is stored there")
        return stored
    if MARK in edited and edited != stored:
        raise MarkLeft(_place(path), "it stands inside a longer text")
    return edited


def _merged_list(edited: list[Any], stored: Any, shown: Any, path: Path) -> list[Any]:
    if not any(map(_has_mark, edited)):
        return edited
    if not isinstance(stored, list) or not isinstance(shown, list) or len(stored) != len(edited):
        raise MarkLeft(
            _place(path), "items of the list were added or removed, so it is not certain whose it is"
        )
    for index, item in enumerate(edited):
        if _has_mark(item) and item != shown[index] and item in shown:
            raise MarkLeft(
                _place((*path, str(index))), "items of the list were moved, so it is not certain whose it is"
            )
    return [
        _merged(item, stored[index], shown[index], (*path, str(index))) for index, item in enumerate(edited)
    ]


def _has_mark(value: Any) -> bool:
    if isinstance(value, dict):
        return any(MARK in key or _has_mark(inner) for key, inner in value.items())
    if isinstance(value, list):
        return any(map(_has_mark, value))
    return isinstance(value, str) and MARK in value


def _place(path: Path) -> str:
    return ".".join(path) or "the value itself"


_NOTHING: Any = object()

# A quotation that the end of the text cuts off is one too: what is shown may be the beginning of a longer text.
_QUOTED = r"""(?:"(?:[^"\\\n]|\\.)*(?:"|\\?\Z)|'(?:[^'\\\n]|\\.)*(?:'|\\?\Z))"""
_HEADER = re.compile(
    r"(?im)(?P<before>\b(?:proxy-)?authorization[\"']?\s*[:=]\s*|\b(?:set-)?cookie:\s*)[^\s«][^\n]*"
)
_ADDRESS = re.compile(r"(?P<before>://[^/\s:@]{0,200}:)[^/\s@]{1,500}@")
# The same where the end of the text comes before that of the password; a port is none.
_ADDRESS_CUT = re.compile(r"(?P<before>://[^/\s:@]{0,200}:)(?!\d{1,5}\Z)[^/\s@«]{1,500}\Z")
# After a cut nothing is known of the key before it: the rest of the line goes, or of a long line whole words.
_REST_OF_LINE = re.compile(r"\A[^\n]{0,500}\S*")
# Words are entered only at their start and are bounded, so that a long text costs no more than its length. A bare
# word before a colon is a key when it is in lower case: "KeyError: ..." is none.
_MEMBER = re.compile(
    rf"""(?:(?P<quote>["'])(?P<quoted>[^"'\\\n]{{1,200}})(?P=quote)\s*[:=]\s*
      |(?<![\w.\-])(?P<name>[\w.\-]{{1,200}})(?:=(?!=)|\s=\s(?=["'])|(?<=[a-z0-9_]):\s+(?=\S)))
      (?P<value>{_QUOTED}|(?:(?:Bearer|Basic)\s+)?[^\s,;&(){{}}\[\]]+|[\[{{])""",
    re.VERBOSE,
)
_CLOSING = {"[": "]", "{": "}"}
_STRUCTURE = re.compile(rf"{_QUOTED}|[\[\]{{}}]")


def _without_members(text: str, rules: Rules) -> str:
    parts, at = [], 0
    while found := _MEMBER.search(text, at):
        name, value = found["quoted"] or found["name"], found["value"]
        start, end = found.span("value")
        bare_word_with_capitals = found["name"] and text[found.end("name")] == ":" and name != name.lower()
        if bare_word_with_capitals or value == MARK or not rules.hides_name(name):
            # On from the key: the value may itself begin with a key.
            parts.append(text[at:start])
            at = start
            continue
        parts.append(text[at:start] + MARK)
        at = _end_of_structure(text, start) if value in _CLOSING else end
    return "".join(parts) + text[at:]


def _end_of_structure(text: str, start: int) -> int:
    """Where the bracket that opens at ``start`` closes; the end of the text if it does not."""
    depth = 0
    for found in _STRUCTURE.finditer(text, start):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if not depth:
            return found.end()
    return len(text)
