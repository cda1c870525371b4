"""The pages of the site, and what each of them must show to a visitor.

A page shows one part of its own in a layout that is the same on all pages. `part` makes it from what the site can know
of a visitor, and `is_right` holds an answer against that: the site and the visitors' side use the same words.
"""

import hashlib
import html
import json
import random
import time
from typing import NamedTuple

HOST = "shop.example"
ITEMS = 40
TAGS = 400
# An address names its country by the second number: 10.1.x.x and so on.
COUNTRIES = {"1": "Germany", "2": "France", "3": "Austria"}
CURRENCIES = {"EUR": 100, "USD": 109, "GBP": 86}
LANGUAGES = ["de", "en", "fr"]
# Cookies that pages depend on, and those that no page depends on.
HARMFUL = {"sid", "currency", "ab"}
HARMLESS = {"consent", "tracker", "seen"}

LAYOUT = [f'<li><a href="/item/{n}">Item {n} of the shop</a></li>' for n in range(1, ITEMS + 1)]
TOP = "\n".join(
    ["<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">', "<title>The shop</title>"]
    + ['<link rel="stylesheet" href="/style.css">', "</head>", "<body>", "<header>", "<nav>", "<ul>"]
    + LAYOUT + ["</ul>", "</nav>", "</header>", "<main>", ""]
)  # fmt: skip
BOTTOM = "\n".join(
    ["", "</main>", "<footer>", "<ul>", *(f"<li>Line {n} below each page</li>" for n in range(1, 7)), "</ul>"]
    + ['<img src="/logo.png" alt="The shop">', "</footer>", "</body>", "</html>", ""]
)
STYLE = "".join(f".item-{n} {{ order: {n}; color: #{n * 4_099:06x}; }}\n" for n in range(1, ITEMS + 1))
LOGO = b"\x89PNG\r\n\x1a\n" + bytes(n * n % 251 for n in range(2_000))


class View(NamedTuple):
    """What a page may depend on."""

    address: str
    agent: str
    language: str
    cookies: dict
    # The name of the login, and the items that it has viewed; the last one comes last.
    user: str | None
    viewed: list


def account(view):
    return f"<p>Hello, {view.user or 'stranger'}</p>"


def country(view):
    blocks = view.address.split(".")
    name = COUNTRIES.get(blocks[1], "no known country") if blocks[0] == "10" else "no known country"
    return f"<p>You are in {name}</p>"


def clock(_):
    return f"<p>It is {time.time_ns() // 1_000_000} ms</p>"


def nonce(_):
    script, form = random.randbytes(16).hex(), random.randbytes(12).hex()
    return f'<script nonce="{script}">start()</script>\n<input type="hidden" name="ref" value="{form}">'


def price(view):
    currency = view.cookies.get("currency", "EUR")
    rate = CURRENCIES[currency]
    return "\n".join(f"<p>Item {n}: {n * rate * 7 / 100:.2f} {currency}</p>" for n in range(1, 7))


def ab(view):
    return f"<p>This is variant {view.cookies.get('ab', 'a')}</p>"


def shuffled(_):
    items = [f"<p>Offer {n}</p>" for n in range(1, 13)]
    random.shuffle(items)
    return "\n".join(items)


def viewed(view):
    items = ", ".join(f"item {number}" for number in view.viewed[-5:])
    return f"<p>Viewed by {tag(view)}: {items or 'nothing yet'}</p>"


def tag(view):
    """Names the login's cookie, and does not tell it."""
    sid = view.cookies.get("sid") if view.user else None
    return hashlib.sha256(sid.encode()).hexdigest()[:8] if sid else "none"


def me(view):
    return json.dumps({"name": view.user})


def go(view):
    return f"/{view.language[:2]}/"


def agent(view):
    return f"<p>Your browser is {html.escape(view.agent)}</p>"


def device(view):
    """By the browser, whose name is not in the page."""
    kind = "a telephone" if "Mobile" in view.agent else "a desk"
    return f"<p>This page is for {kind}</p>"


def same(_):
    return "<p>The same for all</p>"


PLANTED = {
    "/account": account,
    "/country": country,
    "/clock": clock,
    "/nonce": nonce,
    "/price": price,
    "/ab": ab,
    "/random": shuffled,
    "/viewed": viewed,
    "/api/me.json": me,
    "/go": go,
    "/agent": agent,
    "/device": device,
    "/set": same,
    "/plain": same,
}
# What differs each time: visitors may share one of these answers.
NOISE = {"/clock", "/nonce", "/random"}
OTHERS = {
    "/": "<h1>Welcome</h1>",
    "/about": "<h1>About the shop</h1>",
    "/style.css": STYLE,
    "/logo.png": LOGO.decode("latin-1"),
}


def part(path, view):
    """What the page shows beside the layout; `None`: there is no such page."""
    if path in PLANTED:
        return PLANTED[path](view)
    if path in OTHERS:
        return OTHERS[path]
    kind, _, number = path[1:].partition("/")
    if kind in ("item", "tag") and number.isdigit():
        return f"<h1>About {kind} {number}</h1>\n<p>It is number {number} of its kind.</p>"
    return None


def media_type(path):
    kinds = {"css": "text/css", "png": "image/png", "json": "application/json"}
    return kinds.get(path.rpartition(".")[2], "text/html; charset=utf-8")


def expected(path, view):
    """What an answer must show to this visitor; `None`: it cannot be said."""
    return None if path in NOISE else part(path, view)


def shown(path, location, body):
    """What an answer shows, as `part` has it."""
    if path == "/go":
        return location
    text = body.decode("latin-1")
    if path not in OTHERS and not path.endswith(".json") or path in ("/", "/about"):
        text = text.partition("<main>\n")[2].partition("\n</main>")[0]
    return text


def is_right(path, view, seen):
    if path == "/viewed":
        return is_right_viewed(view, seen)
    return expected(path, view) in (None, seen)


def is_right_viewed(view, seen):
    """The site knows only the views that reach it: some may be missing, and none may be foreign."""
    own = f"<p>Viewed by {tag(view)}: "
    items = seen.removeprefix(own).removesuffix("</p>")
    may_be = {"nothing yet", *(f"item {number}" for number in view.viewed)}
    return seen.startswith(own) and set(items.split(", ")) <= may_be
