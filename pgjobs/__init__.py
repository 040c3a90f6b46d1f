"""The PostgreSQL you already run, as job queue and durable workflow engine for Django."""

from pgjobs.backoff import Backoff
from pgjobs.exceptions import Fail, LeaseLost, Retry, Snooze
from pgjobs.queue.authoring import job
from pgjobs.workflows.authoring import workflow

__all__ = ["Backoff", "Fail", "LeaseLost", "Retry", "Snooze", "job", "workflow"]
__version__ = "0.1.0"
