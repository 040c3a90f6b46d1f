from django.db import migrations, models

import pgjobs.queue.models


class Migration(migrations.Migration):
    """What operators ask for: causes of failures, figures per minute, and more about workers.

    All columns are nullable or have a default in the database, so that workers of the version before go on. The index
    of causes is built later, by 0013, where nobody has to wait for it.
    """

    dependencies = [("pgjobs", "0009_operations")]

    operations = [
        migrations.CreateModel(
            name='Minute',
            fields=[
                ('pk', models.CompositePrimaryKey('minute', 'queue', 'job_type', blank=True, editable=False, primary_key=True, serialize=False)),
                ('minute', models.DateTimeField()),
                ('queue', models.CharField(max_length=100)),
                ('job_type', models.CharField(max_length=200)),
                ('done', models.BigIntegerField(db_default=0, default=0, help_text='succeeded')),
                ('failed', models.BigIntegerField(db_default=0, default=0, help_text='ended: it can never work')),
                ('dead', models.BigIntegerField(db_default=0, default=0, help_text='ended: the attempts are spent')),
                ('retried', models.BigIntegerField(db_default=0, default=0, help_text='attempts with another to come')),
                ('wait_seconds', models.FloatField(db_default=0.0, default=0.0, help_text='sum, from due to claimed')),
                ('run_seconds', models.FloatField(db_default=0.0, default=0.0, help_text='sum')),
                ('wait_counts', pgjobs.queue.models.Counts(help_text='attempts by bucket of pgjobs.queue.rollups.BOUNDS')),
                ('run_counts', pgjobs.queue.models.Counts(help_text='the same of how long they ran')),
            ],
            options={
                'default_permissions': (),
                'indexes': [models.Index(condition=models.Q(('dead__gt', 0)), fields=['minute'], name='pgjobs_minute_dead')],
            },
        ),
        # Every worker adds to the rows of the present minute, again and again: room on the page keeps that HOT.
        migrations.RunSQL(
            """
            ALTER TABLE pgjobs_minute SET (
                fillfactor = 70,
                autovacuum_vacuum_scale_factor = 0.05,
                autovacuum_vacuum_threshold = 1000
            )
            """,
            "ALTER TABLE pgjobs_minute RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)",
        ),
        migrations.AddField(
            model_name='job',
            name='error_class',
            field=models.CharField(blank=True, max_length=300, null=True),
        ),
        migrations.AddField(
            model_name='job',
            name='fingerprint',
            field=models.CharField(blank=True, help_text='one for all failures of one cause', max_length=40, null=True),
        ),
        migrations.AddField(
            model_name='archivedjob',
            name='error_class',
            field=models.CharField(blank=True, max_length=300, null=True),
        ),
        migrations.AddField(
            model_name='archivedjob',
            name='fingerprint',
            field=models.CharField(blank=True, max_length=40, null=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='busy',
            field=models.IntegerField(blank=True, help_text='slots in use at the last heartbeat', null=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='code_version',
            field=models.CharField(blank=True, db_default='', default='', max_length=100),
        ),
        migrations.AddField(
            model_name='worker',
            name='draining',
            field=models.BooleanField(db_default=False, default=False, help_text='finishes and claims no more'),
        ),
        migrations.AddField(
            model_name='worker',
            name='handlers',
            field=models.JSONField(blank=True, help_text='job types and workflows it knows', null=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='heartbeat_seconds',
            field=models.FloatField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='last_done_at',
            field=models.DateTimeField(blank=True, help_text='latest end of a job or a turn', null=True),
        ),
        migrations.AddField(
            model_name='worker',
            name='rss_bytes',
            field=models.BigIntegerField(blank=True, help_text='memory at the last heartbeat', null=True),
        ),
    ]
