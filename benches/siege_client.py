"""A client of `siege.py`: a user, a reader or a stranger, over HTTP/1.1.

Python's standard library only.
"""

import asyncio
import collections
import contextlib

from shoppers import Answer, value_of

PATIENCE_S = 30
# The pause after an error, and between two attempts to connect.
PAUSE_S = 0.05


# `fields` are whole lines, without Host.
Request = collections.namedtuple("Request", "method target fields body")


class Client:
    """Asks from one address, with a session or without; keeps as many connections as it needs at once."""

    def __init__(self, port, source=None, fields="", token=None, keeps=True):
        self.port, self.source, self.fields, self.keeps = port, source, fields, keeps
        self.token, self.idle = token, []

    async def ask(self, target, fields="", form=None, patience_s=PATIENCE_S):
        """A GET, or with a form a POST. Where there is no answer, its status is 0."""
        fields += self.fields + (f"Cookie: login={self.token}\r\n" if self.token else "")
        if form is not None:
            fields += f"Origin: http://bench.test\r\nContent-Length: {len(form)}\r\n"
            fields += "Content-Type: application/x-www-form-urlencoded\r\n"
        request = Request("GET" if form is None else "POST", target, fields, form or "")
        try:
            return await asyncio.wait_for(self.send(request), patience_s)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, asyncio.TimeoutError) as error:
            return Answer(0, "", repr(error))

    async def send(self, request):
        method, target, fields, body = request
        text = f"{method} {target} HTTP/1.1\r\nHost: bench.test\r\n{fields}\r\n{body}".encode()
        while self.idle:
            # A kept connection may have been closed meanwhile.
            with contextlib.suppress(EOFError, ConnectionError):
                return await self.exchange(*self.idle.pop(), text)
        return await self.exchange(*await self.connect(), text)

    async def connect(self):
        """A new connection, once the proxy listens."""
        source = (self.source, 0) if self.source else None
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", self.port, local_addr=source)
            except ConnectionRefusedError:
                await asyncio.sleep(PAUSE_S)

    async def exchange(self, reader, writer, text):
        keep = False
        try:
            writer.write(text)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            body = await reader.readexactly(int(value_of(head, "content-length") or 0))
            keep = self.keeps and (value_of(head, "connection") or "").lower() != "close"
        finally:
            if keep:
                self.idle.append((reader, writer))
            else:
                writer.close()
        return Answer(int(head.split(" ", 2)[1]), head, body.decode())

    async def log_in(self, name):
        """Whether there is a session now."""
        self.token = (await self.ask("/login", form=f"user={name}")).token()
        return self.token is not None

    async def status(self, target, name=""):
        """The status of a page, or "no user" where a user's name is not in it."""
        answer = await self.ask(target)
        return answer.status if answer.status != 200 or name in answer.body else "no user"
