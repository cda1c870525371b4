#!/usr/bin/env python3
"""What a view costs on one Redis, on one Redis with the sharded layout, and on a Cluster's primaries, in one run.

    benches/shards.py                       builds the release binary and measures the three
    benches/shards.py --quick
    benches/shards.py --primaries 1 --primaries 3 --replicas 1

The load is that of benches/chapter.py: GETs of /item/N by visitors with a login that hit the cache, and the rate is
that until the last view is in the store. CPU time is that of the proxy and that of all servers of Redis, for each
view; a visitor whose look-up took too long is unknown, gets the page, and is no view. The same load without a login
stands for what a hit costs alone. Then there are purges, one after the other; pages that are fetched and stored; and,
before all that, a proxy without visitors. Everything is on loopback and shares the cores. Needs wrk, nginx-light,
redis-server.
"""

import contextlib
import pathlib
import re
import subprocess
import sys
import time

import lab
import servers

ITEMS = 1_000
CONFIG = """
[session]
cookie = "login"
token_storage = "plain"
[[route]]
match.path = ["/item/{item}"]
share = "everyone"
[views]
rescale_every = "1h"
"""
LOAD = """
local random, format = math.random, string.format
request = function()
  return format("GET %s HTTP/1.1\\r\\nHost: bench.example\\r\\n%s\\r\\n", {path}, {cookie})
end
"""


def load(folder, path, cookie):
    script = folder / "load.lua"
    script.write_text(LOAD.format(path=path, cookie=cookie))
    return script


def views_load(folder, tokens):
    path = f'format("/item/item-%d", random(0, {ITEMS} - 1))'
    return load(folder, path, f'format("Cookie: login=tok-%08d\\r\\n", random(0, {tokens} - 1))')


def wrk(proxy, options, script, seconds=None):
    seconds = seconds or options.seconds
    command = [lab.need("wrk", "wrk"), "-t1", f"-c{options.connections}", f"-d{seconds}s", "-s", script]
    command.append(f"http://127.0.0.1:{proxy.port}/")
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+) requests in ([\d.]+)s", said)
    if found is None or "Non-2xx" in said:
        sys.exit(f"wrk met errors:\n{said}")
    return int(found[1])


def log_in(store, tokens):
    """Sessions as another program writes them."""
    sharded = len(store.nodes) > 1 or store.layout == "sharded"
    by_node = {}
    for number in range(tokens):
        token = f"tok-{number:08}"
        tag = f"{{s{servers.shard_of(token)}}}" if sharded else ""
        commands = servers.packed(["HSET", f"login:{tag}", token, f"user-{number}"])
        commands += servers.packed(["ZADD", f"recent:{tag}", 1, token])
        by_node.setdefault(tag, []).append(commands)
    for tag, commands in by_node.items():
        with servers.Resp(store.primary_of(f"login:{tag}").port) as conn:
            conn.all(b"".join(commands), 2 * len(commands))


def settled(store, proxy, limit_s=300):
    """Waits until no visit waits and no view is added any more; when the last one was."""
    deadline, last, since = time.monotonic() + limit_s, -1, time.monotonic()
    while time.monotonic() < deadline:
        found = servers.popularity(store)
        if found != last or lab.metrics(proxy)["anteroom_visits_waiting"] > 0:
            last, since = found, time.monotonic()
        # Counts of items are gathered for a second.
        if time.monotonic() - since > 1.5:
            return since
        time.sleep(0.05)
    sys.exit(f"visits wait still after {limit_s} s")


def visits(proxy):
    """Visits of known visitors that are recorded."""
    return int(lab.metrics(proxy)["anteroom_visits_total"])


def hits(proxy):
    return int(sum(value for name, value in lab.metrics(proxy).items() if 'result="hit' in name))


class Spent:
    """CPU time of the proxy and of all servers within a `with` block."""

    def __init__(self, proxy, store):
        self.parts = [proxy.cpu_s, lambda: sum(node.process.cpu_s() for node in store.nodes)]

    def __enter__(self):
        self.used = [part() for part in self.parts]
        return self

    def __exit__(self, *_):
        self.used = [part() - used for part, used in zip(self.parts, self.used)]

    def each(self, count):
        return " / ".join(f"{used / count * 1e6:.1f}" for used in self.used)


def measure(name, store, layout, options):
    store.layout = layout
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        origin = stack.enter_context(lab.nginx_origin(folder))
        log_in(store, options.tokens)
        url = f'{store.url}"\nlayout = "{layout}'
        proxy = lab.anteroom(measure.binary, folder, origin.port, store=url, more=CONFIG)
        stack.enter_context(proxy)
        servers.until("the store is connected", lambda: lab.metrics(proxy)["anteroom_store_connected"] == 1)
        idle = idle_costs(proxy, store)
        anonymous = load(folder, f'format("/item/item-%d", random(0, {ITEMS} - 1))', '""')
        wrk(proxy, options, anonymous, 2)
        # Those views are counted, too.
        time.sleep(2)
        with Spent(proxy, store) as alone:
            anonymous_hits = wrk(proxy, options, anonymous)
            time.sleep(2)
        before, hits_before = visits(proxy), hits(proxy)
        began = time.monotonic()
        with Spent(proxy, store) as viewing:
            wrk(proxy, options, views_load(folder, options.tokens))
            seconds = settled(store, proxy) - began
        views = visits(proxy) - before
        unknown = hits(proxy) - hits_before - views
        purges = purge_costs(proxy, store)
        pages = page_costs(proxy, store, folder, options)
        print(
            f"| {name} | {views / seconds:,.0f} | {unknown} | {viewing.each(views)} | {alone.each(anonymous_hits)} "
            f"| {pages} | {purges} | {idle} |",
            flush=True,
        )


def idle_costs(proxy, store, seconds=5):
    """What a proxy without visitors costs in a second, and how many commands it sends."""
    def commands():
        stats = (node.say("INFO", "stats") for node in store.nodes)
        return sum(int(one.partition("total_commands_processed:")[2].partition("\r")[0]) for one in stats)

    time.sleep(2)
    def spent():
        # To the nanosecond: it is little.
        return [proxy.run_s(), sum(node.process.run_s() for node in store.nodes)]

    before, spent_before = commands(), spent()
    time.sleep(seconds)
    each = ((now - then) / seconds * 1e6 for now, then in zip(spent(), spent_before))
    return f"{' / '.join(f'{one:,.0f}' for one in each)} ({(commands() - before) / seconds:,.0f} commands)"


def page_costs(proxy, store, folder, options):
    """Pages that are there no more than once: each is fetched from the origin, and stored."""
    script = load(folder, 'format("/one/%d-%d", random(1, 1000000000), random(1, 1000000000))', '""')
    with Spent(proxy, store) as spent:
        pages = wrk(proxy, options, script, 3)
    return spent.each(pages)


def purge_costs(proxy, store, count=300):
    """Purges by URL, one after the other. No other process has to confirm them."""
    with Spent(proxy, store) as spent:
        began = time.monotonic()
        for number in range(count):
            lab.order(proxy, "POST", "/purge", b'{"urls":["http://bench.example/item/item-%d"]}' % number)
        seconds = time.monotonic() - began
    return f"{spent.each(count)} ({seconds / count * 1e3:.1f} ms)"


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers")
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=10_000, help="that view")
    parser.add_argument("--primaries", type=int, action="append", help="of Clusters; default: 3")
    parser.add_argument("--replicas", type=int, default=0, help="of each primary")
    options = parser.parse_args()
    options.seconds = options.seconds or (2 if options.quick else 8)
    measure.binary = lab.anteroom_binary(options.anteroom)
    print(f"{lab.machine()}; one thread, wrk -t1 -c{options.connections}, {options.seconds} s; {ITEMS:,} items, "
          f"{options.tokens:,} logins\n\nCPU us each: proxy / all servers of Redis\n")
    heads = ["store", "views/s", "hits of unknown", "a view with its hit", "a hit without a login",
             "a page fetched and stored", "a purge", "an idle proxy, a second"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for layout in ["single", "sharded"]:
        with lab.scratch_folder() as name, servers.One(pathlib.Path(name)) as store:
            measure(f"one, {layout}", store, layout, options)
    for primaries in options.primaries or [3]:
        with lab.scratch_folder() as name:
            with servers.Cluster(pathlib.Path(name), primaries, options.replicas) as store:
                measure(f"{primaries} primaries", store, "sharded", options)


if __name__ == "__main__":
    main()
