"""The verdict on the demo's second act: a report that can only praise proves nothing."""

import pytest
from django.utils import timezone

from example_project.demo.incident_report import incident_problems
from example_project.demo.incident_story import IncidentStory
from example_project.incidents.models import Change, Fix, Incident, StepStart
from example_project.incidents.repository import Repository
from pgjobs.models import Execution, StepOutput
from tests.example.deliveries import incident

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("media_root")]


def other() -> Incident:
    made = incident("other")
    Incident.objects.filter(pk=made.pk).update(repository="example/billing")
    made.refresh_from_db()
    return made


def test_the_verdict_sees_what_went_wrong() -> None:
    story = IncidentStory(approved=incident("mine"), rejected=other(), waiting_changed=["this became that"])
    execution = Execution.objects.get(pk=story.approved.execution_id)
    StepOutput.objects.create(execution=execution, step_id="generate_fix#1", kind="step", ordinal=1)
    for _ in range(2):
        StepStart.objects.create(incident=story.approved, step="generate_fix", pid=1)
    fix = Fix.objects.create(incident=story.rejected, summary="", patch="")
    Change.objects.create(fix=fix, approved_at=timezone.now())
    Repository("example/shop")._git("branch", "another", "main")
    found = "\n".join(incident_problems(story))
    for expected in (
        "changed by a worker's death: this became that",
        "The kill inside the step came too late",
        f"Execution {execution.pk} is enqueued",
        f"Execution {story.rejected.execution_id} is enqueued",
        f"generate_fix#1 of execution {execution.pk} began 2 times, not 1",
        "Branches ['another'] and pull requests []",
        "The rejected fix was recorded as a change",
        "The rejection by demo-reviewer is not in the answer",
    ):
        assert expected in found


def test_what_came_too_late_is_the_verdict() -> None:
    story = IncidentStory(approved=incident("mine"), rejected=other(), late="the end did not come")
    assert incident_problems(story) == ["Incidents: the end did not come"]
