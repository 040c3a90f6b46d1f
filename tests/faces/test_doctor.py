"""pgjobs_doctor: each finding is provoked in a real database, and where the cure is a statement, it cures."""

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as project
from django.db import connection
from django.db.models.functions import Now

from pgjobs.doctor.findings import CODES, CRITICAL, NOTE, WARNING, Finding
from pgjobs.doctor.tables import STORAGE
from pgjobs.models import Execution, Job
from tests.faces.doctors import apply, found, one, other_session, run
from tests.faces.rows import make_job, make_worker
from tests.house.documents import DOCS

pytestmark = pytest.mark.django_db
in_sessions = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)


# Tables


def test_a_table_that_is_not_there() -> None:
    run("ALTER TABLE pgjobs_message RENAME TO elsewhere")
    assert one("missing-table").severity is CRITICAL and "pgjobs_message" in one("missing-table").what


@in_sessions
def test_dead_rows_and_a_vacuum_that_does_not_come() -> None:
    run("VACUUM", "SELECT pg_stat_force_next_flush()")  # tests before have left rows that were rolled back
    assert found("dead-rows") == found("vacuum-lag") == []
    run("ALTER TABLE pgjobs_job SET (autovacuum_enabled = false)")
    try:
        run(
            "INSERT INTO pgjobs_job (job_type) SELECT 't' FROM generate_series(1, 5000)",
            "DELETE FROM pgjobs_job WHERE id %% 10 <> 0".replace("%%", "%"),
            "SELECT pg_stat_force_next_flush()",
        )
        dead = one("dead-rows", dead_rows=1_000)
        assert dead.severity is WARNING and "pgjobs_job has" in dead.what and "% dead" in dead.measure
        assert (
            found("dead-rows", dead_rows=1_000_000)
            == found("dead-rows", dead_rows=1_000, dead_share=0.99)
            == []
        )
        assert one("dead-rows", dead_rows=10).severity is CRITICAL
        assert "pgjobs_job" in one("vacuum-lag", vacuum_seconds=0).what
        off = one("autovacuum-off", "pgjobs_job")
        assert off.severity is CRITICAL
        run("VACUUM pgjobs_job", off.cure, "SELECT pg_stat_force_next_flush()")
        assert found("dead-rows", dead_rows=1_000) == found("vacuum-lag", vacuum_seconds=0) == []
        assert found("autovacuum-off", "pgjobs_job") == []
    finally:
        run("ALTER TABLE pgjobs_job RESET (autovacuum_enabled)")


def test_bloat_of_a_table_and_of_its_index() -> None:
    run(
        "TRUNCATE pgjobs_job CASCADE",
        "INSERT INTO pgjobs_job (job_type, note) SELECT 't', repeat('x', 300) FROM generate_series(1, 20000)",
        "ANALYZE pgjobs_job",
    )
    limits = {"bloat_bytes": 200_000}
    assert found("table-bloat", "pgjobs_job", **limits) == found("index-bloat", "pgjobs_job", **limits) == []
    run("DELETE FROM pgjobs_job WHERE note <> '' AND id % 20 <> 0", "ANALYZE pgjobs_job")

    bloated = one("table-bloat", "pgjobs_job", **limits)
    assert "MB" in bloated.measure and bloated.severity is WARNING
    assert "REINDEX INDEX CONCURRENTLY pgjobs_job_pkey;" in [
        finding.cure for finding in found("index-bloat", "pgjobs_job", **limits, index_entry_bytes=20)
    ]
    assert found("table-bloat") == found("index-bloat") == [], "small tables are nobody's concern"


@pytest.mark.parametrize("table", STORAGE)
def test_lost_storage_parameters(table: str) -> None:
    assert found("storage-parameters") == [], "what is expected is what the migrations set"
    run(f"ALTER TABLE {table} RESET ({', '.join(STORAGE[table])})")
    finding = one("storage-parameters")
    assert finding.severity is WARNING and table in finding.what

    apply(finding)
    assert found("storage-parameters") == []


def test_other_storage_parameters_are_somebodys_choice() -> None:
    run("ALTER TABLE pgjobs_job SET (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.1)")
    assert found("storage-parameters") == []


# Indexes


@pytest.mark.parametrize(
    ("index", "severity"),
    [
        ("pgjobs_job_claim", CRITICAL),
        ("pgjobs_job_dead_shown", WARNING),
        ("pgjobs_wait_due", CRITICAL),
        ("pgjobs_execution_key", CRITICAL),
    ],
)
def test_a_missing_index(index: str, severity: str) -> None:
    assert found("missing-index") == found("invalid-index") == found("extra-index") == []
    definition = _definition(index)
    run(f"DROP INDEX {index}")
    finding = one("missing-index")
    assert finding.severity == severity and index in finding.what
    assert "INDEX CONCURRENTLY" in finding.cure

    apply(finding)
    assert found("missing-index") == []
    assert _definition(index) == definition


def test_a_missing_constraint_and_primary_key() -> None:
    run(
        "ALTER TABLE pgjobs_stepoutput DROP CONSTRAINT pgjobs_stepoutput_once",
        "ALTER TABLE pgjobs_message DROP CONSTRAINT pgjobs_message_pkey",
    )
    missing = found("missing-index")
    assert {finding.severity for finding in missing} == {CRITICAL} and len(missing) == 2
    for finding in missing:
        apply(finding)
    assert found("missing-index") == []


def test_an_invalid_index() -> None:
    run("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'pgjobs_job_claim'::regclass")
    finding = one("invalid-index")
    assert finding.severity is CRITICAL and finding.cure == "REINDEX INDEX CONCURRENTLY pgjobs_job_claim;"
    assert found("missing-index") == []


def test_an_index_that_takes_hot_updates_away() -> None:
    run("CREATE INDEX by_heartbeat ON pgjobs_job (heartbeat_at)")
    finding = one("extra-index")
    assert "HOT" in finding.what and finding.cure == "DROP INDEX CONCURRENTLY by_heartbeat;"


@in_sessions
def test_an_index_that_nobody_reads() -> None:
    run("CREATE INDEX by_type ON pgjobs_job (job_type)")
    try:
        assert "has not been read" in one("extra-index").what
        run(
            "SET enable_seqscan = off",
            "SELECT 1 FROM pgjobs_job WHERE job_type = 'x'",
            "RESET enable_seqscan",
        )
        run("SELECT pg_stat_force_next_flush()")
        assert found("extra-index") == [], "one that is read has its use"
    finally:
        run("DROP INDEX by_type")


# Sessions


@in_sessions
@pytest.mark.parametrize(
    ("limits", "severity"),
    [
        ({"snapshot_seconds": 0}, WARNING),
        ({"snapshot_seconds": 0, "snapshot_critical_seconds": 0}, CRITICAL),
        ({"snapshot_seconds": 0.001, "snapshot_critical_seconds": 9e9}, WARNING),
    ],
)
def test_the_session_that_holds_the_oldest_snapshot(limits: dict[str, float], severity: str) -> None:
    with other_session(application_name="nightly report") as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 'a long report'")
        run("INSERT INTO pgjobs_job (job_type) VALUES ('t')")
        finding = one("old-snapshot", **limits)
        pid = holder.info.backend_pid
        assert finding.severity == severity
        assert f"Session {pid} " in finding.what and "'nightly report'" in finding.what
        assert "idle in transaction" in finding.what and "report'" in finding.statement
        assert f"pg_terminate_backend({pid})" in finding.cure and "transactions" in finding.measure
        assert found("old-snapshot") == [], "a second is not long"
    assert found("old-snapshot", **limits) == []


def poor_role() -> str:
    """A role that may read jobs and nothing else."""
    name = f"pgjobs_poor_{uuid.uuid4().hex[:8]}"
    run(f"CREATE ROLE {name}", f"GRANT SELECT ON pgjobs_job TO {name}")
    return name


def test_a_migration_that_is_not_applied() -> None:
    assert found("unapplied-migrations") == []
    run("DELETE FROM django_migrations WHERE app = 'pgjobs' AND name = '0002_admin_pages'")
    finding = one("unapplied-migrations")
    assert "0002_admin_pages" in finding.what and "migrate pgjobs --database default" in finding.cure


def test_what_a_poor_role_cannot_see_is_said_and_the_rest_is_examined() -> None:
    run(f"SET LOCAL ROLE {poor_role()}", "SET LOCAL lock_timeout = '1s'")
    assert one("hidden-sessions").severity is NOTE
    unseen = found("not-examined")
    assert any("'workers'" in finding.what and "permission denied" in finding.what for finding in unseen)
    assert found("server-setting"), "other parts went on"
    run("RESET ROLE")
    assert found("hidden-sessions") == found("not-examined") == []


# The work


def test_workers_that_vanished() -> None:
    make_worker("gone", host="web-3", pid=77, heartbeat_at=Now() - 5 * MINUTE)
    make_worker("stopped", heartbeat_at=Now() - 5 * MINUTE, stopped_at=Now())
    make_worker("live")
    finding = one("silent-workers")
    assert finding.what.startswith("1 worker is silent") and "gone (host web-3, pid 77)" in finding.what
    assert "0:05:0" in finding.measure


def test_a_claim_loop_that_stands() -> None:
    make_worker("stuck", last_poll_at=Now() - 5 * MINUTE)
    make_worker("turning", last_poll_at=Now())
    make_worker("starting", last_poll_at=None)
    finding = one("hanging-worker")
    assert finding.severity is CRITICAL and "stuck" in finding.what


def test_due_work_that_nobody_does() -> None:
    make_job(queue="mail", available_at=Now() - 2 * MINUTE)
    make_job(queue="soon", available_at=Now() + MINUTE)
    make_job(queue="fresh")
    Execution.objects.create(workflow_name="w", available_at=Now() - 2 * MINUTE)
    jobs, executions = found("no-workers")
    assert jobs.severity is CRITICAL and "queue 'mail'" in jobs.what and "0:02:0" in jobs.measure
    assert "executions are due" in executions.what

    make_worker(queues=["other"])
    assert "queue 'mail'" in one("no-workers").what, "a worker that serves other queues does not help"
    make_worker("all")
    assert found("no-workers") == []


def test_types_that_nobody_knows() -> None:
    make_job(job_type="gone.type", available_at=Now() - 2 * MINUTE)
    make_job(job_type="gone.later", available_at=Now() + 2 * MINUTE)
    make_job()
    later, due = found("unknown-types")
    assert "'gone.type'" in due.what and due.measure.startswith("the oldest for 0:02")
    assert "'gone.later'" in later.what and later.measure.startswith("the first is due in 0:0")


def test_workflows_that_nobody_knows() -> None:
    for name, delay in [("gone", -2), ("gone", -1), ("later", 2)]:
        Execution.objects.create(workflow_name=name, available_at=Now() + delay * MINUTE)
    Execution.objects.create(workflow_name="jobsapp.add_up")
    Execution.objects.create(workflow_name="ended", status="cancelled")
    gone, later = sorted(found("unknown-workflows"), key=lambda finding: finding.what)
    assert gone.what.startswith("1 execution of workflow 'later'") and "due in 0:0" in gone.measure
    assert later.what.startswith("2 executions of workflow 'gone'") and "oldest for 0:02" in later.measure


def test_leases_that_nobody_reaps() -> None:
    make_job("running")
    make_job("running", lease_expires_at=Now() - timedelta(seconds=3))
    assert found("lapsed-leases") == [], "the reaper has a moment"
    lapsed = make_job("running", lease_expires_at=Now() - MINUTE)
    Execution.objects.create(
        workflow_name="w", status="running", lease_owner="x", lease_token=uuid.uuid4(),
        lease_expires_at=Now() - MINUTE,
    )  # fmt: skip
    jobs, executions = found("lapsed-leases")
    assert jobs.severity is CRITICAL and jobs.what.startswith("1 job running") and str(lapsed.pk) in jobs.what
    assert executions.what.startswith("1 execution running") and "0:01:0" in executions.measure


def test_turns_that_come_to_no_durable_call() -> None:
    lease = {"lease_owner": "host.1", "lease_token": uuid.uuid4(), "lease_expires_at": Now() + MINUTE}
    begun = {"status": "running", "started_at": Now() - 6 * MINUTE, **lease}
    silent, stepping, parking = (Execution.objects.create(workflow_name="w", **begun) for _ in range(3))
    Execution.objects.create(workflow_name="w", **{**begun, "started_at": Now()})
    stepping.steps.create(step_id="a#1", kind="step", ordinal=0)
    parking.waits.create(step_id="a#1", kind="sleep", ordinal=0)
    silent.steps.create(step_id="a#1", kind="step", ordinal=0, recorded_at=Now() - 5.5 * MINUTE)

    finding = one("slow-turns")
    assert f"Execution {silent.pk} (w), which host.1 runs" in finding.what and "0:06:0" in finding.measure


# Retention


def test_no_rule_for_old_jobs() -> None:
    run("INSERT INTO pgjobs_job (job_type) SELECT 't' FROM generate_series(1, 500)", "ANALYZE pgjobs_job")
    assert one("retention", unpruned_rows=400).severity is NOTE
    assert found("retention") == []


def test_rules_that_do_not_fit(settings: Any) -> None:
    settings.PGJOBS = {"JOB_RETENTION_SECONDS": 900, "JOB_ARCHIVE_RETENTION_SECONDS": 60}
    assert "shorter" in one("retention").what
    settings.PGJOBS = {"JOB_RETENTION_SECONDS": 900, "JOB_ARCHIVE_RETENTION_SECONDS": 901}
    assert found("retention") == []


def test_retention_that_is_behind(settings: Any) -> None:
    settings.PGJOBS = {"JOB_RETENTION_SECONDS": 3_600, "JOB_RETENTION_FAILED_SECONDS": 9e9}
    insert = "INSERT INTO pgjobs_job (job_type, status, completed_at) SELECT 't', '{}', now() - interval '{}'" \
             " FROM generate_series(1, 200)"  # fmt: skip
    run(insert.format("succeeded", "2 hours"), insert.format("dead", "9 days"))
    assert found("retention") == []
    run(insert.format("succeeded", "5 hours"))
    finding = one("retention")
    assert "200 of the 1,000 oldest" in finding.what and finding.measure.startswith("the oldest ended 5:00")


# The project


def test_debug(settings: Any) -> None:
    assert found("debug") == [] and not project.DEBUG
    settings.DEBUG = True
    assert one("debug").severity is WARNING


@in_sessions
def test_workers_that_hear_nothing(settings: Any) -> None:
    make_worker("new")
    assert found("no-listener") == [], "it may be about to connect"
    make_worker("old", started_at=Now() - MINUTE)
    assert one("no-listener").severity is WARNING
    with other_session(autocommit=True) as listening:
        listening.execute("LISTEN pgjobs")
        assert found("no-listener") == []
    settings.PGJOBS = {"NOTIFY": False}
    assert found("no-listener") == []


def test_the_real_listener_is_recognised(spawn_workers: Any) -> None:
    from pgjobs.models import Worker
    from tests.support.waiting import wait_until

    spawn_workers()
    Worker.objects.update(started_at=Now() - MINUTE)
    wait_until(lambda: found("no-listener") == [], 10, "the listener to be seen")
    assert found("silent-workers") == found("no-workers") == []


def test_the_trigger_that_wakes_workers(settings: Any) -> None:
    assert found("no-trigger") == []
    run("ALTER TABLE pgjobs_job DISABLE TRIGGER pgjobs_job_notify")
    assert "ENABLE TRIGGER" in one("no-trigger", "disabled").cure
    apply(one("no-trigger"))
    assert found("no-trigger") == []
    run("DROP TRIGGER pgjobs_job_notify ON pgjobs_job")
    assert one("no-trigger", "missing").severity is WARNING
    settings.PGJOBS = {"NOTIFY": False}
    assert found("no-trigger") == []


# The page


def test_every_code_is_explained_in_the_documents() -> None:
    page = (DOCS / "doctor.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(" `"): line for line in page.splitlines() if line.startswith("| `")}
    assert set(rows) == set(CODES)
    for code, meaning in CODES.items():
        assert f"| {meaning} |" in rows[code]


def test_every_code_is_provoked_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_doctor*.py"))
    unprovoked = {code for code in CODES if f'one("{code}"' not in tests and f'found("{code}"' not in tests}
    assert unprovoked == {"standby-feedback"}, "which needs a second server"


def test_a_finding_has_a_known_code() -> None:
    with pytest.raises(AssertionError, match="missing in CODES"):
        Finding("new", WARNING, "a", "b", "c")
    assert Job._meta.db_table in STORAGE


def _definition(index: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = %s", [index])
        return str(cursor.fetchone()[0])
