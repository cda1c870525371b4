"""The app of `upgrade.py`: pages, logins, uploads, downloads and tunnels, in a process of its own.

Python's standard library only. With `mints`, the proxy creates the sessions; else the app does, and says at /whoami
whose a session is. It goes on to say so after a logout: whether that counts is then for the proxy to remember.
"""

import asyncio
import base64
import collections
import contextlib
import hashlib
import json
import multiprocessing
import secrets
import time
import urllib.request

import lab
from shoppers import value_of

# A download comes, and an upload goes, in pieces.
PIECES, PIECE = 40, b"0123456789abcdef" * 128
DOWNLOAD = PIECES * len(PIECE)
COOKIE = "login"


def cookie_of(head):
    """The token of the app's session, or None."""
    for part in (value_of(head, "cookie") or "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return None


def seconds_of(query):
    """How long the answer waits."""
    return float(query.partition("wait=")[2].partition("&")[0] or 0)


class App:
    """What it knows: its sessions, the versions of its pages, and when it was asked about each visitor."""

    def __init__(self, mints):
        self.mints, self.users = mints, {}
        self.versions, self.asked = collections.Counter(), []

    async def converse(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                await self.answer(head, reader, writer)
                await writer.drain()
        writer.close()

    async def answer(self, head, reader, writer):
        target = head.split(" ", 2)[1]
        path, _, query = target.partition("?")
        if path == "/tunnel":
            return await echo(head, reader, writer)
        if path == "/download":
            return await stream(query, writer)
        length, digest = int(value_of(head, "content-length") or 0), hashlib.sha256()
        for begin in range(0, length, 1 << 16):
            digest.update(await reader.readexactly(min(1 << 16, length - begin)))
        await asyncio.sleep(seconds_of(query))
        fields, text = self.page(path, query, head)
        if path == "/upload":
            text = digest.hexdigest()
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        writer.write(f"HTTP/1.1 200 OK\r\n{lines}Content-Length: {len(text)}\r\n\r\n{text}".encode())

    def page(self, path, query, head):
        """The fields and the text."""
        user = value_of(head, "x-anteroom-user") or ""
        if path == "/whoami":
            user = self.users.get(cookie_of(head))
            self.asked.append((time.monotonic(), user))
            return [("Content-Type", "application/json")], json.dumps({"user": user})
        if path == "/asked":
            return [], json.dumps(self.asked)
        if path.startswith("/bump/"):
            self.versions[path.replace("/bump/", "/page/")] += 1
        lifetime = "max-age=600" if path.startswith(("/page/", "/item/", "/my/")) else "no-store"
        fields = [("Content-Type", "text/html"), ("Cache-Control", lifetime)]
        if path == "/login":
            fields.append(self.log_in(query.partition("user=")[2]))
        elif path == "/logout":
            gone = ("Set-Cookie", f"{COOKIE}=; Path=/; Max-Age=0")
            fields.append(("Anteroom-Logout", "1") if self.mints else gone)
        shown = "" if path.startswith(("/page/", "/item/")) else user
        return fields, f"user={shown};version={self.versions[path.replace('/bump/', '/page/')]}"

    def log_in(self, user):
        """The field of a login."""
        if self.mints:
            return "Anteroom-Login", user
        token = secrets.token_hex(20)
        self.users[token] = user
        return "Set-Cookie", f"{COOKIE}={token}; Path=/"


async def stream(query, writer):
    """A download that takes so many seconds."""
    writer.write(f"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {DOWNLOAD}\r\n\r\n".encode())
    for _ in range(PIECES):
        writer.write(PIECE)
        await writer.drain()
        await asyncio.sleep(seconds_of(query) / PIECES)


def accept_key(key):
    """What the answer to a WebSocket's handshake has (RFC 6455, 4.2.2)."""
    text = f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()
    return base64.b64encode(hashlib.sha1(text).digest()).decode()


async def echo(head, reader, writer):
    """A WebSocket: whatever comes goes back as it came, for a proxy does not look into the frames."""
    key = accept_key(value_of(head, "sec-websocket-key"))
    lines = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {key}\r\n"
    writer.write(f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n".encode())
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


def serve(port, ready, mints):
    async def run():
        app = App(mints)
        async with await asyncio.start_server(app.converse, "127.0.0.1", port, backlog=4096):
            ready.set()
            await asyncio.Event().wait()

    asyncio.run(run())


@contextlib.contextmanager
def app(mints):
    """Its port, for as long as the `with` block."""
    port, ready = lab.free_port(), multiprocessing.Event()
    process = multiprocessing.Process(target=serve, args=(port, ready, mints), daemon=True)
    process.start()
    ready.wait()
    try:
        yield port
    finally:
        process.terminate()
        process.join()


def asked(port):
    """When the app was asked about each visitor, by the monotonic clock."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/asked", timeout=10) as answer:
        return json.load(answer)
