#!/usr/bin/env python3
"""Whether memory and Redis stay within their bounds, whatever is asked for.

    benches/bounds.py                    100 variants, 10,000 tags, a million URLs
    benches/bounds.py --urls 50000 --memory 8MiB --pages 8MiB --anteroom target/release/anteroom

One proxy with one thread, an nginx as origin and a Redis of its own. First 100 variants of one URL and
10,000 tags, each purged; then a flood of URLs that are asked for once, by wrk, while a hot set is asked
for again and again, each page about once a second; the flood begins first, so that the hot set has to
find its place. Printed are the page memory, the process's own memory (VmRSS, VmHWM), what Redis holds,
and the bytes of pages by its ledger beside those that are there. Exits with 1 where a bound is broken.
Needs nginx-light, redis-server and wrk.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time

import lab

MIB = 1 << 20
UNITS = {"KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
# What a page in Redis takes beside its bytes, as the ledger has it.
BESIDE = 256
VARIANTS = 32
TAGS_OF_PAGE = 64
CLIENTS = 64
SPELL_S = 3

LOCATIONS = """
        location /variants {{
            default_type text/html;
            add_header Cache-Control "max-age=3600";
            add_header Vary Accept-Language;
            return 200 "$http_accept_language";
        }}
        location ~ ^/tags/(\\d+)$ {{
            default_type text/html;
            add_header Cache-Control "max-age=3600";
            add_header Surrogate-Key "{tags}";
            return 200 "tagged";
        }}
        location /crowd/ {{
            add_header Cache-Control "max-age=60";
            return 200 "a page";
        }}
        location /all-tags {{
            default_type text/html;
            add_header Cache-Control "max-age=3600";
            {all_tags}
            return 200 "tagged";
        }}
"""

FLOOD = """
local asked = {first}
function request()
  asked = asked + 1
  return wrk.format("GET", "/page/" .. asked)
end
"""

CROWD = """
local function number() return math.random(0, 255) end
function setup(thread) thread:set("seed", os.time()) end
function init() math.randomseed(seed) end
function request()
  local own = string.format("%08x", math.random(0, 2^31 - 1))
  return wrk.format("GET", "/crowd/" .. own:sub(1, 4) .. "x/" .. own, {{
    ["X-Forwarded-For"] = string.format("%d.%d.%d.1", math.random(1, 126), number(), number()),
    ["User-Agent"] = "agent-" .. own,
    ["Cookie"] = "login=" .. own .. own .. own .. own,
  }})
end
"""
CROWD_CONFIG = """
[client]
trusted_proxies = ["127.0.0.0/8"]
[session]
mint = true
cookie = "login"
[cache]
memory = "1MiB"
max_object = "64KiB"
"""


class Redis:
    """A connection on which commands are written out, as many as one likes before the answers."""

    def __init__(self, port):
        self.stream = socket.create_connection(("127.0.0.1", port), 60).makefile("rwb")

    def ask(self, *commands):
        for words in commands:
            parts = [word.encode() for word in words]
            self.stream.write(b"*%d\r\n" % len(parts))
            self.stream.write(b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts))
        self.stream.flush()
        return [self.answer() for _ in commands]

    def answer(self):
        line = self.stream.readline().strip()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        if kind == b"$":
            return self.stream.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
        if kind == b"-":
            raise RuntimeError(rest.decode())
        return int(rest) if kind == b":" else rest

    def info(self, name):
        (text,) = self.ask(["INFO", "memory"])
        return int(re.search(rf"^{name}:(\d+)", text.decode(), re.M)[1])

    def look(self):
        """How many pages there are, the bytes of their values, and the keys that never expire."""
        cursor, count, size, lasting = "0", 0, 0, []
        while True:
            ((after, keys),) = self.ask(["SCAN", cursor, "COUNT", "5000"])
            names = [key.decode() for key in keys]
            pages = [name for name in names if name.startswith("cache:")]
            # SCAN may name a key twice; here nothing is added meanwhile, which is when it does not.
            count, size = count + len(pages), size + sum(self.ask(*(["STRLEN", page] for page in pages)))
            times = self.ask(*(["TTL", name] for name in names))
            lasting += [name for name, time_left in zip(names, times) if time_left == -1]
            cursor = after.decode()
            if cursor == "0":
                return count, size, lasting


class Hot(threading.Thread):
    """Asks for each page of the hot set once a round, and counts what came from memory."""

    def __init__(self, port, pages):
        super().__init__(daemon=True)
        self.port, self.pages = port, pages
        self.ended = threading.Event()
        self.rounds = []

    def run(self):
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while not self.ended.is_set():
            began, hits = time.monotonic(), 0
            for number in range(self.pages):
                hits += from_memory(client, f"/hot/{number}")
            self.rounds.append(hits / self.pages)
            self.ended.wait(max(0, 1 - (time.monotonic() - began)))

    def end(self):
        self.ended.set()
        self.join()


def from_memory(client, target, **fields):
    status, _ = fetch(client, target, **fields)
    return "detail=memory" in status


def fetch(client, target, **fields):
    """Cache-Status and the body."""
    client.request("GET", target, headers={"Host": "bench.example", **fields})
    answer = client.getresponse()
    return answer.headers.get("Cache-Status", ""), answer.read()


class Report:
    """Lines of figures, each with its bound."""

    def __init__(self):
        self.fine = True

    def say(self, what, value, most=None, least=None, unit=""):
        kept = (most is None or value <= most) and (least is None or value >= least)
        self.fine &= kept
        shown = f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
        bound = f"at most {most:,.0f}" if most is not None else ""
        bound = f"at least {least}" if least is not None else bound
        verdict = "" if not bound else "PASS" if kept else "FAIL"
        print(f"{what:52}{shown:>16} {unit:6}{bound:26}{verdict}", flush=True)


def variants(report, proxy):
    client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    languages = [f"x-{number}" for number in range(100)]
    wrong = 0
    for language in languages * 2:
        _, body = fetch(client, "/variants", **{"Accept-Language": language})
        wrong += body != language.encode()
    held = sum(
        from_memory(client, "/variants", **{"Accept-Language": language}) for language in languages
    )
    report.say("100 variants of a URL: wrong answers", wrong, most=0)
    report.say("  kept", held, most=VARIANTS)


def tags(report, proxy, redis, number):
    client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    pages = -(-number // TAGS_OF_PAGE)
    for _ in range(2):
        kept = sum(from_memory(client, f"/tags/{page}") for page in range(pages))
        all_at_once = from_memory(client, "/all-tags")
    report.say(f"{number:,} tags, {TAGS_OF_PAGE} a page: pages kept", kept, least=pages)
    report.say(f"  one page with {number:,} tags: kept", int(all_at_once), most=0)
    before = redis.info("used_memory")
    names = [f"t{page}-{tag}" for page in range(pages) for tag in range(TAGS_OF_PAGE)]
    for first in range(0, len(names), 1_000):
        body = json.dumps({"tags": names[first : first + 1_000]}).encode()
        lab.order(proxy, "POST", "/purge", body)
    fresh = sum(from_memory(client, f"/tags/{page}") for page in range(pages))
    report.say("  all purged by tag: pages fresh still", fresh, most=0)
    grown = redis.info("used_memory") - before
    report.say("  Redis grew by", grown, most=4 * MIB, unit="bytes")


def flood(proxy, folder, first, number, asking=FLOOD):
    """Asks for at least so many URLs, each once; the last of them."""
    script, last = folder / "flood.lua", first
    while last < first + number:
        script.write_text(asking.format(first=last))
        command = [lab.need("wrk", "wrk"), "-t1", f"-c{CLIENTS}", f"-d{SPELL_S}s", "-s", str(script)]
        command += ["--timeout", "30s", f"http://127.0.0.1:{proxy.port}"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = re.search(r"(\d+) requests in", said)
        if found is None or "Socket errors" in said or "Non-2xx" in said:
            sys.exit(f"wrk met errors:\n{said}")
        # Those that were asked for when the time was up had no answer yet.
        last += int(found[1]) + CLIENTS
    return last


def urls(report, proxy, redis, folder, options):
    before, start = proxy.memory_kib("VmRSS"), time.monotonic()
    # So many that memory is full before the hot set comes.
    early = options.urls // 10
    asked = flood(proxy, folder, 0, early)
    hot = Hot(proxy.port, options.hot)
    hot.start()
    asked = flood(proxy, folder, asked, options.urls - asked)
    took = time.monotonic() - start
    hot.end()
    figures = lab.metrics(proxy)
    rounds = hot.rounds[len(hot.rounds) // 2 :]
    report.say(f"{asked:,} URLs asked for once, in seconds", round(took))
    report.say("  page memory", int(figures["anteroom_memory_pages_bytes"]), most=options.memory, unit="bytes")
    grown = (proxy.memory_kib("VmHWM") - before) << 10
    report.say("  the process: VmRSS", proxy.memory_kib("VmRSS") << 10, unit="bytes")
    report.say("  it grew at most by (VmHWM)", grown, most=1.5 * options.memory + 64 * MIB, unit="bytes")
    share = sum(rounds) / max(len(rounds), 1)
    report.say(f"  hits of {options.hot} hot pages, last {len(rounds)} rounds", share, least=0.99)
    for reason in ["nearly-full", "full"]:
        name = f'anteroom_pages_unstored_total{{reason="{reason}"}}'
        report.say(f"  not let into the store: {reason}", int(figures[name]))
    ledger(report, redis, options)


def crowd(report, folder, binary, origin_port, server, options):
    """What is remembered of strangers, when it is as much as it may be."""
    own = folder / "crowd"
    own.mkdir()
    store = f"redis://127.0.0.1:{server.port}/1"
    with lab.anteroom(binary, own, origin_port, store=store, more=CROWD_CONFIG) as proxy:
        before = proxy.memory_kib("VmRSS")
        flood(proxy, own, 0, options.urls // 2, asking=CROWD)
        half = proxy.memory_kib("VmRSS")
        flood(proxy, own, 0, options.urls // 2, asking=CROWD)
        last = proxy.memory_kib("VmRSS")
    report.say(f"{options.urls:,} strangers: VmRSS before them", before << 10, unit="bytes")
    report.say("  it grew by", (last - before) << 10, most=64 * MIB, unit="bytes")
    report.say("  by the second half of them", (last - half) << 10, most=8 * MIB, unit="bytes")


def ledger(report, redis, options):
    # What was on its way when the flood ended has arrived.
    time.sleep(3)
    keys, size, lasting = redis.look()
    booked, fields = redis.ask(["HGET", "pagebytes:", "all"], ["HLEN", "pagebytes:"])
    booked, truth = int(booked), size + BESIDE * keys
    report.say("  pages in Redis", keys)
    report.say("  bytes by the ledger", booked, most=options.pages, unit="bytes")
    report.say(f"  bytes that are there, {BESIDE} beside each", truth, most=booked, unit="bytes")
    report.say("  the ledger's excess", booked - truth, most=booked // 10, unit="bytes")
    report.say("  the ledger's fields", fields, most=4_000)
    # The ledger, and three keys of purges.
    report.say("  keys without a time to live", len(lasting), most=4)
    used = redis.info("used_memory")
    report.say("  Redis used_memory", used, most=1.25 * options.pages + 16 * MIB, unit="bytes")


def size(text):
    found = re.fullmatch(r"(\d+)(KiB|MiB|GiB)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 64MiB")
    return int(found[1]) * UNITS[found[2]]


def origin(folder, tags_of_all):
    of_page = " ".join(f"t$1-{tag}" for tag in range(TAGS_OF_PAGE))
    names = [f"t{tag}" for tag in range(tags_of_all)]
    lines = (" ".join(names[first : first + 400]) for first in range(0, len(names), 400))
    all_tags = "\n".join(f'add_header Surrogate-Key "{line}";' for line in lines)
    return lab.nginx_origin(folder, more=LOCATIONS.format(tags=of_page, all_tags=all_tags))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--anteroom", help="the binary; default: a release build made now")
    parser.add_argument("--urls", type=int, default=1_000_000, help="that are asked for once")
    parser.add_argument("--tags", type=int, default=10_000, help="that pages have")
    parser.add_argument("--hot", type=int, default=500, help="pages that are asked for again")
    parser.add_argument("--memory", type=size, default="64MiB", help="for pages")
    parser.add_argument("--pages", type=size, default="64MiB", help="of pages in Redis")
    options = parser.parse_args()
    # The configuration that the benches share has a place for neither.
    os.environ["ANTEROOM__STORE__PAGES"] = f"{options.pages >> 10}KiB"
    os.environ["ANTEROOM__LOG__ACCESS"] = "off"
    binary = lab.anteroom_binary(options.anteroom)
    cache = f'[cache]\nmemory = "{options.memory >> 10}KiB"\nmax_object = "1MiB"\n'
    report = Report()
    with lab.scratch_folder() as name:
        folder = pathlib.Path(name)
        with origin(folder, options.tags) as web, lab.redis_server(folder) as server:
            store = f"redis://127.0.0.1:{server.port}"
            with lab.anteroom(binary, folder, web.port, store=store, more=cache) as proxy:
                redis = Redis(server.port)
                print(f"{lab.machine()}\nmemory {options.memory:,}, pages {options.pages:,} bytes\n")
                variants(report, proxy)
                tags(report, proxy, redis, options.tags)
                urls(report, proxy, redis, folder, options)
            crowd(report, folder, binary, web.port, server, options)
    print("\nevery bound is kept" if report.fine else "\na bound is BROKEN")
    sys.exit(0 if report.fine else 1)


if __name__ == "__main__":
    main()
