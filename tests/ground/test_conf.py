"""``settings.PGJOBS``: typos and nonsense are refused, a change is noticed."""

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from pgjobs.conf import Settings, get_settings
from pgjobs.exceptions import SettingsError

NUMBERS = [f.name.upper() for f in fields(Settings) if f.type == "float"]
WHOLE = [f.name.upper() for f in fields(Settings) if f.type == "int"]
SWITCHES = [f.name.upper() for f in fields(Settings) if f.type == "bool"]


def refused(settings: Any, given: object) -> str:
    settings.PGJOBS = given
    with pytest.raises(SettingsError) as caught:
        get_settings()
    return str(caught.value)


def test_every_field_is_of_a_kind_that_is_checked() -> None:
    assert {f.type for f in fields(Settings)} == {
        "str",
        "str | None",
        "bool",
        "int",
        "float",
        "float | None",
        "Retention",
        "Sequence[str]",
        "Mapping[str, float]",
        "str | Callable[[], str] | None",
    }


def test_defaults_without_the_setting(settings: Any) -> None:
    del settings.PGJOBS

    assert get_settings() == Settings()


def test_given_keys_replace_defaults_and_leave_the_rest(settings: Any) -> None:
    settings.PGJOBS = {"LEASE_SECONDS": 12, "NOTIFY": False}

    assert get_settings() == Settings(lease_seconds=12, notify=False)


def test_a_change_is_noticed_and_undone(settings: Any) -> None:
    settings.PGJOBS = {"MAX_ERRORS": 3}
    assert get_settings().max_errors == 3
    settings.PGJOBS = {"MAX_ERRORS": 4}
    assert get_settings().max_errors == 4


def test_a_change_of_another_setting_keeps_the_object(settings: Any) -> None:
    before = get_settings()
    settings.USE_I18N = False

    assert get_settings() is before


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        get_settings().lease_seconds = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("LEASE_SECOND", "LEASE_SECONDS"),
        ("lease_seconds", "LEASE_SECONDS"),
        ("MAX_PAYLOAD", "MAX_PAYLOAD_BYTES"),
    ],
)
def test_an_unknown_key_names_the_nearest(settings: Any, key: str, near: str) -> None:
    message = refused(settings, {key: 1})

    assert repr(key) in message and f"Did you mean {near!r}?" in message


@pytest.mark.parametrize("key", ["ZZZ", "", 7, None])
def test_an_unknown_key_that_resembles_nothing_lists_the_known(settings: Any, key: object) -> None:
    message = refused(settings, {key: 1})

    assert repr(key) in message and "HEARTBEAT_SECONDS" in message and "NOTIFY" in message


@pytest.mark.parametrize("given", [None, [], "LEASE_SECONDS=3", 30])
def test_something_else_than_a_dict(settings: Any, given: object) -> None:
    message = refused(settings, given)

    assert repr(given) in message and "must be a dict" in message


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("value", [0, -1, True, "30", None, float("inf"), float("nan")])
def test_wrong_numbers(settings: Any, key: str, value: object) -> None:
    message = refused(settings, {key: value})

    assert f"PGJOBS[{key!r}] is {value!r}" in message
    assert "a positive number" in message and "The default is" in message


@pytest.mark.parametrize("key", WHOLE)
@pytest.mark.parametrize("value", [0, -1, False, 1.5, 2.0, "3", None])
def test_wrong_whole_numbers(settings: Any, key: str, value: object) -> None:
    assert "a positive whole number" in refused(settings, {key: value})


@pytest.mark.parametrize("key", SWITCHES)
@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_wrong_switches(settings: Any, key: str, value: object) -> None:
    assert "True or False" in refused(settings, {key: value})


@pytest.mark.parametrize("value", ["", None, 3, b"default"])
def test_wrong_text(settings: Any, value: object) -> None:
    assert "a non-empty string" in refused(settings, {"DATABASE": value})


@pytest.mark.parametrize("value", [0, -1, True, "30", float("inf")])
def test_wrong_optional_numbers(settings: Any, value: object) -> None:
    assert "a positive number or None" in refused(settings, {"WORKFLOW_RETENTION_SECONDS": value})


@pytest.mark.parametrize("value", ["", "keep", None, 3, ["delete"]])
def test_wrong_choices(settings: Any, value: object) -> None:
    assert "'archive' or 'delete'" in refused(settings, {"WORKFLOW_RETENTION": value})


def test_a_refusal_is_not_remembered(settings: Any) -> None:
    refused(settings, {"LEASE_SECONDS": 0})
    settings.PGJOBS = {"LEASE_SECONDS": 5}

    assert get_settings().lease_seconds == 5
