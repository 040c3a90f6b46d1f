import django.db.models.functions.datetime
from django.db import migrations, models

# What was recorded stays: rows go only by the function of retention. TRUNCATE is left to whoever owns the table.
APPEND_ONLY = """
CREATE FUNCTION pgjobs_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('pgjobs.audit_retention', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% of %: what was recorded is not changed or deleted', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege',
              HINT = 'Old rows go by AUDIT_DAYS in PGJOBS, or by pgjobs_prune_audit(interval, batch).';
END $$;

CREATE TRIGGER pgjobs_operatoraction_append_only BEFORE UPDATE OR DELETE ON pgjobs_operatoraction
    FOR EACH ROW EXECUTE FUNCTION pgjobs_audit_refuse();

-- The oldest rows by id, looked at no further than the batch: what is young is not read.
CREATE FUNCTION pgjobs_prune_audit(keep interval, batch integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    gone integer;
BEGIN
    PERFORM set_config('pgjobs.audit_retention', 'on', true);
    DELETE FROM pgjobs_operatoraction WHERE id = ANY(ARRAY(
        SELECT oldest.id FROM (SELECT id, at FROM pgjobs_operatoraction ORDER BY id LIMIT batch) AS oldest
        WHERE oldest.at < statement_timestamp() - keep));
    GET DIAGNOSTICS gone = ROW_COUNT;
    PERFORM set_config('pgjobs.audit_retention', 'off', true);
    RETURN gone;
END $$;
"""
NOT_APPEND_ONLY = """
DROP FUNCTION pgjobs_prune_audit(interval, integer);
DROP TRIGGER pgjobs_operatoraction_append_only ON pgjobs_operatoraction;
DROP FUNCTION pgjobs_audit_refuse();
"""


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0008_notify_trigger")]

    operations = [
        migrations.CreateModel(
            name='OperatorAction',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('actor', models.CharField(help_text='name, kept when the user is gone', max_length=200)),
                ('user_id', models.CharField(blank=True, max_length=200, null=True)),
                ('via', models.CharField(choices=[('admin', 'admin'), ('command', 'command line'), ('api', 'Python')], max_length=16)),
                ('verb', models.CharField(max_length=40)),
                ('target_kind', models.CharField(choices=[('job', 'job'), ('queue', 'queue'), ('type', 'job type'), ('execution', 'workflow execution'), ('approval', 'approval'), ('bulk', 'bulk operation'), ('worker', 'worker')], max_length=16)),
                ('target_ids', models.JSONField(default=list, help_text='the first 100: ids, or names of queues and types')),
                ('target_count', models.IntegerField(default=0)),
                ('reason', models.TextField(blank=True, default='')),
                ('done', models.IntegerField(default=0)),
                ('skipped', models.IntegerField(default=0, help_text='to which the verb did not apply')),
                ('refused', models.IntegerField(default=0, help_text='by a conflict, or for want of a permission')),
                ('details', models.JSONField(blank=True, default=dict, help_text='options, before and after; no secrets')),
            ],
            options={
                'verbose_name': 'operator action',
                'verbose_name_plural': 'operator actions',
                'default_permissions': ('view',),
            },
        ),
        migrations.RunSQL(APPEND_ONLY, NOT_APPEND_ONLY),
        # By hand: an index of django.contrib.postgres asks for that app to be installed.
        migrations.RunSQL(
            'CREATE INDEX pgjobs_action_target ON pgjobs_operatoraction USING gin (target_ids jsonb_path_ops)',
            'DROP INDEX pgjobs_action_target',
        ),
        migrations.AlterModelOptions(
            name='job',
            options={'permissions': [('retry_job', 'Can retry jobs'), ('cancel_job', 'Can cancel jobs'), ('reschedule_job', 'Can make waiting jobs due'), ('release_job', 'Can take running jobs from their holder'), ('discard_job', 'Can discard and restore jobs'), ('edit_payload', 'Can retry jobs with another payload'), ('view_payload', 'Can see what is redacted in payloads and results'), ('bulk_job', 'Can act on all jobs that match a filter')], 'verbose_name': 'job', 'verbose_name_plural': 'jobs'},
        ),
        migrations.AddField(
            model_name='archivedjob',
            name='copied_from',
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='archivedjob',
            name='discarded_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='archivedjob',
            name='superseded_by',
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='copied_from',
            field=models.BigIntegerField(blank=True, help_text='id of the job it is an edited copy of', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='discarded_at',
            field=models.DateTimeField(blank=True, help_text='put out of sight by a person', null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='superseded_by',
            field=models.BigIntegerField(blank=True, help_text='id of its edited copy', null=True),
        ),
        migrations.CreateModel(
            name='QueuePause',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('queue', 'queue'), ('type', 'job type or workflow')], max_length=16)),
                ('name', models.CharField(max_length=200)),
                ('reason', models.TextField(blank=True, db_default='', default='')),
                ('by', models.CharField(blank=True, db_default='', default='', max_length=200)),
                ('since', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('until', models.DateTimeField(blank=True, help_text='goes on by itself then; null: until resumed', null=True)),
            ],
            options={
                'verbose_name': 'pause',
                'verbose_name_plural': 'pauses',
                'permissions': [('pause_queue', 'Can pause and resume queues and types')],
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('kind', 'name'), name='pgjobs_queuepause_once')],
            },
        ),
        migrations.AlterModelOptions(
            name='execution',
            options={'permissions': [('resume_execution', 'Can pause, resume and retry workflow executions'), ('cancel_execution', 'Can cancel workflow executions'), ('fork_execution', 'Can fork workflow executions'), ('signal_execution', 'Can send signals to workflow executions')], 'verbose_name': 'workflow execution', 'verbose_name_plural': 'workflow executions'},
        ),
        migrations.CreateModel(
            name='BulkOperation',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('verb', models.CharField(max_length=16)),
                ('filter', models.JSONField(help_text='by column: status, queue, job_type, …')),
                ('options', models.JSONField(blank=True, default=dict, help_text='of the verb')),
                ('upper_id', models.BigIntegerField(help_text='jobs above it came later and are not meant')),
                ('before', models.DateTimeField(help_text='jobs that ended later are not meant')),
                ('reason', models.TextField()),
                ('actor', models.CharField(max_length=200)),
                ('user_id', models.CharField(blank=True, max_length=200, null=True)),
                ('via', models.CharField(max_length=16)),
                ('pace', models.FloatField(blank=True, help_text='jobs a second; null: as fast as it goes', null=True)),
                ('canary', models.IntegerField(blank=True, help_text='so many first, then wait for a person', null=True)),
                ('canary_released_at', models.DateTimeField(blank=True, null=True)),
                ('stop_share', models.FloatField(blank=True, help_text='stop when more of the first die again', null=True)),
                ('stop_first', models.IntegerField(blank=True, help_text='how many the first are', null=True)),
                ('state', models.CharField(choices=[('previewed', 'previewed'), ('running', 'running'), ('waiting', 'waiting for release'), ('paused', 'paused'), ('stopped', 'stopped'), ('done', 'done')], default='previewed', max_length=16)),
                ('note', models.TextField(blank=True, default='', help_text='how it came to stand here')),
                ('total', models.IntegerField(default=0, help_text='matches when it was planned, counted to 10,001')),
                ('done', models.IntegerField(default=0)),
                ('skipped', models.IntegerField(default=0, help_text='left the state meanwhile, or held by another transaction')),
                ('conflict', models.IntegerField(default=0)),
                ('failed', models.IntegerField(default=0, help_text='of those watched, ended without success again')),
                ('watched', models.JSONField(blank=True, default=list, help_text='ids of the first that were done')),
                ('conflicts', models.JSONField(blank=True, default=list, help_text='the first 200: id and why')),
                ('cursor_at', models.DateTimeField(blank=True, null=True)),
                ('cursor_id', models.BigIntegerField(default=0)),
                ('paced_from', models.DateTimeField(blank=True, null=True)),
                ('allowance', models.FloatField(default=0, help_text='jobs that the pace allowed then')),
                ('carried_by', models.CharField(blank=True, default='', help_text='who did the latest batch', max_length=200)),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('progress_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'verbose_name': 'bulk operation',
                'verbose_name_plural': 'bulk operations',
                'default_permissions': ('view',),
                'indexes': [models.Index(condition=models.Q(('state', 'running')), fields=['id'], name='pgjobs_bulk_running')],
                'constraints': [models.CheckConstraint(condition=models.Q(('state__in', ['previewed', 'running', 'waiting', 'paused', 'stopped', 'done'])), name='pgjobs_bulk_state')],
            },
        ),
    ]
