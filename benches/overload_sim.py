#!/usr/bin/env python3
"""The automatic limit of a server, simulated: what it does under a crawl, and whether healthy sites notice it.

    benches/overload_sim.py                          all scenes, each without the limit and with it
    benches/overload_sim.py crawl slow-database      some of them
    benches/overload_sim.py crawl --trace            each decision of the limit
    benches/overload_sim.py --seeds 16               median and worst of 16 runs of each scene
    benches/overload_sim.py --picture docs/pictures/overload.svg

Python's standard library only. The rules are those of `automatic_limit.py`. An app with so many workers answers first
come, first served. Visitors are users, known to the proxy, and strangers. `off` sends each request at once; `order`
lets strangers wait while as many requests are at the app as the limit says. Both have the same random numbers: the
same requests come at the same times and need the same work, unless visitors wait for answers.

The groups of scenes:

    crawls     strangers ask for more than the app can do: 200 connections, or three and ten times as much at random,
               from the first second or after a calm minute; pages of 20 ms and 3 s mixed; one worker, and 64
    shoppers   visitors come at random, and the app is busy 30, 60 or 90 % of the time; and a burst of visitors
    healthy    what happens to any site: a deploy, a cold cache, a purge, a backup, a slow database, a mix of pages
               that shifts, long polls, uploads, a heavy route, a restart of the proxy
    starts     a proxy that knows nothing before many slow pages, before long polls, while a crawl's requests are
               already at the app, and before pages that hang; pages that are slower for good; a restart with what
               the store keeps

A line has, in seconds, the times of users and of strangers from the request to the answer, the wait of strangers at
the proxy, and how busy the app's workers are. With several seeds a cell is the median, and the worst in brackets;
"more" is the difference to `off` with the same seed. Requests without an answer at the end do not count.

Simpler than the proxy: one server; each stranger is a network of its own; no request fails, is given up or waits for
too long; an answer has no body. Waiting strangers look for a place once a second together, and not one by one.
"""

import argparse
import collections
import heapq
import itertools
import math
import multiprocessing
import random
import statistics
from dataclasses import dataclass

from automatic_limit import AutomaticLimit, Places, RequestAtServer

USER, STRANGER = "user", "stranger"
# `max_waiting` of the proxy, and when a visitor comes back that was refused.
WAITING_MAX = 1_024
RETRY_S = 10.0
LOOKS_AGAIN_S = 1.0
# How many kinds of pages the store keeps of a server.
KINDS_KEPT = 256


@dataclass(eq=False)
class Request:
    """`luck`: by how much its page takes longer than others of its kind. `done` is called with the answer."""

    came: float
    visitor: str
    page: str
    luck: float = 1.0
    upload_s: float | None = None
    done: collections.abc.Callable | None = None
    sent: float = 0.0
    # What counts it, and how it is counted there. A proxy that ends still counts its own.
    proxy: "Proxy | None" = None
    at_server: RequestAtServer | None = None


@dataclass
class Scene:
    """An app, and its visitors: `page_s(page, now)` is how long a page takes in the middle, `spread` the deviation of
    its logarithm. `workers` is a number or a function of the time. `starts` begin what happens in a run.
    """

    seconds: float
    workers: int
    page_s: collections.abc.Callable
    starts: list
    spread: float = 0.3
    proxies: int = 1

    def workers_at(self, now):
        return self.workers(now) if callable(self.workers) else self.workers


class App:
    """Workers that answer first come, first served. An upload waits for its client, and keeps no worker busy."""

    def __init__(self, run):
        self.run = run
        self.queue = collections.deque()
        self.working = 0

    def ask(self, request):
        if request.upload_s is not None:
            self.run.after(request.upload_s, self.run.answer, request)
            return
        self.queue.append(request)
        self.work()

    def work(self):
        now, scene = self.run.now, self.run.scene
        while self.queue and self.working < scene.workers_at(now):
            request = self.queue.popleft()
            self.working += 1
            self.run.after(scene.page_s(request.page, now) * request.luck, self.finish, request)

    def finish(self, request):
        self.working -= 1
        self.run.answer(request)
        self.work()


class Proxy:
    """What `ServerList` is in crates/origin/src/servers/mod.rs, for one server; `limit` is None: `off`."""

    def __init__(self, run, limit):
        self.run, self.limit = run, limit
        self.places = Places()
        self.queue = collections.deque()
        self.looks = False

    def find(self, request):
        if request.visitor == USER or self.has_room():
            self.take(request)
        elif len(self.queue) < WAITING_MAX:
            self.queue.append(request)
            self.look_again()
            if self.observe():
                self.admit()
        else:
            self.run.refuse(request)

    def has_room(self):
        if self.limit is None:
            return True
        return self.places.has_room(int(self.limit.limit), self.limit.at_server, self.run.now)

    def take(self, request):
        now = request.sent = self.run.now
        request.proxy = self
        if request.visitor == USER:
            self.places.take(now)
        if self.limit is not None:
            kind = self.run.kinds.setdefault(request.page, len(self.run.kinds))
            request.at_server = self.limit.begin(now, kind, request.upload_s is not None)
        self.run.app.ask(request)

    def observe(self):
        return self.limit is not None and self.limit.observe(self.run.now, len(self.queue))

    def answer(self, request):
        if self.limit is not None and request.upload_s is not None:
            self.limit.end(request.at_server)
        elif self.limit is not None:
            self.limit.answer(self.run.now, request.at_server)
        if request.visitor == USER:
            self.places.leave()
        self.admit()

    def admit(self):
        while self.queue and self.has_room():
            self.take(self.queue.popleft())
            self.observe()

    def look_again(self):
        if not self.looks:
            self.looks = True
            self.run.after(LOOKS_AGAIN_S, self.look)

    def look(self):
        self.looks = False
        self.observe()
        self.admit()
        if self.queue:
            self.look_again()


class Run:
    """A scene with a limit, or without one: what all its visitors experience."""

    def __init__(self, scene, new_limit, seed):
        self.scene, self.new_limit = scene, new_limit
        self.now, self.count, self.events = 0.0, 0, []
        self.kinds = {}
        self.app, self.proxy = App(self), Proxy(self, new_limit(0.0))
        # Others see the same app, each with a limit of its own.
        self.others = [Proxy(self, new_limit(0.0)) for _ in range(1, scene.proxies)]
        self.answered = {USER: [], STRANGER: []}
        self.waits, self.limits = [], []
        self.refused, self.busy_s, self.had_workers_s = 0, 0.0, 0.0
        for number, start in enumerate(scene.starts):
            start(self, random.Random(f"{seed}/{number}"))

    def after(self, seconds, call, *arguments):
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, call, arguments))

    def run(self):
        while self.events and self.events[0][0] <= self.scene.seconds:
            when, _, call, arguments = heapq.heappop(self.events)
            workers = self.scene.workers_at(self.now)
            self.busy_s += min(self.app.working, workers) * (when - self.now)
            self.had_workers_s += workers * (when - self.now)
            self.now = when
            call(*arguments)
            self.note_limit()
        return self

    def note_limit(self):
        limit = self.proxy.limit and self.proxy.limit.limit
        if limit and (not self.limits or self.limits[-1][1] != limit):
            self.limits.append((self.now, limit))

    def come(self, rng, visitor, page, proxy=None, **more):
        luck = math.exp(rng.gauss(0, self.scene.spread))
        if self.others and proxy is None:
            proxy = rng.choice([self.proxy, *self.others])
        (proxy or self.proxy).find(Request(self.now, visitor, page, luck, **more))

    def refuse(self, request):
        self.refused += 1
        if request.done:
            self.after(RETRY_S, request.done)

    def answer(self, request):
        if request.upload_s is None:
            self.answered[request.visitor].append((request.came, self.now - request.came))
        if request.visitor == STRANGER:
            self.waits.append(request.sent - request.came)
        request.proxy.answer(request)
        if request.done:
            request.done()

    def restart(self, keeps):
        """The proxy starts again, and knows what the store keeps, or nothing. What waits comes to the new one."""
        old, limit = self.proxy, self.new_limit(self.now)
        if keeps and limit is not None:
            limit.recall(old.limit.known(KINDS_KEPT))
        self.proxy = Proxy(self, limit)
        waiting, old.queue = old.queue, collections.deque()
        for request in waiting:
            self.proxy.find(request)

    def times(self, visitor):
        return [took for _, took in self.answered[visitor]]

    def busy(self):
        return self.busy_s / self.had_workers_s


# What happens in a run: each of these gives a function that begins it.


def closed(visitor, clients, pause_s, pages=("page",), begins=0.0, are_first=False):
    """So many visitors, each with one request at a time, and a pause after the answer. The first requests of those that
    are first go past the proxy: they were sent before it began.
    """

    def start(run, rng):
        past = Proxy(run, None) if are_first else None

        def begin(client):
            def ask(proxy=None):
                run.come(client, visitor, client.choice(pages), proxy, done=again)

            def again():
                run.after(pause_s, ask)

            run.after(begins + pause_s * client.random(), ask, past)

        for _ in range(clients):
            begin(random.Random(rng.random()))

    return start


def at_random(visitor, rate, pages=("page",), begins=0.0, ends=math.inf, **more):
    """Requests that wait for no others, so many a second, or `rate(now)`."""
    rate_at = rate if callable(rate) else lambda now: rate

    def start(run, rng):
        def ask():
            if run.now < ends:
                run.come(rng, visitor, rng.choice(pages), **more)
                run.after(rng.expovariate(rate_at(run.now)), ask)

        run.after(begins + rng.expovariate(rate_at(begins)), ask)

    return start


def hangs(begins, every_s, count):
    """So many requests each time for pages that were never asked for."""

    def start(run, rng):
        def ask(nth):
            for number in range(count):
                run.come(rng, STRANGER, f"hanging-{nth}-{number}")
            run.after(every_s, ask, nth + 1)

        run.after(begins, ask, 0)

    return start


def restarts(at, keeps):
    return lambda run, rng: run.after(at, run.restart, keeps)


def pages_s(**seconds):
    """Pages that take so long each, and 0.2 s where nothing else is said."""
    return lambda page, now: seconds.get(page, 0.2)


def steps(usual, other, begins, ends):
    """A number that is another one for a time."""
    return lambda now: other if begins <= now < ends else usual


def shoppers(part, workers=4, seconds=300, more=(), **scene):
    """Visitors that keep an app busy for a part of the time, `part(now)`; three in ten are users."""
    part_at = part if callable(part) else lambda now: part
    # The mean of a page of 0.2 s whose logarithm deviates by 0.3.
    rate = workers / (0.2 * math.exp(0.3**2 / 2))
    visitors = [
        at_random(USER, lambda now: 0.3 * rate * part_at(now)),
        at_random(STRANGER, lambda now: 0.7 * rate * part_at(now)),
    ]
    return Scene(seconds, workers, scene.get("page_s", pages_s()), [*visitors, *more])


def crawls():
    def scene(seconds, workers, *starts, users=5, page="page", **more):
        page_s = pages_s(fast=0.02, slow=3.0)
        starts = [closed(USER, users, 1.0, (page,)), *starts]
        return Scene(seconds, workers, page_s, starts, spread=0.1, **more)

    many = closed(STRANGER, 200, 0.0)
    return {
        "crawl": scene(60, 4, many),
        "crawl-after-calm": scene(120, 4, at_random(STRANGER, 5), closed(STRANGER, 200, 0.0, begins=60)),
        "open-x3": scene(60, 4, at_random(STRANGER, 60)),
        "open-x10": scene(60, 4, at_random(STRANGER, 200)),
        "mixed-crawl": scene(60, 4, closed(STRANGER, 200, 0.0, ("fast", "slow")), page="fast"),
        "two-proxies": scene(60, 4, many, proxies=2),
        "two-proxies-after-calm": scene(
            120, 4, at_random(STRANGER, 5), closed(STRANGER, 200, 0.0, begins=60), proxies=2
        ),
        "one-worker": scene(60, 1, closed(STRANGER, 50, 0.0), users=1),
        "64-workers": scene(60, 64, closed(STRANGER, 1_000, 0.0), users=50),
    }


def shops():
    burst = [at_random(USER, 10), at_random(STRANGER, 20), closed(STRANGER, 60, 0.5, begins=60)]
    return {
        "shoppers-30": shoppers(0.3),
        "shoppers-60": shoppers(0.6),
        "shoppers-90": shoppers(0.9),
        "shoppers-90-32w": shoppers(0.9, workers=32),
        "burst": Scene(120, 64, pages_s(), burst, spread=0.1),
    }


def healthy():
    def of_time(usual, other, begins, ends):
        at = steps(usual, other, begins, ends)
        return lambda page, now: at(now)

    def both(users, strangers):
        return [at_random(USER, users), at_random(STRANGER, strangers)]

    shifts = [
        at_random(USER, 5),
        at_random(STRANGER, 20, ("fast",), ends=100),
        at_random(STRANGER, 12, ("slow", "fast"), begins=100),
    ]
    polls = [at_random(USER, 10), at_random(STRANGER, 10, ("page", "poll"))]
    heavy = ("page",) * 19 + ("heavy",)
    heavies = [at_random(USER, 19, heavy), at_random(STRANGER, 44, heavy)]
    return {
        # No worker for 4 s, and pages are three times as slow for half a minute.
        "deploy": Scene(300, steps(32, 0, 60, 64), of_time(0.2, 0.6, 64, 90), both(10, 20)),
        # The cache answers two of three requests after the first minute, or but for a minute.
        "cold-cache": shoppers(steps(0.3, 0.9, 0, 60), workers=32),
        "purge": shoppers(steps(0.3, 0.9, 60, 120), workers=32),
        "backup": shoppers(0.4, workers=32, page_s=of_time(0.2, 0.4, 60, 120)),
        # More is asked for than the app can do then.
        "slow-database": Scene(300, 64, of_time(0.2, 0.8, 60, 120), both(30, 70)),
        "mix-shift": Scene(300, 64, pages_s(fast=0.02, slow=3.0), shifts),
        "long-poll": Scene(300, 1_000, pages_s(page=0.1, poll=30.0), polls),
        # Forty at a time, and the app is busy half of the time.
        "uploads": shoppers(0.5, workers=16, more=[at_random(STRANGER, 2, ("upload",), upload_s=20.0)]),
        # The app is busy 60 % of the time.
        "heavy-route": Scene(300, 32, pages_s(heavy=2.0), heavies),
        "restart": shoppers(0.6, workers=32, more=[restarts(60, keeps=False)]),
    }


def starts():
    few = [at_random(USER, 10), at_random(STRANGER, 10)]

    def hanging(page, now):
        return 30.0 if page.startswith("hanging") else 0.1

    def late(clients):
        """The first half minute, in which the limit could be found, is not the users'."""
        crawl = closed(STRANGER, clients, 0.0, are_first=True)
        return Scene(90, 4, pages_s(), [crawl, closed(USER, 5, 1.0, begins=30)], spread=0.1)

    polls = closed(STRANGER, 200, 0.0, ("poll",))
    slower = [at_random(USER, 10), at_random(STRANGER, 40)]
    return {
        "big-start": Scene(60, 500, pages_s(page=1.0), [at_random(USER, 50), closed(STRANGER, 300, 1.0)]),
        "long-poll-start": Scene(60, 1_000, pages_s(page=0.1, poll=25.0), [*few, polls]),
        "late-start-60": late(60),
        "late-start-200": late(200),
        "hang": Scene(120, 500, hanging, [*few, hangs(begins=10, every_s=5, count=8)]),
        "varied": Scene(200, 1_000, pages_s(page=1.0), [at_random(USER, 5), at_random(STRANGER, 30)], spread=1.0),
        "varied-70": Scene(200, 1_000, pages_s(page=1.0), [at_random(USER, 5), at_random(STRANGER, 60)], spread=0.7),
        "slower-for-good": Scene(600, 64, lambda page, now: 0.1 if now < 60 else 0.5, slower),
        "restart-known": shoppers(0.6, workers=32, more=[restarts(60, keeps=True)]),
    }


SCENES = {**crawls(), **shops(), **healthy(), **starts()}


class TracedLimit(AutomaticLimit):
    """Prints a line for each round, with what is decided."""

    def adjust(self, result, now):
        self.trace("full", super().adjust, result, now)

    def suspect(self, result, now):
        self.trace("", super().suspect, result, now)

    def judge(self, trial, result, now):
        return self.trace("more" if trial.is_up else "less", super().judge, trial, result, now)

    def trace(self, what, decide, *arguments):
        limit, had_queue, samples = self.limit, self.has_queue, len(self.round.waits)
        decided = decide(*arguments)
        *_, result, now = arguments
        queue = "queue" if self.has_queue else "queue ends" if had_queue else ""
        tries = "" if self.trial is None else "tries more" if self.trial.is_up else "tries less"
        print(
            f"{now:8.2f} {what:4} {samples:4} answers  at server {result.at_server:6.1f}  rate {result.rate:6.1f}  "
            f"usual {result.usual:5.2f}  wait {result.wait:5.2f} ±{result.error:4.2f}  "
            f"waiting {self.waiting.count:4.0f}  limit {limit:6.1f} -> {self.limit:6.1f}  calm at {self.calm_at:5.1f}  "
            f"{queue:10} {'goes on' if decided is False else tries}"
        )
        return decided


def off(now):
    return None


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else math.nan


def print_run(name, what, run):
    users, strangers = run.times(USER), run.times(STRANGER)
    print(
        f"{name:16} {what:5}  users {len(users):5}  p50 {quantile(users, 0.5):5.2f}  p99 {quantile(users, 0.99):5.2f}  "
        f"max {max(users, default=math.nan):5.2f}  strangers {len(strangers):5}  p50 {quantile(strangers, 0.5):5.2f}  "
        f"p99 {quantile(strangers, 0.99):5.2f}  wait p99 {quantile(run.waits, 0.99):5.2f}  "
        f"max {max(run.waits, default=math.nan):5.2f}  refused {run.refused:4}  busy {run.busy():4.0%}",
        flush=True,
    )


@dataclass
class Figures:
    """What a run shows, in seconds, and the part of the time that workers are busy."""

    users_p99: float
    strangers_p50: float
    strangers_p99: float
    wait_p99: float
    wait_max: float
    busy: float

    @classmethod
    def of(cls, run):
        users, strangers = run.times(USER), run.times(STRANGER)
        return cls(
            quantile(users, 0.99), quantile(strangers, 0.5), quantile(strangers, 0.99),
            quantile(run.waits, 0.99), max(run.waits, default=math.nan), run.busy(),
        )  # fmt: skip


def measure(job):
    """The figures of a scene without the limit and with it."""
    name, seed = job
    return tuple(Figures.of(Run(SCENES[name], kind, seed).run()) for kind in (off, AutomaticLimit))


COLUMNS = (
    ("scene", 16), ("users off p99", 15), ("users p99", 13), ("strangers p50", 15), ("more", 15),
    ("strangers p99", 15), ("more", 15), ("wait p99", 15), ("wait max", 15), ("busy", 11),
)  # fmt: skip


def print_row(cells):
    texts = [f"{text:>{width}}" for text, (_, width) in zip(cells, COLUMNS)]
    print("  ".join([cells[0].ljust(COLUMNS[0][1]), *texts[1:]]), flush=True)


def cell(values, worst=max, form="{:.2f}"):
    # Without an answer, a quantile is no number.
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return "-"
    return f"{form.format(statistics.median(values))} ({form.format(worst(values))})"


def summary(name, pairs):
    """The line of a scene, of the figures without the limit and with it."""

    def values(key):
        return [getattr(order, key) for _, order in pairs]

    def more(key):
        return cell([getattr(order, key) - getattr(without, key) for without, order in pairs], form="{:+.2f}")

    return [
        name, cell([without.users_p99 for without, _ in pairs]), cell(values("users_p99")),
        cell(values("strangers_p50")), more("strangers_p50"), cell(values("strangers_p99")), more("strangers_p99"),
        cell(values("wait_p99")), cell(values("wait_max")), cell(values("busy"), worst=min, form="{:.0%}"),
    ]  # fmt: skip


def print_table(names, seeds, processes):
    print_row([title for title, _ in COLUMNS])
    jobs = list(itertools.product(names, seeds))
    with multiprocessing.Pool(processes) as pool:
        measured = pool.imap(measure, jobs)
        for name in names:
            print_row(summary(name, [next(measured) for _ in seeds]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=f"of {', '.join(SCENES)}; default: all")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each scene")
    parser.add_argument("--processes", type=int, default=2, help="with several seeds")
    parser.add_argument("--trace", action="store_true", help="print each round of the limit")
    parser.add_argument("--picture", metavar="FILE", help="draw what happens in four scenes, as SVG")
    options = parser.parse_args()
    if unknown := set(options.scenes) - set(SCENES):
        parser.error(f"no such scene: {', '.join(unknown)}")
    if options.picture:
        import overload_picture

        return overload_picture.draw(options.picture, options.seed)
    names = options.scenes or list(SCENES)
    if options.seeds > 1:
        seeds = range(options.seed, options.seed + options.seeds)
        return print_table(names, seeds, options.processes)
    for name in names:
        print_run(name, "off", Run(SCENES[name], off, options.seed).run())
        limit = TracedLimit if options.trace else AutomaticLimit
        print_run(name, "order", Run(SCENES[name], limit, options.seed).run())


if __name__ == "__main__":
    main()
