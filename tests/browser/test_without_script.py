"""With scripts turned off: every page is whole, and every verb is done by its own button."""

from typing import Any

from django.db.models.functions import Now

from pgjobs.models import OperatorAction
from pgjobs.queue.rights import RIGHTS
from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import listed, page_of
from tests.browser.scene import KNOWN, SECRET, TASK, Scene
from tests.faces.rows import make_job

Step = tuple[str, ...]


def test_every_page_is_whole(scene: Scene, tab_of: TabOf) -> None:
    """Scenario 14: nothing is offered that would need a script, and there is a way to every other page."""
    tab = tab_of("viewer", java_script_enabled=False)
    for path in [*scene.lists, *scene.kinds]:
        tab.open(path)
        expect(tab.get_by_role("heading", level=1)).to_be_visible()
        assert tab.locator(".pgjobs-copy:visible, [data-pgjobs-pause]:visible").count() == 0, path
    strip = tab.get_by_role("navigation", name="pgjobs").get_by_role("link")
    assert {each.get_attribute("href") for each in strip.all()} == {*scene.lists} - {listed("archivedjob")}


def test_every_verb_works(scene: Scene, tab_of: TabOf) -> None:
    """Scenario 14: pages that ask, forms, ticked rows; the record names each verb of the table of rights."""
    tab = tab_of("ann", java_script_enabled=False)
    for path, steps, told in [
        *of_jobs(scene),
        *of_queues(),
        *of_errors(),
        *of_workflows(scene),
        *of_bulks(scene),
    ]:
        if not tab.url.endswith(path):  # a verb leads back to its page
            tab.open(path)
        for step in steps:
            take(tab, *step)
        tab.sees(told)

    done = OperatorAction.objects.filter(actor="ann", via="admin", done__gte=1)
    assert {(each.target_kind, each.verb) for each in done} >= {(each.target, each.verb) for each in RIGHTS}


def take(tab: Any, kind: str, name: str, value: str = "") -> None:
    """One thing that a person does on the page."""
    if kind in ("button", "link"):
        tab.locator("main").get_by_role(kind, name=name, exact=True).first.click()
    elif kind == "tick":
        tab.locator(f'main input[type=checkbox][value="{name}"]').check()
    elif kind == "choose":
        tab.locator(f'main select[name="{name}"]').select_option(value)
    elif kind == "open":
        tab.get_by_text(name).click()
    else:
        tab.locator("main").get_by_label(name).first.fill(value)


def of_jobs(scene: Scene) -> list[tuple[str, list[Step], str]]:
    dead, later, lapsed = (page_of(scene.jobs[name]) for name in ("dead", "later", "lapsed"))
    ticked, held = make_job("dead"), make_job("running", lease_expires_at=Now())
    edited = make_job("dead", job_type="jobsapp.echo", payload={"amount": "1.00", "api_key": SECRET})
    edit = [("link", "Retry with options…"), ("open", "Edit the payload"), ("button", "Show what changes")]
    return [
        (dead, [("button", "Reveal redacted")], SECRET),
        (
            dead,
            [("link", "Discard…"), ("fill", "Reason", "no use"), ("button", "Discard")],
            "1 job discarded",
        ),
        (dead, [("button", "Restore")], "1 job restored"),
        (dead, [("button", "Retry")], "1 job retried"),
        (page_of(edited), [*edit, ("button", "Retry edited")], "copied as job"),
        (later, [("button", "Run now")], "1 job made due"),
        (later, [("link", "Cancel…"), ("button", "Cancel")], "1 job cancelled"),
        (lapsed, [("link", "Release…"), ("button", "Release")], "1 job released"),
        (
            listed("runningjob"),
            [("tick", str(held.pk)), ("button", "Cancel those ticked")],
            "1 job cancelled",
        ),
        (
            f"{listed('job')}?status=dead",
            [("tick", str(ticked.pk)), ("choose", "action", "retry_selected"), ("button", "Go")],
            "1 job retried",
        ),
    ]


def of_queues() -> list[tuple[str, list[Step], str]]:
    form = [("fill", "Name", "mail"), ("fill", "Reason", "migration"), ("fill", "minutes", "5")]
    one = [("fill", "Reason", "migration"), ("button", "Pause")]
    return [
        (listed("overview"), [("button", "Resume")], "resumed"),
        (listed("queue"), [("button", "Resume")], "resumed"),
        (listed("queue"), [("choose", "kind", "type"), *form, ("button", "Pause")], "mail"),
        (page_of("default", "queue"), one, "paused"),
        (page_of("default", "queue"), [("button", "Resume")], "resumed"),
    ]


def of_errors() -> list[tuple[str, list[Step], str]]:
    known, page = ("fill", "What is known of it", "keys rotate"), page_of(KNOWN, "errorgroup")
    ticked = [("tick", KNOWN), known, ("fill", "Mute for hours", "2"), ("button", "Mute")]
    pause = [("fill", "Reason", "poison"), ("button", "Pause")]
    return [
        (page, [("button", "Open again")], "it was acknowledged"),
        (page, [known, ("button", "Acknowledge")], "by ann"),
        (f"{listed('errorgroup')}?state=all", ticked, "muted until"),
        (page_of(TASK, "tasktype"), pause, "paused"),
    ]


def of_workflows(scene: Scene) -> list[tuple[str, list[Step], str]]:
    waiting, failed, paused = (page_of(scene.flows[name]) for name in ("waiting", "failed", "paused"))
    why, asked = ("fill", "Reason", "asked for"), page_of(scene.asked[0])
    return [
        (asked, [("button", "Reject")], "Say why you reject"),
        (asked, [why, ("button", "Approve")], "approved by ann"),
        (waiting, [("link", "Send signal…"), ("fill", "Name", "paid"), ("button", "Send")], "sent"),
        (waiting, [("link", "Fork from here…"), why, ("button", "Fork")], "forked"),
        (paused, [("button", "Resume")], "1 execution resumed"),
        (paused, [("button", "Pause")], "1 execution paused"),
        (paused, [("link", "Cancel…"), why, ("button", "Cancel")], "1 execution cancelled"),
        (failed, [("button", "Retry")], "1 execution retried"),
    ]


def of_bulks(scene: Scene) -> list[tuple[str, list[Step], str]]:
    pages = {name: page_of(each) for name, each in scene.bulks.items()}
    make_job("failed", queue="bulk")
    plan = [("link", "Act on all that match…"), ("fill", "Reason", "INC-221"), ("button", "Retry 1 job")]
    return [
        (f"{listed('deadjob')}?status=failed", plan, "done 1"),
        (pages["running"], [("button", "Pause")], "paused"),
        (pages["running"], [("button", "Resume")], "resumed"),
        (pages["waiting"], [("button", "Release")], "released"),
        (pages["paused"], [("button", "Stop")], "stopped"),
        (pages["previewed"], [("button", "Start")], "started"),
    ]
