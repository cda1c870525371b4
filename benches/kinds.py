"""The kinds of request that compare.py and instructions.py measure, and the proxies that answer them.

Python's standard library only. It measures nothing by itself.
"""

import collections
import contextlib
import http.client
import json
import ssl
import sys
import time

import lab

BODY_BYTES = 1024
HARMLESS = "_ga=GA1.1.1234567890.1700000000"
SESSION = "session"

# What is asked for, the Cookie field (`SESSION`: that of a login), and where the answer is from: "hit", "forward",
# or "miss", where each request has a URL of its own.
Kind = collections.namedtuple("Kind", "target cookie source")

KINDS = {
    "hit": Kind("/page", None, "hit"),
    "session": Kind("/everyone/page", SESSION, "hit"),
    "harmless": Kind("/page", HARMLESS, "hit"),
    "forward": Kind("/own", None, "forward"),
    "miss": Kind("/new", None, "miss"),
}

# The answer field in which a proxy says where the answer is from, and how.
IN_ANTEROOM = "Cache-Status", {"hit": "; hit", "forward": "; fwd=", "miss": "; fwd=uri-miss"}
IN_NGINX = "X-Cache-Status", {"hit": "HIT", "forward": "", "miss": "MISS"}

MORE = """[session]
mint = true
[[route]]
match.path = "/everyone/**"
share = "everyone"
"""

# The pages are not for a cache, so nginx is told not to look for them in its own.
NOT_CACHED_BY_NGINX = """{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
        }"""
FORWARDED_BY_NGINX = f"location = /own {NOT_CACHED_BY_NGINX}"


def add_arguments(parser, names=tuple(KINDS)):
    parser.add_argument("--kinds", nargs="+", choices=names, default=list(names), metavar="KIND",
                        help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--redis", action="store_true", help="on a Redis of its own, not on the embedded store")
    parser.add_argument("--before-words", nargs="+", default=[], metavar="NEW=OLD",
                        help="what the first of two binaries calls otherwise in its configuration")


def origin(folder, core=None, body_bytes=BODY_BYTES):
    """An nginx with the pages; it counts its requests at /count."""
    pages = folder / "pages"
    pages.mkdir()
    (pages / "page.html").write_text("<!doctype html><title>One page</title>".ljust(body_bytes, "x"))
    page = f"root {pages}; types {{ text/html html; }} rewrite ^ /page.html break;"
    more = f"""location = /count {{ stub_status; }}
        location = /login {{
            add_header Anteroom-Login alice;
            return 200 "welcome";
        }}
        location = /own {{
            {page}
            add_header Cache-Control "private, no-store";
        }}
        location ~ ^/(page$|everyone/|new/) {{
            {page}
            add_header Cache-Control "max-age=3600";
        }}"""
    return lab.nginx_origin(folder, core=core, more=more)


def asked(origin):
    """How many requests the origin has been asked so far, this one included."""
    lines = ask(origin.port, "/count")[1].splitlines()
    return int(lines[2].split()[2])


def anteroom(binary, folder, origin_port, core=None, store=None, words=()):
    """Anteroom with the routes of the kinds. `words` are pairs: what its configuration says, and what it shall say."""
    folder.mkdir()
    proxy = lab.anteroom(binary, folder, origin_port, core, store, MORE)
    config = folder / "proxy.toml"
    for new, old in words:
        config.write_text(config.read_text().replace(new, old))
    return proxy


def wait_until_ready(proxy, limit_s=60):
    """The port listens before it serves: whether it is free is tried first."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", proxy.admin_port, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.05)
    sys.exit(f"{proxy.name} is not ready after {limit_s} s")


def words(given):
    """The pairs of --before-words."""
    return [tuple(each.partition("=")[::2]) for each in given]


def store(stack, folder, options, core=None):
    """The URL of a store for one proxy; None: embedded in its folder."""
    if not options.redis:
        return None
    folder.mkdir()
    server = stack.enter_context(lab.redis_server(folder, core))
    return f"redis://127.0.0.1:{server.port}/0"


def log_in(port):
    """The cookie of a new session, which the proxy knows."""
    head, _ = ask(port, "/login", method="POST")
    cookie = head["set-cookie"].partition(";")[0]
    _, said = ask(port, "/_anteroom/me", cookie)
    if json.loads(said)["user"] != "alice":
        sys.exit(f"the session that was begun is not known: {said}")
    return cookie


def check(port, name, cookie, words=IN_ANTEROOM, body_bytes=BODY_BYTES):
    """Fills the cache, and holds what comes then against the kind: a new page is a hit the second time."""
    kind = KINDS[name]
    if kind.source == "miss":
        answers = [(kind.target + "/check", "miss"), (kind.target + "/check", "hit")]
    else:
        ask(port, kind.target, cookie)
        answers = [(kind.target, kind.source)]
    for target, source in answers:
        head, body = ask(port, target, cookie)
        field, says = words
        status = head.get(field, "")
        if len(body) != body_bytes or says[source] not in status:
            sys.exit(f"{name}: {field}: {status}, {len(body)} bytes; this would measure something else")


def expected(name, requests):
    """How many of so many requests reach the origin."""
    return 0 if KINDS[name].source == "hit" else requests


def ask(port, target, cookie=None, method="GET", tls=False):
    """The fields of the answer, which has to be a 200, and its body as text. Certificates are not looked at."""
    fields = {"Cookie": cookie} if cookie else {}
    with contextlib.closing(connect(port, tls)) as connection:
        connection.request(method, target, headers=fields)
        answer = connection.getresponse()
        body = answer.read().decode()
    if answer.status != 200:
        sys.exit(f"{method} {target}: {answer.status}\n{body}")
    return answer.headers, body


def connect(port, tls=False):
    """A client of its own."""
    if not tls:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
