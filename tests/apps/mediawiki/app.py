"""MediaWiki as Debian has it, with SQLite, behind nginx and PHP-FPM."""

import asyncio
import contextlib
import html
import json
import os
import pathlib
import re
import shutil

import servers
import usual
from browser import Browser, find_form
from people import PEOPLE

HERE = pathlib.Path(__file__).resolve().parent
NAME = "mediawiki"
HOST = "wiki.example"
PACKAGES = ["mediawiki", "nginx-light", "php-fpm", "php-apcu", "php-intl", "php-mbstring", "php-sqlite3", "php-xml"]
INSTALLED = pathlib.Path("/usr/share/mediawiki")
TOPICS = 24
CONFIGS = ["proxy.toml"]
# Whether the app alone takes old cookies for a user's after the logout.
LETS_IN_AGAIN = False

SERVER = """
        root /usr/share/mediawiki;
        location = / {{ rewrite ^ /index.php last; }}
        location /wiki/ {{ rewrite ^ /index.php last; }}
        location ~ ^/(cache|includes|languages|maintenance|mw-config|vendor)/ {{ return 404; }}
        location ~ \\.php$ {{
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass unix:{folder}/fpm.sock;
        }}
"""
# The settings are named by the environment: the package's own stay as they are.
FPM = "env[MW_CONFIG_FILE] = {folder}/LocalSettings.php"
# Behind what the installer wrote. A wiki is kept in one folder and run in another. This crowd saves faster than
# MediaWiki lets a new user save.
SETTINGS = """
$wgArticlePath = '/wiki/$1';
$wgSQLiteDataDir = __DIR__ . '/db';
$wgObjectCaches[CACHE_DB]['server']['dbDirectory'] = $wgSQLiteDataDir;
$wgLocalisationCacheConf['storeServer']['dbDirectory'] = $wgSQLiteDataDir;
$wgJobTypeConf['default']['server']['dbDirectory'] = $wgSQLiteDataDir;
$wgRateLimits = [];
$wgFavicon = $wgLogos['icon'];
"""

# What differs by nature between two loads of the same page by the same visitor.
DIFFERS = [
    ("the number of the request", r'("wgRequestId":")[^"]*'),
    ("the time that the answer took", r'("wgBackendResponseTime":)\d+'),
    ("the time at which an edit began", r'(value=")\d{14}(?=" name="wpStarttime")'),
    (
        "the time now, in each way that a user may choose",
        r"()(?:\d\d:\d\d, (?:\d+ \w+ \d{4}|\w+ \d+, \d{4}|\d{4} \w+ \d+)|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)",
    ),
    (
        "the minute in the preferences",
        r'()\d\d:\d\d(?:&lt;|<)input type=\\?"hidden\\?" value=\\?"\d+(?=\\?" name=\\?"wpServerTime)',
    ),
    ("the token of a form or a script, masked by the time", r"()[0-9a-f]{40}(?=\+\\)"),
]
TOKENS = re.compile(r"\b([0-9a-f]{40})\+\\")
# Cookies of a user that are the same at each login, and those that say that something was saved just now.
SAME_FOR_ALL = ("wikidbUserID", "wikidbUserName", "wikidbPostEditRevision", "UseDC", "UseCDNCache")
# The login form is filled with the name of the last user, by a cookie: learn mode must call it a visitor's own words.
OWN_WORDS = "/index.php"
# What is usual: see app.py of WordPress.
FLOORS, REGULARS, ERRANDS, SCENES = usual.FLOORS, usual.REGULARS, [], None
# Pages that the app makes differently for some visitors, whom the cache does not tell from others.
DIFFERING = {"/wiki/Category:Topics": "which loads another style for visitors with a session"}


class Kept:
    """The folder of a wiki that was installed before."""

    folder = None


def install(folder):
    servers.apt(PACKAGES)
    Kept.folder = folder / "seeded"
    seed()


@contextlib.contextmanager
def start(folder):
    """A wiki with the same pages every time."""
    shutil.copytree(Kept.folder / "db", folder / "db")
    shutil.copyfile(Kept.folder / "LocalSettings.php", folder / "LocalSettings.php")
    with running(folder) as origin:
        yield origin


@contextlib.contextmanager
def running(folder):
    with servers.php_fpm(folder, FPM), servers.nginx(folder, SERVER) as origin:
        yield origin


def seed():
    """The wiki is installed by MediaWiki's own installer, once: its database is kept."""
    sources = [HERE / "app.py", HERE / "seed.php", HERE.parent / "people.py"]
    stamp = "".join(file.read_text() for file in [*sources, INSTALLED / "includes" / "Defines.php"])
    kept = Kept.folder
    if (kept / "stamp").is_file() and (kept / "stamp").read_text() == stamp:
        return
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    command = ["php", INSTALLED / "maintenance" / "install.php", "--confpath", kept, "--dbtype", "sqlite"]
    command += ["--dbpath", kept / "db", "--dbname", "wikidb", "--server", f"http://{HOST}", "--scriptpath", ""]
    servers.call([*command, "--pass", "admin-has-a-secret", "The wiki", "Admin"], "install.php failed")
    with open(kept / "LocalSettings.php", "a") as settings:
        settings.write(SETTINGS)
    file = kept / "seed.json"
    file.write_text(json.dumps({"people": [p._asdict() for p in PEOPLE], "pages": texts()}))
    env = os.environ | {"MW_CONFIG_FILE": str(kept / "LocalSettings.php")}
    for words in ([HERE / "seed.php"], [INSTALLED / "maintenance" / "runJobs.php"]):
        with open(file) as wanted:
            servers.call(["php", *words], f"{words[0].name} failed", stdin=wanted, env=env)
    with running(kept) as origin:
        asyncio.run(look_around(origin.port))
    (kept / "stamp").write_text(stamp)


async def look_around(port):
    """The list of modules, which each page loads, has another version when a module was used for the first time."""
    browser, person = Browser(port, HOST, lambda *_: None), PEOPLE[0]
    await log_in(browser, person)
    for target in [*public_pages(), edit_form(person), *(target for target, _ in personal_pages(person))]:
        await browser.open(target)
    await log_out(browser, None)
    await browser.close()


def texts():
    links = "".join(f"* [[Topic {number}]]\n" for number in range(TOPICS))
    pages = {"Main Page": f"The start.\n\n{links}"}
    pages |= {f"Topic {number}": topic(number) for number in range(TOPICS)}
    return pages | {f"About {person.login}": "Revision 0." for person in PEOPLE}


def topic(number):
    near = ", ".join(f"[[Topic {(number + step) % TOPICS}]]" for step in (1, 7, 23))
    text = " ".join(f"Sentence {n} of topic {number}." for n in range(40))
    return f"{text}\n\n== See also ==\n\n{near}\n\n[[Category:Topics]]\n"


def page(title):
    return f"/wiki/{title.replace(' ', '_')}"


def public_pages():
    """The most read first."""
    return [page("Main Page"), *(page(f"Topic {number}") for number in range(TOPICS)), page("Category:Topics")]


def own_page(person):
    """The public page that this person edits, and no other."""
    return page(f"About {person.login}")


def personal_pages(person):
    """What only this person may see, and a text of it."""
    return [(page("Special:Preferences"), person.secret), (page("Special:ChangeEmail"), person.email)]


FORMS = ["/index.php?title=Special:UserLogin"]


def shown(text):
    """The login name for which the page was made, or None without a login."""
    found = re.search(r'"wgUserName":(?:null|"([^"]+)")', text)
    return found[1] and found[1].lower() if found else "?"


def keeps_log_in(name):
    return name == "wikidbUserID"


async def log_in(browser, person):
    target = FORMS[0]
    form = find_form((await browser.open(target)).text, 'name="userlogin"')
    form.fields.update(wpName=person.login, wpPassword=person.password)
    return await browser.submit(target, form)


async def log_out(browser, _seen):
    """Without scripts: a page asks, and its form says yes."""
    target = page("Special:UserLogout")
    form = find_form((await browser.open(target)).text, "wpEditToken")
    return await browser.submit(target, form)


def edit_form(person):
    return f"/index.php?title=About_{person.login}&action=edit"


async def edit(browser, person, revision):
    target = edit_form(person)
    form = find_form((await browser.open(target)).text, 'id="editform"')
    form.fields.update(wpTextbox1=f"Revision {revision}.", wpSave="Save changes")
    return await browser.submit(target, form)


def revision(text):
    return int(re.search(r"Revision (\d+)\.", html.unescape(text))[1])


def is_blank(_text):
    return False
