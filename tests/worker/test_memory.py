"""What worker processes do not carry: imports for pages, for people's verbs, and for what was not asked of them yet."""

import pytest
from django.apps import apps
from django.contrib import admin

from pgjobs.models import Job
from tests.jobsapp.jobs import modules
from tests.worker.conftest import Spawn
from tests.worker.observation import wait_ended

NOT_NEEDED = (
    "pgjobs.admin.",  # the package alone is found by Django
    "pgjobs.bulk.control",
    "pgjobs.bulk.filters",
    "pgjobs.bulk.runner",
    "pgjobs.doctor",
    "pgjobs.endpoints",
    "pgjobs.health",
    "pgjobs.management",
    "pgjobs.metrics",
    "pgjobs.queue.control",
    "pgjobs.queue.editing",
    "pgjobs.urls",
    "pgjobs.worker.children",
    "pgjobs.worker.probes",
    "pgjobs.worker.supervisor",
    "pgjobs.workflows.approvals",
    "pgjobs.workflows.context",
    "pgjobs.workflows.control",
    "pgjobs.workflows.forking",
    "pgjobs.workflows.replay_check",
    "pgjobs.workflows.verbs",
    "django.test",
    "example_project.urls",
    "http.server",
    "psycopg_pool",
    "pypdf",
    "reportlab",
)


@pytest.mark.workers
def test_a_worker_that_has_run_a_job_has_imported_nothing_else(spawn: Spawn) -> None:
    spawn()
    job = modules.enqueue()
    loaded = wait_ended([job])[job.pk].result

    assert "pgjobs.worker.producer" in loaded
    assert not [name for name in loaded if name.startswith(NOT_NEEDED)]


def test_a_page_takes_its_place_in_the_site_when_it_is_asked() -> None:
    """A site of the project's own may register what is registered here, and put its own in the place of a page."""
    ours = [model for model in apps.get_app_config("pgjobs").get_models() if admin.site.is_registered(model)]
    assert len(ours) == 15
    other = admin.AdminSite(name="other")
    for model in ours:
        other.register(model, type(admin.site.get_model_admin(model)))
        page = other.get_model_admin(model)
        assert isinstance(page, admin.ModelAdmin) and page.model is model and page.admin_site is other
    other.unregister(Job)
    assert not other.is_registered(Job)
