"""Where Django looks for the models; each room keeps its own."""

from pgjobs.bulk.models import BulkOperation
from pgjobs.queue.acknowledgement import Acknowledgement
from pgjobs.queue.activity import Activity, Cause
from pgjobs.queue.models import ArchivedJob, Hour, Job, JobResult, Minute, OperatorAction, QueuePause, Worker
from pgjobs.queue.proxies import DeadJob, ErrorGroup, Overview, Queue, RunningJob, System, TaskType
from pgjobs.workflows.models import ArchivedExecution, Execution, Message, StepOutput, Wait

__all__ = [
    "Acknowledgement",
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
    "System",
    "TaskType",
    "Wait",
    "Worker",
]
