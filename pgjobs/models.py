"""Where Django looks for the models; each room keeps its own."""

from pgjobs.queue.models import ArchivedJob, Job, JobResult, OperatorAction, Worker
from pgjobs.queue.proxies import Backlog, DeadJob, RunningJob
from pgjobs.workflows.models import ArchivedExecution, Execution, Message, StepOutput, Wait

__all__ = [
    "ArchivedExecution",
    "ArchivedJob",
    "Backlog",
    "DeadJob",
    "Execution",
    "Job",
    "JobResult",
    "Message",
    "OperatorAction",
    "RunningJob",
    "StepOutput",
    "Wait",
    "Worker",
]
