#!/usr/bin/env python3
"""What the leak guard costs: the CPU time of a miss with it and without, in one run.

    benches/guard.py                    builds the release binary and measures
    benches/guard.py --rounds 2000 --size 65536

A proxy of one thread has three routes with share = "everyone", which differ in leak_guard: "off", "marks" and
"full". (Three proxies would differ by more than that, though they were all the same.) Alice is logged in, with an
e-mail address and a customer number. She asks by each route in turn, some hundred pages at a time, for pages that
nobody has asked for yet; all of them are kept. The figure is the CPU time of the proxy for each, and how much more
it is than with "off".
"""

import asyncio
import contextlib
import os
import pathlib
import statistics
import sys
import tempfile

import lab

ITEM = (
    '<li class="item"><a href="/item/lantern?ref=list&amp;page=2">A lantern of brass &amp; glass</a> '
    "<span>19&nbsp;&euro;</span></li>\n"
)
LOGIN = "alice.brown; email=alice.brown@example.com; customer=C-10442"
GUARDS = ["off", "marks", "full"]
ROUND = 20
CLIENT_CORE, PROXY_CORE = 1, 0
# A guard may take so much more.
MOST = 1.05


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


def route(guard):
    return f'[[route]]\nmatch.path = "/{guard}/**"\nshare = "everyone"\nleak_guard = "{guard}"\n'


class Alice(lab.Connection):
    """A visitor with a login and one connection."""

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


async def play(proxy, rounds):
    """CPU seconds that a round takes by each route: the medians, for the machine may be half as fast a minute later.
    What the store does behind the answers of one route falls on all alike."""
    alice = await Alice().open(proxy.port)
    spent = {guard: [] for guard in GUARDS}
    for turn in range(rounds):
        for guard in GUARDS[turn % 3 :] + GUARDS[: turn % 3]:
            before = proxy.run_s()
            for number in range(turn * ROUND, (turn + 1) * ROUND):
                await alice.get(f"/{guard}/{number}")
            spent[guard].append(proxy.run_s() - before)
    return {guard: statistics.median(each) for guard, each in spent.items()}


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=600, metavar="N", help=f"of {ROUND} pages for each")
    parser.add_argument("--size", type=int, default=32_768, metavar="BYTES", help="of a page")
    given = parser.parse_args()

    binary = lab.anteroom_binary(given.anteroom)
    # Who asks and who answers share a core, and the proxies, which take turns, have another.
    os.sched_setaffinity(0, {CLIENT_CORE})
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(lab.python_origin(shop, given.size))
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        routes = "".join(map(route, GUARDS))
        more = f"[session]\nmint = true\n{routes}"
        proxy = stack.enter_context(lab.anteroom(binary, folder, port, PROXY_CORE, more=more))
        spent = asyncio.run(play(proxy, given.rounds))
    usual = spent["off"]
    print(f"{given.rounds * ROUND} pages of {len(page(given.size))} bytes for each, fetched and kept")
    for guard, seconds in spent.items():
        each = seconds / ROUND * 1e6
        print(f'leak_guard = "{guard}": {each:.0f} us of CPU each, {100 * (seconds / usual - 1):+.1f} %')
    if max(spent.values()) > MOST * usual:
        sys.exit("a guard takes more than 5 %")


if __name__ == "__main__":
    main()
