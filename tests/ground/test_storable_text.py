"""Error texts are made storable, whatever is in them and however long they are."""

import pytest
from django.db import connection
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pgjobs.codec import storable_text

ANY_TEXT = st.text(st.characters(codec=None))


@settings(max_examples=300, deadline=None)
@given(ANY_TEXT, st.integers(0, 60))
@example("😀" * 40, 33)
@example("\ud83d\ude00" * 40, 33)
@example("x" * 100, 1)
@example("\x00" * 100, 20)
def test_always_within_the_cap_and_encodable(text: str, cap: int) -> None:
    made = storable_text(text, cap)

    assert len(made.encode()) <= cap
    assert "\x00" not in made


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=50))
def test_harmless_text_is_left_alone(text: str) -> None:
    assert storable_text(text, 1_000) == text


def test_what_cannot_be_stored_is_replaced() -> None:
    assert storable_text("a\x00b\ud800c\udfff", 100) == "a�b�c�"


def test_both_ends_survive_and_the_cut_is_marked() -> None:
    made = storable_text("first line " + "x" * 100_000 + " last line", 200)

    assert made.startswith("first line") and made.endswith("last line")
    assert "… cut …" in made and 190 <= len(made.encode()) <= 200


@pytest.mark.parametrize("cap", range(40, 52))
def test_an_emoji_on_the_cut_is_dropped_whole(cap: int) -> None:
    made = storable_text("😀" * 60, cap)

    assert set(made) == set("😀\n… cut")
    assert cap - 8 < len(made.encode()) <= cap


@pytest.mark.parametrize("size", [99, 100, 101])
def test_boundary(size: int) -> None:
    assert (storable_text("x" * size, 100) == "x" * size) is (size <= 100)


def test_a_text_of_50_megabytes_is_cut_before_it_is_looked_at() -> None:
    assert len(storable_text("\x00" * 50_000_000, 16_000).encode()) <= 16_000


@pytest.mark.django_db
def test_postgres_takes_it_as_text_and_in_jsonb() -> None:
    made = storable_text("".join(map(chr, range(0x300))) + "\ud800\udc00\uffff😀", 10_000)

    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::text, jsonb_build_object('message', %s::text) ->> 'message'", [made, made])
        assert cursor.fetchone() == (made, made)
