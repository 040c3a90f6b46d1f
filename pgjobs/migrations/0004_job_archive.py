import django.db.models.functions.datetime
from django.db import migrations, models

STATUSES = [('pending', 'pending'), ('running', 'running'), ('succeeded', 'succeeded'), ('failed', 'failed'), ('dead', 'dead'), ('cancelled', 'cancelled')]

# By hand, since Django makes no partitioned tables. Partitions are made when a job of their month is archived.
TABLE = """
CREATE TABLE pgjobs_archivedjob (
    id bigint NOT NULL,
    job_type varchar(200) NOT NULL,
    queue varchar(100) NOT NULL,
    payload jsonb NOT NULL,
    status varchar(16) NOT NULL,
    priority smallint NOT NULL,
    attempt_count integer NOT NULL,
    max_attempts integer NOT NULL,
    crash_count integer NOT NULL,
    max_crashes integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    available_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    completed_at timestamp with time zone NOT NULL,
    completed_by varchar(200),
    heartbeat_at timestamp with time zone,
    last_error text NOT NULL,
    errors jsonb NOT NULL,
    idempotency_key varchar(255),
    result jsonb,
    progress jsonb,
    awaited boolean NOT NULL,
    note text NOT NULL,
    archived_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    PRIMARY KEY (id, completed_at)
) PARTITION BY RANGE (completed_at)
"""


class Migration(migrations.Migration):

    dependencies = [
        ('pgjobs', '0003_workflows'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(TABLE, 'DROP TABLE pgjobs_archivedjob')],
            state_operations=[
                migrations.CreateModel(
                    name='ArchivedJob',
                    fields=[
                        ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                        ('job_type', models.CharField(max_length=200)),
                        ('queue', models.CharField(max_length=100)),
                        ('payload', models.JSONField(blank=True)),
                        ('status', models.CharField(choices=STATUSES, max_length=16)),
                        ('priority', models.SmallIntegerField()),
                        ('attempt_count', models.IntegerField()),
                        ('max_attempts', models.IntegerField()),
                        ('crash_count', models.IntegerField()),
                        ('max_crashes', models.IntegerField()),
                        ('created_at', models.DateTimeField()),
                        ('available_at', models.DateTimeField()),
                        ('started_at', models.DateTimeField(blank=True, null=True)),
                        ('completed_at', models.DateTimeField()),
                        ('completed_by', models.CharField(blank=True, max_length=200, null=True)),
                        ('heartbeat_at', models.DateTimeField(blank=True, null=True)),
                        ('last_error', models.TextField(blank=True)),
                        ('errors', models.JSONField(blank=True)),
                        ('idempotency_key', models.CharField(blank=True, max_length=255, null=True)),
                        ('result', models.JSONField(blank=True, null=True)),
                        ('progress', models.JSONField(blank=True, null=True)),
                        ('awaited', models.BooleanField()),
                        ('note', models.TextField(blank=True)),
                        ('archived_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                    ],
                    options={
                        'verbose_name': 'archived job',
                        'verbose_name_plural': 'archived jobs',
                        'default_permissions': (),
                    },
                ),
            ],
        ),
    ]
