from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0009_operations")]

    operations = []
