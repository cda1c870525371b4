from django.urls import path

from . import views

urlpatterns = [
    path("", views.Articles.as_view(), name="articles"),
    path("articles/<int:pk>/", views.Shown.as_view(), name="article"),
    path("articles/<int:pk>/edit/", views.Edit.as_view(), name="edit"),
    path("accounts/profile/", views.Profile.as_view(), name="profile"),
]
