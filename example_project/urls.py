"""Pages of the example project: the documents at the root; incidents, the admin, and endpoints for machines."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("pgjobs/", include("pgjobs.urls")),
    path("incidents/", include("example_project.incidents.urls")),
    path("", include("example_project.documents.urls")),
]
