#!/usr/bin/env python3
"""The chapter's work through the proxy: hits, item views recorded, sessions cleaned.

    benches/chapter.py                  builds the release binary and measures it all
    benches/chapter.py --quick          the same with small numbers, to see that it works
    benches/chapter.py --only views-redis --only clean-redis

Item views are GETs of /item/N by visitors with a login that hit the cache. Their rate is the
requests answered over the time from the first one until the last is in the store: the queue of
visits is empty, and the sum of all views agrees (read from `viewed:` on Redis, from the proxy's own
socket on the embedded store). The proxy gathers counts for a second, which is in that time. Then it is
checked that no view was lost, and on Redis that `recent:` is within 2 s of the last request of every
token, as the access log has it: the sessions of the embedded store can be read by nobody else.
Cleaning begins with more sessions than are kept. Beside both stands the chapter's own loop in Python
(tests/interop/chapter.py) on a Redis like ours, in the same run.

Everything runs on loopback, and on as many cores as there are: the proxy has one thread, and wrk,
Redis and nginx (the origin) take their share, so that rates repeat less well than the CPU time for
each request does. Needs wrk, nginx-light, redis-server and redis-py (see tests/run).
"""

import argparse
import collections
import contextlib
import datetime
import http.client
import json
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time

import lab

chapter, redis = lab.chapter_functions()

HOST = "bench.example"
PARTS = ["hits", "forwards", "views-redis", "views-embedded", "clean-redis", "clean-embedded"]
ITEMS = 1_000
# Redis is up to this much behind, and still right.
RECENT_S = 2.0
# Tokens of the bench itself, which wrk does not use.
PROBES = [f"probe-{n:04}" for n in range(200)]
SESSION = """
[session]
cookie = "login"
token_storage = "plain"
max_sessions = {keep}
clean_batch = {batch}
[[route]]
match.path = ["/item/{{item}}"]
share = "everyone"
"""
VIEWS_LUA = """
local random, format = math.random, string.format
request = function()
  return format("GET /item/item-%d HTTP/1.1\\r\\nHost: bench.example\\r\\nCookie: login=tok-%08d\\r\\n\\r\\n",
    random(0, {items} - 1), random(0, {tokens} - 1))
end
"""

Load = collections.namedtuple("Load", "requests seconds")


def wrk(port, options, path="/page", script=None, seconds=None):
    """Lets wrk fetch; how many answers in how many seconds."""
    seconds = seconds or options.seconds
    command = [lab.need("wrk", "wrk"), "-t1", f"-c{options.connections}", f"-d{seconds}s"]
    command += ["-s", script] if script else []
    command.append(f"http://127.0.0.1:{port}{path}")
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+) requests in ([\d.]+)s", said)
    if found is None or "Socket errors" in said or "Non-2xx" in said:
        sys.exit(f"wrk met errors:\n{said}")
    return Load(int(found[1]), float(found[2]))


class Cpu:
    """CPU seconds that processes use within a `with` block."""

    def __init__(self, **processes):
        self.processes = processes

    def __enter__(self):
        self.used = {name: process.cpu_s() for name, process in self.processes.items()}
        return self

    def __exit__(self, *_):
        for name, process in self.processes.items():
            self.used[name] = process.cpu_s() - self.used[name]

    def per(self, count):
        each = (f"{name} {used / count * 1e6:.1f}" for name, used in self.used.items())
        return "CPU us each: " + ", ".join(each)


def line(what, rate, unit, note=""):
    print(f"{what:34}{rate:>12,.0f} {unit:14}{note}", flush=True)


def check(what, fine, detail):
    print(f"    {'ok ' if fine else 'NOT'}  {what}: {detail}", flush=True)
    check.all_fine = check.all_fine and fine


check.all_fine = True


# Hits and forwards


def measure_hits(stack, options):
    proxy = start(stack, scratch(stack, options), start_origin(stack, options))
    wrk(proxy.port, options, seconds=1)
    with Cpu(proxy=proxy) as cpu:
        load = wrk(proxy.port, options)
    line("hits, 1 KiB, no login", load.requests / load.seconds, "hits/s", cpu.per(load.requests))


def measure_forwards(stack, options):
    folder, origin = scratch(stack, options), start_origin(stack, options)
    proxy = start(stack, folder, origin)
    script = write_script(folder, 'wrk.headers["Cookie"] = "login=not-a-known-token"')
    with Cpu(origin=origin) as cpu:
        load = wrk(origin.port, options, script=script)
    direct = load.requests / load.seconds
    line("the origin without a proxy", direct, "requests/s", cpu.per(load.requests))
    with Cpu(proxy=proxy, origin=origin) as cpu:
        load = wrk(proxy.port, options, script=script)
    rate = load.requests / load.seconds
    note = f"{rate / direct:.2f} of direct; {cpu.per(load.requests)}"
    line("forwards, 1 KiB, unknown login", rate, "requests/s", note)


# Views


def measure_views_redis(stack, options):
    folder = scratch(stack, options)
    store = stack.enter_context(lab.redis_server(folder))
    conn = redis.Redis(port=store.port)
    seed_tokens(conn, [token(n) for n in range(options.tokens)] + PROBES)
    url = f"redis://127.0.0.1:{store.port}"
    proxy = start(stack, folder, start_origin(stack, options), url)
    warm(proxy)
    conn.delete("viewed:")
    conn.config_resetstat()
    before = lab.metrics(proxy)
    prober = Prober(proxy.port, conn)
    began, wall = time.monotonic(), time.time()
    with Cpu(proxy=proxy, redis=store) as cpu, prober:
        load = wrk(proxy.port, options, script=views_script(folder, options.tokens))
        prober.stop()
        answered = settle(proxy, before, lambda: -views_sum(conn))
        seconds = time.monotonic() - began
    rate = answered.hits / seconds
    note = f"{load.requests / load.seconds:,.0f} hits/s meanwhile; {cpu.per(answered.hits)}"
    line(f"item views, Redis, {options.tokens:,} logins", rate, "views/s", note)
    print(f"    {commands(conn)}")
    total = -views_sum(conn)
    check("sum of viewed: is the requests", total == answered.hits, f"{total} of {answered.hits}")
    check_answers(load, prober.sent, answered, options)
    check_recent(conn, proxy, wall, prober)
    return rate


def measure_views_embedded(stack, options):
    folder = scratch(stack, options)
    url = f"embedded:{folder}/anteroom-data"
    lab.seed(url, options.sessions, items=0, cart=0)
    proxy = start(stack, folder, start_origin(stack, options), url)
    warm(proxy)
    before = lab.metrics(proxy)
    began = time.monotonic()
    views = sum(lab.top(proxy, ITEMS).values())
    with Cpu(proxy=proxy) as cpu:
        load = wrk(proxy.port, options, script=views_script(folder, options.tokens))
        answered = settle(proxy, before, lambda: sum(lab.top(proxy, ITEMS).values()) - views)
        seconds = time.monotonic() - began
    rate = (answered.hits - answered.dropped) / seconds
    note = f"{load.requests / load.seconds:,.0f} hits/s meanwhile; {cpu.per(answered.hits)}"
    line(f"item views, embedded, {options.tokens:,} of {options.sessions:,} logins", rate, "views/s", note)
    total = sum(lab.top(proxy, ITEMS).values()) - views
    check("sum of views is the requests", total == answered.hits, f"{total:.0f} of {answered.hits}")
    check_answers(load, 0, answered, options)


def python_views(stack, options):
    """The chapter's own loop: one transaction a view, one after the other."""
    store = stack.enter_context(lab.redis_server(scratch(stack, options)))
    conn = redis.Redis(port=store.port)
    count, began, cpu_s = 0, time.monotonic(), time.process_time()
    while (seconds := time.monotonic() - began) < options.seconds:
        who = random.randrange(options.tokens)
        chapter.update_token(conn, token(who), f"user-{who}", f"item-{random.randrange(ITEMS)}")
        count += 1
    us = (time.process_time() - cpu_s) / count * 1e6
    line("item views, the loop in Python", count / seconds, "views/s", f"CPU us each: {us:.0f}")
    return count / seconds


class Answered(collections.namedtuple("Answered", "hits visits dropped")):
    """What the proxy says of the load."""


def settle(proxy, before, recorded=None, limit_s=600):
    """Waits until no visit waits and every view is recorded; what was answered."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        now = lab.metrics(proxy)
        hits = of(now, "result=\"hit") - of(before, "result=\"hit")
        waiting = now["anteroom_visits_waiting"]
        if waiting == 0 and (recorded is None or recorded() >= hits):
            visits, dropped = (
                now[name] - before[name] for name in ("anteroom_visits_total", DROPPED)
            )
            return Answered(int(hits), int(visits), int(dropped))
        time.sleep(0.01)
    sys.exit(f"{waiting} visits still wait after {limit_s} s")


DROPPED = "anteroom_visits_dropped_total"


def of(values, part):
    return sum(value for name, value in values.items() if part in name)


class Prober(threading.Thread):
    """Visits with tokens of its own during the load, and when each was last sent."""

    def __init__(self, port, conn):
        super().__init__(daemon=True)
        self.port, self.conn = port, conn
        self.ended, self.sent, self.last, self.lags = threading.Event(), 0, {}, []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.ended.set()
        self.join()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        while not self.ended.wait(0.02):
            who = PROBES[self.sent % len(PROBES)]
            self.last[who] = time.time()
            fields = {"Host": HOST, "Cookie": f"login={who}"}
            connection.request("GET", "/item/item-1", headers=fields)
            connection.getresponse().read()
            self.sent += 1
            if self.sent % 10 == 0:
                self.lags.append(self.lag(who))

    def lag(self, who):
        """How long the visit just made takes to be in the store."""
        while not self.ended.is_set():
            if (self.conn.zscore("recent:", who) or 0) >= self.last[who] - 0.001:
                break
            time.sleep(0.002)
        return time.time() - self.last[who]


def check_answers(load, probed, answered, options):
    asked = load.requests + probed
    # What wrk had asked for when its time was over is answered, but wrk does not count it.
    fine = asked <= answered.hits <= asked + options.connections
    check("all were hits", fine, f"{answered.hits} hits for {asked} answers seen")
    fine = answered.visits == answered.hits
    check("all were visits of known visitors", fine, f"{answered.visits} of {answered.hits}")
    check("visits dropped", answered.dropped == 0, answered.dropped)


def check_recent(conn, proxy, wall, prober):
    seen = dict(conn.zrange("recent:", 0, -1, withscores=True))
    last = last_requests(proxy, wall)
    off = [abs(seen.get(who.encode(), 0) - when) for who, when in last.items()]
    fine = bool(off) and max(off) <= RECENT_S
    check("recent: is the last request", fine, f"{len(off)} tokens, at most {max(off):.3f} s off")
    if prober.lags:
        median, most = statistics.median(prober.lags), max(prober.lags)
        print(f"         in the store {median:.3f} s after the request (most {most:.3f})")


def last_requests(proxy, since):
    """When each token was last used, by the access log: users are named like their tokens."""
    last = {}
    with open(proxy.access_log, "rb") as log:
        for text in log:
            one = json.loads(text)
            when = datetime.datetime.fromisoformat(one["time"]).timestamp()
            if one.get("user") and when >= since:
                who = one["user"].removeprefix("user-")
                last[who] = max(when, last.get(who, 0))
    return last


def commands(conn):
    """What Redis itself spent on each command, by its own count."""
    stats = conn.info("commandstats")
    rows = sorted(stats.items(), key=lambda row: -row[1]["usec"])
    said = (
        f"{name[8:]} {row['calls']:,} x {row['usec_per_call']:.2f} us"
        for name, row in rows[:6]
        if name[8:] not in ("config|resetstat", "info")
    )
    return "redis: " + ", ".join(said)


def seed_tokens(conn, tokens):
    for first in range(0, len(tokens), 10_000):
        some = tokens[first : first + 10_000]
        with conn.pipeline(transaction=False) as pipe:
            pipe.hset("login:", mapping={one: f"user-{one}" for one in some})
            pipe.zadd("recent:", {one: 1 for one in some})
            pipe.execute()


def warm(proxy):
    """Fetches every item once, so that all that follows are hits."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    for n in range(ITEMS):
        connection.request("GET", f"/item/item-{n}", headers={"Host": HOST})
        answer = connection.getresponse()
        if answer.status != 200 or len(answer.read()) != 1024:
            sys.exit(f"the proxy answered {answer.status}")
    settle(proxy, lab.metrics(proxy))


def views_sum(conn):
    return int(sum(score for _, score in conn.zrange("viewed:", 0, -1, withscores=True)))


def token(n):
    return f"tok-{n:08}"


def views_script(folder, tokens):
    return write_script(folder, VIEWS_LUA.format(items=ITEMS, tokens=tokens))


def write_script(folder, text):
    script = folder / "load.lua"
    script.write_text(text)
    return script


# Cleaning


def measure_clean_redis(stack, options):
    folder = scratch(stack, options)
    store = stack.enter_context(lab.redis_server(folder))
    conn = redis.Redis(port=store.port)
    url = f"redis://127.0.0.1:{store.port}"
    for batch in options.batches:
        lab.seed(url, options.sessions)
        with contextlib.ExitStack() as running, Watcher(store.port) as watcher:
            idle = watcher.rest(1.0)
            conn.config_resetstat()
            proxy = start(running, folder, None, url, options.keep, batch)
            redis_s = store.cpu_s()
            # It begins a second after its start, when it is connected.
            wait(lambda: conn.zcard("recent:") < options.sessions, pause_s=0.001)
            watcher.take()
            # What went before is not counted, nor its time.
            began, left = time.monotonic(), conn.zcard("recent:")
            wait(lambda: conn.zcard("recent:") <= options.keep)
            seconds = time.monotonic() - began
            busy = watcher.take()
            removed, timed = options.sessions - options.keep, left - options.keep
            note = f"HGET p99 {busy:.2f} ms (idle {idle:.2f}); CPU us each: "
            cpu_us = [used / removed * 1e6 for used in (proxy.cpu_s(), store.cpu_s() - redis_s)]
            note += "proxy {:.1f}, redis {:.1f}".format(*cpu_us)
            what = f"cleaned, Redis, {options.sessions:,}, batch {batch}"
            line(what, timed / seconds, "tokens/s", note)
            print(f"    {commands(conn)}")
            check_cleaned(proxy, removed)
            left = [conn.hlen("login:"), sum(1 for _ in conn.scan_iter("cart:*", 10_000))]
            check("logins and carts left", left == [options.keep] * 2, left)
        conn.flushall()


def measure_clean_embedded(stack, options):
    for batch in options.batches:
        folder = scratch(stack, options)
        url = f"embedded:{folder}/anteroom-data"
        lab.seed(url, options.sessions)
        with contextlib.ExitStack() as running:
            began = time.monotonic()
            proxy = start(running, folder, None, url, options.keep, batch)
            removed = options.sessions - options.keep
            wait(lambda: cleaned(proxy) >= removed)
            seconds = time.monotonic() - began
            note = f"CPU us each: proxy {proxy.cpu_s() / removed * 1e6:.1f}"
            what = f"cleaned, embedded, {options.sessions:,}, batch {batch}"
            line(what, removed / seconds, "tokens/s", note)
            check_cleaned(proxy, removed)


def python_clean(stack, options):
    store = stack.enter_context(lab.redis_server(scratch(stack, options)))
    conn = redis.Redis(port=store.port)
    for batch in options.batches:
        # A tenth: it takes long, and as long for each.
        lab.seed(f"redis://127.0.0.1:{store.port}", options.sessions // 10)
        began, removed = time.monotonic(), 0
        while tokens := chapter.clean_full_sessions(conn, 0, batch):
            removed += len(tokens)
        rate = removed / (time.monotonic() - began)
        line(f"cleaned, the loop in Python, {batch}", rate, "tokens/s", f"{removed:,} tokens")


def cleaned(proxy):
    return lab.metrics(proxy)["anteroom_sessions_cleaned_total"]


def check_cleaned(proxy, removed):
    wait(lambda: cleaned(proxy) >= removed, 5)
    check("anteroom_sessions_cleaned", cleaned(proxy) == removed, int(cleaned(proxy)))


def wait(done, limit_s=900, pause_s=0.02):
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            sys.exit(f"not done after {limit_s} s")
        time.sleep(pause_s)


class Watcher(threading.Thread):
    """Another client of the same Redis: how long an HGET takes it."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.ended, self.took = port, threading.Event(), []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()

    def run(self):
        with socket.create_connection(("127.0.0.1", self.port)) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self.ended.wait(0.001):
                began = time.perf_counter()
                peer.sendall(b"HGET login: tok-00000001\r\n")
                peer.recv(4096)
                self.took.append(time.perf_counter() - began)

    def rest(self, seconds):
        time.sleep(seconds)
        return self.take()

    def take(self):
        """The p99 since it was last taken, in ms."""
        took, self.took = sorted(self.took), []
        return took[len(took) * 99 // 100] * 1000 if took else float("nan")


# What runs


def scratch(stack, options):
    return pathlib.Path(stack.enter_context(lab.scratch_folder(options.folder)))


def start_origin(stack, options):
    return stack.enter_context(lab.nginx_origin(scratch(stack, options)))


def start(stack, folder, origin, store=None, keep=100_000_000, batch=100):
    """The proxy in front of the origin, or of nobody."""
    port = origin.port if origin else lab.free_port()
    session = SESSION.format(keep=keep, batch=batch)
    binary = start.binary
    return stack.enter_context(lab.anteroom(binary, folder, port, store=store, more=session))


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--anteroom", help="the binary; default: a release build made now")
    parser.add_argument("--quick", action="store_true", help="small numbers")
    parser.add_argument("--only", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--folder", help="where the stores are; default: in memory")
    parser.add_argument("--seconds", type=int, help="of each load; default: 10")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=10_000, help="that view")
    parser.add_argument("--sessions", type=int, help="default: 1,000,000")
    parser.add_argument("--keep", type=int, default=1_000, help="max_sessions when cleaning")
    parser.add_argument("--batch", type=int, action="append", help="default: 100 and 1,000")
    options = parser.parse_args()
    options.seconds = options.seconds or (2 if options.quick else 10)
    options.sessions = options.sessions or (20_000 if options.quick else 1_000_000)
    options.batches = options.batch or [100, 1_000]
    return options


MEASURES = {
    "hits": [measure_hits],
    "forwards": [measure_forwards],
    "views-redis": [measure_views_redis, python_views],
    "views-embedded": [measure_views_embedded],
    "clean-redis": [measure_clean_redis, python_clean],
    "clean-embedded": [measure_clean_embedded],
}


def main():
    options = parse()
    start.binary = lab.anteroom_binary(options.anteroom)
    print(f"{lab.machine()}; stores in {options.folder or 'memory'}")
    print(
        f"one thread, JSON access log to a file; wrk -t1 -c{options.connections}, "
        f"{options.seconds} s; {ITEMS:,} items; Redis without persistence\n"
    )
    for part in options.only or PARTS:
        for measure in MEASURES[part]:
            with contextlib.ExitStack() as stack:
                measure(stack, options)
    sys.exit(0 if check.all_fine else 1)


if __name__ == "__main__":
    main()
