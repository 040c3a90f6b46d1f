from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """On which day the figures of a row were last added to, so that the sums of queues and types that are no more can go.

    A default that is read once: no table is rewritten, and workers of the version before go on. A day has room in the
    padding of the row: a time would have made each, and every page of figures that is read, four in a hundred larger.
    """

    dependencies = [("pgjobs", "0015_acknowledgement")]

    operations = [
        migrations.AddField(
            model_name="minute",
            name="seen_on",
            field=models.DateField(db_default=Now(), editable=False, help_text="last added to"),
        ),
    ]
