"""A workflow in the browser: its timeline, and a fork from the step that failed."""

import re
from pathlib import Path

import pytest

from pgjobs.models import Execution
from tests.browser.chromium import expect
from tests.browser.conftest import TabOf
from tests.browser.places import page_of
from tests.jobsapp import workflows
from tests.jobsapp.models import Effect
from tests.support.own_database import connection
from tests.support.waiting import wait_until
from tests.support.workers import Spawner
from tests.workflows.rows import execution, step


@pytest.mark.workers
def test_a_fork_from_the_failed_step_keeps_what_went_well(
    tab_of: TabOf, spawn_workers: Spawner, tmp_path: Path
) -> None:
    """Scenario 12."""
    broken = tmp_path / "broken"
    broken.touch()
    failed = workflows.five_steps.start(broken=str(broken))
    spawn_workers()
    wait_until(lambda: Execution.objects.get(pk=failed.pk).status == "failed")
    tab = tab_of("ann")
    tab.open(page_of(failed))
    timeline = tab.locator('[data-pgjobs-region="timeline"]')
    expect(timeline.get_by_role("row")).to_have_count(3)  # a head and two steps that went well
    tab.sees("step 3 cannot work while broken is there")
    broken.unlink()

    timeline.get_by_role("link", name="Fork from the call that failed…").click()
    expect(tab.locator("#content")).to_contain_text("1 work[2]")
    tab.get_by_label("Reason").fill("the file is gone")
    tab.get_by_role("button", name="Fork").click()

    fork = wait_until(lambda: Execution.objects.exclude(pk=failed.pk).first())
    wait_until(lambda: Execution.objects.get(pk=fork.pk).status == "succeeded")
    done = Effect.objects.values_list("key", flat=True)
    assert sorted(key for key in done if key.startswith(f"{fork.pk}:")) == [
        f"{fork.pk}:work-{n}" for n in (3, 4, 5)
    ]
    assert Effect.objects.filter(key=f"{failed.pk}:work-1").count() == 1
    tab.open(page_of(fork))
    expect(tab.locator('[data-pgjobs-region="relatives"]')).to_contain_text(str(failed.pk))
    expect(tab.locator('[data-pgjobs-region="timeline"]').get_by_role("img")).not_to_have_count(0)


_STEPS = """
INSERT INTO pgjobs_stepoutput (execution_id, step_id, kind, ordinal, output)
SELECT %s, 'step' || n || '#1', 'step', n, jsonb_build_object('n', n) FROM generate_series(0, 19999) AS n"""


def test_a_history_of_20_000_steps_opens_for_as_many_statements_as_a_short_one(
    tab_of: TabOf, statements: list[str]
) -> None:
    """Scenario 12."""
    first, short, long = (execution("paused") for _ in range(3))
    step(short, 0)
    with connection.cursor() as cursor:
        cursor.execute(_STEPS, [long.pk])
    tab = tab_of("ann")
    tab.context.add_init_script('localStorage.setItem("pgjobs.paused", "1")')  # ticks would be counted too
    spent = []
    for each in (first, short, long):  # the first makes what is read once
        statements.clear()
        tab.open(page_of(each))
        spent.append(len(statements))

    assert spent[2] == spent[1]
    timeline = tab.locator('[data-pgjobs-region="timeline"]')
    expect(timeline.get_by_role("rowheader", name="step0#1")).to_be_visible()
    calls = timeline.get_by_role("row").count()
    timeline.get_by_role("link", name="Later calls").first.click()
    tab.wait_for_url(re.compile(r"from=\d+"))
    expect(timeline.get_by_role("rowheader", name=f"step{calls - 1}#1")).to_be_visible()
    expect(timeline.get_by_role("rowheader", name="step0#1")).to_have_count(0)
    tab.open(f"{page_of(long)}?from=19990")
    expect(timeline.get_by_role("rowheader", name="step19999#1")).to_be_visible()
