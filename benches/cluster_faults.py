#!/usr/bin/env python3
"""What visitors notice when parts of the store fail: a Redis Cluster of 3 primaries and 3 replicas, or Sentinel.

    benches/cluster_faults.py                      builds the release binary, and runs all faults
    benches/cluster_faults.py --only kill --only purge
    benches/cluster_faults.py --anteroom target/debug/anteroom

Three proxies stand before one small app. Visitors with logins send each request to another proxy: they read pages
that show the user, change and read their carts, log in, log in again, and log out. After some seconds a part fails;
the visitors go on until everything was as before for five seconds. Then each session, logout and cart that was
acknowledged is asked for at each proxy. A row shows:

- `errors`: answers that are none of 200 and a promised 503, and connections that broke;
- `503`: logins, logouts and carts that were refused, as promised while their shard is away;
- `unknown`: pages for a visitor who was not recognised (forwarded, and shown as for a visitor without a login);
- `wrong`: pages of another user;
- `late`: pages for a session that was logged out 1.5 s before. A logout that the store cannot take is answered, and
  sent again; until the store has it, only the proxy that took it knows of it;
- `stale` and `lost`: carts that were not as acknowledged, at once and at the end;
- the p50 and p99 before, and from the fault until all was as before; `back`: seconds from the fault to the last answer
  that was not as it should be;
- `views`: views of items that the store has counted, less those that the access logs show.

With `purge`, five proxies serve shared pages while the primary with the purges fails over. The app changes its pages,
a purge is sent to one of the proxies, and each page that is requested after the purge's answer has to be the new one,
unless the proxy says that it is stale. `partition` needs root and iptables: one proxy runs as a user of its own, whose
packets to one primary are dropped. Needs redis-server, redis-cli.
"""

import asyncio
import collections
import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time

import lab
import servers
import shoppers

BEFORE_S, CALM_S, LEAST_S, MOST_S = 3, 5, 8, 60
# The user of the proxy that is cut off from a node; it needs no name.
OTHER_USER = 61_234


# Faults: each is called with the store and the scenario's stack, and returns what else has to happen at the end.


def kill(store, _stack):
    store.primary_of("login:{s0}").kill()


def failover(store, _stack):
    store.replica_of(store.primary_of("login:{s0}")).say("CLUSTER", "FAILOVER")


def pause(store, stack):
    node = store.primary_of("login:{s0}")
    node.pause()
    waker = threading.Timer(5, node.resume)
    waker.start()
    stack.callback(waker.join)


def pause_replica(store, stack):
    """The replica hangs, with its connections open."""
    node = store.replica_of(store.primary_of("login:{s0}"))
    node.pause()
    waker = threading.Timer(8, node.resume)
    waker.start()
    stack.callback(waker.join)


def reshard(store, stack):
    source = store.primary_of("login:{s0}")
    target = next(node for node in store.primaries() if node is not source)
    ids = [node.say("CLUSTER", "MYID") for node in (source, target)]
    moving = threading.Thread(
        target=servers.redis_cli,
        args=("--cluster", "reshard", f"127.0.0.1:{source.port}", "--cluster-from", ids[0], "--cluster-to", ids[1],
              "--cluster-slots", "1000", "--cluster-yes"),
    )
    moving.start()
    stack.callback(moving.join)


def partition(store, stack):
    """The last proxy does not reach one primary for five seconds."""
    port = store.primary_of("login:{s0}").port
    rule = ["OUTPUT", "-p", "tcp", "--dport", str(port), "-m", "owner", "--uid-owner", str(OTHER_USER), "-j", "DROP"]
    subprocess.run(["iptables", "-I", *rule], check=True)
    end = threading.Timer(5, subprocess.run, (["iptables", "-D", *rule],))
    end.start()
    stack.callback(end.join)


FAULTS = {
    "none": (servers.Cluster, lambda *_: None),
    "kill": (servers.Cluster, kill),
    "failover": (servers.Cluster, failover),
    "pause": (servers.Cluster, pause),
    "pause-replica": (servers.Cluster, pause_replica),
    "reshard": (servers.Cluster, reshard),
    "partition": (servers.Cluster, partition),
    "sentinel-kill": (servers.Sentinels, kill),
    "sentinel-pause-replica": (servers.Sentinels, pause_replica),
}


def start_proxies(stack, folder, store, origin_port, count, other_user=False):
    proxies = []
    for number in range(count):
        own = folder / f"proxy-{number}"
        own.mkdir()
        proxy = lab.anteroom(main.binary, own, origin_port, store=store.url, more=shoppers.CONFIG)
        if other_user and number == count - 1:
            folder.chmod(0o755)
            os.chown(own, OTHER_USER, OTHER_USER)
            as_other = ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"]
            proxy.command = as_other + proxy.command
        proxies.append(stack.enter_context(proxy))
    for proxy in proxies:
        servers.until("the store is connected", lambda: lab.metrics(proxy)["anteroom_store_connected"] == 1)
    return proxies


# Visitors


Run = collections.namedtuple("Run", "events notes began whole lost")


async def visit(store, stack, ports, fault, count):
    """Lets visitors live through a fault."""
    events, notes, over = [], [], asyncio.Event()
    all_of_them = [shoppers.Shopper(number, ports, events, notes) for number in range(count)]
    living = [asyncio.create_task(one.live(over)) for one in all_of_them]
    await asyncio.sleep(BEFORE_S)
    began, whole = time.monotonic(), None
    await asyncio.to_thread(fault, store, stack)
    while (passed := time.monotonic() - began) < MOST_S:
        await asyncio.sleep(0.2)
        if not await asyncio.to_thread(store.is_whole):
            whole = None
        elif whole is None:
            whole = time.monotonic() - began
        last = max((event.ended for event in events if event.outcome != "fine"), default=0)
        if passed > LEAST_S and whole is not None and time.monotonic() - max(last, began) > CALM_S:
            break
    over.set()
    await asyncio.gather(*living)
    lost = [what for one in all_of_them for what in await one.lost()]
    return Run(events, notes, began, whole, lost)


def scenario(name, options):
    make, fault = FAULTS[name]
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        store = stack.enter_context(make(folder / "store"))
        origin_port = stack.enter_context(lab.python_origin(shoppers.origin_app))
        proxies = start_proxies(stack, folder, store, origin_port, 3, name == "partition")
        ports = [proxy.port for proxy in proxies]
        with contextlib.ExitStack() as of_fault:
            run = asyncio.run(visit(store, of_fault, ports, fault, options.visitors))
        views = counted_views(store, proxies)
        report(name, run, views, shoppers.metric(proxies, "anteroom_visits_dropped_total"))
        if options.keep_logs:
            for number, proxy in enumerate(proxies):
                kept = pathlib.Path(options.keep_logs) / f"{name}-{number}.log"
                kept.write_bytes((proxy.access_log.parent / "anteroom-said.log").read_bytes())


def counted_views(store, proxies):
    """Views that the store has counted beyond those that were answered: fewer are lost, more were counted twice."""
    with contextlib.suppress(SystemExit):
        servers.until("no visit waits", lambda: shoppers.metric(proxies, "anteroom_visits_waiting") == 0, 20)
    # Counts of items are gathered for a second.
    answered, deadline = shoppers.item_visits(proxies), time.monotonic() + 5
    while servers.popularity(store) < answered and time.monotonic() < deadline:
        time.sleep(0.1)
    return servers.popularity(store) - answered, answered


def report(name, run, views, dropped):
    bad = [event for event in run.events if event.outcome != "fine"]
    before = [event for event in run.events if event.ended < run.began]
    back = max((event.ended - run.began for event in bad if event.ended >= run.began), default=0)
    during = [event for event in run.events if run.began <= event.ended <= run.began + max(back, 3)]
    count = collections.Counter(event.outcome for event in run.events)
    print(
        f"| {name} | {len(run.events):,} | {count['error']} | {count['promised']} | {count['unrecognised']} "
        f"| {count['wrong']} | {count['late']} | {count['stale']} | {len(run.lost)} "
        f"| {shoppers.quantile(before, 0.5):.1f} / {shoppers.quantile(before, 0.99):.1f} "
        f"| {shoppers.quantile(during, 0.5):.1f} / {shoppers.quantile(during, 0.99):.1f} "
        f"| {shoppers.quantile(during, 1):.0f} | {back:.1f} | {run.whole or 0:.1f} | {views[0]:+,} of {views[1]:,} "
        f"| {dropped} |",
        flush=True,
    )
    for what, number in sorted(collections.Counter((e.what, e.outcome, e.status) for e in bad).items()):
        print(f"    {number} x {what[0]}: {what[1]} ({what[2]})")
    for when, what in run.notes[:5]:
        print(f"    {when - run.began:.1f} s after the fault: {what}")
    for what in run.lost[:5]:
        print(f"    lost: {what}")
    main.is_fine &= not (count["error"] or count["wrong"] or count["stale"] or run.lost)


# Purges


class Purges:
    """Readers of pages, and purges while they read."""

    def __init__(self, proxies, origin_port):
        self.proxies, self.origin_port = proxies, origin_port
        # The version that every page has to show by now; later ones that are in force from a moment on.
        self.floor, self.later = 0, []
        self.outdated, self.reads, self.stale, self.errors = [], 0, 0, 0
        self.took, self.unconfirmed, self.refused = [], 0, []

    def wanted(self):
        now = time.monotonic()
        due = [version for since, version in self.later if since <= now]
        self.floor = max([self.floor, *due])
        self.later = [one for one in self.later if one[0] > now]
        return self.floor

    async def read(self, over):
        lines = shoppers.Lines([proxy.port for proxy in self.proxies])
        while not over.is_set():
            wanted = self.wanted()
            answer = await lines.ask("GET", f"/open/page-{random.randrange(20)}")
            self.reads += 1
            if answer.status != 200:
                self.errors += 1
            elif int(answer.part("version")) < wanted:
                said = shoppers.value_of(answer.head, "cache-status") or ""
                if "hit" in said and "stale" in said or "ttl=-" in said:
                    self.stale += 1
                else:
                    self.outdated.append(f"version {answer.body} for {wanted}: {said}")
            await asyncio.sleep(0.005)

    async def purge(self, over):
        lines = shoppers.Lines([self.origin_port])
        while not over.is_set():
            version = int((await lines.ask("GET", "/bump")).part("version"))
            began = time.monotonic()
            order = json.dumps({"prefixes": [f"http://{shoppers.HOST}/open/"], "hard": random.random() < 0.5})
            proxy = random.choice(self.proxies)
            done = await asyncio.to_thread(lab.order, proxy, "POST", "/purge", order.encode())
            self.took.append((began, time.monotonic() - began))
            if done.get("confirmed"):
                self.later.append((time.monotonic(), version))
            elif "confirmed" in done:
                # A process that has not confirmed it is cut off: it follows within a second.
                self.unconfirmed += 1
                self.later.append((time.monotonic() + 1.1, version))
            else:
                self.refused.append(str(done))
            await asyncio.sleep(0.1)


async def purge_through(purges, store, stack, fault):
    over = asyncio.Event()
    tasks = [purges.read(over) for _ in range(10)] + [purges.purge(over)]
    running = [asyncio.create_task(task) for task in tasks]
    await asyncio.sleep(BEFORE_S)
    began = time.monotonic()
    await asyncio.to_thread(fault, store, stack)
    await asyncio.sleep(15)
    over.set()
    await asyncio.gather(*running)
    return began


def purge_scenario(name, _options):
    fault = {"purge-kill": kill, "purge-failover": failover, "purge-pause": pause}[name]
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        store = stack.enter_context(servers.Cluster(folder / "store"))
        origin_port = stack.enter_context(lab.python_origin(shoppers.origin_app))
        proxies = start_proxies(stack, folder, store, origin_port, 5)
        purges = Purges(proxies, origin_port)
        with contextlib.ExitStack() as of_fault:
            began = asyncio.run(purge_through(purges, store, of_fault, fault))
    before = [took for since, took in purges.took if since < began]
    after = [took for since, took in purges.took if since >= began]
    print(
        f"{name}, 5 proxies: {len(purges.took)} purges ({purges.unconfirmed} unconfirmed, {len(purges.refused)} "
        f"refused), {purges.reads:,} reads, {purges.errors} errors; {len(purges.outdated)} outdated pages shown as "
        f"fresh, {purges.stale} as stale; a purge took at most {max(before) * 1e3:.0f} ms before, "
        f"{max(after) * 1e3:.0f} ms after",
        flush=True,
    )
    for what in purges.outdated[:5] + purges.refused[:5]:
        print(f"    {what}")
    main.is_fine &= not (purges.outdated or purges.errors)


PURGES = ["purge-kill", "purge-failover", "purge-pause"]
HEAD = [
    "fault", "requests", "errors", "503", "unknown", "wrong", "late", "stale", "lost", "p50 / p99 before, ms",
    "during", "longest", "back, s", "whole, s", "views", "dropped",
]


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("--only", action="append", choices=[*FAULTS, *PURGES], help="default: all")
    parser.add_argument("--visitors", type=int, default=24)
    parser.add_argument("--keep-logs", metavar="FOLDER", help="where what the proxies logged is kept")
    options = parser.parse_args()
    main.binary, main.is_fine = lab.anteroom_binary(options.anteroom), True
    print(f"{lab.machine()}; {options.visitors} visitors, 3 proxies\n")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    names = options.only or [*FAULTS, *PURGES]
    for name in names:
        if name == "partition" and os.getuid() != 0:
            print("partition: needs root", file=sys.stderr)
        elif name in FAULTS:
            scenario(name, options)
    for name in names:
        if name in PURGES:
            purge_scenario(name, options)
    sys.exit(0 if main.is_fine else 1)


if __name__ == "__main__":
    main()
