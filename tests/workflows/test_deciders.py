"""Names in an approval behind which nobody stands: told by the code, the check, and whoever looks."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User

from pgjobs.workflows.deciders import doubt, unknown_permissions


def told(*given: Any) -> str:
    return str(doubt(*given) or "")


@pytest.fixture
def person(db: None) -> Callable[..., User]:
    def make(name: str, *, active: bool = True) -> User:
        return User.objects.create(username=name, is_active=active)

    return make


def test_a_permission_that_is_not_there_or_that_nobody_holds(person: Callable[..., User]) -> None:
    nobody = "nobody but a superuser can decide it: "
    assert told("auth.chnage_user", [], []) == (
        f"{nobody}there is no permission 'auth.chnage_user' (did you mean 'auth.change_user'?)"
    )
    assert told("change", [], []) == f"{nobody}'change' is no permission: write it as app_label.codename"
    assert told("", [], []) == f"{nobody}no active user holds permission 'pgjobs.decide_wait'"
    change = Permission.objects.get(codename="change_user")
    person("gone", active=False).user_permissions.add(change)
    assert told("auth.change_user", [], []) == f"{nobody}no active user holds permission 'auth.change_user'"
    staff = Group.objects.create(name="staff")
    staff.permissions.add(change)
    person("ann").groups.add(staff)
    assert told("auth.change_user", [], []) == ""


def test_groups_and_users_that_are_not_there(person: Callable[..., User]) -> None:
    ann, gone = person("ann"), person("gone", active=False)
    Group.objects.create(name="empty")
    full = Group.objects.create(name="full")
    ann.groups.add(full)
    assert told("", ["full"], [str(ann.pk)]) == ""
    assert told("", ["full", "fulll"], []) == "there is no group 'fulll'"
    assert told("", ["empty"], [str(gone.pk), "ann"]) == (
        "nobody but a superuser can decide it: no active user is in group 'empty'; "
        f"there is no active user '{gone.pk}'; there is no active user 'ann'"
    )


def test_a_backend_of_the_project_may_know_more(person: Callable[..., User], settings: Any) -> None:
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.Backend"]
    assert told("auth.chnage_user", [], []).endswith(
        "'auth.change_user'?), unless a backend of this project gives it"
    )


class Backend:
    """Some other."""


def test_code_without_a_text_is_left_alone() -> None:
    class Definition:
        function = eval("lambda ctx: ctx.approval('x', permission='no.such')")

    assert unknown_permissions(Definition()) == {}  # type: ignore[arg-type]
