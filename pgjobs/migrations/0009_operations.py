from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0008_notify_trigger")]

    operations = []
