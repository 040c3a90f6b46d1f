"""What PostgreSQL did for a statement: nodes and buffers of EXPLAIN (ANALYZE, BUFFERS)."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from django.db import transaction

from pgjobs import sessions
from tests.support.own_database import QUEUE, connection


class Plan:
    """One node with all that is below it."""

    def __init__(self, node: dict[str, Any]) -> None:
        self.node = node

    @property
    def buffers(self) -> int:
        """Pages of tables and indexes touched, children included, in memory or not."""
        return int(self.node["Shared Hit Blocks"] + self.node["Shared Read Blocks"])

    def nodes(self) -> Iterator["Plan"]:
        yield self
        for child in self.node.get("Plans", []):
            yield from Plan(child).nodes()

    def part(self, name: str) -> "Plan":
        """The subplan of that name, such as a CTE."""
        [found] = [n for n in self.nodes() if n.node.get("Subplan Name") == f"CTE {name}"]
        return found

    def seq_scans(self) -> list[str]:
        return [n.node["Relation Name"] for n in self.nodes() if n.node["Node Type"] == "Seq Scan"]

    def scans_of(self, alias: str) -> int:
        """How often the scans that bear this alias were begun."""
        scans = [n.node for n in self.nodes() if n.node["Node Type"].endswith("Scan")]
        return sum(node["Actual Loops"] for node in scans if node.get("Alias") == alias)

    def indexes(self) -> set[str]:
        return {n.node["Index Name"] for n in self.nodes() if "Index Name" in n.node}

    def sorted_rows(self) -> int:
        """Most rows that any sort took in."""
        rows = [
            max(child["Actual Rows"] for child in n.node["Plans"])
            for n in self.nodes()
            if n.node["Node Type"] == "Sort"
        ]
        return int(max(rows, default=0))

    def __str__(self) -> str:
        lines = []

        def tell(node: dict[str, Any], depth: int) -> None:
            name = node.get("Index Name") or node.get("Relation Name") or node.get("Subplan Name") or ""
            lines.append(
                f"{'  ' * depth}{node['Node Type']} {name} rows={node['Actual Rows']} loops={node['Actual Loops']} "
                f"buffers={Plan(node).buffers}"
            )
            for child in node.get("Plans", []):
                tell(child, depth + 1)

        tell(self.node, 0)
        return "\n".join(lines)


_EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
_PLACEHOLDER = re.compile(r"%%|%(?:\((\w+)\))?s")
_by_name = [False]


@contextmanager
def statements_kept() -> Iterator[None]:
    """Within, statements are explained as a session that keeps them does them: planned once, without their values."""
    connection.ensure_connection()
    if sessions.keeps(QUEUE):
        pytest.skip("all that is sent is prepared as it is; a statement cannot be prepared within one")
    _by_name[0] = True
    try:
        yield
    finally:
        _by_name[0] = False


both_ways = pytest.mark.parametrize(
    "planned", [pytest.param(nullcontext, id="in full"), pytest.param(statements_kept, id="kept")]
)
"""For tests that explain ``with planned():``."""


def explain(sql: str, params: Any) -> Plan:
    """Runs the statement, undoes it, and tells how it was done."""
    with connection.cursor() as cursor:
        return _explained(cursor.execute, cursor.fetchall, sql, params)


class Recorder:
    """Wraps the connection: every statement is explained and then run, so that verbs can be asked for their plan."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        def asked(sql: str, params: Any = None) -> None:
            execute(sql, params, many, context)

        if sql.lstrip().upper().startswith(("SELECT", "WITH", "UPDATE", "INSERT")):
            self.plans.append(_explained(asked, lambda: context["cursor"].fetchall(), sql, params))
        return execute(sql, params, many, context)


def _explained(execute: Callable[..., Any], answer: Callable[[], Any], sql: str, params: Any) -> Plan:
    with transaction.atomic(using=QUEUE):
        if _by_name[0]:
            sql = _keep(execute, sql, params)
        execute(_EXPLAIN + sql, params)
        [[[document]]] = answer()
        if _by_name[0]:
            execute("DEALLOCATE explained")
        transaction.set_rollback(True)
    return Plan(document["Plan"])


def _keep(execute: Callable[..., Any], sql: str, params: Any) -> str:
    for name, value in sessions.PLANNING.items():
        execute(f"SET LOCAL {name} = {value}")
    prepare, run = by_name(sql, "explained")
    execute(prepare)
    return run


def by_name(sql: str, name: str) -> tuple[str, str]:
    """What prepares a statement under a name, and what executes it with the statement's own parameters."""
    numbers: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        return f"${numbers.setdefault(found[0] if found[1] else str(len(numbers)), len(numbers) + 1)}"

    text = _PLACEHOLDER.sub(numbered, sql)
    given = ", ".join(each if each.startswith("%") else "%s" for each in numbers)
    return f"PREPARE {name} AS {text}", f"EXECUTE {name}({given})" if numbers else f"EXECUTE {name}"


def plan_of(verb: Any, *args: Any, **kwargs: Any) -> Plan:
    """The plan of the one statement that `verb` sends."""
    recorder = Recorder()
    with connection.execute_wrapper(recorder):
        verb(*args, **kwargs)
    [plan] = recorder.plans
    return plan
