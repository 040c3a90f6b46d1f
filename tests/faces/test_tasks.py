"""The pages of tasks and of activity: what they say, who may do what there, and what they cost."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client

from pgjobs.health import happenings
from pgjobs.management.commands import pgjobs_events
from pgjobs.models import Activity, OperatorAction, QueuePause
from pgjobs.queue import pauses, rollups
from pgjobs.queue.rollups import Tally
from pgjobs.workflows import verbs
from tests.faces.pages import address, person, said, text_of
from tests.faces.rows import make_job, make_worker
from tests.faces.test_admin_bounds import buffers, statements
from tests.faces.test_admin_pages import ESCAPED, HOSTILE
from tests.faces.test_admin_watch import failures
from tests.support.own_database import QUEUE, connection
from tests.workflows.rows import execution

pytestmark = pytest.mark.django_db
TASKS, ACTIVITY = "tasktype_changelist", "activity_changelist"
OK = "jobsapp.ok"


@pytest.fixture(autouse=True)
def empty(db: None) -> None:
    """Without what tests that commit have left."""
    Activity.objects.all().delete()


def ran(job_type: str, *seconds: float, **ends: int) -> None:
    tally = Tally(**ends)
    for each in seconds:
        tally.measure(0.1, each)
    rollups.add({("mail", job_type): tally}, using=QUEUE)


def order(text: str) -> list[str]:
    """The tasks of the table, from the top."""
    return re.findall(r'<th scope="row" data-label="Task"><a [^>]*>([^<]*)</a>', text)


def test_tasks_are_ordered_by_any_column_and_say_how_they_do() -> None:
    ran("charge", *[3.0] * 10, done=5, retried=4, dead=1)
    ran("mail.send", *[0.02] * 100, done=100)
    ran("sync", 100.0, done=1)
    client = person("ann")
    text = text_of(client, address(TASKS))

    assert order(text) == ["sync", "charge", "mail.send"]  # by the time they took
    assert "50.0%" in text and "jobsapp.ok" in text.split("Did not run:")[1]
    assert 'aria-sort="descending"' in text
    for sort, first in (("runs", "sync"), ("-runs", "mail.send"), ("-fail", "charge"), ("task", "charge")):
        assert order(text_of(client, f"{address(TASKS)}?sort={sort}"))[0] == first
    assert order(text_of(client, f"{address(TASKS)}?sort=nonsense&range=nonsense"))[0] == "sync"
    assert order(text_of(client, f"{address(TASKS)}?range=7d"))[0] == "sync"


def test_one_task_has_figures_errors_policy_and_who_can_run_it() -> None:
    ran(OK, *[0.5] * 10, done=9, retried=1)
    failures(3, "abcd", job_type=OK)
    client = person("ann")
    for chosen in ("1h", "24h", "7d"):
        text = text_of(client, f"{address('tasktype_change', OK)}?range={chosen}")
        for part in ("Run times, last", "ValueError", "mail", "Attempts", "No live worker says"):
            assert part in text, (chosen, part)
    assert client.get(address("tasktype_change", "nobody.knows")).status_code == 404
    make_job("pending", job_type="gone.type")
    assert "no handler of that name" in text_of(client, address("tasktype_change", "gone.type"))
    assert "No attempt of it has ended" in text_of(client, address("tasktype_change", "gone.type"))
    assert client.get(address("tasktype_change", "a_0Ab")).status_code == 404
    assert client.post(address("tasktype_change", OK)).status_code == 403


def test_a_task_is_paused_and_resumed_on_its_page_with_what_the_person_saw() -> None:
    page = address("tasktype_change", OK)
    client, late = person("ann", "pause_queue"), person("bob", "pause_queue")
    forms = [re.findall(r'name="(\w+)" value="([^"]*)"', text_of(each, page)) for each in (client, late)]
    given = [dict(form) | {"reason": "poison", "minutes": "30"} for form in forms]
    assert given[0]["kind"] == "type" and given[0]["expected"] == ""
    assert "<form" not in text_of(person("viewer"), page).split('id="content-main"')[1]

    answer = client.post(address("queue_pause"), given[0])
    assert answer["Location"].startswith(page) and "paused, until" in said(answer)
    assert "Nothing was done" in said(late.post(address("queue_pause"), given[1] | {"reason": "too"}))
    [held] = QueuePause.objects.all()
    assert (held.kind, held.name, held.reason, held.by) == ("type", OK, "poison", "ann")
    assert "paused" in text_of(client, address(TASKS)).split("Did not run:")[1]

    cache.clear()
    text = text_of(client, page)
    assert "Pause everywhere" not in text
    form = dict(re.findall(r'name="(\w+)" value="([^"]*)"', text))
    assert "resumed" in said(client.post(address("queue_resume"), form))
    assert not QueuePause.objects.exists()
    refused = person("eve").post(address("queue_pause"), given[0])
    assert refused.status_code == 403 and OperatorAction.objects.latest("pk").refused == 1


def happened(kind: str = "operator", **columns: Any) -> Activity:
    return Activity.objects.create(kind=kind, **columns)


def lines(client: Client, query: str = "") -> list[str]:
    """What the page of activity lists, without markup."""
    text = text_of(client, f"{address(ACTIVITY)}{query}")
    return [re.sub(r"<[^>]+>", "", each) for each in re.findall(r"<li><time.*?</li>", text, re.DOTALL)]


def watcher(name: str = "ann") -> Client:
    return person(name, "view_activity")


def test_activity_is_a_readable_log_with_links() -> None:
    pauses.pause("reports", actor="ana", reason="db migration", until=timedelta(hours=1))
    happened(
        "lease_reclaimed",
        job_type="charge",
        target_kind="worker",
        target_id="w-8",
        details={"label": "job", "ids": [7], "count": 1, "spent": 0},
    )
    happened(
        "error_new",
        job_type="charge",
        target_kind="job",
        target_id="7",
        fingerprint="ab12",
        details={"error": "ChargeDeclined", "ids": [7], "count": 1},
    )
    happened("from_a_later_version", target_kind="worker", target_id="w", details=["odd"])
    client = watcher()
    found = lines(client)

    assert len(found) == 4  # the end of the pause is to come
    assert "ana paused queue reports until" in found[3] and "db migration" in found[3]
    assert "worker w-8 died or went silent; 1 job of charge taken back" in found[2]
    assert "new error ChargeDeclined in charge" in found[1]
    text = text_of(client, address(ACTIVITY))
    for name, *args in (("job_change", 7), ("errorgroup_change", "ab12"), ("queue_change", "reports")):
        assert address(name, *args) in text


def test_every_kind_has_its_sentence_and_none_of_its_text_is_markup() -> None:
    text_columns = ("queue", "job_type", "workflow", "actor", "target_id")
    for kind in Activity.Kind.values:
        happened(
            kind,
            **dict.fromkeys(text_columns, HOSTILE),
            target_kind="job",
            fingerprint="<b>",
            details={
                "reason": HOSTILE,
                "version": HOSTILE,
                "name": HOSTILE,
                "told": HOSTILE,
                "error": HOSTILE,
            },
        )
        happened(kind)  # and where nothing is known
    text = text_of(watcher(), address(ACTIVITY))
    assert "<script>alert" not in text and text.count(ESCAPED) > len(Activity.Kind.values)


def test_activity_is_filtered_and_paged_without_losing_a_row() -> None:
    for n in range(120):
        happened("job_died" if n % 2 else "bulk", queue=f"q{n % 3}", actor=f"n{n:03}")
    client = watcher()
    seen: list[str] = []
    query = ""
    for _ in range(5):
        text = text_of(client, f"{address(ACTIVITY)}{query}")
        seen += re.findall(r"n(\d{3}): ", text)
        older = re.search(r'href="(\?[^"]*older=[^"]*)">Older', text)
        if not older:
            break
        assert 'data-interval="5"' in text if not query else 'data-interval="0"' in text
        query = older[1].replace("&amp;", "&")
    assert len(seen) == 60 and seen == sorted(seen, reverse=True)  # of bulk: the others do not name who

    assert len(lines(client, "?kind=bulk&queue=q1")) == 20
    assert len(lines(client, "?since=1h&kind=job_died")) == 50
    assert lines(client, "?before=1h") == [] and lines(client, "?queue=nothing") == []
    assert lines(client, "?older=nonsense_5&workflow=x") == []
    for wrong in ("?since=soon", "?kind=nothing", "?queue=%00"):
        assert "pgjobs-unavailable" in text_of(client, f"{address(ACTIVITY)}{wrong}")


def test_the_page_of_each_thing_leads_to_what_happened_to_it() -> None:
    worker, made = make_worker("host.1:a&b"), execution("waiting")
    verbs.cancel([made.pk], actor="ana", reason="INC-2")
    happened(
        "lease_reclaimed", job_type=OK, target_kind="worker", target_id=worker.name, details={"count": 1}
    )
    happened("worker_stopped", target_kind="worker", target_id="host.2")
    make_job(queue="mail/day")
    pauses.pause("mail/day", actor="ana", reason="INC-1")
    things = {
        address("worker_change", worker.pk): ["worker host.1:a&amp;b started", "worker host.1:a&amp;b died"],
        address("execution_change", made.pk): [f"ana: cancel execution {made.pk}: INC-2"],
        address("queue_change", quote("mail/day")): ["ana paused queue mail/day: INC-1"],
        address("tasktype_change", OK): ["worker host.1:a&amp;b died"],
    }
    client, viewer = watcher(), person("viewer")

    for page, told in things.items():
        assert address(ACTIVITY) not in text_of(viewer, page), page
        [link] = re.findall(rf'href="{address(ACTIVITY)}(\?[^"]+)"', text_of(client, page))
        found = lines(client, link.replace("&amp;", "&"))
        assert len(found) == len(told) and all(part in "".join(found) for part in told), (link, found)
    assert "no target: KIND:ID" in text_of(client, f"{address(ACTIVITY)}?target=host.2")


def test_activity_is_for_those_who_may_see_it_and_nothing_there_is_changed() -> None:
    happened()
    assert person("viewer").get(address(ACTIVITY)).status_code == 403
    assert Client().get(address(ACTIVITY)).status_code == 302
    client = person("root", is_superuser=True)
    assert client.get(address("activity_add")).status_code == 403
    assert client.post(address("activity_delete", Activity.objects.get().pk)).status_code == 403
    User.objects.get(username="viewer")
    assert f'href="{address(ACTIVITY)}"' not in text_of(
        client_without_activity(), address("overview_changelist")
    )


def client_without_activity() -> Client:
    return person("other")


_MANY = """
INSERT INTO pgjobs_activity (at, kind, queue, job_type, workflow, details)
SELECT now() - make_interval(secs => n), CASE WHEN n %% 1000 = 0 THEN 'paused' ELSE 'job_died' END,
       CASE WHEN n %% 3000 = 0 THEN 'rare' ELSE 'queue-' || n %% 5 END, 'type-' || n %% 20, '',
       '{"error": "ChargeDeclined", "ids": [1, 2, 3], "count": 3}'
FROM generate_series(1, 100000) AS n"""


def test_what_the_pages_cost_is_bounded() -> None:
    with connection.cursor() as cursor:
        cursor.execute(_MANY, [])
        cursor.execute("ANALYZE pgjobs_activity")
    ran(OK, 0.5, done=1)
    client = person("root", is_superuser=True)
    statements(client, address("worker_changelist"))  # plans and catalogue are warm
    for query in (
        "",
        "?kind=paused",
        "?queue=rare",
        "?kind=paused&queue=rare",
        "?kind=bulk&queue=rare",
        "?job_type=type-7&since=1h",
        "?job_type=nothing",
        "?before=20h",
        "?target=worker:w-8",
    ):
        sent = statements(client, f"{address(ACTIVITY)}{query}")
        assert len(sent) <= 4 + 3, sent
        assert sum(map(buffers, sent)) <= 150, (query, sent)
    assert "Looked back to" in text_of(client, f"{address(ACTIVITY)}?kind=bulk&queue=rare")
    for page, most in ((address(TASKS), 8), (address("tasktype_change", OK), 12)):
        sent = statements(client, page)
        assert len(sent) <= most, "\n".join(sql[:120] for sql in sent)


def test_the_command_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    pauses.pause("reports", actor="ana\x1b[2J", reason="db migration")
    happened("worker_stopped", target_kind="worker", target_id="w-1")
    call_command("pgjobs_events")
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 2 and told[1].endswith("worker w-1 stopped")
    assert "paused queue reports: db migration" in told[0] and "\x1b" not in told[0]
    call_command("pgjobs_events", "--target", "worker:w-1")
    assert capsys.readouterr().out.splitlines() == told[1:]
    with pytest.raises((CommandError, SystemExit)):
        call_command("pgjobs_events", "--target", "w-1")
    capsys.readouterr()
    call_command("pgjobs_events", "--kind", "paused", "--json", "--since", "1h")
    assert '"kind": "paused"' in capsys.readouterr().out
    happened("paused", actor="eva", target_kind="queue", target_id="mail", details={"until": "infinity"})
    call_command("pgjobs_events", "--kind", "paused")
    assert "eva paused queue mail until infinity" in capsys.readouterr().out
    with pytest.raises(CommandError, match="--workflow: Nothing is known of a type 'nohow'"):
        call_command("pgjobs_events", "--workflow", "nohow")


@pytest.mark.parametrize("filters", [(), ("--kind", "worker_stopped", "--queue", "mail")])
def test_a_flood_is_followed_line_by_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, filters: tuple[str, ...]
) -> None:
    """More at a time than one look shows; what was there before is not told again."""

    floods = [range(10), range(10, 18), range(18, 26)]

    def flood(seconds: float = 0) -> None:
        if not floods:
            raise KeyError("enough")
        for name in floods.pop(0):
            happened("worker_stopped", target_kind="worker", target_id=f"w-{name}", queue="mail")

    flood()
    monkeypatch.setattr(pgjobs_events, "MOST", 3)
    monkeypatch.setattr(happenings, "LOOKED", 3)
    monkeypatch.setattr(pgjobs_events.time, "sleep", flood)
    with pytest.raises(KeyError, match="enough"):
        call_command("pgjobs_events", "--follow", "--limit", "2", *filters)

    told = re.findall(r"worker w-(\d+) stopped", capsys.readouterr().out)
    assert told == [str(name) for name in range(8, 26)]
