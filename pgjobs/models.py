"""Where Django looks for the models; each room keeps its own."""

from pgjobs.bulk.models import BulkOperation
from pgjobs.queue.activity import Activity, Cause
from pgjobs.queue.models import ArchivedJob, Hour, Job, JobResult, Minute, OperatorAction, QueuePause, Worker
from pgjobs.queue.proxies import DeadJob, ErrorGroup, Overview, Queue, RunningJob, TaskType
from pgjobs.workflows.models import ArchivedExecution, Execution, Message, StepOutput, Wait

__all__ = [
    "Activity",
    "ArchivedExecution",
    "ArchivedJob",
    "BulkOperation",
    "Cause",
    "DeadJob",
    "ErrorGroup",
    "Execution",
    "Hour",
    "Job",
    "JobResult",
    "Message",
    "Minute",
    "OperatorAction",
    "Overview",
    "Queue",
    "QueuePause",
    "RunningJob",
    "StepOutput",
    "TaskType",
    "Wait",
    "Worker",
]
