#!/usr/bin/env python3
"""A million sessions move from one Redis to a Cluster, and back, while visitors log in, shop and log out.

    benches/migrate.py                              builds the release binary
    benches/migrate.py --sessions 100000 --anteroom target/release/anteroom

One Redis is filled with sessions, each with a viewed item and a tenth with a cart. Two proxies stand before one small
app; visitors with logins send each request to another proxy. `anteroom store migrate` moves the site to a Cluster of
three primaries and three replicas. Then the proxies are started with the Cluster as their store, and move back. A row
shows how long the move took, for how long changes waited, and what visitors noticed, as in `cluster_faults.py`; `lost`
are sessions, logouts and carts that were acknowledged and are not there at the end, and `missing` are sessions of those
that were filled in, out of a sample that is asked for at each proxy. Needs redis-server, redis-cli.
"""

import asyncio
import collections
import contextlib
import json
import pathlib
import random
import subprocess
import sys
import time

import lab
import servers
import shoppers
import ten_million

BEFORE_S, AFTER_S = 3, 5
SAMPLE = 1_000


def start_proxies(stack, folder, store, following, origin_port):
    proxies = []
    for number in range(2):
        own = folder / f"proxy-{number}"
        own.mkdir(parents=True)
        more = f'[store.next]\nurl = "{following.url}"\n{shoppers.CONFIG}'
        proxies.append(stack.enter_context(lab.anteroom(main.binary, own, origin_port, store=store.url, more=more)))
    for proxy in proxies:
        servers.until("the store is connected", lambda: lab.metrics(proxy)["anteroom_store_connected"] == 1)
    return proxies


def migrate(proxy):
    """The report of the move."""
    command = [main.binary, "store", "migrate", "--replace", "--json", "--config", proxy.command[-1]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the store was not moved: {done.stderr}{done.stdout}")
    return json.loads(done.stdout)


async def live_through(proxies, visitors):
    """Visitors live through the move, and tell what they noticed."""
    events, notes, over = [], [], asyncio.Event()
    all_of_them = [shoppers.Shopper(n, [proxy.port for proxy in proxies], events, notes) for n in range(visitors)]
    living = [asyncio.create_task(one.live(over)) for one in all_of_them]
    await asyncio.sleep(BEFORE_S)
    began = time.monotonic()
    report = await asyncio.to_thread(migrate, proxies[0])
    ended = time.monotonic()
    await asyncio.sleep(AFTER_S)
    over.set()
    await asyncio.gather(*living)
    lost = [what for one in all_of_them for what in await one.lost()]
    return report, events, notes, (began, ended), lost


async def missing(proxies, sessions):
    """How many of a sample of the sessions no proxy knows, or whose cart is not there."""
    count, lines = 0, shoppers.Lines([proxy.port for proxy in proxies])
    for number in random.sample(range(sessions), min(SAMPLE, sessions)):
        fields = f"Cookie: login={ten_million.token(number).decode()}\r\n"
        for proxy in proxies:
            page = await lines.ask("GET", "/now/sample", fields, port=proxy.port)
            is_there = page.part("user") == ten_million.user(number).decode()
            if number % 10 == 0:
                cart = await lines.ask("GET", "/_anteroom/cart", fields, port=proxy.port)
                is_there &= '"count":2' in cart.body
            count += not is_there
    return count


def epoch(store):
    """Each failover of the Cluster makes it larger."""
    said = [node.try_say("CLUSTER", "INFO") or "" for node in store.nodes]
    return max(int((one.partition("cluster_current_epoch:")[2] or "0").split()[0]) for one in said)


def move(name, folder, store, following, options):
    before_it = epoch(store)
    with contextlib.ExitStack() as stack:
        origin_port = stack.enter_context(lab.python_origin(shoppers.origin_app))
        proxies = start_proxies(stack, folder, store, following, origin_port)
        before = [proxy.cpu_s() for proxy in proxies]
        told, events, notes, (began, ended), lost = asyncio.run(live_through(proxies, options.visitors))
        cpu = [proxy.cpu_s() - spent for proxy, spent in zip(proxies, before)]
        count = collections.Counter(event.outcome for event in events)
        during = [event for event in events if began <= event.ended <= ended]
        print(
            f"| {name} | {told['done']:,} | {told['seconds']:.1f} | {told['held'] * 1e3:.0f} | {told['again']:,} "
            f"| {cpu[0]:.1f} / {cpu[1]:.1f} | {len(events):,} | {count['error']} | {count['promised']} "
            f"| {count['unrecognised']} | {count['wrong']} | {count['late']} | {count['stale']} | {len(lost)} "
            f"| {asyncio.run(missing(proxies, options.sessions))} "
            f"| {shoppers.quantile(during, 0.5):.1f} / {shoppers.quantile(during, 0.99):.1f} / "
            f"{shoppers.quantile(during, 1):.0f} |",
            flush=True,
        )
        if epoch(store) != before_it:
            print("    the Cluster has failed over meanwhile: this machine was too busy")
        for what in [what for _, what in notes[:5]] + lost[:5]:
            print(f"    {what}")
        seconds = collections.Counter(int(e.ended - began) for e in events if e.outcome != "fine")
        if seconds:
            print(f"    by second of the move: {dict(sorted(seconds.items()))}")
        bad = collections.Counter((e.what, e.outcome, e.status) for e in events if e.outcome != "fine")
        for what, number in sorted(bad.items()):
            print(f"    {number} x {what[0]}: {what[1]} ({what[2]})")


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("--sessions", type=int, default=1_000_000, help="how many are filled in")
    parser.add_argument("--visitors", type=int, default=30, help="how many visitors there are meanwhile")
    options = parser.parse_args()
    main.binary = lab.anteroom_binary(options.anteroom)
    with lab.scratch_folder() as scratch, contextlib.ExitStack() as stack:
        folder = pathlib.Path(scratch)
        one = stack.enter_context(servers.One(folder / "one"))
        cluster = stack.enter_context(servers.Cluster(folder / "cluster"))
        print(f"filled in {ten_million.fill_all(one, options.sessions):.0f} s", flush=True)
        print("| move | copied | s | held ms | again | CPU s | requests | errors | 503 | unknown | wrong | late | stale "
              "| lost | missing | p50 / p99 / most ms |")
        move("one to Cluster", folder / "there", one, cluster, options)
        move("Cluster to one", folder / "back", cluster, one, options)


if __name__ == "__main__":
    main()
