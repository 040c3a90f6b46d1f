"""The example app of durable workflows: a failed check becomes an incident, an approved fix, a pull request."""

from django.apps import AppConfig


class IncidentsConfig(AppConfig):
    name = "example_project.incidents"
    label = "incidents"
    verbose_name = "Incidents"
    default_auto_field = "django.db.models.BigAutoField"
