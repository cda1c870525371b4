#!/usr/bin/env python3
"""What the leak guard costs: the CPU time of a miss with it and without, in one run.

    benches/guard.py                    builds the release binary and measures
    benches/guard.py --pages 20000 --size 65536

Three proxies of one thread have the same route, share = "everyone", but for leak_guard = "off", "marks" or
"full". Alice is logged in, with an e-mail address and a customer number. She asks each of them in turn, some
hundred pages at a time, for pages that nobody has asked for yet; all of them are kept. The figure is the CPU
time of the proxy for each, and how much more it is than with "off".
"""

import asyncio
import contextlib
import pathlib
import sys
import tempfile
import time

import lab

ITEM = (
    '<li class="item"><a href="/item/lantern?ref=list&amp;page=2">A lantern of brass &amp; glass</a> '
    "<span>19&nbsp;&euro;</span></li>\n"
)
LOGIN = "alice.brown; email=alice.brown@example.com; customer=C-10442"
GUARDS = ["off", "marks", "full"]
ROUND = 250
# A guard may take so much more.
MOST = 1.05
# The store writes pages behind the answers: a proxy that used no CPU for so long rests.
RESTS_S = 0.5


def page(size):
    text = "<!doctype html><html><head><title>Shop</title></head><body><ul>\n"
    return (text + ITEM * (max(0, size - len(text)) // len(ITEM)) + "</ul></body></html>\n").encode()


def shop(size):
    """An app that logs everybody in as Alice, and has one page."""
    body = page(size)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    answer = (head + "\r\n").encode() + body
    login = f"HTTP/1.1 200 OK\r\nAnteroom-Login: {LOGIN}\r\nContent-Length: 0\r\n\r\n".encode()
    return lambda head: login if head.startswith(b"POST") else answer


class Alice(lab.Connection):
    """A visitor with a log-in and one connection."""

    async def open(self, port):
        await super().open(port)
        head, _ = await self.ask("POST /login", "Content-Length: 0\r\n")
        self.cookie = lab.field(head, "set-cookie").partition(";")[0]
        return self

    async def get(self, target):
        fields = f"Cookie: {self.cookie}\r\nAccept-Encoding: gzip\r\n"
        head, _ = await self.ask(f"GET {target}", fields)
        if "; stored" not in head:
            sys.exit(f"a page was not kept:\n{head}")


async def play(proxies, pages):
    """CPU seconds of each proxy over all pages, with what it does behind its answers."""
    visitors = {guard: await Alice().open(proxy.port) for guard, proxy in proxies.items()}
    before = {guard: settled(proxy) for guard, proxy in proxies.items()}
    order = list(proxies)
    for first in range(0, pages, ROUND):
        for guard in order:
            for number in range(first, min(first + ROUND, pages)):
                await visitors[guard].get(f"/list/{number}")
        order.append(order.pop(0))
    return {guard: settled(proxy) - before[guard] for guard, proxy in proxies.items()}


def settled(proxy):
    """CPU seconds of a proxy that rests."""
    spent = None
    while spent != proxy.cpu_s():
        spent = proxy.cpu_s()
        time.sleep(RESTS_S)
    return spent


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("--pages", type=int, default=10_000, metavar="N", help="pages for each")
    parser.add_argument("--size", type=int, default=32_768, metavar="BYTES", help="of a page")
    given = parser.parse_args()

    binary = lab.anteroom_binary(given.anteroom)
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(lab.python_origin(shop, given.size))
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxies = {}
        for guard in GUARDS:
            own = folder / guard
            own.mkdir()
            more = f'[session]\nmint = true\n[[route]]\nmatch.path = "/list/**"\nshare = "everyone"\n' \
                   f'leak_guard = "{guard}"\n'
            proxies[guard] = stack.enter_context(lab.anteroom(binary, own, port, more=more))
        spent = asyncio.run(play(proxies, given.pages))
    usual = spent["off"]
    print(f"{given.pages} pages of {len(page(given.size))} bytes, fetched and kept")
    for guard, seconds in spent.items():
        each = seconds / given.pages * 1e6
        print(f'leak_guard = "{guard}": {each:.0f} us of CPU each, {100 * (seconds / usual - 1):+.1f} %')
    if max(spent.values()) > MOST * usual:
        sys.exit("a guard takes more than 5 %")


if __name__ == "__main__":
    main()
