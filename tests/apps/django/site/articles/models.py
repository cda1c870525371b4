from django.conf import settings
from django.db import models
from django.urls import reverse


class Article(models.Model):
    title = models.CharField(max_length=100)
    text = models.TextField()
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)

    def get_absolute_url(self):
        return reverse("article", args=[self.pk])


class Note(models.Model):
    """Of one user, for him alone."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    text = models.TextField()
