from django.db import migrations, models


class Migration(migrations.Migration):
    """A column with a constant default: no rewrite, and workers of the version before go on without it.

    The index of ended executions is replaced by one that tells their ends apart, in one transaction: whoever reads or
    writes pgjobs_execution waits while its rows are read once. The statements of the version before find their rows
    without the old one.
    """

    dependencies = [("pgjobs", "0010_statistics")]

    operations = [
        migrations.AddField(
            model_name="wait",
            name="bypassed",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="a superuser had a say in it who was not among those asked",
            ),
        ),
        migrations.RemoveIndex(model_name="execution", name="pgjobs_execution_ended"),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                condition=models.Q(("status__in", ["cancelled", "failed", "succeeded"])),
                fields=["status", "completed_at"],
                name="pgjobs_execution_ends",
            ),
        ),
    ]
