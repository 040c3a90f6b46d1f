"""The pages on another admin site, beside and instead of Django's own, under another address."""

import re
from typing import Any

import pytest
from django.contrib.admin import AdminSite, site
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import path, reverse

from pgjobs.models import Job
from tests.faces.pages import as_seen
from tests.faces.rows import make_job, make_worker
from tests.workflows.rows import approval, step

pytestmark = pytest.mark.django_db


class Site(AdminSite):
    """A project's own."""


operators = Site(name="operators")
for model, model_admin in site._registry.items():
    if model._meta.app_label == "pgjobs":
        operators.register(model, type(model_admin))

urlpatterns = [path("desk/ops/", operators.urls)]


@pytest.fixture
def desk() -> Any:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    with override_settings(ROOT_URLCONF=__name__):
        yield client


def address(name: str, *args: Any) -> str:
    return reverse(f"admin:pgjobs_{name}", args=args, current_app="operators", urlconf=__name__)


def test_every_page_opens_there_and_links_to_nothing_else(desk: Client) -> None:
    make_worker()
    job = make_job("dead", errors=[{"attempt": 1, "kind": "error", "fingerprint": "f00"}], fingerprint="f00")
    make_job("running")
    asked = approval()
    step(asked.execution, 0)
    names = [
        f"{model._meta.model_name}_changelist" for model in operators._registry if model is not type(job)
    ]
    pages = [address(name) for name in names if name != "archivedjob_changelist"]
    pages += [
        address("job_changelist"),
        address("job_change", job.pk),
        address("job_options", job.pk),
        address("job_cancel", job.pk),
        address("execution_change", asked.execution_id),
        address("execution_fork", asked.execution_id),
        address("execution_signal", asked.execution_id),
        address("wait_change", asked.pk),
        address("queue_change", "default"),
        address("errorgroup_change", "f00"),
    ]
    for page in pages:
        response = desk.get(page)
        assert response.status_code == 200, page
        links = re.findall(r'(?:href|action|formaction)="(/[^"]*)"', response.content.decode())
        strays = [link for link in links if not link.startswith(("/desk/ops/", "/static/"))]
        assert set(strays) <= {"/"}, (page, strays)


def test_a_verb_works_there_and_leads_back_there(desk: Client) -> None:
    job = make_job("dead")

    response = desk.post(address("job_retry", job.pk), as_seen(job))

    assert response["Location"] == f"/desk/ops/pgjobs/job/{job.pk}/change/"
    assert Job.objects.get().status == "pending"
