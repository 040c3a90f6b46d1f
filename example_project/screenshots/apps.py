"""A shop's background work, for the pictures of the operator's pages."""

from django.apps import AppConfig


class ScreenshotsConfig(AppConfig):
    """No models: only handlers and the command ``screenshots``."""

    name = "example_project.screenshots"
