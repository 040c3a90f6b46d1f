"""Whether there is anybody who can decide an approval: a name with a slip in it would be waited for without end."""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.contrib.auth import get_backends, get_permission_codename, get_user_model
from django.core.exceptions import FieldError, ValidationError
from django.db.models import QuerySet

from pgjobs.workflows.approvals import DEFAULT_PERMISSION
from pgjobs.workflows.registry import Definition


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is wrong with whom an approval names."""

    nobody: bool
    """Nobody but a superuser can decide."""
    told: str
    """Which names, in words."""

    def __str__(self) -> str:
        return ("nobody but a superuser can decide it: " if self.nobody else "") + self.told


def doubt(permission: str, groups: Sequence[str], users: Sequence[str]) -> Doubt | None:
    """None where an active user is behind everything that an approval names, or where that cannot be told.

    Goes by the tables of Django. Where a backend of the project's own may give the permission too, the words say so.
    """
    if not permission and not groups and not users:
        permission = DEFAULT_PERMISSION
    try:
        found = [*([_permission(permission)] if permission else []), *_groups(groups), *_users(users)]
    except (FieldError, LookupError):
        return None  # users or permissions are not Django's
    told = [each for each in found if each]
    return Doubt(len(told) == len(found), "; ".join(told)) if told else None


def unknown_permissions(definition: Definition) -> dict[str, str]:
    """The permissions that a workflow's code asks for by a literal or a global name, and that are not there: why."""
    named = sorted(set(_named(definition.function)))
    return {name: why for name in named if (why := missing(name))}


def missing(permission: str) -> str:
    """Why there is no such permission; empty where a table has it or an installed model declares it."""
    declared = set(_declared())
    if permission in declared or _rows_of(permission).exists():
        return ""
    app_label, _, codename = permission.partition(".")
    if not (app_label and codename):
        return f"{permission!r} is no permission: write it as app_label.codename"
    near = difflib.get_close_matches(permission, sorted(declared), n=1)
    return f"there is no permission {permission!r}" + (f" (did you mean {near[0]!r}?)" if near else "")


def _permission(name: str) -> str:
    why = missing(name)
    if not why:
        by_hand = _active().filter(user_permissions__in=_rows_of(name)).values("pk")
        by_group = _active().filter(groups__permissions__in=_rows_of(name)).values("pk")
        held = by_hand.union(by_group, all=True)[:1]
        why = "" if held else f"no active user holds permission {name!r}"
    by_tables = all(type(each).__module__ == "django.contrib.auth.backends" for each in get_backends())
    return why if by_tables or not why else f"{why}, unless a backend of this project gives it"


def _groups(names: Sequence[str]) -> Iterator[str]:
    if not names:
        return
    there = set(_model("Group").filter(name__in=names).values_list("name", flat=True))
    found = _active().filter(groups__name__in=names).values_list("groups__name", flat=True)
    peopled = set(found.distinct())
    for name in names:
        why = "" if name in peopled else f"no active user is in group {name!r}"
        yield why if name in there else f"there is no group {name!r}"


def _users(keys: Sequence[str]) -> Iterator[str]:
    if not keys:
        return
    usable = [key for key in keys if _is_key(key)]
    there = set(map(str, _active().filter(pk__in=usable).values_list("pk", flat=True)))
    yield from ("" if key in there else f"there is no active user {key!r}" for key in keys)


def _is_key(text: str) -> bool:
    try:
        get_user_model()._meta.pk.to_python(text)
    except ValidationError:
        return False
    return True


def _active() -> QuerySet[Any]:
    found: QuerySet[Any] = get_user_model()._base_manager.filter(is_active=True)
    return found


def _model(name: str) -> QuerySet[Any]:
    found: QuerySet[Any] = apps.get_model("auth", name)._base_manager.all()
    return found


def _rows_of(permission: str) -> QuerySet[Any]:
    app_label, _, codename = permission.partition(".")
    return _model("Permission").filter(content_type__app_label=app_label, codename=codename)


def _declared() -> Iterator[str]:
    """Those that ``migrate`` makes."""
    for model in apps.get_models():
        options = model._meta
        for action in options.default_permissions:
            yield f"{options.app_label}.{get_permission_codename(action, options)}"
        yield from (f"{options.app_label}.{codename}" for codename, _ in options.permissions)


def _named(function: Callable[..., Any]) -> Iterator[str]:
    """What stands after ``permission=`` in a call of ``approval``, as far as the text says it."""
    function = inspect.unwrap(function)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or getattr(call.func, "attr", "") != "approval":
            continue
        for given in call.keywords:
            if given.arg != "permission":
                continue
            value: Any = getattr(given.value, "value", None)
            if isinstance(given.value, ast.Name):
                value = getattr(function, "__globals__", {}).get(given.value.id)
            if isinstance(value, str) and value:
                yield value
