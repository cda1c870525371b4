"""Fills an empty site. Usage: seed.py < people and articles, as JSON."""

import json
import os
import sys

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "news.settings")
django.setup()

from articles.models import Article, Note  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402

wanted = json.load(sys.stdin)
for person in wanted["people"]:
    first, last = person["name"].split()
    user = User.objects.create_user(
        person["login"], person["email"], person["password"], first_name=first, last_name=last
    )
    Note.objects.create(owner=user, text=person["secret"])
for article in wanted["articles"]:
    author = User.objects.get(username=article.pop("author"))
    Article.objects.create(author=author, **article)
