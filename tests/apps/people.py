"""Those who have a login, and what nobody else may ever be shown of them."""

import collections

Person = collections.namedtuple("Person", "login password name email secret")


def person(login, family):
    return Person(
        login=login,
        password=f"{login}-has-a-secret",
        name=f"{login.capitalize()} {family}",
        email=f"{login}@people.example",
        secret=f"What only {login} knows",
    )


PEOPLE = [
    person("alice", "Aardvark"),
    person("bob", "Bumblebee"),
    person("carol", "Chinchilla"),
    person("dave", "Dragonfly"),
    person("erin", "Echidna"),
    person("frank", "Flamingo"),
]


def told_of(who, text):
    """What is told in a text of this person. Login names stand in public pages: who wrote what."""
    return [mark for mark in (who.name, who.email, who.secret) if mark in text]
