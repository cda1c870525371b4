"""Visitors with logins who use several proxies at once, and know what they were promised.

Python's standard library only. Each visitor waits for an answer before the next request, and sends each request to
another proxy. So a visitor knows which sessions and carts were acknowledged, and can tell a lost one.
"""

import asyncio
import collections
import json
import random
import time

import lab

HOST = "bench.test"
ITEMS = 40
PAUSE_S = 0.01
PATIENCE_S = 10
# A logout is in force at the other proxies within a second.
GONE_AFTER_S = 1.5
# What may happen to a request: it is fine; an error; a promised 503; the visitor is not recognised; the page is another
# visitor's (wrong); a session goes on after its logout (late); a cart is not as it was acknowledged (stale).
Event = collections.namedtuple("Event", "began ended what outcome status")


def origin_app():
    """The app, for `lab.python_origin`: its pages show the user that the proxy names, and the app's version."""
    version = 0

    def answer(head):
        nonlocal version
        first, _, rest = head.decode("latin-1").partition("\r\n")
        method, target, _ = first.split()
        user = value_of(rest, "x-anteroom-user") or ""
        more, caching = "", "no-store"
        if target.startswith("/login?user="):
            more = f"Anteroom-Login: {target.partition('=')[2]}\r\n"
        elif target.startswith("/logout"):
            more = "Anteroom-Logout: 1\r\n"
        elif target.startswith("/bump"):
            version += 1
        elif target.startswith(("/my/", "/item/", "/open/")):
            caching, user = "max-age=600", "" if target.startswith("/open/") else user
        if target.startswith("/item/"):
            user = ""
        body = f"user={user};version={version}"
        return (
            f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: {caching}\r\n{more}"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    return answer


CONFIG = """
[session]
mint = true
cookie = "login"
token_storage = "plain"
[[route]]
match.path = ["/item/{item}"]
share = "everyone"
[[route]]
match.path = ["/my/**"]
share = "user"
[[route]]
match.path = ["/open/**"]
share = "everyone"
[[route]]
match.path = ["/now/**"]
share = "none"
[views]
rescale_every = "1h"
"""


def value_of(head, name):
    for line in head.split("\r\n"):
        before, _, value = line.partition(":")
        if before.lower() == name:
            return value.strip()
    return None


class Answer(collections.namedtuple("Answer", "status head body")):
    """Status 0 is no answer at all; `body` then says why."""

    def token(self):
        for line in self.head.split("\r\n"):
            if line.lower().startswith("set-cookie: login="):
                return line.partition("=")[2].partition(";")[0]
        return None

    def part(self, name):
        """A part of a page of the origin."""
        parts = dict(one.partition("=")[::2] for one in self.body.split(";"))
        return parts.get(name)


class Lines:
    """Kept connections to each of the proxies."""

    host, patience_s = HOST, PATIENCE_S

    def __init__(self, ports):
        self.ports, self.open = ports, {}

    async def ask(self, method, target, fields="", body="", port=None):
        port = port or random.choice(self.ports)
        try:
            return await asyncio.wait_for(self.exchange(port, method, target, fields, body), self.patience_s)
        except (OSError, EOFError, TimeoutError, asyncio.TimeoutError) as error:
            self.drop(port)
            return Answer(0, "", repr(error))

    async def exchange(self, port, method, target, fields, body):
        if port not in self.open:
            self.open[port] = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = self.open[port]
        length = "" if method == "GET" else f"Content-Length: {len(body)}\r\n"
        writer.write(f"{method} {target} HTTP/1.1\r\nHost: {self.host}\r\n{fields}{length}\r\n{body}".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        text = (await reader.readexactly(int(value_of(head, "content-length") or 0))).decode()
        if (value_of(head, "connection") or "").lower() == "close":
            self.drop(port)
        return Answer(int(head.split(" ", 2)[1]), head, text)

    def drop(self, port):
        if port in self.open:
            self.open.pop(port)[1].close()


class Shopper:
    """One visitor: a session at most, its cart as it was acknowledged, and the sessions that are over."""

    def __init__(self, number, ports, events, notes):
        self.number, self.lines, self.events, self.notes = number, Lines(ports), events, notes
        self.log_ins, self.token, self.user = 0, None, None
        self.cart, self.unsure, self.gone = {}, set(), []

    async def live(self, over):
        while not over.is_set():
            await self.act()
            await asyncio.sleep(PAUSE_S * random.uniform(0.5, 1.5))

    async def act(self):
        if self.token is None:
            return await self.log_in()
        done = random.choices(
            [self.read_own, self.read_item, self.change_cart, self.read_cart, self.ask_gone, self.log_out, self.log_in],
            [30, 30, 20, 8, 6, 2, 2],
        )[0]
        return await done()

    async def ask(self, what, method, target, body="", token=None, judge=None, port=None):
        """One request, judged and noted."""
        token = token or self.token
        fields = f"Cookie: login={token}\r\n" if token else ""
        if method != "GET":
            fields += f"Origin: http://{HOST}\r\nContent-Type: application/json\r\n"
        began = time.monotonic()
        answer = await self.lines.ask(method, target, fields, body, port)
        if answer.status == 200:
            outcome = judge(answer) if judge else "fine"
        else:
            outcome = "promised" if answer.status == 503 and what in PROMISED else "error"
        self.events.append(Event(began, time.monotonic(), what, outcome, answer.status))
        return answer

    def recognised(self, answer):
        shown = answer.part("user")
        return "fine" if shown == self.user else "wrong" if shown else "unrecognised"

    async def read_own(self):
        path = random.choice(["/my/page", "/now/page"])
        await self.ask("page", "GET", f"{path}-{random.randrange(5)}", judge=self.recognised)

    async def read_item(self):
        await self.ask("item", "GET", f"/item/item-{random.randrange(ITEMS)}")

    async def ask_gone(self):
        old = [one for one in self.gone if time.monotonic() - one[2] > GONE_AFTER_S]
        if not old:
            return
        token, user, since, how = random.choice(old)

        def judge(answer):
            if not answer.part("user"):
                return "fine"
            if answer.part("user") != user:
                return "wrong"
            now = time.monotonic()
            self.notes.append((now, f"{user} is known {now - since:.1f} s after a {how}"))
            return "late"

        await self.ask("gone", "GET", "/now/gone", token=token, judge=judge)

    async def change_cart(self):
        item, count = f"item-{random.randrange(ITEMS)}", random.randrange(1, 100)
        answer = await self.ask("cart", "PUT", "/_anteroom/cart", json.dumps({"item": item, "count": count}))
        if answer.status == 200:
            self.cart[item] = count
            self.unsure.discard(item)
        else:
            self.unsure.add(item)

    def is_as_acknowledged(self, answer):
        held = {one["item"]: one["count"] for one in json.loads(answer.body)["items"]}
        sure = {item: count for item, count in self.cart.items() if item not in self.unsure}
        return all(held.get(item) == count for item, count in sure.items())

    async def read_cart(self):
        def judge(answer):
            if self.is_as_acknowledged(answer):
                return "fine"
            self.notes.append((time.monotonic(), f"{self.user} has {answer.body} for {self.cart}"))
            return "stale"

        answer = await self.ask("read cart", "GET", "/_anteroom/cart", judge=judge)
        if answer.status == 401:
            last = self.events.pop()
            self.events.append(last._replace(outcome="stale"))

    async def log_out(self):
        token = self.token
        answer = await self.ask("logout", "POST", "/logout")
        self.forget()
        if answer.status == 200:
            self.gone.append((token, self.user, time.monotonic(), "logout"))

    async def log_in(self):
        """A login; where there is a session, it is replaced, and the cart goes on."""
        old = self.token
        if old is None:
            self.log_ins += 1
            self.user = f"u{self.number}-{self.log_ins}"
        answer = await self.ask("login", "POST", f"/login?user={self.user}")
        fresh = answer.token()
        if answer.status == 200 and fresh:
            self.token = fresh
            if old:
                self.gone.append((old, self.user, time.monotonic(), "login"))
        else:
            self.forget()

    def forget(self):
        """The session is over, or it is not known whether it is."""
        self.token, self.cart, self.unsure = None, {}, set()

    async def lost(self):
        """What is not as it was acknowledged, asked at every proxy."""
        lost = []
        for port in self.lines.ports:
            if self.token:
                fields = f"Cookie: login={self.token}\r\n"
                page = await self.lines.ask("GET", "/now/end", fields, port=port)
                if page.status != 200 or page.part("user") != self.user:
                    lost.append(f"session of {self.user} at {port}: {page.status} {page.body}")
                    continue
                cart = await self.lines.ask("GET", "/_anteroom/cart", fields, port=port)
                if cart.status != 200 or not self.is_as_acknowledged(cart):
                    lost.append(f"cart of {self.user} at {port}: {cart.status} {cart.body} for {self.cart}")
            for token, user, _, _ in self.gone:
                page = await self.lines.ask("GET", "/now/end", f"Cookie: login={token}\r\n", port=port)
                if page.status != 200 or page.part("user"):
                    lost.append(f"logout of {user} at {port}: {page.status} {page.body}")
        return lost


PROMISED = ("login", "logout", "cart", "read cart")


def quantile(events, part):
    """In ms."""
    took = sorted(event.ended - event.began for event in events)
    return took[min(int(len(took) * part), len(took) - 1)] * 1e3 if took else float("nan")


def item_visits(proxies):
    """Answered requests for an item by known visitors, by the access logs."""
    count = 0
    for proxy in proxies:
        with open(proxy.access_log, "rb") as log:
            for text in log:
                one = json.loads(text)
                is_item = one.get("path", "").startswith("/item/")
                count += is_item and bool(one.get("user")) and one["status"] == 200
    return count


def metric(proxies, part):
    return int(sum(value for proxy in proxies for name, value in lab.metrics(proxy).items() if part in name))
