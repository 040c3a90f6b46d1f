from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path, reverse_lazy

from example_project.incidents import views, webhook

app_name = "incidents"
urlpatterns = [
    path("", views.IncidentList.as_view(), name="list"),
    path("<int:pk>/", views.IncidentDetail.as_view(), name="detail"),
    path("<int:pk>/decision/", views.decision, name="decision"),
    path("webhook/github", webhook.github, name="webhook"),
    path(
        "login/",
        LoginView.as_view(template_name="incidents/login.html", next_page=reverse_lazy("incidents:list")),
        name="login",
    ),
    path("logout/", LogoutView.as_view(next_page=reverse_lazy("incidents:list")), name="logout"),
]
