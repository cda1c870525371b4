"""The clients of `upgrade.py` over HTTP/2 in clear text.

Needs the Python module h2, which the interop-venv has.
"""

import asyncio
import contextlib

import siege_http2
from siege_client import Request


class Unprocessed(ConnectionResetError):
    """A stream behind the last one that a GOAWAY names."""


class Http2Line(siege_http2.Line):
    """Tells the streams that may go on another connection from those that have failed."""

    def end_after(self, last):
        for stream, reply in self.replies.items():
            if stream > last and not reply.answer.done():
                reply.answer.set_exception(Unprocessed())
        super().end_after(last)


class Http2Client:
    """Asks on one connection, with several streams at a time."""

    def __init__(self, port):
        self.port, self.line, self.opening = port, None, asyncio.Lock()

    async def ask(self, target):
        while True:
            async with self.opening:
                if self.line is None or self.line.is_over:
                    self.line = Http2Line(*await asyncio.open_connection("127.0.0.1", self.port))
            with contextlib.suppress(Unprocessed):
                return await self.line.ask(Request("GET", target, "", ""))
