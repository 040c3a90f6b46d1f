"""The commands of operators before ``migrate``: each says which database lacks the tables, and what cures it."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from pgjobs.management.operators import CANNOT_TELL
from tests.support.environment import ROOT
from tests.support.own_database import QUEUE, connection

pytestmark = pytest.mark.django_db

RULE = f"The tables of pgjobs are not in database {QUEUE!r}"
CURE = "run manage.py migrate" + ("." if QUEUE == "default" else f" --database {QUEUE}.")


@pytest.fixture
def empty_schema() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA nothing_here")
        cursor.execute("SET LOCAL search_path TO nothing_here")
    yield


@pytest.mark.parametrize(
    "words",
    [
        "pgjobs_audit",
        "pgjobs_bulk list",
        "pgjobs_check_replay",
        "pgjobs_errors list",
        "pgjobs_events",
        "pgjobs_health",
        "pgjobs_pause --queue default --reason INC-1",
        "pgjobs_prune --days 1",
        "pgjobs_retry --job 1",
        "pgjobs_status",
        "pgjobs_why 1",
        "runreaper --once",
    ],
)
def test_a_command(words: str, empty_schema: None) -> None:
    out = io.StringIO()
    with pytest.raises(CommandError) as caught, transaction.atomic(using=QUEUE):
        call_command(*words.split(), stdout=out, no_color=True)
    told = str(caught.value)
    assert caught.value.returncode == CANNOT_TELL
    assert told.startswith(RULE) and CURE in told and told.endswith(" does not exist)")
    assert told.count(RULE) == 1 and out.getvalue() == ""


def test_the_verdict_in_json_has_it_for_each_rule(empty_schema: None) -> None:
    out = io.StringIO()
    with pytest.raises(SystemExit) as caught:
        call_command("pgjobs_health", "--json", stdout=out)
    assert caught.value.code == CANNOT_TELL and out.getvalue().count(RULE) > 10


def test_the_doctor_says_migrate(empty_schema: None) -> None:
    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("pgjobs_doctor", stdout=out, no_color=True)
    assert f"cure: {RULE}" in out.getvalue() and CURE in out.getvalue()
    assert "pg_monitor and" not in out.getvalue()


SHORT = """
import django; django.setup()
from pgjobs.management.operators import DatabaseCommand

class Command(DatabaseCommand):
    requires_system_checks = []

    def handle(self, **options):
        self.stdout.write("a line")

Command().run_from_argv(["manage.py", "short"])
"""


def test_a_reader_who_leaves_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"}
    words = [sys.executable, "-c", SHORT]
    end = subprocess.run(words, cwd=ROOT, env=environment, stdout=writing, stderr=subprocess.PIPE, timeout=60)
    os.close(writing)
    assert (end.returncode, end.stderr) == (128 + signal.SIGPIPE, b"")
