from django.urls import path

from example_project.documents import views

app_name = "documents"
urlpatterns = [
    path("", views.DocumentList.as_view(), name="list"),
    path("upload/", views.Upload.as_view(), name="upload"),
    path("<int:pk>/", views.DocumentDetail.as_view(), name="detail"),
]
