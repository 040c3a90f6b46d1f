"""What happened, as rows; hours of figures, so that days are read from few; the page of tasks.

New tables and a proxy, and triggers on workers, operator actions, executions and waits: these four are locked against
writes for the moment that it takes to add the triggers, all at once; while somebody else's transaction has written to
one of them, none is kept locked. Workers of the version before go on, and what they do is noted too.
"""

import django.db.models.functions.datetime
import pgjobs.queue.models
from django.db import migrations, models

from pgjobs.migrations._patiently import alone

_KNOWN = """
-- What has failed before is not new on the day of this migration. The rows between two causes are skipped.
INSERT INTO pgjobs_cause (fingerprint)
WITH RECURSIVE known(fingerprint) AS (
    (SELECT fingerprint FROM pgjobs_job WHERE status IN ('dead', 'failed') AND discarded_at IS NULL
     AND fingerprint > '' ORDER BY fingerprint LIMIT 1)
    UNION ALL
    SELECT further.fingerprint FROM known CROSS JOIN LATERAL (
        SELECT job.fingerprint FROM pgjobs_job AS job WHERE job.status IN ('dead', 'failed')
        AND job.discarded_at IS NULL AND job.fingerprint > known.fingerprint
        ORDER BY job.fingerprint LIMIT 1) AS further)
SELECT fingerprint FROM known LIMIT 10000;
"""
_ALONE = alone(
    "pgjobs_worker, pgjobs_operatoraction, pgjobs_execution, pgjobs_wait",
    mode="SHARE ROW EXCLUSIVE",
    failed="for two minutes some transaction had written to workers, operator actions, executions or waits",
)
_NOTED = r"""
-- Whoever moves the rows, in whatever language and version, notes it in the same commit.
CREATE FUNCTION pgjobs_note_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pgjobs_activity (kind, target_kind, target_id, details)
    VALUES (CASE WHEN TG_OP = 'INSERT' THEN 'worker_started' ELSE 'worker_stopped' END, 'worker', NEW.name,
            jsonb_build_object('version', NEW.code_version, 'queues', NEW.queues, 'new_version',
                TG_OP = 'INSERT' AND NEW.code_version <> '' AND NOT EXISTS (
                    SELECT FROM pgjobs_worker AS other
                    WHERE other.code_version = NEW.code_version AND other.id <> NEW.id)));
    RETURN NULL;
END $$;

CREATE FUNCTION pgjobs_note_action() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named text := left(COALESCE(NEW.target_ids ->> 0, ''), 200);
    number bigint := CASE WHEN named ~ '^[0-9]{1,18}$' THEN named::bigint END;
    held boolean := NEW.target_kind IN ('queue', 'type') AND NEW.verb IN ('pause', 'resume');
    ends timestamptz := CASE WHEN held AND NEW.verb = 'pause' THEN (NEW.details ->> 'until')::timestamptz END;
    made pgjobs_activity;
BEGIN
    made.queue := CASE NEW.target_kind
        WHEN 'queue' THEN left(named, 100)
        WHEN 'job' THEN (SELECT queue FROM pgjobs_job WHERE id = number) END;
    made.job_type := CASE NEW.target_kind
        WHEN 'type' THEN named
        WHEN 'job' THEN (SELECT job_type FROM pgjobs_job WHERE id = number) END;
    made.workflow := CASE NEW.target_kind
        WHEN 'type' THEN named
        WHEN 'execution' THEN (SELECT workflow_name FROM pgjobs_execution WHERE id = number)
        WHEN 'approval' THEN (SELECT e.workflow_name FROM pgjobs_wait AS w JOIN pgjobs_execution AS e
                              ON e.id = w.execution_id WHERE w.id = number) END;
    IF held THEN  -- an end that was written ahead is not to come any more
        DELETE FROM pgjobs_activity WHERE kind = 'resumed' AND at > statement_timestamp()
            AND target_kind = NEW.target_kind AND target_id = named;
    END IF;
    INSERT INTO pgjobs_activity (kind, queue, job_type, workflow, actor, fingerprint, target_kind, target_id, details)
    VALUES (CASE WHEN held THEN NEW.verb || 'd'
                 WHEN NEW.target_kind IN ('bulk', 'approval') THEN NEW.target_kind ELSE 'operator' END,
            COALESCE(made.queue, ''), COALESCE(made.job_type, ''), COALESCE(made.workflow, ''),
            NEW.actor, CASE NEW.target_kind WHEN 'error' THEN left(named, 40) ELSE '' END,
            CASE NEW.target_kind WHEN 'approval' THEN 'execution' ELSE NEW.target_kind END,
            CASE NEW.target_kind WHEN 'approval' THEN COALESCE(NEW.details ->> 'execution', '') ELSE named END,
            jsonb_strip_nulls(jsonb_build_object('verb', NEW.verb, 'count', NEW.target_count, 'done', NEW.done,
                'reason', left(NEW.reason, 300), 'until', ends, 'approved', NEW.details -> 'approved',
                'told', left(NEW.details ->> 'told', 300), 'state', NEW.details -> 'state')));
    IF ends > statement_timestamp() THEN
        INSERT INTO pgjobs_activity (at, kind, queue, job_type, workflow, target_kind, target_id)
        VALUES (ends, 'resumed', COALESCE(made.queue, ''), COALESCE(made.job_type, ''), COALESCE(made.workflow, ''),
                NEW.target_kind, named);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION pgjobs_note_execution() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pgjobs_activity (kind, queue, workflow, target_kind, target_id)
    VALUES ('execution_' || NEW.status, NEW.queue, NEW.workflow_name, 'execution', NEW.id);
    RETURN NULL;
END $$;

CREATE FUNCTION pgjobs_note_wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pgjobs_activity (kind, workflow, target_kind, target_id, details)
    VALUES ('approval', COALESCE((SELECT workflow_name FROM pgjobs_execution WHERE id = NEW.execution_id), ''),
            'execution', NEW.execution_id,
            jsonb_build_object('timeout', true, 'name', NEW.name, 'approved', NEW.approved));
    RETURN NULL;
END $$;

CREATE TRIGGER pgjobs_worker_started AFTER INSERT ON pgjobs_worker
    FOR EACH ROW EXECUTE FUNCTION pgjobs_note_worker();
CREATE TRIGGER pgjobs_worker_stopped AFTER UPDATE OF stopped_at ON pgjobs_worker
    FOR EACH ROW WHEN (OLD.stopped_at IS NULL AND NEW.stopped_at IS NOT NULL)
    EXECUTE FUNCTION pgjobs_note_worker();
CREATE TRIGGER pgjobs_operatoraction_noted AFTER INSERT ON pgjobs_operatoraction
    FOR EACH ROW WHEN (NEW.done > 0 AND NEW.verb <> 'reveal') EXECUTE FUNCTION pgjobs_note_action();
CREATE TRIGGER pgjobs_execution_noted AFTER UPDATE OF status ON pgjobs_execution
    FOR EACH ROW WHEN (OLD.status = 'running' AND NEW.status IN ('paused', 'failed'))
    EXECUTE FUNCTION pgjobs_note_execution();
CREATE TRIGGER pgjobs_wait_noted AFTER UPDATE OF resolved_at ON pgjobs_wait
    FOR EACH ROW WHEN (NEW.kind = 'approval' AND OLD.resolved_at IS NULL
                       AND NEW.resolution @> '{"timeout": true}')
    EXECUTE FUNCTION pgjobs_note_wait();
"""
_NOT_NOTED = """
DROP TRIGGER pgjobs_wait_noted ON pgjobs_wait;
DROP TRIGGER pgjobs_execution_noted ON pgjobs_execution;
DROP TRIGGER pgjobs_operatoraction_noted ON pgjobs_operatoraction;
DROP TRIGGER pgjobs_worker_stopped ON pgjobs_worker;
DROP TRIGGER pgjobs_worker_started ON pgjobs_worker;
DROP FUNCTION pgjobs_note_wait();
DROP FUNCTION pgjobs_note_execution();
DROP FUNCTION pgjobs_note_action();
DROP FUNCTION pgjobs_note_worker();
"""


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0013_indexes_and_system")]

    operations = [
        migrations.CreateModel(
            name='Cause',
            fields=[
                ('fingerprint', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('first_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('seen_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), help_text='to within a day')),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='Hour',
            fields=[
                ('queue', models.CharField(max_length=100)),
                ('job_type', models.CharField(max_length=200)),
                ('done', models.BigIntegerField(db_default=0, default=0, help_text='succeeded')),
                ('failed', models.BigIntegerField(db_default=0, default=0, help_text='ended: it can never work')),
                ('dead', models.BigIntegerField(db_default=0, default=0, help_text='ended: the attempts are spent')),
                ('retried', models.BigIntegerField(db_default=0, default=0, help_text='attempts with another to come')),
                ('wait_seconds', models.FloatField(db_default=0.0, default=0.0, help_text='sum, from due to claimed')),
                ('run_seconds', models.FloatField(db_default=0.0, default=0.0, help_text='sum')),
                ('wait_counts', pgjobs.queue.models.SmallCounts(help_text='attempts by bucket of pgjobs.queue.rollups.BOUNDS')),
                ('run_counts', pgjobs.queue.models.SmallCounts(help_text='the same of how long they ran')),
                ('pk', models.CompositePrimaryKey('hour', 'queue', 'job_type', blank=True, editable=False, primary_key=True, serialize=False)),
                ('hour', models.DateTimeField()),
            ],
            options={
                'default_permissions': (),
            },
        ),
        migrations.CreateModel(
            name='TaskType',
            fields=[
            ],
            options={
                'verbose_name': 'task',
                'verbose_name_plural': 'tasks',
                'proxy': True,
                'default_permissions': (),
                'indexes': [],
                'constraints': [],
            },
            bases=('pgjobs.job',),
        ),
        migrations.CreateModel(
            name='Activity',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('kind', models.CharField(choices=[('worker_started', 'worker started'), ('worker_stopped', 'worker stopped'), ('lease_reclaimed', 'lease reclaimed'), ('error_new', 'new error'), ('job_died', 'job died'), ('paused', 'paused'), ('resumed', 'resumed'), ('bulk', 'bulk operation'), ('execution_paused', 'workflow paused'), ('execution_failed', 'workflow failed'), ('approval', 'approval'), ('operator', 'other verb of a person')], max_length=32)),
                ('queue', models.CharField(blank=True, db_default='', default='', max_length=100)),
                ('job_type', models.CharField(blank=True, db_default='', default='', max_length=200)),
                ('workflow', models.CharField(blank=True, db_default='', default='', max_length=200)),
                ('actor', models.CharField(blank=True, db_default='', default='', max_length=200)),
                ('target_kind', models.CharField(blank=True, db_default='', default='', max_length=16)),
                ('target_id', models.CharField(blank=True, db_default='', default='', help_text='id, or name of a queue or worker', max_length=200)),
                ('fingerprint', models.CharField(blank=True, db_default='', default='', max_length=40)),
                ('details', models.JSONField(blank=True, db_default=models.Value({}, models.JSONField()), default=dict)),
            ],
            options={
                'verbose_name': 'activity',
                'verbose_name_plural': 'activity',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['at', 'id'], name='pgjobs_activity_at'), models.Index(fields=['kind', 'at', 'id'], name='pgjobs_activity_kind'), models.Index(condition=models.Q(('queue__gt', '')), fields=['queue', 'at', 'id'], name='pgjobs_activity_queue'), models.Index(condition=models.Q(('job_type__gt', '')), fields=['job_type', 'at', 'id'], name='pgjobs_activity_job_type'), models.Index(condition=models.Q(('workflow__gt', '')), fields=['workflow', 'at', 'id'], name='pgjobs_activity_workflow')],
            },
        ),
        migrations.RunSQL(_KNOWN, migrations.RunSQL.noop),
        migrations.RunSQL(_ALONE, migrations.RunSQL.noop),
        migrations.RunSQL(_NOTED, _NOT_NOTED),
    ]
