"""Values to JSON and back: what survives is the same value, what cannot be kept is refused by its path."""

import datetime as dt
import enum
import json
import math
import uuid
from collections import OrderedDict, namedtuple
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection, models
from django.utils.functional import SimpleLazyObject
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgjobs import codec
from pgjobs.conf import Settings
from pgjobs.exceptions import NotStorable

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
ZONES = st.sampled_from(
    [None, dt.UTC, dt.timezone(dt.timedelta(hours=-9, minutes=-30)), ZoneInfo("Europe/Berlin")]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.datetimes(timezones=ZONES)
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=True)
    | st.uuids()
)
KEYS = TEXT | st.sampled_from(["$datetime", "$dict", "$float", "$uuid", "$", "$unknown"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*codec._READERS, "$dict", "$", "a"]), inner, max_size=2)
    ),
    max_leaves=12,
)


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Place(models.TextChoices):
    HERE = "here", "Here"


Point = namedtuple("Point", "x y")


def written(value: Any, max_bytes: int = 1_000_000) -> str:
    return codec.dumps(value, label="payload", max_bytes=max_bytes)


def through_jsonb(texts: list[str]) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT given.value::jsonb::text FROM unnest(%s::text[]) WITH ORDINALITY AS given(value, n) ORDER BY n",
            [texts],
        )
        return [text for (text,) in cursor.fetchall()]


def same(left: Any, right: Any) -> bool:
    """Equal in type and value, all the way down; -0.0 is not 0.0, and a time has the same wall clock and offset."""
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same(left[k], right[k]) for k in left)
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, dt.datetime | dt.time):
        return left.isoformat() == right.isoformat()
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right) and str(left) == str(right)


@pytest.mark.django_db
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(VALUES)
def test_what_is_stored_comes_back_the_same(value: Any) -> None:
    [text] = through_jsonb([written(value)])

    assert same(codec.loads(text), value), text


FLOATS = [
    0.0,
    -0.0,
    1.0,
    1e15,
    1e16,
    -1e16,
    1e17,
    1e22,
    1e300,
    1.7976931348623157e308,
    5e-324,
    1e-7,
    0.1,
    123456.75,
]


@pytest.mark.django_db
def test_floats_stay_floats_to_the_last_bit() -> None:
    back = [codec.loads(text) for text in through_jsonb([written(value) for value in FLOATS])]

    assert [(type(v), v.hex()) for v in back] == [(float, v.hex()) for v in FLOATS]


@pytest.mark.django_db
def test_large_integers_stay_integers() -> None:
    values = [2**53 + 1, 10**400, -(10**4_000)]

    assert [codec.loads(text) for text in through_jsonb([written(v) for v in values])] == values


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        (Point(1, 2), [1, 2]),
        (OrderedDict(a=1), {"a": 1}),
        (Colour.RED, "red"),
        ({Colour.RED: Level.LOW}, {"red": 1}),
        (Place.HERE, "here"),
        (mark_safe("<b>"), "<b>"),
    ],
)
def test_relatives_of_plain_types_become_plain(value: Any, back: Any) -> None:
    again = codec.loads(written(value))

    assert again == back and type(again) is type(back)


@pytest.mark.parametrize("tag", [*codec._READERS, "$dict", "$unknown", "$"])
@pytest.mark.parametrize("inner", ["2024-01-01", "x", 3, None, {}, {"$uuid": "no"}, ["$"]])
def test_a_dict_that_looks_like_a_tag_comes_back_as_the_dict(tag: str, inner: Any) -> None:
    assert codec.loads(written({tag: inner})) == {tag: inner}


def test_the_stored_form_is_plain_json() -> None:
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)

    assert json.loads(written({"id": 7, "at": moment, "price": Decimal("1.50")})) == {
        "id": 7,
        "at": {"$datetime": "2026-01-02T03:04:05+00:00"},
        "price": {"$decimal": "1.50"},
    }


@settings(max_examples=300, deadline=None)
@given(HOSTILE)
def test_reading_never_raises_whatever_was_stored(value: Any) -> None:
    codec.decode(value)


@pytest.mark.parametrize(
    "stored",
    [
        {"$datetime": "yesterday"},
        {"$date": "2024-13-01"},
        {"$time": "25:00"},
        {"$timedelta": "1:2"},
        {"$timedelta": "99999999999999:0:0"},
        {"$timedelta": "9" * 5_000 + ":0:0"},
        {"$decimal": "1,5"},
        {"$decimal": "1e99999999999999999999"},
        {"$uuid": "1234"},
        {"$float": "many"},
        {"$float": "nan"},
        {"$float": "-inf"},
        {"$float": "1e999"},
        {"$datetime": 5},
        {"$dict": "text"},
        {"$unknown": "x"},
        {"$uuid": str(uuid.UUID(int=1)), "more": 1},
    ],
)
def test_a_malformed_tag_stays_as_it_is(stored: Any) -> None:
    assert codec.decode(stored) == stored


class Thing:
    pass


SURROGATE = "\ud800"
REFUSED = [
    ({"a": [1, float("nan")]}, "payload.a[1]", "nan is not JSON"),
    ([float("inf")], "payload[0]", "inf is not JSON"),
    ([-float("inf")], "payload[0]", "-inf is not JSON"),
    ({"a": {"b": "x\x00"}}, "payload.a.b", "a NUL character at position 1"),
    ({"a": SURROGATE}, "payload.a", r"a lone surrogate ('\ud800') at position 0"),
    ({"a": {"k\x00": 1}}, "payload.a (a key)", "a NUL character"),
    ({SURROGATE: 1}, "payload (a key)", "a lone surrogate"),
    ({"a": {1: "x"}}, "payload.a", "the key 1 is int, not text"),
    ({None: 1}, "payload", "the key None is NoneType, not text"),
    ({"a": {1, 2}}, "payload.a", "a builtins.set is not storable"),
    ({"a": b"raw"}, "payload.a", "a builtins.bytes is not storable"),
    ({"a": [Thing()]}, "payload.a[0]", "Thing is not storable"),
    ({"a": gettext_lazy("hello")}, "payload.a", "__proxy__ is not storable"),
    (
        {"a": SimpleLazyObject(lambda: "text")},
        "payload.a",
        "a django.utils.functional.SimpleLazyObject is not",
    ),
    ({"a": SimpleLazyObject(lambda: 7)}, "payload.a", "a django.utils.functional.SimpleLazyObject is not"),
    ({"a": 1 + 2j}, "payload.a", "a builtins.complex is not storable"),
    ({"a": 10**4_300}, "payload.a", "an integer of more than"),
    ({"a": -(10**50_000)}, "payload.a", "an integer of more than"),
    ({"a": iter([1])}, "payload.a", "list_iterator is not storable"),
]


@pytest.mark.parametrize(("value", "path", "problem"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_stored_is_refused_by_path(value: Any, path: str, problem: str) -> None:
    with pytest.raises(NotStorable) as caught:
        written(value)

    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ") and problem in str(caught.value)
    assert str(caught.value).endswith(".")


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"$tag": value}
    return value


def test_depth_boundary(settings: Any) -> None:
    settings.PGJOBS = {"MAX_JSON_DEPTH": 30}

    assert codec.loads(written(nested(30))) == nested(30)
    with pytest.raises(NotStorable, match=r"nested deeper than 30 levels\. Flatten the value"):
        written(nested(31))


def test_the_deepest_allowed_value_can_be_written_and_read() -> None:
    deepest = nested(Settings().max_json_depth)

    assert codec.loads(written(deepest)) == deepest


def test_a_value_that_contains_itself_is_too_deep() -> None:
    loop: list[Any] = []
    loop += [loop, loop]

    with pytest.raises(NotStorable, match="nested deeper"):
        written(loop)


@pytest.mark.parametrize("letter", ["a", "é", "😀"])
def test_size_boundary_is_in_bytes(letter: str) -> None:
    value = letter * 100
    size = len(json.dumps(value, ensure_ascii=False).encode())

    assert codec.loads(written(value, max_bytes=size + 1)) == value
    assert codec.loads(written(value, max_bytes=size)) == value
    with pytest.raises(
        NotStorable, match=rf"payload: {size} bytes of JSON .* {size - 1}\. .*MAX_PAYLOAD_BYTES"
    ):
        written(value, max_bytes=size - 1)


def test_check_text_gives_the_text_back() -> None:
    assert codec.check_text("fine 😀", "queue") == "fine 😀"
