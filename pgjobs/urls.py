"""``path("pgjobs/", include("pgjobs.urls"))``: endpoints for machines (:mod:`pgjobs.endpoints`)."""

from django.urls import path

from pgjobs import endpoints

app_name = "pgjobs"
urlpatterns = [
    path("live", endpoints.live, name="live"),
    path("ready", endpoints.ready, name="ready"),
    path("health", endpoints.health, name="health"),
    path("metrics", endpoints.metrics, name="metrics"),
]
