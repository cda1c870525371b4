#!/usr/bin/env python3
"""The automatic limit of an origin, simulated: what it does under a crawl, and that healthy sites do not notice it.

    benches/overload_sim.py                  all scenes
    benches/overload_sim.py crawl slow-db    some of them
    benches/overload_sim.py crawl --trace    each decision of the limit

Python's standard library only. An app with so many workers answers first come, first served; visitors are known ones and
strangers. Each scene runs without a limit and with it, from the same random numbers.
"""

import argparse
import collections
import heapq
import math
import random

KNOWN, STRANGER = 0, 1


class Limit:
    """How many requests may be at the app before strangers wait."""

    START = 8            # what a new process begins with
    FLOOR = 4            # never less
    CALM, CALM_S = 0.4, 0.2    # of the time that pages take, and seconds: the app has hardly a queue
    STREAM_S = 5.0       # a route that takes longer is no work of the app
    UP, GROWS = 1.5, 2.0
    DRAINS = 0.8         # of the queue, in a step down
    SAMPLES = 24         # answers in a round, at least
    ROUND_MIN = 0.1      # seconds
    ROUND_MAX = 5.0
    DRAINED_S = 10.0     # until then, what was at the app before a step down is gone
    EXTENDED = 1         # times a round goes on while chance may explain it
    REST_MIN, REST_MAX = 2.0, 16.0    # seconds between looks for more
    BASE_GAIN, BASE_RISE = 1 / 16, 0.1 / 60

    def __init__(self, trace=False):
        self.limit = float(self.START)
        self.base = {}           # route: [seconds, answers, last]
        self.recent = self.takes = 0.0
        self.is_full, self.grows, self.draining = False, True, False
        self.step = None         # what is tried: up or down
        self.before = None       # (limit, n, wait, error) before it
        self.rest, self.rests_until = self.REST_MIN, 0.0
        self.trace = trace
        self.holds_s = 0.0
        self.begin(0.0)

    def begin(self, now):
        self.began, self.last = now, now
        self.base_time = self.time = self.n_sum = 0.0
        self.waits = []
        self.full_s = 0.0
        self.target = self.SAMPLES
        self.extended = 0

    def observe(self, now, n, waits):
        """The number of requests at the app has been n until now; whether strangers wait."""
        self.is_full = waits
        if waits:
            self.full_s += now - self.last
            self.holds_s += now - self.last
        self.last = now

    def baseline(self, route, took, n_at_begin, now):
        known = self.base.get(route)
        if known is None:
            self.base[route] = [took, 1, now]
            return took
        base, count, last = known
        if n_at_begin <= max(2, self.limit / 2) or took < base / 2:
            count += 1
            new = base + (min(took, 4 * base) - base) * max(self.BASE_GAIN, 1 / count)
            self.base[route] = [new, count, now]
        return self.base[route][0]

    def answer(self, now, began, route, n_at_begin, n_now):
        took = now - began
        base = self.baseline(route, took, n_at_begin, now)
        if base > self.STREAM_S:
            return
        self.recent += (took - base - self.recent) / 8
        self.takes += (base - self.takes) / 8
        if self.grows and self.step is None and n_at_begin >= 0.75 * self.limit and self.is_full and self.recent <= max(self.CALM_S, self.CALM * self.takes) / 2:
            self.limit = min(self.limit + 1, 10_000)
        if self.draining and (n_now <= self.limit * 1.25 + 1 or now - self.began > self.DRAINED_S):
            self.draining = False
            self.begin(now)
        if self.draining or began < self.began:
            return
        self.base_time += base
        self.time += took
        self.n_sum += n_at_begin
        self.waits.append(took - base)
        elapsed = now - self.began
        samples = len(self.waits)
        if samples >= max(self.target, min(self.limit, 200)) and elapsed >= self.ROUND_MIN or (
            elapsed >= self.ROUND_MAX * (1 + self.extended) and samples >= 8
        ):
            self.end_round(now, elapsed)

    def end_round(self, now, elapsed):
        samples = len(self.waits)
        waits = sorted(self.waits)
        n = self.n_sum / samples
        takes, wait = self.base_time / samples, waits[samples // 2]
        error = 0.93 * (waits[samples * 3 // 4] - waits[samples // 4]) / math.sqrt(samples)
        rate = n * samples / self.time
        calm = max(self.CALM_S, self.CALM * takes)
        is_calm = wait <= calm
        full = self.full_s > 0.5 * elapsed
        old, step, share, what = self.limit, self.step, None, ""
        if step is not None:
            limit, n_before, wait_before, error_before = self.before
            expected = (n - n_before) / rate
            if abs(n - n_before) < 0.1 * n_before:
                what, self.step = "not used", None
                if step == "down":
                    self.limit = limit
            elif abs(expected) < 4 * (error + error_before) and self.extended < self.EXTENDED:
                self.extended += 1
                self.target = 2 * samples
                return
            else:
                share = (wait - wait_before) / expected
                self.step = None
                # Of what chance may explain, the queue is believed.
                is_load = share + 2 * (error + error_before) / abs(expected) >= 0.5
                if step == "up" and not is_load:
                    what, self.rest, self.grows = "taken", self.REST_MIN, True
                    self.try_step("up", self.limit * self.GROWS, n, wait, error)
                elif step == "down" and is_load:
                    what, self.grows = "taken", False
                else:
                    what, self.limit = "back", limit
                    if step == "up":
                        self.rest = min(2 * self.rest, self.REST_MAX)
                    else:
                        # The app is slower of itself: this is how long it takes now.
                        self.grows = True
                        for known in self.base.values():
                            known[0] *= (takes + wait) / takes
                    self.rests_until = now + self.rest
        elif full:
            target = n - self.DRAINS * rate * wait
            if is_calm:
                what = "calm"
                self.limit *= 1.25
            elif target < 0.9 * self.limit and self.limit > self.FLOOR:
                self.try_step("down", target, n, wait, error)
            elif now >= self.rests_until:
                self.try_step("up", self.limit * self.UP, n, wait, error)
        self.limit = max(self.FLOOR, min(self.limit, 10_000))
        if self.trace:
            print(f"{now:8.2f} {samples:4} n {n:6.1f} rate {rate:6.2f} wait {wait:5.2f}±{error:4.2f} takes {takes:5.2f} {step or ''} {'' if share is None else f'{share:.2f}'} {what} limit {old:6.1f} -> {self.limit:6.1f} {'full' if full else ''}")
        self.begin(now)

    def knows(self, route):
        return route in self.base

    def counts(self, route):
        known = self.base.get(route)
        return known is None or known[0] <= self.STREAM_S

    def try_step(self, step, limit, n, wait, error):
        self.draining = step == "down"
        self.before, self.step = (self.limit, n, wait, error), step
        self.limit = max(self.FLOOR, limit)


class Off:
    limit = math.inf
    holds_s = 0.0

    def observe(self, *_):
        pass

    def counts(self, *_):
        return True

    def knows(self, *_):
        return True

    def answer(self, *_):
        pass


Request = collections.namedtuple("Request", "came kind route need client")


class Scene:
    """An app with `workers`, and who comes. `service(random, route, now)`: how long a page takes."""

    def __init__(self, seconds, workers, service, sources):
        self.seconds, self.workers, self.service, self.sources = seconds, workers, service, sources


class Run:
    def __init__(self, scene, limit, seed):
        self.scene, self.limit, self.random = scene, limit, random.Random(seed)
        self.events, self.count, self.now = [], 0, 0.0
        self.queue = collections.deque()      # strangers at the proxy
        self.app_queue, self.working, self.at_app = collections.deque(), 0, 0
        self.times = {KNOWN: [], STRANGER: []}
        self.waits = []
        self.known, self.peaks, self.peak_since = 0, [0, 0], 0.0
        self.sent_count, self.unknown, self.excused = 0, set(), set()
        self.busy_s = self.last = 0.0

    def at(self, when, call, *args):
        self.count += 1
        heapq.heappush(self.events, (when, self.count, call, args))

    def run(self):
        for source in self.scene.sources:
            source(self)
        while self.events:
            when, _, call, args = heapq.heappop(self.events)
            if when > self.scene.seconds:
                break
            workers = self.workers()
            self.busy_s += min(self.working, workers) * (when - self.last)
            self.limit.observe(when, self.at_app, bool(self.queue))
            self.now = self.last = when
            call(*args)
        return self

    def workers(self):
        workers = self.scene.workers
        return workers(self.now) if callable(workers) else workers

    def come(self, kind, route, done=None):
        request = (self.now, kind, route, done)
        if kind == STRANGER and (self.queue or not self.has_room()):
            self.queue.append(request)
        else:
            self.send(request)

    def send(self, request):
        came, kind, route, done = request
        if kind == STRANGER:
            self.waits.append(self.now - came)
        if kind == KNOWN:
            self.known += 1
            self.peaks[1] = max(self.peaks[1], self.known)
        counts = self.limit.counts(route)
        if not self.limit.knows(route):
            self.at(self.now + Limit.STREAM_S, self.excuse, self.sent_count)
            self.unknown.add(self.sent_count)
        self.at_app += counts
        self.app_queue.append((self.now, (self.at_app, counts, self.sent_count), request))
        self.sent_count += 1
        self.work()

    def has_room(self):
        """A part of the places is kept for known visitors, if some came lately."""
        if self.now - self.peak_since > 30:
            self.peaks, self.peak_since = [self.peaks[1], self.known], self.now
        most = max(self.peaks)
        limit = self.limit.limit
        kept = min(most + 1, max(1, limit // 4)) if most and limit >= 4 else 0
        return self.at_app + max(0, kept - self.known) < (limit if limit == math.inf else int(limit))

    def let_in(self):
        while self.queue and self.has_room():
            self.send(self.queue.popleft())

    def excuse(self, number):
        """A request of an unknown kind that has no answer for long is thought to wait."""
        if number in self.unknown:
            self.unknown.discard(number)
            self.excused.add(number)
            self.at_app -= 1
            self.let_in()

    def work(self):
        while self.app_queue and self.working < self.workers():
            sent, n, request = self.app_queue.popleft()
            self.working += 1
            need = self.scene.service(self.random, request[2], self.now)
            self.at(self.now + need, self.finish, sent, n, request)

    def finish(self, sent, n, request):
        came, kind, route, done = request
        self.working -= 1
        n, counts, number = n
        if number in self.unknown:
            self.unknown.discard(number)
        elif number in self.excused:
            self.excused.discard(number)
            counts = False
        self.known -= kind == KNOWN
        self.at_app -= counts
        self.times[kind].append((came, self.now - came))
        self.limit.answer(self.now, sent, route, n, self.at_app)
        self.let_in()
        self.work()
        if done:
            done()


def closed(kind, clients, pause, routes=("page",), begins=0.0, until=math.inf):
    """So many visitors, each with one request at a time."""
    def source(run):
        def ask():
            if run.now < until:
                run.come(kind, run.random.choice(routes), lambda: run.at(run.now + pause(run.random), ask))
        for _ in range(clients):
            run.at(begins + (pause(run.random) if pause is not never else 0), ask)
    return source


def poisson(kind, rate, routes=("page",), begins=0.0, until=math.inf):
    """Requests that wait for no others, `rate(now)` a second."""
    rate_of = rate if callable(rate) else lambda _: rate
    def source(run):
        def ask():
            if run.now < until:
                run.come(kind, run.random.choice(routes))
                run.at(run.now + run.random.expovariate(rate_of(run.now)), ask)
        run.at(begins, ask)
    return source


def never(_):
    return 0.0


def each(seconds):
    return lambda _: seconds


def takes(seconds, spread=0.3):
    """Lognormal around a median."""
    def service(rng, route, now):
        median = seconds(route, now) if callable(seconds) else seconds
        return median * math.exp(rng.gauss(0, spread))
    return service


def healthy(part, workers=4, page=0.2, **more):
    rate = part * workers / (page * 1.046)
    return Scene(more.pop("seconds", 300), workers, takes(page), [poisson(KNOWN, rate * 0.3), poisson(STRANGER, rate * 0.7)])


def scenes():
    users = closed(KNOWN, 5, each(1.0))
    page = takes(0.2, 0.1)
    ramp = lambda now: 14 if now < 60 else 30
    mixed = lambda route, now: {"fast": 0.02, "slow": 3.0}.get(route, 0.2)
    yield "crawl", Scene(60, 4, page, [users, closed(STRANGER, 200, never)])
    yield "crawl-after-calm", Scene(120, 4, page, [users, poisson(STRANGER, 5), closed(STRANGER, 200, never, begins=60)])
    yield "open-x3", Scene(60, 4, page, [users, poisson(STRANGER, 60)])
    yield "open-x10", Scene(60, 4, page, [users, poisson(STRANGER, 200)])
    yield "mixed-crawl", Scene(60, 4, takes(mixed, 0.1), [closed(KNOWN, 5, each(1.0), ("fast",)), closed(STRANGER, 200, never, ("fast", "slow"))])
    yield "64-workers", Scene(60, 64, page, [closed(KNOWN, 50, each(1.0)), closed(STRANGER, 1000, never)])
    yield "one-worker", Scene(60, 1, page, [closed(KNOWN, 1, each(1.0)), closed(STRANGER, 50, never)])
    for part in (0.3, 0.6, 0.9):
        yield f"healthy-{part:.0%}", healthy(part)
    yield "healthy-32w-90%", healthy(0.9, workers=32)
    slow = lambda route, now: 0.2 if not 60 < now < 120 else 0.8
    yield "slow-db", Scene(300, 64, takes(slow), [poisson(KNOWN, 30), poisson(STRANGER, 70)])
    deploy = lambda now: 32 if not 60 < now < 64 else 0
    cold = lambda route, now: 0.2 if not 64 < now < 90 else 0.6
    yield "deploy", Scene(300, deploy, takes(cold), [poisson(KNOWN, 10), poisson(STRANGER, 20)])
    heavier = lambda route, now: 0.1 if now < 60 else 0.5
    yield "heavier-for-good", Scene(600, 64, takes(heavier), [poisson(KNOWN, 10), poisson(STRANGER, 40)])
    yield "long-poll", Scene(300, 1000, takes(lambda route, now: 30 if route == "poll" else 0.1), [poisson(KNOWN, 10, ("page",)), poisson(STRANGER, 10, ("page", "poll"))])
    shift = lambda now: 20
    yield "mix-shift", Scene(300, 64, takes(mixed), [poisson(KNOWN, 5), poisson(STRANGER, 20, ("fast",), until=100), poisson(STRANGER, 12, ("slow", "fast"), begins=100)])
    yield "burst", Scene(120, 64, page, [poisson(KNOWN, 10), poisson(STRANGER, 20), closed(STRANGER, 60, each(0.5), begins=60)])


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else math.nan


def shown(name, scene, what, run, late):
    known = [took for came, took in run.times[KNOWN] if came >= late]
    strangers = [took for came, took in run.times[STRANGER] if came >= late]
    workers = scene.workers if not callable(scene.workers) else scene.workers(0)
    print(
        f"{name:18} {what:5} known {len(known):6} p50 {quantile(known, .5):6.2f} p99 {quantile(known, .99):6.2f} max {max(known, default=0):6.2f}"
        f" | strangers {len(strangers):6} p50 {quantile(strangers, .5):6.2f} p99 {quantile(strangers, .99):6.2f}"
        f" | waits p99 {quantile(run.waits, .99):7.3f} | busy {run.busy_s / workers / scene.seconds:5.1%}"
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scene", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    for name, scene in scenes():
        if options.scene and name not in options.scene:
            continue
        shown(name, scene, "off", Run(scene, Off(), options.seed).run(), 0)
        shown(name, scene, "order", Run(scene, Limit(options.trace), options.seed).run(), 0)


if __name__ == "__main__":
    main()
