from django.db import migrations, models


class Migration(migrations.Migration):
    """A fork repeats the UUIDs and random numbers of the execution that its history began with."""

    dependencies = [("pgjobs", "0005_subject_without_constraint")]

    operations = [
        migrations.AddField("execution", "origin_id", models.BigIntegerField(blank=True, null=True)),
        migrations.AddField("execution", "origin_at", models.DateTimeField(blank=True, null=True)),
    ]
