"""When a cause first ended a job, and how a worker ended: one that has died does not read like one that has stopped.

Two columns without a value of their own: no table is rewritten, and workers of the version before go on.
"""

from django.db import migrations, models

from pgjobs.migrations._patiently import alone

_NOTE_WORKER = """
CREATE OR REPLACE FUNCTION pgjobs_note_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pgjobs_activity (kind, target_kind, target_id, details)
    VALUES (CASE WHEN TG_OP = 'INSERT' THEN 'worker_started' ELSE 'worker_stopped' END, 'worker', NEW.name,
            jsonb_build_object('version', NEW.code_version, 'queues', NEW.queues, 'new_version',
                TG_OP = 'INSERT' AND NEW.code_version <> '' AND NOT EXISTS (
                    SELECT FROM pgjobs_worker AS other
                    WHERE other.code_version = NEW.code_version AND other.id <> NEW.id)){told});
    RETURN NULL;
END $$;
"""
_TOLD = """
            || CASE WHEN NEW.end_reason <> '' THEN jsonb_build_object('end', NEW.end_reason) ELSE '{}' END"""


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0017_page_names")]

    operations = [
        migrations.RunSQL(
            alone(
                "pgjobs_worker, pgjobs_cause",
                mode="ACCESS EXCLUSIVE",
                failed="for two minutes some transaction had used workers or causes",
            ),
            migrations.RunSQL.noop,
        ),
        migrations.AddField(
            model_name="cause",
            name="ended_at",
            field=models.DateTimeField(blank=True, help_text="when it first ended a job", null=True),
        ),
        migrations.AddField(
            model_name="worker",
            name="end_reason",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="empty: it stopped in order", max_length=200
            ),
        ),
        migrations.RunSQL(_NOTE_WORKER.replace("{told}", _TOLD), _NOTE_WORKER.replace("{told}", "")),
    ]
