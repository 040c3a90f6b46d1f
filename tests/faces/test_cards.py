"""The figures at the top of the overview: none is shown that is not known."""

import re

import pytest
from django.core.cache import cache
from django.db.models.functions import Now
from django.test import Client

from tests.faces.pages import address, person, text_of
from tests.faces.rows import make_worker
from tests.health import seeds

pytestmark = pytest.mark.django_db


def test_the_overview_shows_no_share_of_failures_that_it_does_not_know() -> None:
    viewer = person("viewer")
    make_worker(last_done_at=Now())
    seeds.minute(60, done=9)
    assert figure(viewer, "Failures") == ("0.0%", "of the attempts of 5 min")
    seeds.job("dead", ago=60)
    assert figure(viewer, "Failures") == ("?", "1 in 5 min that are not counted")
    seeds.run("UPDATE pgjobs_minute SET minute = minute - interval '1 hour'")
    assert figure(viewer, "Failures") == figure(viewer, "Done per min") == ("?", "the figures are old")


def figure(viewer: Client, label: str) -> tuple[str, str]:
    """Of a card of the overview, and what is said of it."""
    cache.clear()
    text = text_of(viewer, address("overview_changelist"))
    found = re.search(rf">{label}</span> <strong[^>]*>([^<]*)</strong> <span[^>]*>([^<]*)</span>", text)
    assert found, label
    return found[1], found[2]
