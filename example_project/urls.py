"""Pages of the example project: the documents at the root, incidents and the admin beside them."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("incidents/", include("example_project.incidents.urls")),
    path("", include("example_project.documents.urls")),
]
