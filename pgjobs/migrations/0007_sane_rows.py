"""Rows that other programs write by hand: no infinite time, no negative count, which no claim would ever find.

NOT VALID: new and changed rows are checked at once, and the table is not read under a lock.
"""

from django.db import migrations

_ADD = """
    ALTER TABLE {table} ADD CONSTRAINT {table}_finite CHECK (isfinite(available_at)) NOT VALID;
    ALTER TABLE {table} ADD CONSTRAINT {table}_counts CHECK (attempt_count >= 0 AND crash_count >= 0) NOT VALID;
"""
_DROP = """
    ALTER TABLE {table} DROP CONSTRAINT {table}_finite;
    ALTER TABLE {table} DROP CONSTRAINT {table}_counts;
"""


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0006_execution_origin")]

    operations = [
        migrations.RunSQL(_ADD.format(table=table), _DROP.format(table=table))
        for table in ("pgjobs_job", "pgjobs_execution")
    ]
