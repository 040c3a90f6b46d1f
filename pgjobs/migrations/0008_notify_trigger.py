from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0007_sane_rows")]

    operations = []
