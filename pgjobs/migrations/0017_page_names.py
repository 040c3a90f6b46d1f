from django.db import migrations


class Migration(migrations.Migration):
    """What the list of each page is called is what the strip and its own head call it. No table is touched."""

    dependencies = [("pgjobs", "0016_sums_seen")]

    operations = [
        migrations.AlterModelOptions(
            name="bulkoperation",
            options={
                "default_permissions": ("view",),
                "verbose_name": "bulk operation",
                "verbose_name_plural": "bulk",
            },
        ),
        migrations.AlterModelOptions(
            name="deadjob",
            options={"default_permissions": (), "verbose_name": "dead job", "verbose_name_plural": "dead"},
        ),
        migrations.AlterModelOptions(
            name="execution",
            options={
                "permissions": [
                    ("resume_execution", "Can pause, resume and retry workflow executions"),
                    ("cancel_execution", "Can cancel workflow executions"),
                    ("fork_execution", "Can fork workflow executions"),
                    ("signal_execution", "Can send signals to workflow executions"),
                ],
                "verbose_name": "workflow execution",
                "verbose_name_plural": "workflows",
            },
        ),
        migrations.AlterModelOptions(
            name="operatoraction",
            options={
                "default_permissions": ("view",),
                "verbose_name": "operator action",
                "verbose_name_plural": "audit",
            },
        ),
        migrations.AlterModelOptions(
            name="runningjob",
            options={
                "default_permissions": (),
                "verbose_name": "running job",
                "verbose_name_plural": "running",
            },
        ),
        migrations.AlterModelOptions(
            name="wait",
            options={
                "permissions": [("decide_wait", "Can decide approvals that name no permission of their own")],
                "verbose_name": "approval",
                "verbose_name_plural": "approvals",
            },
        ),
    ]
