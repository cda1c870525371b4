"""DokuWiki as Debian has it, behind nginx and PHP-FPM."""

import base64
import contextlib
import hashlib
import html
import os
import pathlib
import re
import shutil
import time

import servers
import usual
from browser import find_form
from people import PEOPLE

NAME = "dokuwiki"
HOST = "wiki.example"
PACKAGES = ["dokuwiki", "nginx-light", "php-fpm", "php-xml"]
INSTALLED = pathlib.Path("/usr/share/dokuwiki")
DEFAULTS = pathlib.Path("/etc/dokuwiki")
EMPTY = pathlib.Path("/var/lib/dokuwiki/data")
TOPICS = 24
CONFIGS = ["proxy.toml", "verify.toml"]
# Whether the app alone takes old cookies for somebody's after the logout.
LETS_IN_AGAIN = True

SERVER = """
        root /usr/share/dokuwiki;
        index doku.php;
        location ~ ^/(data|conf|bin|inc|vendor)/ {{ return 404; }}
        location ~ \\.php$ {{
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass unix:{folder}/fpm.sock;
        }}
"""
# Where the settings are is said before DokuWiki begins: the package's own stay as they are.
FPM = """
php_admin_value[auto_prepend_file] = {folder}/where.php
php_value[session.save_path] = {folder}/sessions
"""
# Without the trail of pages that a visitor has seen: with it, a page is not the same for all (trap 5).
WITHOUT_TRAIL = "$conf['breadcrumbs'] = 0;\n"
LOCAL = """<?php
$conf['title'] = 'The wiki';
$conf['useacl'] = 1;
$conf['superuser'] = '@admin';
$conf['savedir'] = '{folder}/data';
"""
# All may read, a user who is logged in writes, and each has a namespace.
RIGHTS = """# <?php exit()?>
*             @ALL    1
*             @user   8
private:*     @ALL    0
private:%USER%:*  %USER%  8
"""

# What differs by nature between two loads of the same page by the same visitor.
DIFFERS = [
    ("the time in the address of the image that runs tasks", r"(taskrunner\.php\?id=[^&\"]*&(?:amp;)?)\d+"),
    ("the minute in the signature that the editor offers", r"(var SIG=\"[^\"]* )\d{4}\\/\d\d\\/\d\d \d\d:\d\d"),
]
# What belongs to one session: seen by two, it leaked.
TOKENS = re.compile(r'name="sectok" value="(\w+)"|sectok=(\w+)')
# The path of pages that show a visitor's own way to them, and such a way of the visitor with this number.
OWN_WAY = ("/doku.php", lambda number: [page(f"topic{number + 1}"), page("topic0")])
# The line of proxy.toml without which the image that runs tasks never hits.
QUERY_LINE = 'keep_query = ["id"]'
# What is usual: see app.py of WordPress.
FLOORS, REGULARS, SAME_FOR_ALL, ERRANDS, SCENES = usual.FLOORS, usual.REGULARS, (), [], None
DIFFERING = {}


class Site:
    """Settings beside those of every wiki here."""

    more = ""


def install(_folder):
    servers.apt(PACKAGES)


@contextlib.contextmanager
def start(folder):
    """A wiki with the same pages every time."""
    seed(folder)
    with servers.php_fpm(folder, FPM), servers.nginx(folder, SERVER) as origin:
        yield origin


def seed(folder):
    conf, data = folder / "conf", folder / "data"
    shutil.copytree(EMPTY, data)
    conf.mkdir()
    (folder / "sessions").mkdir()
    for file in DEFAULTS.iterdir():
        if file.is_file() and not file.is_symlink() and file.suffix in (".php", ".conf", ".css"):
            shutil.copyfile(file, conf / file.name)
    (folder / "where.php").write_text(f"<?php define('DOKU_CONF', '{conf}/');\n")
    (conf / "local.php").write_text(LOCAL.format(folder=folder) + Site.more)
    (conf / "acl.auth.php").write_text(RIGHTS)
    lines = [f"{p.login}:{hashed(p.password)}:{p.name}:{p.email}:user\n" for p in PEOPLE]
    (conf / "users.auth.php").write_text("# <?php exit()?>\n" + "".join(lines))
    pages = data / "pages"
    links = "".join(f"  * [[topic{number}]]\n" for number in range(TOPICS))
    (pages / "start.txt").write_text(f"====== Start ======\n\n{links}")
    for number in range(TOPICS):
        (pages / f"topic{number}.txt").write_text(topic(number))
    for person in PEOPLE:
        (pages / f"about_{person.login}.txt").write_text("====== About me ======\n\nRevision 0.\n")
        mine = pages / "private" / person.login
        mine.mkdir(parents=True)
        (mine / "notes.txt").write_text(f"====== Notes ======\n\n{person.secret}.\n")
    date_back(folder)


def date_back(folder):
    """DokuWiki takes what it has made in the same second as a file for older than the file. It would make all of it
    again for each of the first requests, and answer some of them without the page's text."""
    an_hour_ago = time.time() - 3600
    for file in folder.rglob("*"):
        os.utime(file, (an_hour_ago, an_hour_ago))


def topic(number):
    near = [f"[[topic{(number + step) % TOPICS}]]" for step in (1, 7, 23)]
    text = " ".join(f"Sentence {n} of topic {number}." for n in range(40))
    return f"====== Topic {number} ======\n\n{text}\n\n===== See also =====\n\n{', '.join(near)}\n"


def hashed(password):
    salt = b"salt"
    digest = hashlib.sha1(password.encode() + salt).digest()
    return "{SSHA}" + base64.b64encode(digest + salt).decode()


def page(name):
    return f"/doku.php?id={name}"


def public_pages():
    """The most read first."""
    return [page("start"), *(page(f"topic{number}") for number in range(TOPICS))]


def own_page(person):
    """The public page that this person alone edits."""
    return page(f"about_{person.login}")


def personal_pages(person):
    """What nobody else may see, and what it says of him."""
    return [(page(f"private:{person.login}:notes"), person.secret), ("/doku.php?do=profile", person.email)]


FORMS = [page("start") + "&do=login"]


def shown(text):
    """For whom the page was made: a login name, or None for nobody."""
    found = re.search(r'<li class="user">Logged in as: <bdi>[^<]*</bdi> \(<bdi>([^<]+)</bdi>\)', text)
    if found:
        return found[1]
    return None if "do=login" in text else "?"


def keeps_log_in(name):
    return name.startswith("DW")


async def log_in(browser, person):
    target = page("start") + "&do=login"
    form = find_form((await browser.open(target)).text, "dw__login")
    form.fields.update(u=person.login, p=person.password)
    return await browser.submit(target, form)


async def log_out(browser, seen):
    """By the link of the page that was seen last."""
    link = re.search(r'href="([^"]*do=logout[^"]*)"', seen.text)
    target = browser.resolve("/doku.php", link[1])
    return target, await browser.get(target)


def edit_form(person):
    return own_page(person) + "&do=edit"


async def edit(browser, person, revision):
    target = edit_form(person)
    form = find_form((await browser.open(target)).text, "dw__editform")
    form.fields["wikitext"] = f"====== About me ======\r\n\r\nRevision {revision}.\r\n"
    form.fields["do[save]"] = "1"
    return await browser.submit(target, form)


def revision(text):
    return int(re.search(r"Revision (\d+)\.", html.unescape(text))[1])


@contextlib.contextmanager
def same_for_all():
    """While pages without personal content are to be the same for all."""
    Site.more = WITHOUT_TRAIL
    try:
        yield
    finally:
        Site.more = ""


def is_blank(text):
    """Whether DokuWiki lost the page's text: it does when the page is read while it is saved."""
    return re.search(r"<!-- wikipage start -->\s*<!-- wikipage stop -->", text) is not None
