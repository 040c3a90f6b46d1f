"""What Django calls when it starts."""

from django.apps import AppConfig
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import autodiscover_modules, import_string


class PgJobsConfig(AppConfig):
    """Finds the handlers of all installed apps and registers the checks."""

    name = "pgjobs"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Jobs"

    def ready(self) -> None:
        """Import every app's ``jobs`` and ``workflows`` module, so that the registry is whole before anything runs."""
        from pgjobs import checks  # noqa: F401 - registers itself
        from pgjobs.queue.awaited import subscribe
        from pgjobs.queue.registry import registry
        from pgjobs.workflows.models import Execution
        from pgjobs.workflows.registry import workflows
        from pgjobs.workflows.waits import jobs_ended

        # What is done to an execution by hand is loaded when it is done: most processes do nothing of the kind.
        Execution.verbs = SimpleLazyObject(lambda: import_string("pgjobs.workflows.verbs.Verbs")())
        subscribe(jobs_ended)
        autodiscover_modules("jobs", "workflows")
        registry.resolve()
        workflows.resolve()
