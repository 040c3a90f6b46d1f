"""Executions and waits as the engine leaves them, without an engine."""

import uuid
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now

from pgjobs.models import Execution, Job, StepOutput, Wait
from tests.support.own_database import connection

NAME = "tests.flow"
ENDED = ("succeeded", "failed", "cancelled")


def execution(status: str = "waiting", **columns: Any) -> Execution:
    """One row that the constraints allow."""
    values: dict[str, Any] = {"workflow_name": NAME, "status": status}
    if status == "running":
        values |= {
            "lease_owner": "host.1.abc",
            "lease_token": uuid.uuid4(),
            "lease_expires_at": Now() + timedelta(minutes=1),
        }
    if status in ENDED:
        values["completed_at"] = Now()
    made = Execution.objects.create(**(values | columns))
    made.refresh_from_db()
    return made


def wait(of: Execution, kind: str = "sleep", *, due_in: float | None = None, **columns: Any) -> Wait:
    """An open wait, due in so many seconds (negative: overdue)."""
    ordinal = columns.pop("ordinal", of.waits.count() + of.steps.count())
    values: dict[str, Any] = {
        "step_id": f"{kind}#{ordinal}",
        "ordinal": ordinal,
        "kind": kind,
        "execution": of,
    }
    if due_in is not None:
        values["wake_at"] = Now() + timedelta(seconds=due_in)
    made = Wait.objects.create(**(values | columns))
    made.refresh_from_db()
    return made


def approval(of: Execution | None = None, **columns: Any) -> Wait:
    """An open approval, which names nobody unless told."""
    return wait(of or execution(), "approval", **({"name": "apply fix"} | columns))


def gather(of: Execution, jobs: list[int], **rule: int) -> list[Wait]:
    """The open waits of one gather."""
    ordinal = of.waits.count() + of.steps.count()
    return [
        wait(of, "job", ordinal=ordinal, step_id=f"gather#1[{n}]", group="gather#1", target_id=pk, rule=rule)
        for n, pk in enumerate(jobs)
    ]


def step(of: Execution, ordinal: int, **columns: Any) -> StepOutput:
    return StepOutput.objects.create(
        execution=of, step_id=f"step{ordinal}#1", kind="step", ordinal=ordinal, **columns
    )


def job(status: str = "pending", **columns: Any) -> Job:
    """A job that somebody awaits."""
    values: dict[str, Any] = {"job_type": "jobsapp.ok", "status": status, "awaited": True}
    if status == "running":
        values |= {
            "lease_owner": "host.1.abc",
            "lease_token": uuid.uuid4(),
            "lease_expires_at": Now() + timedelta(minutes=1),
            "attempt_count": 1,
        }
    if status in ("succeeded", "failed", "dead", "cancelled"):
        values["completed_at"] = Now()
    return Job.objects.create(**(values | columns))


def user(name: str, *permissions: str, **columns: Any) -> User:
    """Somebody with permissions given as "app.codename"."""
    made = User.objects.create_user(name, **columns)
    for permission in permissions:
        app, codename = permission.split(".")
        made.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    return made


def status(of: Execution | Job) -> str:
    return type(of).objects.values_list("status", flat=True).get(pk=of.pk)


def resolution(of: Wait) -> Any:
    """None while it is open."""
    return Wait.objects.values_list("resolution", flat=True).get(pk=of.pk)


def refuse_changes_of(table: str, *ids: int) -> None:
    """From now on the database raises an error for any change of these rows."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE FUNCTION refuse_{table}() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION 'row % of {table} is bad', OLD.id; END $$"
        )
        cursor.execute(
            f"CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW"
            f" WHEN (OLD.id IN ({', '.join(map(str, ids))})) EXECUTE FUNCTION refuse_{table}()"
        )


def accept_changes_of(table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP FUNCTION IF EXISTS refuse_{table}() CASCADE")
