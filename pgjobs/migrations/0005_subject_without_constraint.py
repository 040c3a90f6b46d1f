from django.db import migrations


class Migration(migrations.Migration):
    """Content types may be in another database than the executions: no foreign key can hold across."""

    dependencies = [("pgjobs", "0004_job_archive")]

    operations = [
        # 0003 made the constraint before it was taken out of there; its name has a hash in it.
        migrations.RunSQL(
            """
            DO $$
            DECLARE made name;
            BEGIN
                FOR made IN
                    SELECT con.conname FROM pg_constraint AS con
                    JOIN pg_attribute AS att ON att.attrelid = con.conrelid AND att.attnum = ANY (con.conkey)
                    WHERE con.conrelid = 'pgjobs_execution'::regclass AND con.contype = 'f'
                    AND att.attname = 'subject_type_id'
                LOOP
                    EXECUTE format('ALTER TABLE pgjobs_execution DROP CONSTRAINT %I', made);
                END LOOP;
            END $$;
            """,
            migrations.RunSQL.noop,
        ),
    ]
