"""The app of the lab. It has no models: its tables live and die with a run."""

from django.apps import AppConfig


class LabConfig(AppConfig):
    name = "example_project.lab"
    label = "lab"
