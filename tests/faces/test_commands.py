"""The commands of operators: what they print, do and record, and the code they end with."""

import io
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command, load_command_class
from django.db import OperationalError
from django.db.models.functions import Now

from pgjobs.conf import get_settings
from pgjobs.health.drained import left_behind
from pgjobs.management.operators import CANNOT_TELL, MISUSED, REFUSED, SKIPPED, WRONG, duration
from pgjobs.models import BulkOperation, Job, OperatorAction, QueuePause
from pgjobs.queue.audit import record
from pgjobs.queue.pauses import pause
from pgjobs.queue.states import JobStatus
from tests.health import seeds
from tests.leases.factories import columns, pending, running
from tests.queue.test_control import in_status

pytestmark = pytest.mark.django_db


def run(*words: object) -> str:
    out = io.StringIO()
    call_command(*map(str, words), stdout=out)
    return out.getvalue()


def refused(*words: object) -> tuple[int, str]:
    """Exit code and message."""
    with pytest.raises(CommandError) as caught:
        run(*words)
    return caught.value.returncode, str(caught.value)


@pytest.mark.parametrize(
    ("command", "status", "after"),
    [
        ("pgjobs_retry", JobStatus.DEAD, "pending"),
        ("pgjobs_cancel", JobStatus.PENDING, "cancelled"),
        ("pgjobs_release", JobStatus.RUNNING, "pending"),
        ("pgjobs_discard", JobStatus.DEAD, "dead"),
    ],
)
def test_a_verb_on_jobs(command: str, status: JobStatus, after: str) -> None:
    pk, ann = in_status(status), User.objects.create_user("ann")
    out = run(command, "--job", pk, "--user", "ann", "--reason", "INC-221")

    assert out.startswith(f"job {pk}: ") and columns(pk, "status") == after
    row = OperatorAction.objects.latest("id")
    assert (row.actor, row.via, row.reason, row.done) == ("ann", "command", "INC-221", 1)
    assert row.user_id == str(ann.pk)
    assert "@" in row.details["from"]


@pytest.mark.parametrize(
    "words",
    [
        "pgjobs_retry --job 1",
        "pgjobs_pause --queue default --reason db",
        "pgjobs_fork 1 --reason x",
        "pgjobs_bulk stop 1",
        "pgjobs_errors ack aaaa --reason x",
        "pgjobs_approve 1 --approve",
    ],
)
def test_nobody_acts_in_the_name_of_a_user_that_is_not_there(words: str) -> None:
    told = "There is no user 'nobody'. --user takes the username of one that there is"
    code, message = refused(*words.split(), "--user", "nobody")
    assert code == WRONG and message.startswith(told)
    assert not OperatorAction.objects.exists()


def test_a_rejection_by_command_says_why_as_one_by_form_does() -> None:
    told = refused("pgjobs_approve", 1, "--reject", "--user", "ann", "--reason", " ")
    assert told == (WRONG, "Nothing was decided. --reason: Say why you reject.")


def test_discard_and_back() -> None:
    pk = in_status(JobStatus.DEAD)
    run("pgjobs_discard", "--job", pk)
    assert columns(pk, "discarded_at") is not None
    assert run("pgjobs_discard", "--restore", "--job", pk) == f"job {pk}: restored (was dead)\n"
    assert columns(pk, "discarded_at") is None


def test_run_now() -> None:
    [pk] = pending(available_at=Now() + timedelta(hours=1))

    assert run("pgjobs_run_now", "--job", pk) == f"job {pk}: made due (was pending)\n"


def test_options_of_a_retry() -> None:
    pk = in_status(JobStatus.DEAD)
    pending(queue="slow")
    run(
        "pgjobs_retry",
        "--job",
        pk,
        "--more-attempts",
        3,
        "--queue",
        "slow",
        "--priority",
        5,
        "--run-after",
        "2h",
    )

    assert columns(pk, "max_attempts", "queue", "priority") == (4, "slow", 5)
    assert Job.objects.filter(pk=pk, available_at__gt=Now() + timedelta(minutes=110)).exists()
    code, message = refused("pgjobs_retry", "--execution", 1, "--queue", "slow")
    assert code == WRONG and "--queue: for jobs only" in message


def test_names_that_nothing_is_known_of(tmp_path: Path) -> None:
    pk = in_status(JobStatus.DEAD)
    pending(queue="billing")
    payload = tmp_path / "payload.json"
    payload.write_text("{}")
    for words in (
        ("pgjobs_retry", "--job", pk, "--queue", "biling"),
        ("pgjobs_edit", pk, "--payload", payload, "--queue", "biling"),
        ("pgjobs_bulk", "retry", "--queue", "biling"),
        ("pgjobs_bulk", "retry", "--type", "tests.wrok", "--yes", "--reason", "x"),
    ):
        code, told = refused(*words)
        assert code == WRONG and "Nothing is known of a" in told, words
        assert "--queue" not in words or "did you mean 'billing'?" in told, words
    assert columns(pk, "status") == "dead" and not BulkOperation.objects.exists()
    assert "retry of 0 jobs that match" in run("pgjobs_bulk", "retry", "--queue", "billing")

    out = run("pgjobs_pause", "--queue", "biling", "billing", "--reason", "db")
    doubted, sure = out.splitlines()
    assert "paused, until it is resumed (Nothing is known of a queue 'biling'" in doubted
    assert sure == "queue billing: paused, until it is resumed"
    assert "paused are 'biling', 'billing'" in refused_output("pgjobs_resume", "--queue", "bilinq")


def refused_output(*words: object) -> str:
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command(*map(str, words), stdout=out)
    return out.getvalue()


def test_for_programs() -> None:
    dead, done = in_status(JobStatus.DEAD), in_status(JobStatus.SUCCEEDED)
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("pgjobs_retry", "--job", str(dead), str(done), "--json", stdout=out)

    told = json.loads(out.getvalue())
    assert told["schema"] == 1
    assert [(each["id"], each["result"]) for each in told["outcomes"]] == [(dead, "done"), (done, "skipped")]


def test_exit_codes() -> None:
    dead, done = in_status(JobStatus.DEAD), in_status(JobStatus.SUCCEEDED)

    assert refused("pgjobs_retry", "--job", dead, done)[0] == SKIPPED
    assert refused("pgjobs_retry", "--job", done)[0] == REFUSED
    assert refused("pgjobs_retry")[0] == WRONG
    assert refused("pgjobs_retry", "--job", done, "--priority", 10**6)[0] == WRONG


def test_a_mistyped_command_line_ends_with_the_code_of_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for line, code in (
        ("pgjobs_retry --jib 7", WRONG),
        ("pgjobs_bulk retry --rate fast", WRONG),
        ("pgjobs_health --check NO_WORKRE", WRONG),
        ("pgjobs_status --watch soon", WRONG),
        ("pgjobs_why seven", WRONG),
        ("pgjobs_prune --days x", WRONG),
        ("pgjobs_doctor --jsno", MISUSED),
        ("pgjobs_check_replay --allow everything", MISUSED),
    ):
        name, *words = line.split()
        with pytest.raises(SystemExit) as caught:
            load_command_class("pgjobs", name).run_from_argv(["manage.py", name, *words])
        assert caught.value.code == code, line
        assert "error:" in capsys.readouterr().err


def test_no_probe_takes_a_project_that_is_wrong_or_a_database_that_is_away_for_a_verdict(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: Any, **given: Any) -> Any:
        raise OperationalError("connection refused")

    monkeypatch.setattr("pgjobs.management.commands.pgjobs_check_replay.check", away)
    monkeypatch.setattr("pgjobs.management.commands.pgjobs_doctor.examine", away)
    for name in ("pgjobs_check_replay", "pgjobs_doctor"):
        assert refused(name)[0] == CANNOT_TELL, name
    settings.PGJOBS = {"WROKERS": 1}
    for name, code in (("pgjobs_health", WRONG), ("pgjobs_doctor", MISUSED)):
        with pytest.raises(CommandError, match="WROKERS") as caught:
            call_command(name, skip_checks=False)
        assert caught.value.returncode == code, name


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1_800), ("1h30m", 5_400), ("1.5h", 5_400), ("2d", 172_800)]
)
def test_durations(text: str, seconds: int) -> None:
    assert duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "5x", "1h 30m", "-5m"])
def test_what_is_no_duration(text: str) -> None:
    code, message = refused("pgjobs_pause", "--queue", "q", "--reason", "x", f"--for={text}")

    assert code == WRONG and "is no duration" in message


def test_pause_and_resume() -> None:
    out = run("pgjobs_pause", "--queue", "billing", "--type", "tests.work", "--reason", "db", "--for", "30m")

    assert [line.partition(",")[0] for line in out.splitlines()] == [
        "queue billing: paused",
        "type tests.work: paused",
    ]
    assert set(QueuePause.objects.values_list("kind", "name", "reason", "by")) == {
        ("queue", "billing", "db", "the command line"),
        ("type", "tests.work", "db", "the command line"),
    }
    assert "queue billing: resumed; it was paused by" in run("pgjobs_resume", "--queue", "billing")
    assert refused("pgjobs_resume", "--queue", "billing")[0] == REFUSED
    assert refused("pgjobs_resume")[0] == WRONG
    assert refused("pgjobs_pause", "--queue", "billing")[0] == WRONG  # no reason


def test_nothing_from_a_row_steers_the_terminal() -> None:
    pause("billing", actor="ann\x1b[2J", reason="gone\x1b]0;x\x07\nqueue other: resumed")
    audit = run("pgjobs_audit")
    resumed = run("pgjobs_resume", "--queue", "billing")

    assert "\x1b" not in audit + resumed and "\x07" not in audit
    assert len(audit.splitlines()) == 1 and "ann\ufffd[2J" in resumed


def test_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = running(job_type="jobsapp.effect", payload={"key": "a"})
    run("pgjobs_cancel", "--job", job.lease.pk)
    file = tmp_path / "payload.json"
    file.write_text('{"key": "b"}')

    told = json.loads(run("pgjobs_edit", job.lease.pk, "--payload", file, "--json"))
    made = told["outcomes"][0]["made"]
    assert columns(made, "payload", "copied_from") == ({"key": "b"}, job.lease.pk)

    file.write_text('{"key":\n  b}')
    assert "line 2, column 3" in refused("pgjobs_edit", made, "--payload", file)[1]
    assert "cannot be read" in refused("pgjobs_edit", made, "--payload", tmp_path / "none")[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"kay": "b"}'))
    assert "'key'" in refused("pgjobs_edit", job.lease.pk, "--payload", "-")[1]


def test_the_audit_by_filters() -> None:
    record("retry", target_kind="job", target_ids=[7, 8], actor="ann", reason="INC-221", done=1, skipped=1)
    record("pause", target_kind="queue", target_ids=["billing"], actor="bob", done=1)

    assert run("pgjobs_audit").splitlines()[0].endswith("bob (api)  pause queue billing: 1 done")
    assert run("pgjobs_audit", "--actor", "ann").count("\n") == 1
    assert 'ann (api)  retry job 7, 8 "INC-221": 1 done, 1 skipped' in run(
        "pgjobs_audit", "--target", "job:8"
    )
    assert run("pgjobs_audit", "--target", "queue:billing", "--since", "1h").count("\n") == 1
    assert run("pgjobs_audit", "--verb", "retry", "--target", "job:9") == ""
    told = io.StringIO()
    call_command("pgjobs_audit", "--verb", "retyr", stderr=told)
    assert "Nothing is recorded with --verb retyr; did you mean --verb retry?" in told.getvalue()
    lines = run("pgjobs_audit", "--ndjson").splitlines()
    assert [json.loads(line)["verb"] for line in lines] == ["pause", "retry"]
    assert len(json.loads(run("pgjobs_audit", "--json", "--limit", 1))["actions"]) == 1
    assert refused("pgjobs_audit", "--target", "cat")[0] == WRONG
    assert refused("pgjobs_audit", "--limit", 0)[0] == WRONG


def bulk(*words: object) -> Any:
    return json.loads(run("pgjobs_bulk", *words, "--json"))


def test_bulk_is_a_preview_until_it_is_meant() -> None:
    dead = [in_status(JobStatus.DEAD) for _ in range(3)]

    told = bulk("retry", "--queue", "default")["preview"]
    assert (told["count"], told["more"], sorted(told["sample"])) == (3, False, dead)
    assert "retry of 3 jobs that match: status dead, queue default" in run(
        "pgjobs_bulk", "retry", "--queue", "default"
    )
    assert "Nothing was done" in run("pgjobs_bulk", "retry") and not BulkOperation.objects.exists()
    assert refused("pgjobs_bulk", "retry", "--yes")[0] == WRONG  # no reason


def test_a_small_bulk_is_over_at_once() -> None:
    dead = [in_status(JobStatus.DEAD) for _ in range(3)]

    done = bulk("retry", "--yes", "--reason", "INC-221", "--more-attempts", 2)["operation"]
    assert (done["state"], done["done"], done["via"]) == ("done", 3, "command")
    assert {columns(pk, "status") for pk in dead} == {"pending"}
    assert f"bulk {done['id']}: retry" in run("pgjobs_bulk", "list")


def test_without_a_worker_the_command_says_how_to_carry_on_and_carries_on() -> None:
    for _ in range(3):
        in_status(JobStatus.DEAD)
    out = run("pgjobs_bulk", "discard", "--yes", "--reason", "INC-221", "--rate", 20)
    pk = BulkOperation.objects.get().pk

    assert f"No worker lives to carry it on. Run: manage.py pgjobs_bulk run {pk}" in out
    assert "running: done 1, skipped 0, conflict 0 of 3" in out
    assert " done: done 3" in run("pgjobs_bulk", "run", pk)


def test_a_canary_from_the_shell() -> None:
    for _ in range(3):
        in_status(JobStatus.DEAD)
    pk = bulk("retry", "--yes", "--reason", "INC-221", "--canary", 1, "--spread", "1s")["operation"]["id"]
    assert bulk("show", pk)["operation"]["state"] == "waiting"

    assert run("pgjobs_bulk", "release", pk) == f"bulk {pk}: released (was waiting)\n"
    assert run("pgjobs_bulk", "pause", pk) == f"bulk {pk}: paused (was running)\n"
    assert refused("pgjobs_bulk", "pause", pk)[0] == REFUSED
    run("pgjobs_bulk", "resume", pk)
    run("pgjobs_bulk", "stop", pk, "--reason", "enough")
    assert bulk("run", pk)["operation"]["state"] == "stopped"
    assert refused("pgjobs_bulk", "show", 10**9)[0] == WRONG


def test_a_drain_tells_what_it_leaves() -> None:
    using = get_settings().database
    assert left_behind([], using=using) == "The drain is over: nothing is left."
    assert left_behind(["mail"], using=using) == "The drain is over: nothing of mail is left."
    seeds.pause("slow", ago=5)
    for given in (
        {"ago": -7_300},
        {"ago": -90_000},
        {"queue": "slow"},
        {"job_type": "gone.type", "queue": "slow"},
        {"crash_count": 1, "ago": -50},
        {},
    ):
        seeds.job(**given)
    seeds.job("running", ago=-9, queue="mail")
    seeds.job("dead", ago=9)
    for status in ("enqueued", "waiting", "waiting", "paused"):
        seeds.execution(status)
    assert left_behind([], using=using) == (
        "The drain is over. Left behind: 1 due, 2 not due yet (the next in 2 h 1 min), 1 in paused queues or of "
        "paused types, 2 of types that this code does not know, 1 whose worker died, 1 running elsewhere, "
        "2 waiting executions, 1 paused execution. See: manage.py pgjobs_status"
    )
    assert "Left behind of mail: 1 running elsewhere. See" in left_behind(["mail"], using=using)
