"""The table of verbs, permissions and states agrees with the verbs; the groups are made from it."""

import json
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command

from pgjobs.queue import control, editing, pauses
from pgjobs.queue.rights import RIGHTS, may, right
from pgjobs.queue.states import JobStatus
from pgjobs.workflows import control as executions
from pgjobs.workflows.states import ExecutionStatus
from tests.queue.test_control import in_status

JOB_VERBS = ["retry", "cancel", "run_now", "release", "discard", "restore"]


def roles() -> dict[str, Any]:
    out = StringIO()
    call_command("pgjobs_roles", "--json", stdout=out)
    return json.loads(out.getvalue())["groups"]


@pytest.mark.django_db
def test_every_permission_of_the_table_exists() -> None:
    found = {f"pgjobs.{p.codename}" for p in Permission.objects.filter(content_type__app_label="pgjobs")}

    assert {each.permission for each in RIGHTS} <= found


@pytest.mark.django_db
@pytest.mark.parametrize("status", JobStatus)
@pytest.mark.parametrize("verb", JOB_VERBS)
def test_states_of_the_table_are_those_of_the_verbs_on_jobs(verb: str, status: JobStatus) -> None:
    pk = in_status(status)
    [outcome] = getattr(control, verb)([pk], actor="ann")

    applies = status in right("job", verb).states
    refused_by_status = outcome.message.startswith(f"it is {status}; only")
    assert refused_by_status != applies or (verb == "restore" and not outcome.done)


@pytest.mark.parametrize("verb", ["resume", "retry", "pause", "cancel"])
def test_states_of_the_table_are_those_of_the_verbs_on_executions(verb: str) -> None:
    assert right("execution", verb).states == executions.movable(verb)


def test_states_are_known() -> None:
    known = {"job": set(JobStatus), "execution": set(ExecutionStatus)}
    for each in RIGHTS:
        assert each.states <= known.get(each.target, each.states), each


def test_each_verb_of_the_table_is_a_function() -> None:
    assert {each.verb for each in RIGHTS if each.target == "job"} == {*JOB_VERBS, "edit_copy", "reveal"}
    assert callable(editing.edit_copy) and callable(pauses.pause) and callable(pauses.resume)


@pytest.mark.django_db
def test_the_groups() -> None:
    told = roles()

    given = {
        group.name: sorted(group.permissions.values_list("codename", flat=True))
        for group in Group.objects.all()
    }
    assert given == told and list(told) == ["pgjobs viewer", "pgjobs operator", "pgjobs admin"]
    viewer, operator, admin = (set(told[name]) for name in told)
    assert viewer < operator < admin
    assert {name.partition("_")[0] for name in viewer} == {"view"} and "view_payload" not in operator
    assert {"edit_payload", "bulk_job", "view_payload"} <= admin - operator


@pytest.mark.django_db
def test_the_groups_keep_what_was_given_to_them() -> None:
    roles()
    extra = Permission.objects.get(codename="add_user")
    Group.objects.get(name="pgjobs viewer").permissions.add(extra)
    roles()

    assert Group.objects.get(name="pgjobs viewer").permissions.filter(pk=extra.pk).exists()


@pytest.mark.django_db
def test_a_user_may_what_the_group_may() -> None:
    roles()
    user = User.objects.create_user("olga")
    user.groups.add(Group.objects.get(name="pgjobs operator"))

    assert may(user, "job", "retry") and may(user, "queue", "pause")
    assert not may(user, "job", "edit_copy") and not may(user, "bulk", "start")
