"""The chain of executions that ``ctx.continue_as_new`` makes, in the live tables and the archive."""

from __future__ import annotations

import json
from typing import Any

from pgjobs.connections import rows

_LAST = """
WITH RECURSIVE chain(id, depth) AS (
    SELECT %(id)s::bigint, 0
    UNION ALL
    SELECT COALESCE(next.id, (archived.story ->> 'continued_as')::bigint), depth + 1
    FROM chain LEFT JOIN pgjobs_execution AS next ON next.continued_from_id = chain.id
    LEFT JOIN pgjobs_archivedexecution AS archived ON archived.id = chain.id AND next.id IS NULL
    WHERE next.id IS NOT NULL OR archived.story ->> 'continued_as' IS NOT NULL
)
SELECT id FROM chain ORDER BY depth DESC LIMIT 1"""

# What went to the archive without its successor is linked from there alone. It has no key: its successor took it.
_FIRST_INPUT = """
WITH RECURSIVE archived AS MATERIALIZED (
    SELECT id, (story ->> 'continued_as')::bigint AS next FROM pgjobs_archivedexecution
    WHERE workflow_name = %(name)s AND key IS NULL AND story ->> 'continued_as' IS NOT NULL
),
chain(id, depth) AS (
    SELECT %(id)s::bigint, 0
    UNION ALL
    SELECT COALESCE(live.continued_from_id, archived.id), depth + 1
    FROM chain
    LEFT JOIN pgjobs_execution AS live ON live.id = chain.id AND live.continued_from_id IS NOT NULL
    LEFT JOIN archived ON archived.next = chain.id AND live.id IS NULL
    WHERE live.id IS NOT NULL OR archived.id IS NOT NULL
)
SELECT COALESCE((SELECT input FROM pgjobs_execution WHERE id = chain.id),
                (SELECT story -> 'execution' -> 'input' FROM pgjobs_archivedexecution WHERE id = chain.id))::text
FROM chain ORDER BY depth DESC LIMIT 1"""


def last_of_chain(execution_id: int, *, using: str) -> int:
    """The execution as which this one goes on; itself when it has not continued."""
    ((pk,),) = rows(using, _LAST, {"id": execution_id})
    return int(pk)


def first_input(execution_id: int, workflow_name: str, *, using: str) -> Any:
    """The input that the chain was started with, as plain JSON, as far back as it is kept."""
    ((text,),) = rows(using, _FIRST_INPUT, {"id": execution_id, "name": workflow_name})
    return json.loads(text)
