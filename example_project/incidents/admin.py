"""Incidents for a look round. They come from the webhook, where their execution is started with them."""

from django.contrib import admin
from django.http import HttpRequest

from example_project.incidents.models import Incident


@admin.register(Incident)
class IncidentAdmin(admin.ModelAdmin):
    list_display = ["title", "repository", "kind", "execution_id", "created_at"]
    search_fields = ["title", "repository"]
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Incident | None = None) -> bool:
        return False
