"""Where Django looks for the models; each room keeps its own."""

from pgjobs.bulk.models import BulkOperation
from pgjobs.queue.acknowledgement import Acknowledgement
from pgjobs.queue.models import ArchivedJob, Job, JobResult, Minute, OperatorAction, QueuePause, Worker
from pgjobs.queue.proxies import DeadJob, ErrorGroup, Overview, Queue, RunningJob, System
from pgjobs.workflows.models import ArchivedExecution, Execution, Message, StepOutput, Wait

__all__ = [
    "Acknowledgement",
    "ArchivedExecution",
    "ArchivedJob",
    "BulkOperation",
    "DeadJob",
    "ErrorGroup",
    "Execution",
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
    "Wait",
    "Worker",
]
