"""Pages of the example project: the documents at the root, the admin beside them."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", include("example_project.documents.urls")),
]
