import django.contrib.postgres.indexes
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
                'indexes': [django.contrib.postgres.indexes.GinIndex(fields=['target_ids'], name='pgjobs_action_target', opclasses=['jsonb_path_ops'])],
            },
        ),
        migrations.RunSQL(APPEND_ONLY, NOT_APPEND_ONLY),
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
    ]
