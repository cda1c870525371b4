#!/usr/bin/env python3
"""Under siege: how users with a session are answered while strangers crawl an app that has few workers.

    benches/siege.py                            builds the release binary; every case for 30 seconds
    benches/siege.py calm forged --seconds 60 --after 10 --anteroom target/release/anteroom
    benches/siege.py defaults --against 'overload = "off"'
    benches/siege.py defaults --proxies 2 --calm 15
    benches/siege.py fairness --seconds 60 --after 10
    target/interop-venv/bin/python benches/siege.py defaults --http2
    benches/siege.py defaults --app gunicorn
    benches/siege.py defaults --app php-fpm

The app works on four requests at a time, first come, first served, 0.2 s on each: at most 20 a second. A
request costs that time even when its client has left. Each of five users asks for a private
page once a second, whether the last answer is there or not. Two readers without a login ask for ten pages
that both of them read, and one more client asks for a cached page ten times a second. Users, readers and
strangers have addresses in networks of their own.

Each case is a row: users answered of those that asked, their times in seconds, and what else they got; the
cached page; the strangers that were answered within the case; what the app did; the readers. A user is
answered when the page has status 200 and shows the user's own name. A request without an answer after 30
seconds has failed. A request that is open at the end of a case is waited for, and the siege goes on until
then. Needs redis-server for `--store redis` and for several proxies.

By default the app is a server in Python. With --app gunicorn the same pages come from gunicorn with four sync workers, and
with --app php-fpm from PHP-FPM with four children (pm = static) behind nginx. Each app sleeps for the time of a page, so
that the cores are left to the proxy. Needs what tests/apps/run django --install makes, or php-fpm and nginx-light.

With --http2 all clients speak HTTP/2 in clear text. A user has one connection with a stream for each request, and a
stranger has a connection of its own. A stranger that hangs up resets its stream. Needs the Python module h2, which the
interop-venv has.

The cases healthy-30, healthy-60 and healthy-90 have no siege: visitors come at random times, with a session (three in
ten) or without one, each from a network of its own, so many that the app is busy for that part of the time. What is
added is the time of the answer less the time between the app's first byte of the request and its answer.

The case fairness has strangers of 201 networks, behind a trusted proxy: one network has 200 connections, and each of the
others has one. All ask again as soon as they are answered. A fair share is a 201st of their answers. A line below the row
has the least, the median and the greatest part of it that the networks of one connection got, and what the large network
got. Each of the 200 is to be within 20 % of its share. The app takes 20 ms for a page here, at most 200 a second: a
fair share is nearly one answer a second. In 30 seconds one answer more or less is 4 %, and 20 % are five or six. The queue
of 400 connections is 2 s long. With 10 ms it would be one second, which Anteroom leaves in the app.
"""

import asyncio
import collections
import contextlib
import copy
import dataclasses
import math
import multiprocessing
import pathlib
import random
import sys
import time
import typing

import lab
from shoppers import value_of
from siege_app import APPS
from siege_client import PATIENCE_S, PAUSE_S, Client

USERS, READERS, LOG_INS, PAGES_READ = 5, 2, 20, 10
OPEN_PER_S = 60
# In the case fairness: the connections of network 0, and the networks of one connection each, from 1 on.
CROWD, NETWORKS = 200, 200
# Networks: 127.<kind>.<number>.1, or 10.<kind>.<number>.1 behind a trusted proxy. Strangers are at 127.0.0.1.
USER, READER, CACHED, NEWCOMER = 1, 2, 3, 4

SESSION = '[session]\nmint = true\ncookie = "login"\n'
TRUSTED = '[client]\ntrusted_proxies = ["127.0.0.0/8"]\n'
QUICK_STOP = '[limits]\ndrain_delay = "0s"\ndrain_timeout = "2s"\n'

# `began` is in seconds since the siege began. Status 0 is no answer, and "no user" a page without the user's name.
# `stranger` is the number of the stranger whose visit it was.
Visit = collections.namedtuple("Visit", "began took status stranger", defaults=[None])


async def every(pause_s, times, do):
    """Does something with 0, 1 and so on, at a steady pace, however long each takes; what they return."""
    since, tasks = time.monotonic(), []
    for nth in range(times):
        await asyncio.sleep(max(0, since + nth * pause_s - time.monotonic()))
        tasks.append(asyncio.create_task(do(nth)))
    return await asyncio.gather(*tasks)


async def timed(began, asking, stranger=None):
    """The visit, in a siege that began then."""
    since = time.monotonic()
    status = await asking
    return Visit(since - began, time.monotonic() - since, status, stranger)


async def log_ins(siege):
    """New visitors log in, at a steady pace over the whole case."""

    async def log_in(number):
        client, name = siege.client(NEWCOMER, number), f"newcomer-{number}"
        form = await client.status("/login")
        return await client.status("/private", name) if form == 200 and await client.log_in(name) else 0

    visits = await every(siege.seconds / LOG_INS, LOG_INS, lambda nth: timed(siege.began, log_in(nth)))
    return f"logins: {told(visits)}"


async def restart(siege):
    """A proxy ends after a third of the time, and begins again at the same port, with the same store."""
    await asyncio.sleep(siege.seconds / 3)
    proxy, ended = siege.proxies[0], time.monotonic() - siege.began
    await asyncio.to_thread(proxy.__exit__)
    await asyncio.to_thread(proxy.__enter__)
    began = time.monotonic() - siege.began
    await siege.are_done.wait()
    # For each user, when the first answer in time was there.
    quick = [
        min((one.began + one.took for one in visits if one.began > began and in_time(one)), default=math.inf)
        for visits in siege.by_user
    ]
    after = [one for visits in siege.by_user for one in visits if one.began >= ended + 10]
    again = "never" if max(quick) == math.inf else f"{max(quick) - ended:.1f} s after it"
    return (
        f"SIGTERM at {ended:.1f} s; listening {began - ended:.1f} s after it; every user answered within 1 s: "
        f"{again}; users from 10 s after it on: {told(after)}"
    )


def in_time(visit):
    return visit.status == 200 and visit.took <= 1


def invented(digits=16):
    return f"{random.getrandbits(4 * digits):0{digits}x}"


def network_of(stranger):
    """The number of the network, in the case fairness."""
    return max(0, stranger - CROWD + 1)


def own_network(stranger):
    return f"X-Forwarded-For: 20.0.{network_of(stranger)}.{stranger % CROWD + 1}\r\n"


def fair_shares(siege):
    """What part of a fair share of the answers each network got."""
    # By when they were answered: requests of the large network wait for long.
    after = siege.options.after
    answered = [one for one in siege.strangers if one.status == 200 and one.began + one.took >= after]
    if not answered:
        return "no network was answered"
    share = len(answered) / (1 + NETWORKS)
    counts = collections.Counter(network_of(one.stranger) for one in answered)
    parts = sorted(counts[network] / share for network in range(1, 1 + NETWORKS))
    fair = sum(abs(part - 1) <= 0.2 for part in parts)
    return (
        f"{NETWORKS} networks of one connection: min {parts[0]:.0%}, median {parts[NETWORKS // 2]:.0%}, "
        f"max {parts[-1]:.0%} of a fair share, {fair} within 20 %; "
        f"the network of {CROWD}: {counts[0] / share:.2f} fair shares; a fair share is {share:.1f} answers"
    )


def address(_):
    """One of 10,000, each in a network of its own."""
    number = random.randrange(10_000)
    return f"X-Forwarded-For: {20 + number % 40}.{number // 40}.{number % 250}.7\r\n"


@dataclasses.dataclass
class Case:
    """What strangers do, how the proxy is configured, and what happens meanwhile."""

    target: typing.Callable = lambda: f"/page/{invented()}"
    # Further lines of a request, by the stranger's number.
    fields: typing.Callable = lambda _: ""
    strangers: int = 200
    patience_s: float = PATIENCE_S
    # Whether strangers come at a steady rate, and do not wait for answers.
    is_open: bool = False
    # Whether all the strangers' connections are one more user's.
    is_user: bool = False
    # The page that users ask for.
    private: str = "/private"
    origin: tuple = ()
    more: str = ""
    meanwhile: typing.Callable = None
    # A line on what strangers got, when the siege is over.
    on_strangers: typing.Callable = None
    # Seconds that the app works on a page.
    service: float = 0.2
    # There is no siege: visitors come at random, so that the app is busy for this part of the time.
    part: float = 0


def forged(_):
    return f"Cookie: login={invented(40)}\r\n"


CASES = {
    "calm": Case(strangers=0),
    "defaults": Case(),
    "limited": Case(origin=("max_connections = 4",)),
    "forged": Case(fields=forged),
    "addresses": Case(fields=address, more=TRUSTED),
    "fairness": Case(
        fields=own_network, strangers=CROWD + NETWORKS, more=TRUSTED, on_strangers=fair_shares, service=0.02
    ),
    "hang-up": Case(patience_s=0.5),
    "mixed": Case(lambda: f"/{random.choice(['slow', 'fast'])}/{invented()}", private="/fast/private"),
    "login-crawl": Case(lambda: f"/login?next={invented()}", meanwhile=log_ins),
    "one-user": Case(lambda: f"/private?n={invented()}", is_user=True),
    "restart": Case(fields=forged, more=QUICK_STOP, meanwhile=restart),
    "open": Case(is_open=True),
    **{f"healthy-{part}": Case(strangers=0, more=TRUSTED, part=part / 100) for part in (30, 60, 90)},
}
HEALTHY = [name for name in CASES if CASES[name].part]


def client_class(options):
    """The class of all clients."""
    if not options.http2:
        return Client
    try:
        from siege_http2 import Http2Client
    except ModuleNotFoundError:
        sys.exit(
            "the Python module h2 is missing: run tests/run once, and this with the Python of the interop-venv "
            "that it makes in the target folder"
        )
    return Http2Client


def besiege(name, options, ports, token, began, over, told):
    """The strangers, in a process of their own; tells their visits when it is over."""
    case, visits, make = CASES[name], [], client_class(options)

    def client(number, keeps):
        return make(ports[number % len(ports)], token=token, keeps=keeps)

    async def ask(one, number):
        async def status():
            return (await one.ask(case.target(), case.fields(number), patience_s=case.patience_s)).status

        visits.append(await timed(began, status(), number))

    async def crawl(number):
        one = client(number, keeps=case.patience_s == PATIENCE_S)
        while True:
            await ask(one, number)
            # Who gives up early comes back at once; an error is not to make us busy.
            if visits[-1].status == 0 and visits[-1].took < case.patience_s:
                await asyncio.sleep(PAUSE_S)

    async def come():
        if case.is_open:
            tasks = [every(1 / OPEN_PER_S, 1 << 30, lambda nth: ask(client(nth, keeps=False), nth))]
        else:
            tasks = [crawl(number) for number in range(case.strangers)]
        tasks = [asyncio.create_task(task) for task in tasks]
        await asyncio.to_thread(over.wait)
        told.send(visits)
        for task in tasks:
            task.cancel()

    asyncio.run(come())


class Siege:
    """One case: what everybody experiences, and the strangers are a process beside this one."""

    def __init__(self, name, app, proxies, options):
        self.name, self.case, self.proxies = name, CASES[name], proxies
        self.app, self.seconds, self.options = app, options.seconds, options
        self.ports = [proxy.port for proxy in proxies]
        self.by_user, self.cached, self.readers, self.strangers, self.note = [], [], [], [], None

    def client(self, kind, number, token=None):
        port, make = self.ports[number % len(self.ports)], client_class(self.options)
        if self.case.more == TRUSTED:
            return make(port, fields=f"X-Forwarded-For: 10.{kind}.{number}.1\r\n", token=token)
        return make(port, f"127.{kind}.{number}.1", token=token)

    def run(self):
        asyncio.run(self.prepare())
        asyncio.run(self.ask_calmly())
        self.began = time.monotonic()
        if self.case.part:
            return asyncio.run(self.visit())
        if not self.case.strangers:
            return asyncio.run(self.watch())
        over, (near, far) = multiprocessing.Event(), multiprocessing.Pipe()
        token = self.tokens[-1] if self.case.is_user else None
        arguments = (self.name, self.options, self.ports, token, self.began, over, far)
        process = multiprocessing.Process(target=besiege, args=arguments, daemon=True)
        process.start()
        asyncio.run(self.watch())
        over.set()
        self.strangers = [one for one in near.recv() if one.began + one.took <= self.seconds]
        process.join()

    async def prepare(self):
        """Users log in, and one more for strangers who share a session; and a page enters the cache."""
        self.tokens = []
        for number in range(USERS + 1):
            client = self.client(USER, number)
            if not await client.log_in(f"user-{number}"):
                sys.exit("a user cannot log in")
            self.tokens.append(client.token)
        for number in range(len(self.ports)):
            for _ in range(3):
                await self.client(CACHED, number).ask("/cached")

    async def ask_calmly(self):
        """What any proxy has had before a siege: a user and a stranger ask each of them, one after the other."""
        ends = time.monotonic() + self.options.calm
        while time.monotonic() < ends:
            for number in range(max(USERS, len(self.ports))):
                user = number % USERS
                await self.client(USER, number, self.tokens[user]).ask(self.case.private)
                await self.client(NEWCOMER, number).ask(self.case.target())

    async def visit(self):
        """Visitors come at random times, and each asks for one page."""
        self.visits, self.added = [], []
        watch = asyncio.create_task(self.watch_app())
        clients = [self.client(USER, number, token) for number, token in enumerate(self.tokens)]
        strangers = [self.client(NEWCOMER, number) for number in range(200)]
        per_s = self.case.part * self.options.workers / self.options.service
        tasks, at = [], self.began
        while (at := at + random.expovariate(per_s)) < self.began + self.seconds:
            await asyncio.sleep(max(0, at - time.monotonic()))
            is_user = random.random() < 0.3
            client = random.choice(clients if is_user else strangers)
            target = "/private" if is_user else f"/page/{invented()}"
            tasks.append(asyncio.create_task(self.visit_page(client, target, is_user)))
        await asyncio.gather(*tasks)
        await watch

    async def visit_page(self, client, target, is_user):
        since = time.monotonic()
        answer = await client.ask(target)
        took = time.monotonic() - since
        self.visits.append((is_user, Visit(since - self.began, took, answer.status)))
        app_took = value_of(answer.head, "app-took")
        if app_took:
            self.added.append((is_user, took - float(app_took)))

    async def watch(self):
        self.are_done = asyncio.Event()
        meanwhile = self.case.meanwhile and asyncio.create_task(self.case.meanwhile(self))
        app = asyncio.create_task(self.watch_app())
        users = asyncio.gather(*map(self.use, range(USERS)))
        readers = asyncio.gather(*map(self.read, range(READERS)))
        cached = self.ask_steadily(self.client(CACHED, 0), lambda _: "/cached", per_s=10)
        self.by_user, readers, self.cached = await asyncio.gather(users, readers, cached)
        self.readers = sum(readers, [])
        self.are_done.set()
        await app
        self.note = await meanwhile if meanwhile else None

    async def watch_app(self):
        before = self.app.usage()
        await asyncio.sleep(self.seconds)
        busy_s, requests = (after - before for before, after in zip(before, self.app.usage()))
        self.busy = busy_s / self.options.workers / self.seconds
        self.app_per_s = requests / self.seconds

    async def ask_steadily(self, client, target, name="", per_s=1):
        def ask(nth):
            return timed(self.began, client.status(target(nth), name))

        return await every(1 / per_s, int(self.seconds * per_s), ask)

    async def use(self, number):
        await asyncio.sleep(number / USERS)
        client = self.client(USER, number, self.tokens[number])
        return await self.ask_steadily(client, lambda _: self.case.private, f">user-{number}<")

    async def read(self, number):
        """Each reader begins with other pages."""
        client, first = self.client(READER, number), number * PAGES_READ // READERS
        return await self.ask_steadily(client, lambda nth: f"/read/{(first + nth) % PAGES_READ}")


def quantiles(visits, *parts):
    """Of the times of those that were answered, in seconds, as texts."""
    took = sorted(one.took for one in visits if one.status == 200)
    return [f"{took[min(int(len(took) * part), len(took) - 1)]:.3f}" if took else "-" for part in parts]


def share(visits):
    return f"{sum(one.status == 200 for one in visits)}/{len(visits)}"


def statuses(visits):
    counts = collections.Counter(one.status or "none" for one in visits if one.status != 200)
    return " ".join(f"{status}:{count}" for status, count in counts.most_common()) or "-"


def told(visits):
    p50, p99, most = quantiles(visits, 0.5, 0.99, 1)
    return f"{share(visits)} answered, p50 {p50}, p99 {p99}, max {most} s"


COLUMNS = (
    ("case", 12), ("users", 7), ("p50", 6), ("p99", 6), ("max", 6), ("not 200", 16), ("cached p99", 10),
    ("strangers/s", 11), ("p50", 6), ("503s", 6), ("app/s", 5), ("busy", 4), ("readers", 7), ("p50", 6), ("p99", 6),
)  # fmt: skip


def print_row(cells):
    texts = [f"{text:>{width}}" for text, (_, width) in zip(cells, COLUMNS)]
    print("  ".join([cells[0].ljust(COLUMNS[0][1]), *texts[1:]]), flush=True)


def print_healthy(siege, mark):
    print(f"{siege.name + mark}: the app is busy for {siege.busy:.0%}", flush=True)
    for name, of_users in ("users", True), ("others", False):
        visits = [visit for is_user, visit in siege.visits if is_user == of_users]
        added = sorted(1000 * added for is_user, added in siege.added if is_user == of_users)
        parts = [added[min(int(len(added) * part), len(added) - 1)] for part in (0.5, 0.99, 1)]
        print(
            f"    {name:6} {told(visits)}; refused {sum(one.status != 200 for one in visits)}; "
            f"added p50 {parts[0]:.2f}, p99 {parts[1]:.2f}, max {parts[2]:.2f} ms",
            flush=True,
        )


def print_results(siege, mark):
    users = [one for visits in siege.by_user for one in visits if one.began >= siege.options.after]
    crowd = ["-"] * 3
    if siege.case.strangers:
        count = collections.Counter(one.status for one in siege.strangers)
        crowd = [f"{count[200] / siege.seconds:.1f}", *quantiles(siege.strangers, 0.5), str(count[503])]
    print_row([
        siege.name + mark, share(users), *quantiles(users, 0.5, 0.99, 1), statuses(users),
        *quantiles(siege.cached, 0.99), *crowd, f"{siege.app_per_s:.1f}", f"{siege.busy:.0%}",
        share(siege.readers), *quantiles(siege.readers, 0.5, 0.99),
    ])  # fmt: skip
    if statuses(siege.cached) != "-":
        print(f"    the cached page: {share(siege.cached)} answered; {statuses(siege.cached)}", flush=True)
    for line in filter(None, [siege.note, siege.case.on_strangers and siege.case.on_strangers(siege)]):
        print(f"    {line}", flush=True)


def measure(name, binary, options, origin):
    """The case, with further keys of [origin]."""
    case, options = CASES[name], copy.copy(options)
    options.service = options.service or case.service
    # A key that is given twice has the last value.
    lines = ['overload = "order"', *case.origin, *options.set, *origin]
    keys = {line.partition("=")[0].strip(): line for line in lines}
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        app = stack.enter_context(APPS[options.app](scratch, options))
        proxies, store = [], None
        if options.store == "redis" or options.proxies > 1:
            store = f"redis://127.0.0.1:{stack.enter_context(lab.redis_server(scratch)).port}/0"
        for number in range(options.proxies):
            folder = scratch / f"proxy-{number}"
            folder.mkdir()
            proxy = lab.anteroom(binary, folder, app.port, store=store, more=SESSION + case.more, access="off")
            config = folder / "proxy.toml"
            lines = "\n".join(["[origin]", *keys.values()])
            config.write_text(config.read_text().replace("[origin]", lines, 1))
            proxies.append(stack.enter_context(proxy))
        siege = Siege(name, app, proxies, options)
        siege.run()
    shows = print_healthy if case.part else print_results
    shows(siege, "*" if origin else "")


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--seconds", type=float, default=30, help="for each case")
    parser.add_argument(
        "--after", type=float, default=0, help="count users' requests, and networks' answers, from this second on"
    )
    parser.add_argument(
        "--calm", type=float, default=0, help="seconds before each case in which a client at a time asks for pages"
    )
    parser.add_argument("--app", choices=APPS, default="python", help="the healthy cases need python")
    parser.add_argument("--workers", type=int, default=4, help="of the app")
    parser.add_argument(
        "--service", type=float, help="seconds that the app works on a page; default: 0.2, in fairness 0.02"
    )
    parser.add_argument("--fresh", type=int, default=60, help="seconds that the readers' pages are fresh")
    parser.add_argument("--set", action="append", default=[], metavar="TOML", help="a key of [origin]")
    parser.add_argument(
        "--against", action="append", default=[], metavar="TOML", help="each case again, with this key as well"
    )
    parser.add_argument("--store", choices=["embedded", "redis"], default="embedded")
    parser.add_argument("--http2", action="store_true", help="all clients speak HTTP/2, in clear text")
    parser.add_argument("--proxies", type=int, default=1, help="several use one Redis")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(unknown)}")

    if options.app != "python":
        # Only the app in Python says when the first byte of a request came.
        options.cases = options.cases or [name for name in CASES if name not in HEALTHY]
        if set(options.cases) & set(HEALTHY):
            parser.error(f"{', '.join(HEALTHY)} need --app python")
    client_class(options)
    lab.many_files()
    binary = lab.anteroom_binary(options.anteroom)
    print(lab.machine())
    if options.against:
        print(f"* with {', '.join(options.against)}")
    if set(options.cases or CASES) - set(HEALTHY):
        print_row([title for title, _ in COLUMNS])
    for name in options.cases or CASES:
        for origin in [[], options.against] if options.against else [[]]:
            measure(name, binary, options, origin)


if __name__ == "__main__":
    main()
