"""The site as a process of its own, on a free port. It must not slow the proxy down: requests are read by hand.

    python3 origin.py       prints the port
"""

import asyncio
import contextlib
import email.utils
import random
import secrets
import time
import urllib.parse

import shop

CACHED = "Cache-Control: max-age=300\r\n"
NOT_CACHED = "Cache-Control: no-store\r\n"
# How many of the last views are kept for a login.
VIEWS_MAX = 20


class Site:
    """What the site remembers: logins, and what was viewed with them."""

    def __init__(self):
        self.users = {}
        self.viewed = {}

    def view(self, fields):
        cookies = dict(pair.split("=", 1) for pair in fields.get("cookie", "").split("; ") if "=" in pair)
        sid = cookies.get("sid")
        return shop.View(
            address=fields.get("x-forwarded-for", ""),
            agent=fields.get("user-agent", ""),
            language=fields.get("accept-language", "en"),
            cookies=cookies,
            user=self.users.get(sid),
            viewed=self.viewed.get(sid, []),
        )

    def answer(self, method, target, fields, body):
        path, _, query = target.partition("?")
        if (method, path) == ("POST", "/login"):
            return self.log_in(body)
        if path == "/currency":
            return choose_currency(query)
        view = self.view(fields)
        text = shop.part(path, view)
        if text is None:
            return reply("404 Not Found", NOT_CACHED, "text/plain", b"no such page")
        if path.startswith("/item/"):
            self.note_view(view, path.removeprefix("/item/"))
        return page(path, text)

    def log_in(self, body):
        sid = secrets.token_hex(16)
        self.users[sid] = urllib.parse.parse_qs(body.decode())["user"][0]
        self.viewed[sid] = []
        head = f"{NOT_CACHED}Location: /account\r\nSet-Cookie: sid={sid}; Path=/; HttpOnly\r\n"
        return reply("303 See Other", head, "text/plain", b"welcome")

    def note_view(self, view, number):
        if view.user:
            view.viewed.append(number)
            del view.viewed[:-VIEWS_MAX]


def page(path, text):
    if path == "/go":
        return reply("302 Found", f"{CACHED}Location: {text}\r\n", "text/plain", b"elsewhere")
    head = CACHED
    if path == "/set":
        head += f"Set-Cookie: seen={random.randbytes(12).hex()}; Path=/; Max-Age=31536000\r\n"
    media_type = shop.media_type(path)
    if media_type.startswith("text/html"):
        text = f"{shop.TOP}{text}{shop.BOTTOM}"
    return reply("200 OK", head, media_type, text.encode("latin-1"))


def choose_currency(query):
    currency = urllib.parse.parse_qs(query)["to"][0]
    head = f"{NOT_CACHED}Set-Cookie: currency={currency}; Path=/; Max-Age=31536000\r\n"
    return reply("200 OK", head, "text/html", b"<p>Your currency is chosen</p>")


def reply(status, head, media_type, body):
    date = email.utils.formatdate(time.time(), usegmt=True)
    head = f"{head}Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\nDate: {date}\r\n"
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


class Connection(asyncio.Protocol):
    """One that is kept open. A body needs a length."""

    def __init__(self, site):
        self.site = site
        self.buffer = b""
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        while request := self.next_request():
            self.transport.write(self.site.answer(*request))

    def next_request(self):
        head, end, rest = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(fields.get("content-length", 0))
        if len(rest) < length:
            return None
        self.buffer = rest[length:]
        method, target, _ = first.split(" ")
        return method, target, fields, rest[:length]


async def serve():
    site = Site()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(site), "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
