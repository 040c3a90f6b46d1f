"""For one and the same database: examination, probe, status, endpoint and metric tell one story."""

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from pgjobs import endpoints
from pgjobs.health.examination import examine
from pgjobs.metrics import collect
from tests.health.exposition import parsed
from tests.health.situations import SITUATIONS, Situation

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.health.urls")]

EXIT = {"ok": 0, "problem": 2, "unknown": 3}


def called(command: str) -> tuple[int, dict[str, Any]]:
    out, code = io.StringIO(), 0
    try:
        call_command(command, "--json", stdout=out)
    except SystemExit as end:
        code = int(end.code or 0)
    return code, json.loads(out.getvalue())


def codes(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(problem["code"], problem["queue"]) for problem in told["problems"]]


@pytest.mark.parametrize("situation", SITUATIONS, ids=str)
def test_all_faces_tell_the_same(situation: Situation, settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "HEALTH_ALLOW": ["127.0.0.1"]}
    endpoints.verdicts.forget()
    situation.seed()
    verdict = examine()
    expected = list(situation.codes)
    assert [(p.code, p.queue) for p in verdict.problems] == expected
    for command in ("pgjobs_health", "pgjobs_status"):
        code, told = called(command)
        assert (code, told["status"], codes(told)) == (EXIT[verdict.state], verdict.state, expected)
    answer = Client().get("/pgjobs/health")
    assert (answer.status_code, codes(answer.json())) == (200 if verdict.state == "ok" else 503, expected)
    problems = parsed(collect())["pgjobs_problem"]
    assert sorted((labels["code"], labels["queue"]) for labels in problems.labels()) == sorted(set(expected))
