"""WordPress as Debian has it, with its default theme, behind nginx, PHP-FPM and MariaDB."""

import asyncio
import contextlib
import html
import json
import os
import pathlib
import re
import shutil
import sys
import urllib.parse

import servers
from browser import Browser, find_form
from people import PEOPLE

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import errands  # noqa: E402
import scenes  # noqa: E402

NAME = "wordpress"
HOST = "blog.example"
# Of the database only its programs: nothing is started beside the run.
PACKAGES = [
    "wordpress", "wordpress-theme-twentytwentythree", "mariadb-server-core", "mariadb-client-core", "nginx-light",
    "php-fpm", "php-mysql",
]  # fmt: skip
INSTALLED = pathlib.Path("/usr/share/wordpress")
TOPICS = 12
REGULARS = 12
CONFIGS = ["proxy.toml"]
# Whether the app alone takes old cookies for a user's after the logout.
LETS_IN_AGAIN = False

SERVER = """
        root {folder}/site;
        index index.php;
        set_real_ip_from 127.0.0.1;
        real_ip_header X-Forwarded-For;
        location / {{ try_files $uri $uri/ /index.php?$args; }}
        location ~ \\.php$ {{
            try_files $uri =404;
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass unix:{folder}/fpm.sock;
        }}
"""
# Where the settings are is said before WordPress begins: the package's own stay as they are. `wp-cron.php` loads
# WordPress only where that is not said.
FPM = "php_admin_value[auto_prepend_file] = {folder}/where.php"
WHERE = """<?php
define('ABSPATH', '{folder}/site/');
if (basename($_SERVER['SCRIPT_FILENAME']) === 'wp-cron.php') {{
    require ABSPATH . 'wp-load.php';
}}
"""
# The keys are fixed, so that one kept site serves every run. Cron, updates and mail would leave the machine.
CONFIG = """<?php
define('DB_NAME', 'blog');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:{folder}/db.sock');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {{
    define("{{$name}}_KEY", "a key for $name");
    define("{{$name}}_SALT", "a salt for $name");
}}
define('DISABLE_WP_CRON', true);
define('WP_AUTO_UPDATE_CORE', false);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('WP_ACCESSIBLE_HOSTS', '127.0.0.1');
$table_prefix = 'wp_';
require_once ABSPATH . 'wp-settings.php';
"""
# Small and without waiting for the disk: the data are thrown away.
DATABASE = ["--no-defaults", "--innodb-log-file-size=4M", "--innodb-flush-log-at-trx-commit=0"]

# What differs by nature between two loads of the same page by the same visitor.
DIFFERS = [
    ("the server of pictures, by chance for persons without an address", r"(https?:(?:\\?/){2})\d(?=\.gravatar)"),
    ("the password that the profile suggests", r'(data-pw=")[^"]*'),
    ("the time of the lock of a post that is edited", r'(activePostLock"?:"?)\d+'),
    ("the time in what the editor keeps of its look", r'("uid":"\d+","time":")\d+'),
]
# What belongs to one session: seen by two, it leaked.
TOKENS = re.compile(r'_wpnonce=(\w{10})|name="_wpnonce" value="(\w{10})"|createNonceMiddleware\( "(\w{10})"')
# Cookies that have the same value for all, or a time.
SAME_FOR_ALL = ("wordpress_test_cookie", "wp-settings-", "wp_lang")
# An edit makes all pages stale, and this crowd edits all the time: less hits than elsewhere.
FLOORS = {2_000: (55, 22, 75)}
DIFFERING = {}
ERRANDS = errands.ERRANDS
SCENES = scenes.SCENES


class Kept:
    """The folder of a site that was installed before."""

    folder = None


def install(folder):
    servers.apt(PACKAGES)
    Kept.folder = folder / "seeded"
    seed()


@contextlib.contextmanager
def start(folder):
    """A site with the same posts every time."""
    shutil.copytree(Kept.folder / "db", folder / "db")
    with running(folder) as origin:
        yield origin


@contextlib.contextmanager
def running(folder):
    site(folder)
    with database(folder), servers.php_fpm(folder, FPM), servers.nginx(folder, SERVER) as origin:
        yield origin


def site(folder):
    """The package's files, and a configuration of our own among them."""
    root = folder / "site"
    content = root / "wp-content"
    content.mkdir(parents=True)
    (content / "uploads").mkdir()
    for file in INSTALLED.iterdir():
        if file.name not in ("wp-config.php", "wp-content", ".htaccess"):
            (root / file.name).symlink_to(file)
    for name in ("themes", "plugins"):
        (content / name).symlink_to(INSTALLED / "wp-content" / name)
    (root / "wp-config.php").write_text(CONFIG.format(folder=folder))
    (folder / "where.php").write_text(WHERE.format(folder=folder))


@contextlib.contextmanager
def database(folder):
    command = [servers.binary("mariadbd"), *DATABASE, f"--datadir={folder / 'db'}", "--skip-networking"]
    command += [f"--socket={folder / 'db.sock'}", f"--pid-file={folder / 'db.pid'}"]
    if os.geteuid() == 0:
        command.append("--user=root")
    with servers.process(command, folder, "mariadbd") as child:
        servers.wait("mariadbd", child, folder, "mariadbd", (folder / "db.sock").is_socket)
        yield


def seed():
    """The site is installed by WordPress's own installer, once: its database is kept."""
    sources = [HERE / "app.py", HERE / "seed.php", HERE.parent / "people.py"]
    version = INSTALLED / "wp-includes" / "version.php"
    stamp = "".join(file.read_text() for file in [*sources, version])
    kept = Kept.folder
    if (kept / "stamp").is_file() and (kept / "stamp").read_text() == stamp:
        return
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    command = [servers.binary("mariadb-install-db"), *DATABASE, "--skip-test-db", f"--datadir={kept / 'db'}"]
    command += ["--auth-root-authentication-method=normal"]
    servers.call([*command, *(["--user=root"] if os.geteuid() == 0 else [])], "mariadb-install-db failed")
    with running(kept) as origin:
        servers.call(["mariadb", "-uroot", "-S", kept / "db.sock", "-e", "create database blog"], "no database")
        asyncio.run(wp_install(origin.port))
        file = kept / "seed.json"
        topics = [topic(number) for number in range(TOPICS)]
        file.write_text(json.dumps({"people": [p._asdict() for p in PEOPLE], "topics": topics}))
        php(kept, HERE / "seed.php", stdin=open(file))
    (kept / "stamp").write_text(stamp)


def php(folder, *words, **options):
    """A script that loads WordPress beside the web server, as WP-CLI and cron do."""
    env = os.environ | {"APP_SITE": str(folder / "site")}
    command = ["php", "-d", f"auto_prepend_file={folder / 'where.php'}", *words]
    return servers.call(command, "PHP failed", env=env, **options)


async def wp_install(port):
    browser = Browser(port, HOST, lambda *_: None)
    fields = {
        "weblog_title": "The blog", "user_name": "admin", "admin_password": "admin-has-a-secret",
        "admin_password2": "admin-has-a-secret", "admin_email": "admin@blog.example", "language": "",
    }  # fmt: skip
    answer = await browser.ask("POST", "/wp-admin/install.php?step=2", urllib.parse.urlencode(fields).encode())
    await browser.close()
    if "Success!" not in answer.text:
        raise servers.Broken(f"wp-admin/install.php: {answer.status}\n{answer.text[-2000:]}")


def topic(number):
    near = "".join(f'<li><a href="/topic-{(number + step) % TOPICS}/">Topic</a></li>' for step in (1, 7, 23))
    text = " ".join(f"Sentence {n} of topic {number}." for n in range(40))
    return f"<p>{text}</p><ul>{near}</ul>"


def public_pages():
    """The most read first."""
    lists = ["/page/2/", "/category/uncategorized/", "/sample-page/"]
    return ["/", *(f"/topic-{number}/" for number in range(TOPICS)), *lists]


def own_page(person):
    """The public page that this person edits, and no other."""
    return f"/about-{person.login}/"


def personal_pages(person):
    """What only this person may see, and a text of it."""
    return [(f"/notes-{person.login}/", person.secret), ("/wp-admin/profile.php", person.email)]


FORMS = ["/wp-login.php"]


def shown(text):
    """The login name for which the page was made, or None without a login."""
    found = re.search(r'<span class="display-name">([^<]+)</span>', text)
    return found[1] if found else None


def keeps_log_in(name):
    return name.startswith("wordpress_logged_in_")


async def log_in(browser, person):
    target = "/wp-login.php"
    form = find_form((await browser.open(target)).text, 'id="loginform"')
    form.fields.update({"log": person.login, "pwd": person.password, "wp-submit": "Log In"})
    return await browser.submit(target, form)


async def log_out(browser, seen):
    """By the link in the bar of the page that was seen last."""
    link = re.search(r"href=[\"']([^\"']*action=logout[^\"']*)", seen.text)
    target = browser.resolve("/", link[1])
    return target, await browser.get(target)


def edit_form(person):
    return f"/wp-admin/post.php?post={post_id(person)}&action=edit"


def post_id(person):
    """The seed gives these numbers."""
    return 1001 + PEOPLE.index(person)


async def edit(browser, person, revision):
    """The block editor: by REST, with the nonce of its page."""
    page = await browser.open(edit_form(person))
    target = f"/wp-json/wp/v2/posts/{post_id(person)}?_locale=user"
    return target, await errands.save(browser, page, target, {"content": f"<p>Revision {revision}.</p>"})


def revision(text):
    return int(re.search(r"Revision (\d+)\.", html.unescape(text))[1])


def is_blank(_text):
    return False
