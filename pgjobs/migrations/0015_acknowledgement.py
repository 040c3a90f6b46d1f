"""Causes of failures that a person knows about: one new table, and one more name in the record of what people did."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("pgjobs", "0014_activity")]

    operations = [
        migrations.CreateModel(
            name='Acknowledgement',
            fields=[
                ('fingerprint', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('by', models.CharField(blank=True, db_default='', default='', max_length=200)),
                ('since', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('until', models.DateTimeField(blank=True, help_text='muted until then, whatever happens; null: acknowledged until it happens on another version', null=True)),
                ('note', models.TextField(blank=True, db_default='', default='')),
                ('link', models.CharField(blank=True, db_default='', default='', help_text='of the ticket', max_length=500)),
                ('versions', models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list, help_text='versions of the code that workers had then')),
            ],
            options={
                'verbose_name': 'acknowledged error',
                'verbose_name_plural': 'acknowledged errors',
                'permissions': [('acknowledge_error', 'Can acknowledge and mute errors')],
                'default_permissions': (),
            },
        ),
        migrations.AlterField(
            model_name='operatoraction',
            name='target_kind',
            field=models.CharField(choices=[('job', 'job'), ('queue', 'queue'), ('type', 'job type'), ('execution', 'workflow execution'), ('approval', 'approval'), ('bulk', 'bulk operation'), ('worker', 'worker'), ('error', 'error')], max_length=16),
        ),
    ]
