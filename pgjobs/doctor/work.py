"""The work itself: who should be doing it, what lies about, and what nobody can do."""

from __future__ import annotations

from collections.abc import Iterator

from pgjobs.conf import get_settings
from pgjobs.doctor.findings import CRITICAL, NOTE, WARNING, Finding, Patient, span
from pgjobs.queue import stats
from pgjobs.queue.retention import Policy
from pgjobs.workflows.registry import workflows

_SILENT = """
SELECT name, host, pid, extract(epoch FROM clock_timestamp() - heartbeat_at)::float8, count(*) OVER ()
FROM pgjobs_worker
WHERE stopped_at IS NULL AND heartbeat_at <= clock_timestamp() - make_interval(secs => %(silence)s)
ORDER BY heartbeat_at DESC LIMIT 5"""

_HANGING = """
SELECT name, host, pid, extract(epoch FROM clock_timestamp() - last_poll_at)::float8 FROM pgjobs_worker
WHERE stopped_at IS NULL AND heartbeat_at > clock_timestamp() - make_interval(secs => %(silence)s)
  AND last_poll_at < clock_timestamp() - make_interval(secs => %(seconds)s)
ORDER BY last_poll_at LIMIT 5"""

_LAPSED = """
SELECT count(*), extract(epoch FROM max(clock_timestamp() - ended_at))::float8, min(id) FROM (
    SELECT id, GREATEST(lease_expires_at, 'epoch') AS ended_at FROM {table}
    WHERE status = 'running' AND lease_expires_at < clock_timestamp() - make_interval(secs => %(grace)s)
    LIMIT 1000) AS lapsed"""

# Each durable call leaves a step or a wait, so a turn without either for so long has made none.
_LINGERING = """
SELECT id, workflow_name, lease_owner, extract(epoch FROM clock_timestamp() - started_at)::float8
FROM pgjobs_execution AS execution
WHERE status = 'running' AND started_at < clock_timestamp() - make_interval(secs => %(seconds)s)
  AND NOT EXISTS (SELECT FROM pgjobs_stepoutput AS step WHERE step.execution_id = execution.id
                  AND step.recorded_at > clock_timestamp() - make_interval(secs => %(seconds)s))
  AND NOT EXISTS (SELECT FROM pgjobs_wait AS wait WHERE wait.execution_id = execution.id
                  AND wait.created_at > clock_timestamp() - make_interval(secs => %(seconds)s))
ORDER BY started_at LIMIT 5"""

_EXECUTIONS_DUE = """
SELECT extract(epoch FROM clock_timestamp() - available_at)::float8 FROM pgjobs_execution
WHERE status = 'enqueued' AND crash_count = 0
  AND available_at < clock_timestamp() - make_interval(secs => %(seconds)s)
ORDER BY queue, priority, available_at LIMIT 1"""

# The head of what can go on, in the order of the claim's index.
_UNKNOWN_WORKFLOWS = """
SELECT workflow_name, count(*), extract(epoch FROM max(clock_timestamp() - available_at))::float8
FROM (SELECT workflow_name, available_at FROM pgjobs_execution WHERE status = 'enqueued' AND crash_count = 0
      ORDER BY queue, priority, available_at, id LIMIT 1000) AS head
WHERE workflow_name <> ALL(%(known)s::text[])
GROUP BY workflow_name ORDER BY 2 DESC, 1 LIMIT 10"""

# The oldest rows of the table, as the walk of retention sees them.
_UNPRUNED = """
SELECT count(*), extract(epoch FROM max(clock_timestamp() - completed_at))::float8
FROM (SELECT status, completed_at FROM pgjobs_job ORDER BY id LIMIT 1000) AS job
WHERE completed_at < clock_timestamp() - interval '2 hours' - make_interval(secs => CASE
    WHEN status IN ('dead', 'failed') THEN %(failed_seconds)s::float8
    WHEN status IN ('cancelled', 'succeeded') THEN %(seconds)s::float8 END)"""

_ESTIMATE = "SELECT GREATEST(reltuples, 0)::bigint FROM pg_class WHERE oid = 'pgjobs_job'::regclass"


def probe_workers(patient: Patient) -> Iterator[Finding]:
    """Workers that vanished, and workers that only look alive."""
    silence = stats.silence_seconds()
    silent = patient.ask(_SILENT, silence=silence)
    if silent:
        names = ", ".join(f"{name} (host {host}, pid {pid})" for name, host, pid, _, _ in silent)
        yield Finding(
            "silent-workers",
            WARNING,
            f"{_many(silent[0][4], 'worker is', 'workers are')} silent without a goodbye, the latest: {names}.",
            f"the latest for {span(silent[0][3])}",
            "See the log of that host (killed for memory, power lost, cut off from the database?) and start workers "
            "again. What they held is given back by any other worker.",
        )
    seconds = max(60.0, 4 * get_settings().idle_poll_seconds)
    for name, host, pid, age in patient.ask(_HANGING, silence=silence, seconds=seconds):
        yield Finding(
            "hanging-worker",
            CRITICAL,
            f"The heart of worker {name} (host {host}, pid {pid}) beats, but its claim loop does not turn.",
            f"for {span(age)}",
            f"See pg_stat_activity for a statement of it that waits for a lock, and its log; then end pid {pid} on "
            f"{host} by SIGTERM.",
        )


def probe_unserved(patient: Patient) -> Iterator[Finding]:
    """Due work without anybody to do it."""
    limit = patient.thresholds.waiting_seconds
    for each in stats.backlog():
        waited = each.oldest_wait.total_seconds() if each.oldest_wait else 0
        if each.due and not each.live_workers and waited >= limit:
            yield Finding(
                "no-workers",
                CRITICAL,
                f"{_many(each.due, 'job is', 'jobs are')} due in queue {each.queue!r}, and no live worker serves it.",
                f"the oldest for {span(waited)}",
                f"Start one: manage.py runworkers, without --queues or with {each.queue} among them.",
            )
    waiting = patient.ask(_EXECUTIONS_DUE, seconds=limit)
    if waiting and not stats.live_workers().exists():
        yield Finding(
            "no-workers",
            CRITICAL,
            "Workflow executions are due, and there is no live worker.",
            f"for {span(waiting[0][0])}",
            "Start one: manage.py runworkers.",
        )


def probe_unknown(patient: Patient) -> Iterator[Finding]:
    """Types without a handler in this code."""
    for each in stats.unknown_waiting():
        waited = each.oldest_wait.total_seconds()
        yield Finding(
            "unknown-types",
            WARNING,
            f"{_many(each.jobs, 'job', 'jobs')} of type {each.job_type!r} in queue {each.queue!r}; this code has no "
            f"such handler.",
            f"the oldest for {span(waited)}" if waited >= 0 else f"the first is due in {span(-waited)}",
            "Deploy the code that has it; if it was renamed, keep the old name with @job(name=...); if nobody needs "
            "them, manage.py pgjobs_cancel --job ID.",
        )


def probe_unknown_workflows(patient: Patient) -> Iterator[Finding]:
    """Executions that no body of this code can carry: no worker claims them, so they wait."""
    for name, executions, waited in patient.ask(_UNKNOWN_WORKFLOWS, known=workflows.names()):
        yield Finding(
            "unknown-workflows",
            WARNING,
            f"{_many(executions, 'execution', 'executions')} of workflow {name!r}; this code has no such workflow.",
            f"the oldest for {span(waited)}" if waited >= 0 else f"the first is due in {span(-waited)}",
            "Deploy the code that has it; if it was renamed, keep the old name with @workflow(name=...); if nobody "
            "needs them, manage.py pgjobs_cancel --execution ID.",
        )


def probe_leases(patient: Patient) -> Iterator[Finding]:
    """A lease that has lapsed is taken back within REAP_SECONDS, where somebody reaps."""
    grace = 2 * get_settings().reap_seconds + 2
    for table, noun in (("pgjobs_job", "job"), ("pgjobs_execution", "execution")):
        ((count, overdue, first),) = patient.ask(_LAPSED.format(table=table), grace=grace)
        if count:
            yield Finding(
                "lapsed-leases",
                CRITICAL,
                f"{_many(count, noun, f'{noun}s', 999)} running under a lease that has lapsed, {first} among them: "
                f"nobody lives who renews it, and nobody reaps.",
                f"overdue by up to {span(overdue)}",
                "Start workers without --no-reaper, or manage.py runreaper.",
            )


def probe_turns(patient: Patient) -> Iterator[Finding]:
    """Workflows that hold a slot and come to no durable call."""
    seconds = get_settings().workflow_slow_turn_seconds
    for pk, name, owner, age in patient.ask(_LINGERING, seconds=seconds):
        yield Finding(
            "slow-turns",
            WARNING,
            f"Execution {pk} ({name}), which {owner} runs, has recorded nothing for {seconds:g} s or longer.",
            f"its turn began {span(age)} ago",
            "The log of that worker says where it stands. Give its steps timeout=, and put long work of the body into "
            "steps.",
        )


def probe_retention(patient: Patient) -> Iterator[Finding]:
    """Whether old jobs leave, and where they go."""
    policy = Policy.from_settings()
    if policy.shortest is None:
        ((estimate,),) = patient.ask(_ESTIMATE)
        if estimate > patient.thresholds.unpruned_rows:
            yield Finding(
                "retention",
                NOTE,
                "Ended jobs are kept for ever in the live table: backups, vacuum and migrations grow with them.",
                f"about {estimate:,} rows",
                "Set PGJOBS['JOB_RETENTION_SECONDS']; with JOB_RETENTION 'archive' they stay findable by id.",
            )
        return
    if policy.archive_seconds is not None and policy.archive_seconds < policy.shortest:
        yield Finding(
            "retention",
            WARNING,
            "JOB_ARCHIVE_RETENTION_SECONDS is shorter than JOB_RETENTION_SECONDS: months are over before their jobs "
            "come, so most jobs are deleted and not archived.",
            f"{policy.archive_seconds:g} s and {policy.shortest:g} s",
            "Raise JOB_ARCHIVE_RETENTION_SECONDS; it counts from the end of a job, too.",
        )
    params = policy.params()
    ((count, oldest),) = patient.ask(
        _UNPRUNED, seconds=params["seconds"], failed_seconds=params["failed_seconds"]
    )
    if count > 100:
        yield Finding(
            "retention",
            WARNING,
            f"Retention is behind: {count} of the 1,000 oldest rows should have left the table by now.",
            f"the oldest ended {span(oldest)} ago",
            "Are workers up, and without --no-reaper? Their log has an error of pgjobs.retention when the archive "
            "cannot be written. manage.py pgjobs_prune does it now.",
        )


def _many(number: int, one: str, several: str, limit: int = stats.COUNT_LIMIT) -> str:
    count = f"{limit:,}+" if number > limit else f"{number:,}"
    return f"{count} {one if number == 1 else several}"
