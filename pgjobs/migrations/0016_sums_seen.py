from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """When the figures of a row were last added to, so that the sums of queues and types that are no more can go.

    A default that is read once: no table is rewritten, and workers of the version before go on.
    """

    dependencies = [("pgjobs", "0013_indexes_and_system")]

    operations = [
        migrations.AddField(
            model_name="minute",
            name="seen_at",
            field=models.DateTimeField(db_default=Now(), editable=False, help_text="last added to"),
        ),
    ]
