from django.db import migrations, models


class Migration(migrations.Migration):
    """A column with a constant default: no rewrite, and workers of the version before go on without it.

    The index of ended executions is replaced by 0013, where nobody has to wait for it.
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
    ]
