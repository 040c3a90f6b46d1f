"""Whoever inserts a job wakes the workers: a trigger sends the NOTIFY, one a statement and with nothing in it.

For raw SQL, COPY and programs in other languages as for ``enqueue``. The setting ``pgjobs.notify = 'off'`` of a
transaction, a session, a role or a database keeps it quiet; ``PGJOBS["NOTIFY"] = False`` sets it for its own inserts.
Workers of the version before send a NOTIFY of their own beside it: alike ones of one transaction are one. The table is
locked against writes for as long as it takes to add the trigger.
"""

from django.db import migrations

_ADD = """
    CREATE OR REPLACE FUNCTION pgjobs_job_notify() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF current_setting('pgjobs.notify', true) IS DISTINCT FROM 'off' THEN
            PERFORM pg_catalog.pg_notify('pgjobs', '');
        END IF;
        RETURN NULL;
    END
    $$;
    CREATE OR REPLACE TRIGGER pgjobs_job_notify AFTER INSERT ON pgjobs_job
    FOR EACH STATEMENT EXECUTE FUNCTION pgjobs_job_notify();
"""
_DROP = """
    DROP TRIGGER IF EXISTS pgjobs_job_notify ON pgjobs_job;
    DROP FUNCTION IF EXISTS pgjobs_job_notify();
"""


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0007_sane_rows")]

    operations = [migrations.RunSQL(_ADD, _DROP)]
