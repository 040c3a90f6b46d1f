"""What PostgreSQL did for a statement: nodes and buffers of EXPLAIN (ANALYZE, BUFFERS)."""

from collections.abc import Iterator
from typing import Any

from django.db import transaction

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


def explain(sql: str, params: dict[str, Any]) -> Plan:
    """Runs the statement, undoes it, and tells how it was done."""
    with transaction.atomic(using=QUEUE), connection.cursor() as cursor:
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, params)
        [[[document]]] = cursor.fetchall()
        transaction.set_rollback(True)
    return Plan(document["Plan"])


class Recorder:
    """Wraps the connection: every statement is explained instead of run, so that verbs can be asked for their plan."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().upper().startswith(("SELECT", "WITH", "UPDATE", "INSERT")):
            with transaction.atomic(using=QUEUE):
                execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, params, many, context)
                [[[document]]] = context["cursor"].fetchall()
                self.plans.append(Plan(document["Plan"]))
                transaction.set_rollback(True)
        return execute(sql, params, many, context)


def plan_of(verb: Any, *args: Any, **kwargs: Any) -> Plan:
    """The plan of the one statement that `verb` sends."""
    recorder = Recorder()
    with connection.execute_wrapper(recorder):
        verb(*args, **kwargs)
    [plan] = recorder.plans
    return plan
