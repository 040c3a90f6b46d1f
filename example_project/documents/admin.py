"""Documents for a look round. They are made on the upload page only, where their job is made with them."""

from django.contrib import admin
from django.http import HttpRequest

from example_project.documents.models import Document


@admin.register(Document)
class DocumentAdmin(admin.ModelAdmin):
    list_display = ["title", "size", "page_count", "job_id", "uploaded_at"]
    search_fields = ["title"]
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Document | None = None) -> bool:
        return False
