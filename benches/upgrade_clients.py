"""The clients of `upgrade.py` and of its parts: each kind notes what it asked for, what failed, and the longest wait.

A client repeats nothing: whatever is not a whole and right answer has failed. Two exceptions are those that each
HTTP client makes: a kept connection is not used again when its end has arrived, and a stream that a GOAWAY excludes
goes on another connection. Python's standard library only, but for those of `upgrade_http2.py`.
"""

import asyncio
import base64
import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import multiprocessing
import queue
import random
import secrets
import sys
import time

import shoppers
from shoppers import Answer, value_of
from upgrade_app import DOWNLOAD, PIECE, PIECES, accept_key

PAGES = 10
PATIENCE_S = 20
# How long clients that are told to end may take.
END_S = 60
# A purge or a logout at one process counts at the others after this time at the latest.
KNOWN_AFTER_S = 1.5
# How the names of visitors that only read begin.
READER = "reader-"

# Where a proxy is. `mints`: it creates the sessions. `long_s` is how long an upload, a download, a logout and a tunnel
# take; `pause_s` is the mean pause of a client between two requests; `count` is a shared counter of requests on kept
# connections, or None.
Site = collections.namedtuple(
    "Site", "port admin_port socket app_port mints long_s pause_s count", defaults=[0.05, None]
)


@dataclasses.dataclass
class Tally:
    """The requests of a kind of client."""

    requests: int = 0
    # The longest wait, and when it was over.
    worst: tuple = (0, 0)
    # When each request failed, and how.
    failures: list = dataclasses.field(default_factory=list)


class Book:
    """What the clients of a process have noted."""

    def __init__(self):
        self.tallies = collections.defaultdict(Tally)
        # What was acknowledged and is not there any more: when that was seen, and what.
        self.lost = collections.defaultdict(list)

    def note(self, kind, began, failure=None, slack_s=0):
        """A request that is over, and why it failed. `slack_s` is how long its answer takes in any case."""
        tally, took = self.tallies[kind], time.monotonic() - began
        tally.requests += 1
        tally.worst = max(tally.worst, (took - slack_s, time.monotonic()))
        if failure:
            tally.failures.append((time.monotonic(), f"{failure}, {took:.2f} s after it began"))

    def add(self, other):
        for kind, tally in other.tallies.items():
            mine = self.tallies[kind]
            mine.requests += tally.requests
            mine.worst = max(mine.worst, tally.worst)
            mine.failures += tally.failures
        for what, texts in other.lost.items():
            self.lost[what] += texts


def wrong(answer, text=None):
    """Why an answer is not the right one, or None."""
    if answer.status != 200:
        return f"status {answer.status} {answer.body[:80]!r}"
    return None if text is None or text in answer.body else f"{answer.body[:80]!r} has no {text!r}"


class Lines(shoppers.Lines):
    """Kept connections to the proxy; one whose end has arrived is not used again."""

    patience_s = PATIENCE_S

    def __init__(self, port):
        super().__init__([port])

    async def exchange(self, port, *request):
        if port in self.open and self.open[port][0].at_eof():
            self.drop(port)
        return await super().exchange(port, *request)

    def close(self):
        for port in list(self.open):
            self.drop(port)


def targets(client):
    """Pages that may be stored, and others."""
    for number in itertools.count(client):
        yield f"/own/{number}" if number % 3 == 0 else f"/page/kept-{number % PAGES}"


async def kept(book, site, over):
    """Busy connections, and some that are seldom used."""

    async def keep(kind, longest_s, client):
        lines = Lines(site.port)
        for target in targets(client):
            if over.is_set():
                break
            began = time.monotonic()
            book.note(kind, began, wrong(await lines.ask("GET", target), "version="))
            count(site)
            await wait(over, random.uniform(0, longest_s))
        lines.close()

    busy = [keep("kept connections", 2 * site.pause_s, number) for number in range(8)]
    # Longer than a connection without requests is kept after a hand-over.
    rare = [keep("rarely used connections", 9, number) for number in range(8)]
    await asyncio.gather(*busy, *rare)


def usual_pause(site):
    return asyncio.sleep(random.uniform(0, 2 * site.pause_s))


async def wait(over, seconds):
    """At most until it is over."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(over.wait(), seconds)


def count(site):
    if site.count is not None:
        with site.count.get_lock():
            site.count.value += 1


async def ask_once(port, target, fields="", host=shoppers.HOST, patience_s=PATIENCE_S):
    """Over a connection of its own."""
    writer = None

    async def exchange():
        nonlocal writer
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        text = (await reader.readexactly(int(value_of(head, "content-length") or 0))).decode()
        return Answer(int(head.split(" ", 2)[1]), head, text)

    try:
        return await asyncio.wait_for(exchange(), patience_s)
    except (OSError, EOFError, asyncio.TimeoutError) as error:
        return Answer(0, "", repr(error))
    finally:
        if writer is not None:
            writer.close()


async def new(book, site, over):
    """A connection for each request."""

    async def ask(client):
        for target in targets(client):
            if over.is_set():
                return
            began = time.monotonic()
            book.note("a connection a request", began, wrong(await ask_once(site.port, target), "version="))
            await usual_pause(site)

    await asyncio.gather(*map(ask, range(8)))


async def multiplexed(book, site, over):
    """HTTP/2: some connections, each with four requests at a time."""
    from upgrade_http2 import Http2Client

    async def ask(client, number):
        for target in targets(number):
            if over.is_set():
                return
            began, failure = time.monotonic(), None
            try:
                failure = wrong(await asyncio.wait_for(client.ask(target), PATIENCE_S), "version=")
            except (OSError, EOFError, asyncio.TimeoutError) as error:
                failure = repr(error)
            book.note("HTTP/2", began, failure)
            count(site)
            await usual_pause(site)

    clients = [Http2Client(site.port) for _ in range(4)]
    await asyncio.gather(*(ask(client, number) for client in clients for number in range(4)))
    for client in clients:
        if client.line is not None:
            client.line.close()


async def again_and_again(over, every_s, begin):
    """Begins something at this pace, however long each takes; returns when the last is over."""
    tasks = []
    while not over.is_set():
        tasks.append(asyncio.create_task(begin()))
        await wait(over, every_s)
    await asyncio.gather(*tasks)


async def timed(book, kind, slack_s, asking):
    """Notes a long request; `asking` returns why it failed, or None."""
    began = time.monotonic()
    try:
        failure = await asyncio.wait_for(asking, slack_s + PATIENCE_S)
    except (OSError, EOFError, asyncio.TimeoutError) as error:
        failure = repr(error)
    book.note(kind, began, failure, slack_s)


@contextlib.asynccontextmanager
async def connection(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def upload(site):
    """A body that goes in pieces."""
    async with connection(site.port) as (reader, writer):
        lines = f"Host: {shoppers.HOST}\r\nContent-Length: {DOWNLOAD}\r\n"
        writer.write(f"POST /upload HTTP/1.1\r\n{lines}\r\n".encode())
        for _ in range(PIECES):
            writer.write(PIECE)
            await writer.drain()
            await asyncio.sleep(site.long_s / PIECES)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        text = (await reader.readexactly(int(value_of(head, "content-length") or 0))).decode()
        return wrong(Answer(int(head.split(" ", 2)[1]), head, text), hashlib.sha256(PIECE * PIECES).hexdigest())


async def download(site):
    """A body that comes in pieces."""
    async with connection(site.port) as (reader, writer):
        writer.write(f"GET /download?wait={site.long_s} HTTP/1.1\r\nHost: {shoppers.HOST}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        body = await reader.readexactly(int(value_of(head, "content-length") or 0))
        return None if body == PIECE * PIECES else f"{head.splitlines()[0]}, {len(body)} bytes"


async def tunnel(site, book):
    """A WebSocket; the longest wait is that for an echo."""
    async with connection(site.port) as (reader, writer):
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        lines = f"Host: {shoppers.HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        lines += f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        writer.write(f"GET /tunnel HTTP/1.1\r\n{lines}\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        if value_of(head, "sec-websocket-accept") != accept_key(key):
            return head.splitlines()[0]
        ends, number = time.monotonic() + site.long_s, 0
        while time.monotonic() < ends:
            number, sent = number + 1, time.monotonic()
            writer.write(number.to_bytes(8, "big"))
            if int.from_bytes(await reader.readexactly(8), "big") != number:
                return "another echo"
            book.note("echoes in WebSockets", sent)
            await asyncio.sleep(0.1)
        return None


def session_of(token):
    return f"Cookie: login={token}\r\n"


async def log_out_slowly(site, book, gone):
    """Logs in, and out by a POST that takes long."""
    user, lines = f"leaver-{secrets.token_hex(4)}", Lines(site.port)
    lines.patience_s = site.long_s + PATIENCE_S
    answer = await lines.ask("POST", f"/login?user={user}", f"Origin: http://{shoppers.HOST}\r\n")
    if failure := wrong(answer):
        return f"login: {failure}"
    token = answer.token()
    answer = await lines.ask("GET", "/now/mine", session_of(token))
    if failure := wrong(answer, f"user={user};"):
        return f"after the login: {failure}"
    fields = f"{session_of(token)}Origin: http://{shoppers.HOST}\r\n"
    answer = await lines.ask("POST", f"/logout?wait={site.long_s}", fields)
    lines.close()
    if not wrong(answer):
        gone.append((token, user))
        await asyncio.sleep(KNOWN_AFTER_S)
        await find_log_out(site, book, token, user)
    return wrong(answer)


async def find_log_out(site, book, token, user):
    """A session that was logged out must not be known."""
    answer = await ask_once(site.port, "/now/gone", session_of(token))
    if failure := wrong(answer, "user=;"):
        book.lost["logouts"].append((time.monotonic(), f"{user}: {failure}"))


async def long_ones(book, site, over):
    """Four of each kind are under way at any time. Those of a logout are looked for again at the end."""
    gone, every_s = [], site.long_s / 4
    long = f"of {site.long_s:g} s"

    def uploads():
        return timed(book, f"uploads {long}", site.long_s, upload(site))

    def downloads():
        return timed(book, f"downloads {long}", site.long_s, download(site))

    def tunnels():
        return timed(book, f"WebSockets {long}", site.long_s, tunnel(site, book))

    def log_outs():
        slack_s = site.long_s + KNOWN_AFTER_S
        return timed(book, f"logouts {long}", slack_s, log_out_slowly(site, book, gone))

    kinds = (uploads, downloads, tunnels, log_outs)
    await asyncio.gather(*(again_and_again(over, every_s, kind) for kind in kinds))
    for token, user in gone:
        await find_log_out(site, book, token, user)


async def ask_readiness(book, site, over):
    """As a load balancer does that never misses a state, and over a kept connection."""
    host, lines = f"127.0.0.1:{site.admin_port}", Lines(site.admin_port)
    lines.host = host

    async def check(kind, pause_s, ask):
        while not over.is_set():
            began = time.monotonic()
            book.note(kind, began, wrong(await ask(), "ready"))
            await asyncio.sleep(pause_s)

    await asyncio.gather(
        check("readiness checks", 0.01, lambda: ask_once(site.admin_port, "/readyz", host=host)),
        check("readiness checks, kept", 0.003, lambda: lines.ask("GET", "/readyz")),
    )
    lines.close()


async def command(socket, method, target, body):
    """What the running proxy answers over its socket."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket))
        head = f"{method} {target} HTTP/1.0\r\nHost: anteroom\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        answer = (await asyncio.wait_for(reader.read(), PATIENCE_S)).decode()
        writer.close()
        head, _, text = answer.partition("\r\n\r\n")
        return Answer(int(head.split(" ", 2)[1]), head, text)
    except (OSError, EOFError, IndexError, asyncio.TimeoutError) as error:
        return Answer(0, "", repr(error))


async def purge(book, site, over):
    """Pages change at the app and are purged; readers on kept and on new connections must see that."""
    # By page, versions with the time from which each must be seen.
    known = collections.defaultdict(lambda: [(0, 0)])

    async def change():
        for number in itertools.count():
            if over.is_set():
                return
            page = f"/page/changes-{number % PAGES}"
            bumped = await ask_once(site.app_port, page.replace("/page/", "/bump/"))
            began, body = time.monotonic(), json.dumps({"urls": [f"http://{shoppers.HOST}{page}"], "hard": True})
            answer = await command(site.socket, "POST", "/purge", body)
            book.note("purges", began, wrong(answer))
            if answer.status == 200:
                is_everywhere = json.loads(answer.body)["confirmed"]
                since = time.monotonic() + (0 if is_everywhere else KNOWN_AFTER_S)
                known[page].append((since, int(bumped.part("version"))))
            await asyncio.sleep(0.1)

    async def read(ask):
        while not over.is_set():
            page, began = f"/page/changes-{random.randrange(PAGES)}", time.monotonic()
            # Versions are counted from 0, and each is purged once.
            due = max(version for since, version in known[page] if since <= began)
            answer = await ask(page)
            failure = wrong(answer)
            book.note("readers of purged pages", began, failure)
            if not failure and int(answer.part("version")) < due:
                book.lost["purges"].append((began, f"{page} is {answer.body}, and was purged for {due}"))
            await usual_pause(site)

    lines = [Lines(site.port) for _ in range(2)]
    asks = [lambda page, one=one: one.ask("GET", page) for one in lines]
    asks += 2 * [lambda page: ask_once(site.port, page)]
    await asyncio.gather(change(), *map(read, asks))


class Shopper(shoppers.Shopper):
    """A visitor that logs in and out, and fills a cart; less busy than those of other benches."""

    def __init__(self, number, site):
        super().__init__(number, [site.port], [], [])
        self.lines, self.site = Lines(site.port), site

    async def live(self, over):
        while not over.is_set():
            await self.act()
            await usual_pause(self.site)

    async def log_in(self):
        # A second login replaces the session where the proxy makes it. The app of this bench keeps both.
        if self.token is None or self.site.mints:
            await super().log_in()

    async def tell(self, book):
        """What failed, and what was lost."""
        kinds = {"unrecognised": "sessions", "wrong": "sessions", "late": "logouts", "stale": "carts"}
        for event in self.events:
            failure = f"{event.what}: status {event.status}" if event.outcome in ("error", "promised") else None
            tally = book.tallies["visitors with carts"]
            tally.requests += 1
            tally.worst = max(tally.worst, (event.ended - event.began, event.ended))
            if failure:
                tally.failures.append((event.ended, failure))
            if what := kinds.get(event.outcome):
                book.lost[what].append((event.ended, f"{event.what} of {self.user}"))
        for text in await self.lost():
            what = next(kind for kind in ("logouts", "sessions", "carts") if text.startswith(kind[:-1]))
            book.lost[what].append((time.monotonic(), f"at the end: {text}"))


async def shop(book, site, over):
    visitors = [Shopper(number, site) for number in range(8)]
    await asyncio.gather(*(visitor.live(over) for visitor in visitors))
    for visitor in visitors:
        await visitor.tell(book)


async def read_logged_in(book, site, over):
    """Visitors with a session that only read. The app need not be asked about them again."""
    lines = [Lines(site.port) for _ in range(4)]
    tokens = {}
    for number in range(100):
        user = f"{READER}{number}"
        answer = await lines[0].ask("POST", f"/login?user={user}", f"Origin: http://{shoppers.HOST}\r\n")
        tokens[user] = answer.token()

    async def read(users, one):
        for user in itertools.cycle(users):
            if over.is_set():
                return
            began = time.monotonic()
            answer = await one.ask("GET", "/now/mine", session_of(tokens[user]))
            book.note("visitors that read", began, wrong(answer))
            if answer.status == 200 and answer.part("user") != user:
                book.lost["sessions"].append((began, f"{user} is {answer.part('user')!r}"))
            await usual_pause(site)

    users = list(tokens)
    await asyncio.gather(*(read(users[number::4], one) for number, one in enumerate(lines)))


def play(kinds, site, is_over, told):
    """Some kinds of clients, in a process of their own."""

    async def run():
        book, over = Book(), asyncio.Event()
        tasks = [asyncio.ensure_future(kind(book, site, over)) for kind in kinds]
        watch = asyncio.ensure_future(asyncio.to_thread(is_over.wait))
        # A client that fails by a mistake of this file is not to be taken for one that is served.
        await asyncio.wait([watch, *tasks], return_when=asyncio.FIRST_COMPLETED)
        over.set()
        is_over.set()
        await asyncio.gather(*tasks)
        return book

    told.put(asyncio.run(run()))


# The clients of each process.
ALL = ((kept, new), (multiplexed, long_ones), (ask_readiness, purge), (shop, read_logged_in))


class Crowd:
    """All clients, for as long as the `with` block; then `book` has what they noted."""

    def __init__(self, site, groups=ALL):
        self.over, self.told, self.book = multiprocessing.Event(), multiprocessing.Queue(), Book()
        arguments = (site, self.over, self.told)
        self.processes = [
            multiprocessing.Process(target=play, args=(group, *arguments), daemon=True) for group in groups
        ]

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, kind, *_):
        self.over.set()
        if kind is None:
            for _ in self.processes:
                self.book.add(self.next_book())
        for process in self.processes:
            process.join(1)
            process.kill()

    def next_book(self):
        try:
            return self.told.get(timeout=END_S)
        except queue.Empty:
            sys.exit("some clients do not end, or have failed by a mistake of their own")
