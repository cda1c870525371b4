"""A Django site of stock parts, behind nginx and gunicorn."""

import contextlib
import html
import json
import os
import pathlib
import re
import shutil
import sys

import servers
import usual
from browser import find_form
from people import PEOPLE

HERE = pathlib.Path(__file__).resolve().parent
NAME = "django"
HOST = "news.example"
PACKAGES = ["nginx-light"]
REQUIREMENTS = HERE / "requirements.txt"
TOPICS = 24
CONFIGS = ["proxy.toml"]
# Whether the app alone takes old cookies for somebody's after the logout.
LETS_IN_AGAIN = False

SERVER = """
        location /static/ {{ alias {folder}/static/; }}
        location / {{
            proxy_pass http://unix:{folder}/gunicorn.sock:;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        }}
"""

# What differs by nature between two loads of the same page by the same visitor.
DIFFERS = [
    ("the token of a form, masked anew each time", r'(name="csrfmiddlewaretoken" value=")\w+'),
]
TOKENS = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')
# What is usual: see app.py of WordPress.
FLOORS, REGULARS, SAME_FOR_ALL, ERRANDS, SCENES = usual.FLOORS, usual.REGULARS, (), [], None
DIFFERING = {}


class Installed:
    python = None
    site = None


def install(folder):
    """Django in a venv of its own, and a seeded site: hashing passwords takes its time by design."""
    servers.apt(PACKAGES)
    venv = folder / "venv"
    Installed.python, Installed.site = venv / "bin" / "python", folder / "seeded"
    make_venv(venv)
    seed(Installed.site)


def make_venv(venv):
    """The copy of the requirements goes in last: all is there."""
    done = venv / "requirements.txt"
    if done.is_file() and done.read_bytes() == REQUIREMENTS.read_bytes():
        return
    shutil.rmtree(venv, ignore_errors=True)
    servers.call([sys.executable, "-m", "venv", venv], "could not make a venv")
    pip = [Installed.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    servers.call([*pip, "-r", REQUIREMENTS], "could not install Django")
    shutil.copyfile(REQUIREMENTS, done)


def seed(kept):
    source = sorted(file for file in (HERE / "site").rglob("*") if file.suffix in (".py", ".html"))
    stamp = "".join(file.read_text() for file in [*source, HERE / "app.py", HERE.parent / "people.py"])
    if (kept / "stamp").is_file() and (kept / "stamp").read_text() == stamp:
        return
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    manage(environment(kept), kept)
    (kept / "stamp").write_text(stamp)


def environment(folder):
    return {"NEWS_STATE": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


@contextlib.contextmanager
def start(folder):
    """A site with the same articles every time."""
    shutil.copyfile(Installed.site / "db.sqlite3", folder / "db.sqlite3")
    shutil.copytree(Installed.site / "static", folder / "static")
    command = [Installed.python, "-m", "gunicorn", "--workers", "3", "--no-control-socket"]
    command += ["--bind", f"unix:{folder / 'gunicorn.sock'}", "--chdir", HERE / "site"]
    command += ["news.wsgi"]
    with servers.process(command, folder, "gunicorn", env=environment(folder)) as child:
        is_there = (folder / "gunicorn.sock").is_socket
        servers.wait("gunicorn", child, folder, "gunicorn", is_there)
        with servers.nginx(folder, SERVER) as origin:
            yield origin


def manage(env, folder):
    env, site = os.environ | env, HERE / "site"
    for words in (["makemigrations", "--check", "--dry-run"], ["migrate"], ["collectstatic", "--noinput"]):
        servers.call([Installed.python, "manage.py", *words], f"{words[0]} failed", cwd=site, env=env)
    file = folder / "seed.json"
    file.write_text(json.dumps({"people": [p._asdict() for p in PEOPLE], "articles": articles()}))
    with open(file) as wanted:
        servers.call([Installed.python, "seed.py"], "seed.py failed", stdin=wanted, cwd=site, env=env)


def articles():
    text = [" ".join(f"Sentence {n} of topic {number}." for n in range(40)) for number in range(TOPICS)]
    wanted = [{"title": f"Topic {n}", "text": t, "author": PEOPLE[n % len(PEOPLE)].login} for n, t in enumerate(text)]
    return wanted + [{"title": f"About {p.login}", "text": "Revision 0.", "author": p.login} for p in PEOPLE]


def public_pages():
    """The most read first."""
    lists = ["/?page=2"]
    return ["/", *(f"/articles/{number + 1}/" for number in range(TOPICS)), *lists]


def own_page(person):
    """The public page that this person alone edits."""
    return f"/articles/{TOPICS + 1 + PEOPLE.index(person)}/"


def personal_pages(person):
    """What nobody else may see, and what it says of him."""
    return [("/accounts/profile/", person.secret), ("/accounts/password_change/", "old_password")]


FORMS = ["/accounts/login/"]


def shown(text):
    """For whom the page was made: a login name, or None for nobody."""
    if found := re.search(r'<span id="user">Logged in as <b>([^<]+)</b>', text):
        return found[1]
    # The admin's own look, where the site has none.
    if found := re.search(r"Welcome,\s*<strong>([^<]+)</strong>", text):
        return "?" if not found[1] else next((p.login for p in PEOPLE if p.name.startswith(found[1])), "?")
    return None


def keeps_log_in(name):
    return name == "sessionid"


async def log_in(browser, person):
    target = "/accounts/login/"
    form = find_form((await browser.open(target)).text, 'id="login"')
    form.fields.update(username=person.login, password=person.password)
    return await browser.submit(target, form)


async def log_out(browser, seen):
    """By the form of the page that was seen last."""
    return await browser.submit("/", find_form(seen.text, 'id="logout"'))


def edit_form(person):
    return own_page(person) + "edit/"


async def edit(browser, person, revision):
    target = edit_form(person)
    form = find_form((await browser.open(target)).text, 'id="edit"')
    form.fields["text"] = f"Revision {revision}."
    return await browser.submit(target, form)


def revision(text):
    return int(re.search(r"Revision (\d+)\.", html.unescape(text))[1])


def is_blank(_text):
    return False
