"""The end of the second act: both timelines, who rejected what, and whether anything happened twice."""

from django.db.models import Count

from example_project.demo.display import Display
from example_project.demo.incident_story import STEP_TO_STRIKE, IncidentStory
from example_project.demo.tables import aligned
from example_project.incidents.history import question, rejected_fixes, timeline
from example_project.incidents.models import Change, Incident, PullRequest
from example_project.incidents.repository import Repository
from example_project.incidents.steps import branch_of
from pgjobs.models import Execution, StepOutput
from pgjobs.workflows.states import ExecutionStatus

COLUMNS = ["at", "what", "how", "attempts", "remark"]
REMARK = 90


def print_incidents(story: IncidentStory, display: Display) -> None:
    display.text()
    display.text(question("timeline"))
    for incident in (story.approved, story.rejected):
        display.text()
        display.text(f"  {incident} in {incident.repository} (execution {incident.execution_id})")
        rows = [
            [f"{event.at:%H:%M:%S.%f}"[:-4], event.what, event.how, event.attempts, event.detail[:REMARK]]
            for event in timeline(incident.execution_id)
        ]
        _table(display, COLUMNS, rows)
    asked, columns, rejected = rejected_fixes()
    display.text()
    display.text(f"  {asked}")
    _table(display, columns, [list(row) for row in rejected])


def incident_problems(story: IncidentStory) -> list[str]:
    """Everything that went against the promise, in plain words; empty when it held."""
    if story.late:
        return [f"Incidents: {story.late}"]
    found = [
        f"A waiting execution was changed by a worker's death: {what}." for what in story.waiting_changed
    ]
    if not story.struck_in_step:
        found.append("The kill inside the step came too late: the step was recorded already.")
    for incident, applied in ((story.approved, True), (story.rejected, False)):
        execution = Execution.objects.get(pk=incident.execution_id)
        if execution.status != ExecutionStatus.SUCCEEDED or execution.output.get("applied") is not applied:
            found.append(
                f"Execution {execution.pk} is {execution.status}: {execution.last_error}{execution.output}."
            )
        found += _repeated(incident, execution)
    return found + _of_effects(story) + _of_rejection(story)


def _repeated(incident: Incident, execution: Execution) -> list[str]:
    """A recorded step never begins again: its beginnings are its attempts and the ones that were killed."""
    lost = sum(entry.get("kind") == "lost" for entry in execution.errors)
    begun = dict(incident.step_starts.order_by().values_list("step").annotate(Count("id")))
    found = []
    for step_id, attempts in StepOutput.objects.filter(execution=execution).values_list(
        "step_id", "attempts"
    ):
        name = step_id.rpartition("#")[0]
        expected = attempts + (lost if name == STEP_TO_STRIKE else 0)
        if name in begun and begun[name] != expected:
            found.append(f"{step_id} of execution {execution.pk} began {begun[name]} times, not {expected}.")
    return found


def _of_effects(story: IncidentStory) -> list[str]:
    branch = branch_of(story.approved.execution_id)
    repository = Repository(story.approved.repository)
    requests = list(
        PullRequest.objects.filter(change__fix__incident=story.approved).values_list("branch", "commit")
    )
    found = []
    if repository.branches() != [branch] or requests != [(branch, repository.commit_of(branch))]:
        found.append(
            f"Branches {repository.branches()} and pull requests {requests}: {branch} once was expected."
        )
    if Change.objects.filter(fix__incident=story.rejected).exists():
        found.append("The rejected fix was recorded as a change.")
    if Repository(story.rejected.repository).branches():
        found.append("The rejected fix reached its repository.")
    return found


def _of_rejection(story: IncidentStory) -> list[str]:
    _, columns, rows = rejected_fixes()
    told = [dict(zip(columns, row, strict=True)) for row in rows]
    mine = [row for row in told if row["repository"] == story.rejected.repository]
    if not any(row["rejected_by"] == story.reviewer and row["step"] == "apply fix#1" for row in mine):
        return [f"The rejection by {story.reviewer} is not in the answer: {told}."]
    return []


def _table(display: Display, columns: list[str], rows: list[list[object]]) -> None:
    for line in aligned(columns, rows):
        display.text(f"    {line}")
