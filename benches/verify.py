#!/usr/bin/env python3
"""How often an app is asked who its visitors are, and what remembering that takes.

    benches/verify.py                      builds the release binary, and plays 100,000 visitors
    benches/verify.py --tokens 20000 --anteroom target/debug/anteroom

An app keeps its own sessions, and is asked by [session.verify]. Each visitor has a session of his own, and
asks for /_anteroom/me three times: twice at the same time on two connections, and once more when all others
have been there. Half of them are logged in. The run fails when the app was asked of one of them more often
than once, or one was told anything but his own name. Printed are the questions, and the memory of the
proxy: at the start, at its peak and at the end.
"""

import asyncio
import collections
import json
import pathlib
import sys
import tempfile
import time

import lab

# What a visitor may take of the proxy's memory, with all that it has for them together.
BYTES_MAX = 2_000

SESSION = """
[session]
cookie = "SID"
[session.verify]
path = "/whoami"
user = { json = "/name" }
nobody = { json = "/name", equals = "" }
verify_every = "1h"
"""


def name_of(sid):
    """The user of a session; every second one is nobody's."""
    number = int(sid.rpartition("-")[2])
    return f"user-{number}" if number % 2 else ""


def app():
    """An app that says who one is, counts how often it was asked that of each, and tells it at /count."""
    asked = collections.Counter()

    def answer(head):
        head = head.decode("latin-1")
        if head.startswith("GET /count"):
            body = json.dumps([len(asked), sum(asked.values()), max(asked.values(), default=0)])
        else:
            sid = lab.field(head, "cookie").partition("SID=")[2]
            asked[sid] += 1
            body = json.dumps({"name": name_of(sid)})
        return (
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )

    return answer


async def get(connection, target, cookie=""):
    """What JSON says there."""
    fields = f"Cookie: {cookie}\r\n" if cookie else ""
    _, body = await connection.ask(f"GET {target}", fields)
    return json.loads(body)


async def play(port, tokens, pairs):
    """Each visitor asks twice at once, then once more; how many were told who they are not."""
    wrong = 0
    connections = [
        (await lab.Connection().open(port), await lab.Connection().open(port)) for _ in range(pairs)
    ]

    async def some(mine, first):
        nonlocal wrong
        for number in range(first, tokens, pairs):
            sid = f"session-{number}"
            asks = [get(one, "/_anteroom/me", f"SID={sid}") for one in mine]
            for me in await asyncio.gather(*asks):
                wrong += (me["user"] or "") != name_of(sid)

    for _ in range(2):
        await asyncio.gather(*(some(mine, first) for first, mine in enumerate(connections)))
        # The second time it is one request each.
        connections = [mine[:1] for mine in connections]
    return wrong


async def count(port):
    return await get(await lab.Connection().open(port), "/count")


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("--tokens", type=int, default=100_000, metavar="N", help="visitors")
    parser.add_argument("--pairs", type=int, default=200, metavar="N", help="visitors at a time")
    parser.add_argument("--store", metavar="URL", help="this one, not an embedded one")
    given = parser.parse_args()

    binary = lab.anteroom_binary(given.anteroom)
    with tempfile.TemporaryDirectory() as folder, lab.python_origin(app) as port:
        folder = pathlib.Path(folder)
        with lab.anteroom(binary, folder, port, store=given.store, more=SESSION) as proxy:
            before = proxy.memory_kib("VmRSS")
            since = time.monotonic()
            wrong = asyncio.run(play(proxy.port, given.tokens, given.pairs))
            took = time.monotonic() - since
            known, questions, most = asyncio.run(count(port))
            peak, after = proxy.memory_kib("VmHWM"), proxy.memory_kib("VmRSS")
    each = (peak - before) * 1024 / given.tokens
    print(
        f"{given.tokens} visitors, {3 * given.tokens} requests in {took:.1f} s\n"
        f"asked about {known} of them, {questions} times, {most} at most of one\n"
        f"{wrong} were told what is not theirs\n"
        f"memory of the proxy: {before / 1024:.1f} MiB before, {peak / 1024:.1f} at most, "
        f"{after / 1024:.1f} behind: {each:.0f} bytes a visitor"
    )
    if wrong or most != 1 or known != given.tokens:
        sys.exit("not every visitor was asked about once, and told who he is")
    if given.tokens >= 100_000 and each > BYTES_MAX:
        sys.exit(f"a visitor may take {BYTES_MAX} bytes")


if __name__ == "__main__":
    main()
