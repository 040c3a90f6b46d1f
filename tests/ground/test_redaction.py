"""What is hidden, where, and that a mask is never stored."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pgjobs.codec import CUT, storable_text
from pgjobs.exceptions import InvalidOption, MarkLeft
from pgjobs.queue.registry import Handler, registry
from pgjobs.redaction import (
    MARK,
    UNSEEN,
    checked_entries,
    merged,
    redacted,
    redacted_start,
    redacted_text,
    redacted_texts,
)
from pgjobs.workflows.registry import Definition, workflows

STORED = {
    "order_id": 9007199254740993,
    "api_key": "sk-live-4711",
    "customer": {"email": "ann@example.org", "Password": None, "auth": {"user": "ann", "pin": 12345}},
    "lines": [{"sku": "a", "token": "t-first"}, {"sku": "b", "token": "t-second"}],
}


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A job type and a workflow with keys of their own."""

    def nothing() -> None:
        """Neither is run."""

    from pgjobs.backoff import Backoff

    monkeypatch.setitem(
        registry._by_name, "shop.pay", Handler(nothing, "shop.pay", Backoff(), None, False, ("iban",))
    )
    definition = Definition(nothing, "shop.fulfil", 1, "default", 100, 3, "pause", ("address.*",))
    monkeypatch.setitem(workflows._by_name, "shop.fulfil", definition)
    yield


def test_secret_keys_at_any_depth_are_hidden_and_the_rest_is_exact() -> None:
    shown = redacted(STORED)
    assert shown["order_id"] == 9007199254740993
    assert shown["api_key"] == MARK
    assert shown["customer"] == {"email": "ann@example.org", "Password": None, "auth": MARK}
    assert shown["lines"] == [{"sku": "a", "token": MARK}, {"sku": "b", "token": MARK}]
    assert STORED["api_key"] == "sk-live-4711", "the stored value was changed"


@pytest.mark.parametrize("value", [None, 1, "text", [], [1, "a"], {}, True])
def test_what_has_no_keys_is_left_alone(value: Any) -> None:
    assert redacted(value) == value


def test_the_setting_adds_words_and_paths_and_may_show_a_key(settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "REDACT": ["birth", "customer.email", "card.*", "!author"]}
    value = {
        "birthday": "1.1.70",
        "email": "open@example.org",
        "customer": {"Email": "a@example.org"},
        "old": [{"customer": {"email": "b@example.org"}}],
        "card": {"number": 1, "name": "A"},
        "author": "Ann",
        "authors": "hidden, since only the one key is shown",
    }
    assert redacted(value) == {
        "birthday": MARK,
        "email": "open@example.org",
        "customer": {"Email": MARK},
        "old": [{"customer": {"email": MARK}}],
        "card": {"number": MARK, "name": MARK},
        "author": "Ann",
        "authors": MARK,
    }


def test_a_type_hides_its_own_keys_and_no_others(typed: None) -> None:
    value = {"iban": "DE02", "address": {"street": "Elm"}}
    assert redacted(value, job_type="shop.pay") == {"iban": MARK, "address": {"street": "Elm"}}
    assert redacted(value, workflow="shop.fulfil") == {"iban": "DE02", "address": {"street": MARK}}
    assert redacted(value, job_type="unknown") == value == redacted(value)


@pytest.mark.parametrize("entries", ["iban", [""], [1], ["!"]])
def test_entries_are_checked_where_they_are_declared(entries: Any) -> None:
    with pytest.raises(InvalidOption, match="redact"):
        checked_entries(entries)


def test_an_edit_keeps_every_secret_that_still_has_its_mark() -> None:
    edited = redacted(STORED)
    assert merged(edited, STORED) == STORED
    edited["order_id"] = 1
    edited["lines"][1]["sku"] = "c"
    edited["lines"][0]["token"] = "new"
    del edited["customer"]["email"]
    assert merged(edited, STORED) == {
        "order_id": 1,
        "api_key": "sk-live-4711",
        "customer": {"Password": None, "auth": {"user": "ann", "pin": 12345}},
        "lines": [{"sku": "a", "token": "new"}, {"sku": "c", "token": "t-second"}],
    }


@pytest.mark.parametrize(
    ("edited", "place"),
    [
        ({"new": MARK}, "new"),
        (MARK + "!", "the value itself"),
        ({"api_key": f"Bearer {MARK}"}, "api_key"),
        ({MARK: 1}, MARK),
        ({"order_id": {"deep": MARK}}, "order_id.deep"),
        ({"lines": [{"sku": "b", "token": MARK}]}, "lines"),
        ({"lines": [{"sku": "b", "token": MARK}, {"sku": "a", "token": MARK}]}, "lines.0"),
        ({"lines": {"0": MARK}}, "lines.0"),
    ],
)
def test_a_mark_without_a_certain_secret_is_refused(edited: Any, place: str) -> None:
    with pytest.raises(MarkLeft) as refused:
        merged(edited, STORED)
    assert refused.value.place == place and place in str(refused.value)


def test_lists_without_secrets_may_change_freely() -> None:
    stored = {"tags": ["a", "b"], "token": "t-1234"}
    assert merged({"tags": ["b"], "token": MARK}, stored) == {"tags": ["b"], "token": "t-1234"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("connect(password=hunter2, user=ann)", f"connect(password={MARK}, user=ann)"),
        ("GET /x?api_key=abc&page=2", f"GET /x?api_key={MARK}&page=2"),
        ("db_password = 'hunter 2'; go", f"db_password = {MARK}; go"),
        ('{"token": "a\\"b", "n": 1}', f'{{"token": {MARK}, "n": 1}}'),
        ("{'token': 'abc', 'n': 1}", f"{{'token': {MARK}, 'n': 1}}"),
        ('{"auth": {"user": "ann", "n": [1]}, "n": 1}', f'{{"auth": {MARK}, "n": 1}}'),
        ('{"auth": {"password": "cut off', f'{{"auth": {MARK}'),
        ('{"n": 1, "token": "correct horse batt', f'{{"n": 1, "token": {MARK}'),
        ("{'token': 'correct horse \\", f"{{'token': {MARK}"),
        ("Authorization: Bearer abc.def\nHost: x", f"Authorization: {MARK}\nHost: x"),
        ("Cookie: a=1; sessionid=2", f"Cookie: {MARK}"),
        ("postgres://ann:hunter2@db/prod", f"postgres://ann:{MARK}@db/prod"),
        ("my secret: hunter2", f"my secret: {MARK}"),
        ("KeyError: 'order_id'", "KeyError: 'order_id'"),
        ("if token == other:", "if token == other:"),
        ("token = get_token(request)", "token = get_token(request)"),
        ("nothing here: 5", "nothing here: 5"),
        ("", ""),
    ],
)
def test_secrets_in_texts(text: str, shown: str) -> None:
    assert redacted_text(text) == shown
    assert redacted_text(shown) == shown


def test_secret_values_of_the_payload_are_hidden_wherever_they_stand() -> None:
    text = f"charge failed for sk-live-4711 / 12345 {json.dumps('t-first')}"
    shown = redacted_text(text, payload=STORED)
    assert shown == f'charge failed for {MARK} / {MARK} "{MARK}"'
    assert "ann@example.org" in redacted_text("mail ann@example.org", payload=STORED)


def test_a_text_whose_payload_was_not_read_is_not_shown() -> None:
    text = "charge for sk-live-4711"
    assert redacted_start(text, payload=STORED) == f"charge for {MARK}"
    assert redacted_start(text, payload={}) == text
    assert redacted_start(text, payload=None) == UNSEEN
    assert redacted_start("", payload=None) == ""


def test_short_values_are_not_looked_for() -> None:
    assert redacted_text("1 of 10", payload={"token": 1}) == "1 of 10"


def test_a_history_of_errors_keeps_its_shape(typed: None) -> None:
    errors = [{"attempt": 1, "message": "no sk-live-4711", "traceback": "iban=DE02"}, "api_key=abc", 7]
    assert redacted_texts(errors, payload=STORED, job_type="shop.pay") == [
        {"attempt": 1, "message": f"no {MARK}", "traceback": f"iban={MARK}"},
        f"api_key={MARK}",
        7,
    ]


@pytest.mark.parametrize("unit", ["a", "key", '"', "'a", "token", "x=", "{", "http://", '"token": {'])
def test_a_long_text_is_read_in_a_moment(unit: str) -> None:
    text = unit * (20_000 // len(unit))
    began = time.process_time()
    redacted_text(text)
    assert time.process_time() - began < 2


SECRETS = {
    "of the payload": ("{}", "zq7Kx0123456789abcdefXk7qz", True),
    "of the payload, in lines": ("{}", "zq7Kx-erster\nand-second-0451\nXk7qz", True),
    "after a key": ("token={}", "zq7Kx0123456789abcdefXk7qz", False),
    "quoted": ('"password": "{}", more', "zq7Kx correct horse battery Xk7qz", False),
    "in an address": ("postgres://ann:{}@db/shop", "zq7Kx0123456789abcdefXk7qz", False),
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_the_limit_of_storage_cuts_is_hidden_wherever_the_cut_falls(name: str) -> None:
    form, secret, named = SECRETS[name]
    told, payload = form.format(secret), {"api_key": secret} if named else None
    pieces = {secret[at : at + 5] for at in range(len(secret) - 4)}
    seen_whole = 0
    for before in range(len(told) + 12):
        for text in (
            "line\n" + "x" * (95 - before) + " " + told + "\n" + "y" * 300,  # its end is cut off
            "x" * 300 + "\n" + told + " " + "y" * (95 - before) + "\nline",  # its beginning is
        ):
            stored = storable_text(text, 200)
            assert CUT in stored
            shown = redacted_text(stored, payload=payload)
            assert not [piece for piece in pieces if piece in shown], (before, stored, shown)
            seen_whole += secret in stored
        at_the_end = redacted_text(("z" * 50 + " " + told)[: 52 + before], payload=payload)
        assert not [piece for piece in pieces if piece in at_the_end], at_the_end
    assert seen_whole


def test_a_cut_hides_no_more_than_the_rest_of_its_line() -> None:
    stored = storable_text("first line\n" + "x" * 300 + "\nlast line\nValueError: no", 100)
    shown = redacted_text(stored)
    assert shown.startswith("first line\n") and shown.endswith("\nlast line\nValueError: no")
    assert redacted_text("cannot reach http://db:8080") == "cannot reach http://db:8080"
