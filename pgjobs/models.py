"""Where Django looks for the models; each room keeps its own."""

from pgjobs.queue.models import Job, JobResult, Worker
from pgjobs.queue.proxies import Backlog, DeadJob, RunningJob

__all__ = ["Backlog", "DeadJob", "Job", "JobResult", "RunningJob", "Worker"]
