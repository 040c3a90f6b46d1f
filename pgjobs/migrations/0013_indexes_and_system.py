from django.contrib.postgres.operations import RemoveIndexConcurrently
from django.db import migrations, models

from pgjobs.migrations._concurrently import BuildIndex

ENDED = ("failed", "dead", "cancelled")


class Migration(migrations.Migration):
    """Indexes of what has ended, built while workers go on: nobody waits, and it may be run again when it was cut off.

    The lists of ended jobs get indexes of what nobody has discarded, in the order of the lists, with what they are
    filtered by; discarded ones get their own. Pages of the version before read more than they should until they are
    restarted; claims, renewals and settlements use none of these indexes.

    Last, two columns of workers that may be null: those of the
    version before leave them so. The page of the system is a view of Django's alone, with a permission of its own.
    """

    atomic = False

    dependencies = [("pgjobs", "0012_pages")]

    operations = [
        BuildIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("discarded_at__isnull", True), ("status__in", ["dead", "failed"])),
                fields=["fingerprint", "-id"],
                name="pgjobs_job_fingerprint",
            ),
        ),
        BuildIndex(
            model_name="execution",
            index=models.Index(
                condition=models.Q(("status__in", ["cancelled", "failed", "succeeded"])),
                fields=["status", "completed_at"],
                name="pgjobs_execution_ends",
            ),
        ),
        *(
            BuildIndex(
                model_name="job",
                index=models.Index(
                    condition=models.Q(("discarded_at__isnull", True), ("status", status)),
                    fields=["-completed_at", "-id", "job_type", "queue"],
                    name=f"pgjobs_job_{status}_shown",
                ),
            )
            for status in ENDED
        ),
        BuildIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("discarded_at__isnull", False)),
                fields=["status", "-completed_at", "-id", "job_type", "queue"],
                name="pgjobs_job_discarded",
            ),
        ),
        RemoveIndexConcurrently(model_name="execution", name="pgjobs_execution_ended"),
        *(RemoveIndexConcurrently(model_name="job", name=f"pgjobs_job_{status}") for status in ENDED),
        migrations.CreateModel(
            name="System",
            fields=[],
            options={
                "verbose_name": "system",
                "verbose_name_plural": "system",
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("pgjobs.job",),
        ),
        migrations.RunSQL(
            "ALTER TABLE pgjobs_worker ADD COLUMN IF NOT EXISTS chores jsonb, ADD COLUMN IF NOT EXISTS runtime jsonb",
            "ALTER TABLE pgjobs_worker DROP COLUMN chores, DROP COLUMN runtime",
            state_operations=[
                migrations.AddField(
                    model_name="worker",
                    name="chores",
                    field=models.JSONField(
                        blank=True, help_text="when it last did each, as at the last heartbeat", null=True
                    ),
                ),
                migrations.AddField(
                    model_name="worker",
                    name="runtime",
                    field=models.JSONField(
                        blank=True, help_text="versions of Python and of what it works with", null=True
                    ),
                ),
            ],
        ),
    ]
