"""Pages beside an app that leak, or seem to: a small origin of their own, and the visits that show it."""

import asyncio
import contextlib
import http.server
import re
import secrets
import threading
import urllib.request

import learning
import servers
from people import PEOPLE

# What the report must say of each: one of these verdicts, or nothing where None is among them.
EXPECTED = {
    "/planted/name": learning.LEAKS,
    "/planted/greeting": learning.LEAKS,
    "/planted/cookie": learning.LEAKS,
    "/planted/cookie-and-nonce": learning.LEAKS,
    "/planted/nonce": {"noise", None},
    "/planted/same": {None},
}
COOKIE = "planted_taste"
TASTES = ["sweet-as-honey", "sour-as-lemon", "bitter-as-gall"]
# Each visitor asks twice, and another in between: A B A, and so on.
TURNS = [0, 1, 0, 2, 1, 2]
FRONT = """
        location /planted/ {{{{ proxy_pass http://127.0.0.1:{planted}; proxy_set_header Host $http_host; }}}}
        location / {{{{
            proxy_pass http://127.0.0.1:{app};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
        }}}}
"""
# What names the user is for everyone, by an operator's mistake. Only users look at the first one.
FOR_USERS = ["/planted/name", "/planted/greeting"]
ROUTE = """
[[route]]
name = "planted"
match.path = ["/planted/name", "/planted/greeting"]
share = "everyone"
"""


@contextlib.contextmanager
def before(app, origin, folder):
    """The app, with the planted pages beside it."""
    with answering(app, origin) as port, servers.nginx(folder, FRONT.format(planted=port, app=origin.port)) as front:
        yield front


@contextlib.contextmanager
def answering(app, origin):
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            text = text_of(app, origin, path, self.headers)
            body = f"<!doctype html><title>Planted</title>\n<p>{text}</p>\n".encode()
            fields = {"Content-Type": "text/html", "Cache-Control": "max-age=60", "Content-Length": str(len(body))}
            self.send_response(200)
            for name, value in fields.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def text_of(app, origin, path, fields):
    cookies = fields.get("Cookie", "")
    taste = re.search(rf"{COOKIE}=([\w-]+)", cookies)
    taste = f"Your taste: {taste[1] if taste else 'none yet'}."
    match path:
        case "/planted/name" | "/planted/greeting":
            return f"Welcome back, {user(app, origin, cookies)}!"
        case "/planted/cookie":
            return taste
        case "/planted/cookie-and-nonce":
            return f"{taste}</p>\n<p>{secrets.token_hex(12)}"
        case "/planted/nonce":
            return secrets.token_hex(12)
    return "The same for all."


def user(app, origin, cookies):
    """The user that the app sees in a visitor with these cookies."""
    url = f"http://127.0.0.1:{origin.port}{app.public_pages()[0]}"
    asked = urllib.request.Request(url, headers={"Host": app.HOST, "Cookie": cookies})
    with urllib.request.urlopen(asked) as answer:
        return app.shown(answer.read().decode()) or "stranger"


def configured(text, in_force):
    """An app's configuration with the mistakes: the planted cookie is ignored, and the page with the name is shared."""
    ignored = ", ".join(f'"{name}"' for name in [*in_force["cache"]["ignore_cookies"], f"{COOKIE}"])
    text = re.sub(r"(?m)^ignore_cookies = .*\n", "", text)
    return text, f"ignore_cookies = [{ignored}]", ROUTE


async def visit(crowd):
    """Three users look at what names them, and three strangers at all but one page."""
    users = [crowd.browser() for _ in TASTES]
    for browser, person in zip(users, PEOPLE):
        if await crowd.log_in(browser, person) is None:
            return
    strangers = [crowd.browser(jar={(COOKIE, "/"): taste}) for taste in TASTES]
    for turn in TURNS:
        for path in FOR_USERS:
            await users[turn].get(path)
        for path in EXPECTED:
            if path != FOR_USERS[0]:
                await strangers[turn].get(path)
    # One after the other and twice: what a clock may explain as well is undecided, and a busy machine takes its time.
    for turn in TURNS * 2:
        for page in own_way(crowd.app, turn):
            await strangers[turn].get(page)
    for browser in [*users, *strangers]:
        await browser.close()


def own_way(app, number):
    return app.OWN_WAY[1](number) if hasattr(app, "OWN_WAY") else []


def reported(app, folder, binary, config, options):
    """What learn mode says of the pages."""
    front_folder = folder / "front"
    front_folder.mkdir()
    with app.start(folder) as origin, before(app, origin, front_folder) as front:
        with learning.before(front, binary, config, folder) as proxy:
            crowd = learning.LearnersCrowd(app, proxy.port, origin, options.seed, options.kept / app.NAME / folder.name)
            asyncio.run(visit(crowd))
            return crowd, proxy.report(len(crowd.requests), crowd.kept / "report.json")


def verdicts(app, report):
    if hasattr(app, "OWN_WAY"):
        path = app.OWN_WAY[0]
        said = sorted({page["verdict"] for page in report["pages"] if page["path"] == path})
        print(f"      {path:50} {' '.join(said) or 'not reported'}: shows a visitor's own way")
        if not learning.LEAKS & set(said):
            yield f"planted: {path}, which shows a visitor's own way, is {' '.join(said) or 'not reported'}"
    found = {page["path"]: page for page in report["pages"] if page["path"].startswith("/planted/")}
    for path, expected in EXPECTED.items():
        page = found.get(path)
        verdict = page and page["verdict"]
        print(f"      {path:50} {verdict or 'not reported'} {(page and (page['finding'] or page['cookie'])) or ''}")
        if verdict not in expected:
            yield f"planted: {path} is {verdict or 'not reported'}, and must be {' or '.join(map(str, expected))}"
