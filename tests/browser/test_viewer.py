"""Who may only look: no buttons, no closed doors to walk into, and a refusal of all that others can send."""

from typing import Any

from django.db.models import Model

from pgjobs.models import (
    Acknowledgement,
    BulkOperation,
    Execution,
    Job,
    OperatorAction,
    QueuePause,
    StepOutput,
    Wait,
)
from pgjobs.queue.rights import RIGHTS
from tests.browser.conftest import TabOf
from tests.browser.scene import SECRET, Scene

MODELS: tuple[type[Model], ...] = (
    Job,
    Execution,
    StepOutput,
    Wait,
    QueuePause,
    BulkOperation,
    Acknowledgement,
)

# Of each page: its status, what each of its buttons would send (with every box ticked, every field filled, and every
# choice taken in turn), and the links to pages that ask first.
READ = """(paths) => Promise.all(paths.map(async (path) => {
  const answer = await fetch(path);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const sent = [...page.querySelectorAll("main form[method=post]")].flatMap((form) => {
    for (const box of form.querySelectorAll("input[type=checkbox]")) box.checked = true;
    for (const each of form.querySelectorAll("input[type=text], input[type=number]"))
      if (!each.value) each.value = each.type === "number" ? "1" : "asked for";
    const choice = form.querySelector("select[name=kind], select[name=action]");
    const values = choice ? [...choice.options].map((each) => each.value).filter(Boolean) : [""];
    const buttons = [...form.querySelectorAll("button[type=submit]:enabled, input[type=submit]:enabled")];
    return values.flatMap((value) => {
      if (choice) choice.value = value;
      return buttons.map((each) => [
        new URL(each.getAttribute("formaction") ?? form.getAttribute("action") ?? "", answer.url).href,
        [...new FormData(form, each)],
      ]);
    });
  });
  const doors = [...page.querySelectorAll("main a.button, main [data-pgjobs-region=verbs] a")];
  return [answer.status, sent, doors.map((each) => new URL(each.getAttribute("href"), answer.url).href)];
}))"""
REPLAY = """async (captured) => {
  const token = document.querySelector("[name=csrfmiddlewaretoken]").value;
  const answers = [];
  for (const [address, fields] of captured) {
    const body = new URLSearchParams(fields);
    body.set("csrfmiddlewaretoken", token);
    const answer = await fetch(address, { method: "POST", body, redirect: "manual" });
    answers.push([answer.status, await answer.text()]);
  }
  return answers;
}"""


def test_a_viewer_sees_no_buttons_and_every_post_is_refused(scene: Scene, tab_of: TabOf) -> None:
    """Scenario 10: what the pages do not offer is refused when it is sent all the same, and is recorded."""
    boss, tab = tab_of("boss"), tab_of("viewer")
    tab.expect_complaint("status of 403")
    for each in (boss, tab):
        each.open(scene.pages[0])
    offered = boss.evaluate(READ, [*scene.pages, *scene.forms])
    assert {status for status, *_ in offered} == {200}
    captured = [post for _, posts, _ in offered for post in posts]
    before = standing()

    for path, (status, posts, doors) in zip(scene.pages, tab.evaluate(READ, scene.pages), strict=True):
        assert (status, posts) == (200, []), path
        assert {status for status, *_ in tab.evaluate(READ, doors)} <= {200}, (path, doors)
    assert {status for status, *_ in tab.evaluate(READ, scene.forms)} == {403}
    answers = tab.evaluate(REPLAY, captured)

    for (address, fields), (status, text) in zip(captured, answers, strict=True):
        assert status == 403, (status, address, fields)
        assert SECRET not in text, address
    assert standing() == before
    told = OperatorAction.objects.filter(actor="viewer", via="admin", done=0, refused__gte=1)
    assert len(told) == len(captured)
    verbs = {(each.target, each.verb) for each in RIGHTS} - {
        ("job", "edit_copy")
    }  # refused as the retry it is
    assert {(each.target_kind, each.verb) for each in told} == verbs


def standing() -> dict[str, list[dict[str, Any]]]:
    """All that a verb could have changed."""
    return {model.__name__: list(model._default_manager.order_by("pk").values()) for model in MODELS}
