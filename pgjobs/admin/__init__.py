"""The operator's pages. They only show; rows are moved by verbs alone.

A page is imported when somebody looks at it: Django finds this package in every process, and most of them, workers
above all, show no page.
"""

from typing import cast

from django.contrib.admin import AdminSite, ModelAdmin, site
from django.db.models import Model
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string

from pgjobs.bulk.models import BulkOperation
from pgjobs.queue.activity import Activity
from pgjobs.queue.models import ArchivedJob, Job, OperatorAction, Worker
from pgjobs.queue.proxies import DeadJob, ErrorGroup, Overview, Queue, RunningJob, System, TaskType
from pgjobs.workflows.models import Execution, Wait

_PAGES: dict[type[Model], str] = {
    Overview: "overview.OverviewAdmin",
    ErrorGroup: "errors.ErrorAdmin",
    RunningJob: "running.RunningJobAdmin",
    Job: "jobs.JobAdmin",
    DeadJob: "jobs.DeadJobAdmin",
    ArchivedJob: "archived.ArchivedJobAdmin",
    Queue: "queues.QueueAdmin",
    Worker: "workers.WorkerAdmin",
    Execution: "workflows.ExecutionAdmin",
    Wait: "approvals.ApprovalAdmin",
    TaskType: "tasktypes.TaskTypeAdmin",
    Activity: "activity.ActivityAdmin",
    BulkOperation: "bulk.BulkAdmin",
    OperatorAction: "audit.AuditAdmin",
    System: "system.SystemAdmin",
}


class Page(SimpleLazyObject):  # type: ignore[type-arg]
    """Stands in a site for the ModelAdmin of a model of ours, and becomes it at the first question.

    Like a ModelAdmin it is made of model and site, so that a project may register its ``type()`` elsewhere too.
    """

    def __init__(self, model: type[Model], admin_site: AdminSite) -> None:
        page = f"{__name__}.{_PAGES[model]}"
        super().__init__(lambda: import_string(page)(model, admin_site))


for model in _PAGES:
    site.register(model, cast("type[ModelAdmin[Model]]", Page))
