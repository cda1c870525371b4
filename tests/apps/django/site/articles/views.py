"""Nothing but generic views."""

from django.contrib.auth.mixins import LoginRequiredMixin
from django.views.generic import DetailView, ListView, TemplateView, UpdateView

from .models import Article, Note


class Articles(ListView):
    model = Article
    ordering = ["pk"]
    paginate_by = 20


class Shown(DetailView):
    model = Article


class Edit(LoginRequiredMixin, UpdateView):
    model = Article
    fields = ["title", "text"]

    def get_queryset(self):
        return Article.objects.filter(author=self.request.user)


class Profile(LoginRequiredMixin, TemplateView):
    template_name = "articles/profile.html"

    def get_context_data(self, **more):
        notes = Note.objects.filter(owner=self.request.user)
        return super().get_context_data(notes=notes, **more)
