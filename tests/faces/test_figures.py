"""What the charts of the overview tell beside their bars."""

import re
from datetime import UTC, timedelta

import pytest
from django.db.models.functions import Now

from pgjobs.models import Worker
from pgjobs.queue import rollups
from tests.faces.pages import address, person, text_of
from tests.faces.rows import make_worker
from tests.support.own_database import QUEUE

pytestmark = pytest.mark.django_db


def test_where_new_code_started_the_chart_has_a_mark_that_is_told_in_words_and_in_the_table() -> None:
    for name, version, minutes in (("a", "v140", 300), ("b", "v141", 20), ("c", "v141", 10), ("d", "<i>", 5)):
        made = make_worker(name, code_version=version)
        Worker.objects.filter(pk=made.pk).update(started_at=Now() - timedelta(minutes=minutes))

    text = text_of(person("ann"), address("overview_changelist"))
    at = Worker.objects.get(name="b").started_at.astimezone(UTC)

    assert text.count('class="pgjobs-event"') == 2
    assert f"v141 started at {at:%H:%M}." in text
    assert f'<th scope="row">{at:%H:%M} v141 started</th>' in text
    assert "v140 started" not in text and "<i>" not in text
    assert 'class="pgjobs-event"' not in text_of(person("ben"), address("queue_changelist"))


def test_each_queue_of_the_overview_shows_what_ended_in_it() -> None:
    tally = rollups.Tally(done=7, failed=2, dead=1, retried=5)
    rollups.add({("mail", "t"): tally, ("reports", "t"): rollups.Tally(done=1)}, using=QUEUE)

    text = text_of(person("ann"), f"{address('overview_changelist')}?range=6h")

    told = re.findall(r'class="pgjobs-spark".*?<title>([^<]*)</title>(.*?)</svg>', text, re.S)
    assert [title for title, _ in told] == ["10 ended in the last 6h", "1 ended in the last 6h"]
    assert all(drawn.count("<rect") == 1 for _, drawn in told)
