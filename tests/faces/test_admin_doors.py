"""Where a page leads people who may do little, or to what never was; what it exports, and what it counts no further."""

import csv
import io
import re
from typing import Any

import pytest
from django.urls import reverse

from pgjobs.models import Activity
from pgjobs.queue import audit, pauses
from tests.faces.pages import address, person, text_of
from tests.faces.test_admin_watch import failures
from tests.faces.test_workflow_admin import address_of_decision, client_of
from tests.workflows.rows import approval

pytestmark = pytest.mark.django_db


def test_who_may_decide_and_not_look_is_told_too_and_never_ends_at_a_closed_door() -> None:
    asked = approval(permission="auth.add_user")
    ann, bob = client_of("ann", "auth.add_user"), client_of("bob", "auth.add_user")
    answers = [
        client.post(
            address_of_decision(asked),
            {"decision": decision, "reason": "seen", "shown_hash": asked.context_hash},
            follow=True,
        )
        for client, decision in ((ann, "approve"), (bob, "reject"))
    ]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert "approved by ann" in answers[0].content.decode()
    assert "it was approved before, by ann" in answers[1].content.decode()
    assert bob.post(reverse("admin:pgjobs_wait_decide", args=[10**30])).status_code == 404


def test_each_page_has_one_name_wherever_it_stands() -> None:
    client = person("root", is_superuser=True)
    index = text_of(client, reverse("admin:index"))
    sidebar = dict(re.findall(r'<th[^>]*>\s*<a href="/admin/pgjobs/(\w+)/"[^>]*>([^<]+)</a>', index))
    assert len(sidebar) == 14

    for model, name in sidebar.items():
        text = text_of(client, address(f"{model}_changelist"))
        strip = text[text.index('class="pgjobs-nav"') :]
        here = re.search(r'aria-current="page">([\w ]+?)\s*<', strip)
        assert here and here[1] == name, (model, name, here)
        assert f"<h1>{name}</h1>" in text, (model, name)
    approval()
    assert re.search(r"1 approval\s*</nav>", text_of(client, address("wait_changelist")))
    assert re.search(r"0 dead jobs\s", text_of(client, address("deadjob_changelist")))


def test_no_cell_of_the_export_is_a_formula() -> None:
    for reason in ("=1", "+1", "-1", "@a", "\t=1", "\r=1", "\n=1", "\uff1d1", "plain = 1"):
        audit.record("retry", target_kind="queue", target_ids=["=1"], actor=reason, reason=reason)
    export = person("bob").get(address("operatoraction_export"))
    text = b"".join(export.streaming_content).decode()
    cells = [cell for row in list(csv.reader(io.StringIO(text)))[1:] for cell in row]

    assert not [cell for cell in cells if cell[:1] in set("=+-@\t\r\n\uff1d")]
    assert cells.count("plain = 1") == 2 and cells.count("'=1") == 2


def test_a_count_that_was_cut_is_no_exact_figure(settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "DEAD_ALERT": 2}
    failures(5, "aaaa")
    text = text_of(person("ann"), address("overview_changelist"))

    assert '<strong class="pgjobs-card-value">2+</strong>' in text
    assert 'Dead <span class="pgjobs-badge">2+</span>' in text


@pytest.mark.parametrize("model", ["errorgroup", "queue", "tasktype", "job", "execution", "worker", "wait"])
def test_what_never_existed_is_a_404(model: str) -> None:
    client = person("ann")

    for name in ("zzz", "none", "%00", "x" * 300):
        page = f"{address(f'{model}_changelist')}{name}/"
        response = client.get(page, follow=True)
        assert response.redirect_chain == [(f"{page}change/", 302)], page
        assert response.status_code == 404, page
        assert "is not in the tables" in response.content.decode(), page


def test_a_paused_queue_has_a_page_before_anything_is_known_of_it() -> None:
    pauses.pause("zzz", actor="ana", reason="not yet")
    client = person("ann", "pause_queue")

    assert "Resume</button>" in text_of(client, address("queue_change", "zzz"))
    activity = Activity.objects.latest("pk")
    led = client.get(address("activity_change", activity.pk))
    assert led["Location"] == address("activity_changelist")
