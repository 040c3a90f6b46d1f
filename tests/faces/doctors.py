"""Examinations for tests: the findings of one code, by whatever thresholds the test needs."""

import re
from typing import Any

import psycopg
from django.db import connection

from pgjobs.doctor.examination import examine
from pgjobs.doctor.findings import Finding, Thresholds


def run(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def other_session(**options: Any) -> "psycopg.Connection[Any]":
    """A session beside that of the test."""
    params = {
        k: v for k, v in connection.get_connection_params().items() if k not in ("cursor_factory", "context")
    }
    return psycopg.connect(**params, **options)


def found(code: str, about: str = "", **thresholds: Any) -> list[Finding]:
    """The findings of that code whose text has `about` in it."""
    report = examine(thresholds=Thresholds(**thresholds))
    return [finding for finding in report.findings if finding.code == code and about in finding.what]


def one(code: str, about: str = "", **thresholds: Any) -> Finding:
    [finding] = found(code, about, **thresholds)
    assert finding.what and finding.measure and finding.cure
    return finding


def apply(finding: Finding) -> None:
    """Does what the cure says, where it is one statement. Inside a transaction nothing can be CONCURRENTLY."""
    run(re.sub(r" CONCURRENTLY", "", finding.cure))
