"""The system page: what it finds, what it hides, and who may open it."""

import re
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib import admin
from django.core.cache import cache
from django.db.models.functions import Now
from django.utils import timezone

from pgjobs.admin import systemchecks
from pgjobs.admin.overview import target
from pgjobs.doctor.findings import Thresholds
from pgjobs.doctor.parts import PARTS
from pgjobs.health.chores import Process, Processes, chores
from pgjobs.health.examination import examine
from pgjobs.health.verdict import Problem
from pgjobs.models import Worker
from pgjobs.queue import stats
from pgjobs.worker import registration
from tests.faces.doctors import other_session, run
from tests.faces.pages import address, person, text_of
from tests.faces.rows import make_worker
from tests.health.situations import execution, job
from tests.support.own_database import QUEUE

pytestmark = pytest.mark.django_db

PAGE = "system_changelist"
CLOCK = timezone.now()
HOSTILE = "<script>alert('x')</script>"


def process(name: str = "w-1", chores: Any = None, last_done_at: Any = None) -> Process:
    return Process(name, "1", "", {}, chores, last_done_at)


def states(*live: Process, newest: Any = None, waiting: bool = False) -> dict[str, str]:
    return {each.title: each.state for each in chores(Processes(CLOCK, newest, list(live), waiting))}


def ago(seconds: float) -> Any:
    return CLOCK - timedelta(seconds=seconds)


def row(text: str, title: str) -> str:
    """What the page says of one check."""
    found = re.search(
        rf"<tr[^>]*>\s*<td[^>]*><span[^>]*>(\w+)</span></td>\s*<th[^>]*>{title}</th>(.*?)</tr>", text, re.S
    )
    assert found, title
    return f"{found[1]}: {unescape(found[2])}"


def test_a_chore_is_judged_by_whoever_did_it_last() -> None:
    fresh = dict.fromkeys(("reaper", "sweeper", "pruner", "bulk", "statistics"), ago(2))

    assert {title for title, state in states().items() if state == "ok"} == {"Pruner"}, "which is off"
    assert states()["Reaper"] == states()["Statistics"] == "unknown"
    assert states(process())["Reaper"] == "unknown"  # of a version that does not say
    assert set(states(process(chores=fresh)).values()) == {"ok"}
    assert states(process(chores={}))["Reaper"] == "warn"  # all with --no-reaper
    late = process("w-2", {**fresh, "reaper": ago(3_600)})
    assert states(late)["Reaper"] == "fail" and states(late, process(chores=fresh))["Reaper"] == "ok"
    assert states(process(chores=fresh, last_done_at=ago(1)), newest=ago(30))["Statistics"] == "ok"
    assert states(process(chores=fresh, last_done_at=ago(1)), newest=ago(900))["Statistics"] == "fail"
    assert states(process(chores=fresh, last_done_at=ago(900)), newest=ago(930))["Statistics"] == "ok"


def test_waits_that_nobody_looks_for_are_not_fine() -> None:
    title = "Waits of workflows"
    carries, other = process(chores={"sweeper": ago(1)}), process("w-2", chores={})

    assert states(other, waiting=False)[title] == "ok"
    assert states(other, waiting=True)[title] == "warn"
    assert states(carries, other, waiting=True)[title] == "ok"
    assert states(waiting=True)[title] == "unknown"
    told = states(other, process("w-3"), waiting=True)  # the third is of a version that does not say
    assert told[title] == told["Reaper"] == "unknown"


def test_what_is_called_utc_is_so_whatever_the_zone_of_the_session() -> None:
    night = datetime(2026, 11, 30, 0, 30, tzinfo=timezone.get_fixed_timezone(60))
    [told] = [each for each in chores(Processes(night, night, [process()])) if each.title == "Statistics"]

    assert told.what.startswith("The newest figures are of 23:30 UTC")


def test_retention_that_is_on_wants_a_pruner(settings: Any) -> None:
    settings.PGJOBS = {**django_settings.PGJOBS, "JOB_RETENTION_SECONDS": 60}

    assert states(process(chores={}))["Pruner"] == "unknown"
    assert states(process(chores={"pruner": ago(3_600)}))["Pruner"] == "fail"
    assert states(process(chores={"pruner": ago(1)}))["Pruner"] == "ok"


def test_each_part_of_the_database_is_a_check_and_its_finding_a_sentence(settings: Any) -> None:
    settings.PGJOBS = {**django_settings.PGJOBS, "HEALTH_TOKEN": "tok-4711", "DEAD_ALERT": 77}
    make_worker(
        HOSTILE,
        code_version=HOSTILE,
        runtime={"python": HOSTILE},
        chores={"reaper": timezone.now().isoformat()},
    )
    root = person("root", "view_system")

    text = text_of(root, address(PAGE))
    assert row(text, "Waits of workflows").startswith("ok")
    for part in PARTS:
        assert (f">{part.title}</th>" in text) != part.of_work, part.title
    assert row(text, "Migrations").startswith("ok") and row(text, "Indexes").startswith("ok")
    assert row(text, "Reaper").startswith("ok")
    assert "tok-4711" not in text and "<strong>77</strong>" in text and "DEAD_ALERT=77" in text
    assert HOSTILE not in text and "&lt;script&gt;" in text
    assert 'data-interval="0"' in text and 'aria-current="page">System' in text

    run(
        "DELETE FROM django_migrations WHERE app = 'pgjobs' AND name = '0002_admin_pages'",
        "DROP INDEX pgjobs_job_claim",
    )
    execution("waiting")
    cache.clear()
    text = text_of(root, address(PAGE))
    assert row(text, "Waits of workflows").startswith("warn")
    assert row(text, "Migrations").startswith("warn") and "0002_admin_pages" in row(text, "Migrations")
    assert row(text, "Indexes").startswith("fail") and "CREATE INDEX CONCURRENTLY" in row(text, "Indexes")
    assert text.index(">Indexes</th>") < text.index(">Migrations</th>") < text.index(">Writes</th>")
    copied = re.search(r'data-pgjobs-copy="(pgjobs:[^"]*)"', text)
    assert copied and "fail    Indexes: pgjobs_job has no index pgjobs_job_claim." in unescape(copied[1])


def test_a_runreaper_is_seen_and_is_no_worker() -> None:
    job(queue="mail", ago=600)
    for _ in range(2):
        registration.reaped("host.reaper.1", 2, using=QUEUE)
    root = person("root", "view_system")

    text = text_of(root, address(PAGE))
    assert row(text, "Reaper").startswith("ok") and "host.reaper.1" in row(text, "Reaper")
    assert row(text, "Pruner") and "runreaper, seen 0 s ago" in text_of(root, address("worker_changelist"))
    told = {problem.code: problem for problem in examine().problems}
    assert set(told) == {"NO_WORKER", "LATE"} and "host.reaper.1" not in told["NO_WORKER"].why
    assert not stats.live_workers().exists() and stats.backlog()[0].live_workers == 0

    Worker.objects.update(heartbeat_at=Now() - timedelta(hours=1))
    make_worker(chores={})
    cache.clear()
    assert "no runreaper" in row(text_of(root, address(PAGE)), "Reaper")


def test_the_token_is_hidden_also_where_payloads_may_show_theirs(settings: Any) -> None:
    settings.PGJOBS = {**django_settings.PGJOBS, "HEALTH_TOKEN": "tok-4711", "REDACT": ["!token", "!*_token"]}

    text = text_of(person("root", "view_system"), address(PAGE))

    assert "tok-4711" not in text and "HEALTH_TOKEN=«redacted»" in text


def test_what_a_session_runs_is_shown_to_those_alone_who_may_see_payloads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pgjobs.admin.system.Thresholds", lambda: Thresholds(snapshot_seconds=0))
    with other_session(application_name="nightly report") as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 'acme salaries'")
        seer = text_of(person("seer", "view_system", "view_payload"), address(PAGE))
        viewer = text_of(person("viewer", "view_system"), address(PAGE))
    assert "acme salaries" in row(seer, "Oldest transaction")
    assert "nightly report" in row(viewer, "Oldest transaction") and "acme" not in viewer


def test_a_check_that_cannot_be_made_is_unknown_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    root = person("root", "view_system")
    monkeypatch.setattr(systemchecks, "SECONDS", 0.3)
    monkeypatch.setattr("pgjobs.doctor.sessions._PREPARED", "SELECT pg_sleep(2), 1, 1, 1")
    run("ALTER TABLE pgjobs_worker RENAME TO pgjobs_gone")

    text = text_of(root, address(PAGE))

    assert row(text, "Prepared transactions").startswith("unknown") and "longer than 0.3 s" in text
    assert row(text, "Chores of the workers").startswith("unknown")
    assert row(text, "Indexes").startswith("ok") and row(text, "Migrations").startswith("ok")


def test_the_page_has_a_permission_of_its_own_and_problems_of_the_database_lead_there() -> None:
    assert person("ann").get(address(PAGE)).status_code == 403
    for code in ("DB_HORIZON", "STATS_STALE"):
        assert target(Problem(code, "why", "cure"), admin.site) == address(PAGE)
