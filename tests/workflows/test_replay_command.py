"""``pgjobs_check_replay``: what it prints, and its exit code, on which a deploy hangs."""

import io
import json
from collections.abc import Iterator

import pytest
from django.core.management import CommandError, call_command

from tests.workflows.carrier import Carrier
from tests.workflows.deployed import original, renamed, sleeper
from tests.workflows.rows import NAME, execution

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def mixed(carrier: Carrier) -> Iterator[dict[str, int]]:
    """One that fits, one that diverged, one without code; by what is wrong with it."""
    diverged = sleeper(carrier)
    gone = execution(workflow_name="left.behind")
    carrier.flow(renamed)
    fine = carrier.flow(original, name="tests.fine").start(order=1)
    yield {"diverged": diverged.pk, "unknown": gone.pk, "fine": fine.pk}


def run(*arguments: str) -> tuple[str, str]:
    """What the command prints, and the error it ends with."""
    output = io.StringIO()
    try:
        call_command("pgjobs_check_replay", *arguments, stdout=output)
    except CommandError as error:
        verdict = "cannot go on" in str(error)
        assert error.returncode == (1 if verdict else 2)
        return output.getvalue(), str(error)
    return output.getvalue(), ""


def test_the_command_prints_each_finding_and_fails(mixed: dict[str, int]) -> None:
    printed, error = run()

    assert (
        f"execution {mixed['diverged']} ({NAME}, waiting): diverged at 'debit#1': the code calls" in printed
    )
    assert f"execution {mixed['unknown']} (left.behind, waiting): unknown: No workflow" in printed
    assert "Replayed 3 unfinished executions: 1 diverged, 1 unknown." in printed
    assert error.startswith("2 of 3 executions cannot go on under this code")


def test_the_command_passes_when_nothing_is_found(carrier: Carrier) -> None:
    sleeper(carrier)

    assert run() == ("Replayed 1 unfinished execution: nothing found.\n", "")


def test_findings_that_are_allowed_are_told_but_do_not_fail(mixed: dict[str, int]) -> None:
    printed, error = run("--allow", "unknown", "--allow", "diverged")

    assert (error, "1 diverged, 1 unknown" in printed) == ("", True)


def test_the_report_as_json(mixed: dict[str, int]) -> None:
    printed, error = run("--json")
    told = json.loads(printed)

    assert error
    assert told["checked"] == 3
    assert told["counts"] == {"diverged": 1, "unknown": 1, "raised": 0, "unfinished": 0, "tolerated": 0}
    assert [(f["execution"], f["problem"], f["step"]) for f in told["findings"]] == [
        (mixed["diverged"], "diverged", "debit#1"),
        (mixed["unknown"], "unknown", ""),
    ]


def test_only_what_was_named_is_checked_and_no_more_than_the_limit(mixed: dict[str, int]) -> None:
    assert "Replayed 1 unfinished execution: nothing found." in run("--workflow", "tests.fine")[0]
    assert "Replayed 2 unfinished" in run("--workflow", "tests.fine", "--workflow", NAME)[0]
    assert "Replayed 1 unfinished execution: 1 diverged." in run("--limit", "1")[0]
    assert "called 'tests.fien'" in run("--workflow", "tests.fine", "--workflow", "tests.fien")[1]
    assert "1 unknown" in run("--workflow", "left.behind")[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workflow", "tests.misspelt"), "called 'tests.misspelt'"),
        (("--limit", "0"), "--limit is 0"),
        (("--seconds", "0"), "--seconds is 0"),
        (("--seconds", "nan"), "--seconds is nan"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in run(*arguments)[1]
