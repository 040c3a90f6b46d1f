"""Where Django looks for the models; each room keeps its own."""

from pgjobs.bulk.models import BulkOperation
from pgjobs.queue.models import ArchivedJob, Job, JobResult, Minute, OperatorAction, QueuePause, Worker
from pgjobs.queue.proxies import Backlog, DeadJob, RunningJob
from pgjobs.workflows.models import ArchivedExecution, Execution, Message, StepOutput, Wait

__all__ = [
    "ArchivedExecution",
    "ArchivedJob",
    "Backlog",
    "BulkOperation",
    "DeadJob",
    "Execution",
    "Job",
    "JobResult",
    "Message",
    "Minute",
    "OperatorAction",
    "QueuePause",
    "RunningJob",
    "StepOutput",
    "Wait",
    "Worker",
]
