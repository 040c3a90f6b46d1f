"""Pages of the admin over the job table: views of Django's alone, the database is not touched."""

from django.db import migrations


def _proxy(name, singular, plural):
    return migrations.CreateModel(
        name=name,
        fields=[],
        options={
            "verbose_name": singular,
            "verbose_name_plural": plural,
            "proxy": True,
            "default_permissions": (),
            "indexes": [],
            "constraints": [],
        },
        bases=("pgjobs.job",),
    )


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0011_execution_operations")]

    operations = [
        _proxy("Overview", "overview", "overview"),
        _proxy("ErrorGroup", "error", "errors"),
        migrations.DeleteModel(name="Backlog"),
        _proxy("Queue", "queue", "queues"),
    ]
