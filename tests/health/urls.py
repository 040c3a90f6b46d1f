"""A project that has opted in."""

from django.urls import include, path

urlpatterns = [path("pgjobs/", include("pgjobs.urls"))]
