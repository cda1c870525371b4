#!/usr/bin/env python3
"""What a large fleet's purges cost Redis: so many pollers with the project's own scripts, and no proxy.

    benches/purge_fleet.py                          10, 100, 300 and 1,000 proxies; none and 2 purges a second
    benches/purge_fleet.py --proxies 1000 --purges 10

Each poller is what a proxy is to the Redis with the purges: a connection that asks `purged_since.lua` every 250 ms and
when a purge is announced, and another that is subscribed. A purge is `purge.lua`, and then `is_seen.lua` at the
proxy's own pauses until all have seen it, for 1.5 s at most. The scripts are put together as in
crates/store/src/redis/script.rs. All pollers are in one Python process, which may fall behind: then fewer polls are sent than `wanted`, and the
CPU time of a poll is still right. At the end, a message to all subscribers, by itself. Needs redis-server.
"""

import argparse
import asyncio
import contextlib
import pathlib
import random
import re
import time

import lab
import servers

LUA = lab.ROOT / "crates" / "store" / "src" / "redis" / "lua"
EVERY_S = 0.25
LOOKS_S, CONFIRM_S = (0.005, 0.1), 1.5
NAMES = {name: f"{name}:{{s0}}" for name in ["purges", "purging", "purged", "seen"]} | {"purge_channel": "purge:"}
MARKS, NONCES, KEY = 262_146, 65_536, b"0123456789abcdef"


class Script:
    """A script as crates/store/src/redis/script.rs lists it."""

    def __init__(self, file):
        listed = (LUA.parent / "script.rs").read_text()
        found = re.search(rf'= "{file}" \(([^)]*)\)\s*keys \(([^)]*)\)\s*args \(([^)]*)\);', listed)
        libraries, keys, args = (found[group].split() for group in (1, 2, 3))
        keys, args = (" ".join(words).replace(";", " ").split() for words in (keys, args))
        self.keys, self.args = keys, args
        lines = [
            f"local {', '.join(names)} = {', '.join(f'{table}[{at}]' for at in range(1, len(names) + 1))}\n"
            for table, names in (("KEYS", keys), ("ARGV", args))
        ]
        lines.append(f"local first_key, first_arg = {len(keys) + 1}, {len(args) + 1}\n")
        parts = [LUA / "lib" / f"{name.lower()}.lua" for name in libraries] + [LUA / f"{file}.lua"]
        self.source = "".join(lines + [part.read_text() for part in parts])

    def load(self, conn):
        self.hash = conn("SCRIPT", "LOAD", self.source)

    def call(self, *more, **values):
        """The call, packed. Values by their names."""
        values = NAMES | values
        keys, args = ([values[name] for name in names] for names in (self.keys, self.args))
        return servers.packed(["EVALSHA", self.hash, len(keys), *keys, *args, *more])


class Poller(asyncio.Protocol):
    """A connection for calls, one after another."""

    async def open(self, port):
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", port)
        self.waiting, self.came = None, b""
        return self

    def data_received(self, data):
        self.came += data
        # Replies are told apart by their beginnings; each is one packet here, or this is a message of a subscription.
        if self.waiting and not self.waiting.done() and complete(self.came):
            reply, self.came = self.came, b""
            self.waiting.set_result(reply)

    async def call(self, packed):
        self.waiting = asyncio.get_running_loop().create_future()
        self.transport.write(packed)
        return await self.waiting


def complete(reply):
    """Whether this is a whole reply, counted by its lines."""
    if not reply.endswith(b"\r\n"):
        return False
    try:
        return skip(reply, 0) == len(reply)
    except (IndexError, ValueError):
        return False


def skip(reply, at):
    end = reply.index(b"\r\n", at)
    kind, rest, at = reply[at : at + 1], reply[at + 1 : end], end + 2
    if kind == b"$" and rest != b"-1":
        at += int(rest) + 2
    if kind == b"*" and rest != b"-1":
        for _ in range(int(rest)):
            at = skip(reply, at)
    if at > len(reply):
        raise IndexError
    return at


class Subscription(asyncio.Protocol):
    """The other connection: it rouses its poller."""

    def __init__(self, roused):
        self.roused = roused

    def connection_made(self, transport):
        transport.write(servers.packed(["SUBSCRIBE", NAMES["purge_channel"]]))

    def data_received(self, _data):
        self.roused.set()


class Fleet:
    def __init__(self, port, count, scripts):
        self.port, self.count, self.scripts = port, count, scripts
        self.number, self.nonce, self.era = 0, b"", 0
        self.polls, self.looks, self.confirmed, self.took = 0, 0, 0, []

    def position(self, number, nonce):
        return {
            "marks_before": MARKS, "nonces_kept": NONCES, "asked_era": self.era, "asked_number": number,
            "asked_nonce": nonce, "next_era": 1_000, "next_key": KEY,
        }

    async def proxy(self, who, over):
        roused, loop = asyncio.Event(), asyncio.get_running_loop()
        poller = await Poller().open(self.port)
        await loop.create_connection(lambda: Subscription(roused), "127.0.0.1", self.port)
        await asyncio.sleep(random.random() * EVERY_S)
        number, nonce = self.number, self.nonce
        while not over.is_set():
            roused.clear()
            # What this poll tells is what the one before has learnt.
            now = self.number, self.nonce
            call = self.scripts["purged_since"].call(
                **self.position(number, nonce), who=f"{who:016x}", news_max=1_000, lives_ms=3_000
            )
            reply = await poller.call(call)
            self.polls += 1
            if reply.startswith(b"-"):
                raise RuntimeError(reply.decode())
            again = now != (number, nonce)
            number, nonce = now
            if not again:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(roused.wait(), EVERY_S)

    async def purge(self, poller):
        """A purge, until it is confirmed."""
        began, fresh = time.monotonic(), random.randbytes(8)
        call = self.scripts["purge"].call(
            *(random.randrange(MARKS) for _ in range(3)), **self.position(self.number, self.nonce), kept=10_000,
            kept_bytes=1 << 20, nonce=fresh,
        )
        reply = await poller.call(call)
        self.number, self.nonce = int(reply[1:-2]), fresh
        pause = LOOKS_S[0]
        while time.monotonic() - began < CONFIRM_S:
            self.looks += 1
            call = self.scripts["is_seen"].call(era=self.era, number=self.number, lives_ms=3_000, cut_off_ms=1_100)
            if await poller.call(call) == b":1\r\n":
                self.confirmed += 1
                break
            await asyncio.sleep(pause)
            pause = min(pause * 1.25, LOOKS_S[1])
        self.took.append(time.monotonic() - began)

    async def run(self, node, purges, seconds):
        self.era = int(node.say("HGET", "purges:{s0}", "era"))
        over, poller = asyncio.Event(), await Poller().open(self.port)
        running = [asyncio.create_task(self.proxy(who, over)) for who in range(self.count)]
        await asyncio.sleep(4)
        self.polls, cpu_s, began = 0, node.process.cpu_s(), time.monotonic()
        node.say("CONFIG", "RESETSTAT")
        while (passed := time.monotonic() - began) < seconds:
            if purges:
                await self.purge(poller)
                await asyncio.sleep(max(0, (len(self.took) / purges) - passed))
            else:
                await asyncio.sleep(0.1)
        passed, cpu_s = time.monotonic() - began, node.process.cpu_s() - cpu_s
        over.set()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return passed, cpu_s


def measure(folder, count, purges, seconds):
    with servers.One(folder) as store:
        node = store.nodes[0]
        scripts = {name: Script(name) for name in ["purge", "purged_since", "is_seen"]}
        with servers.Resp(node.port) as conn:
            for script in scripts.values():
                script.load(conn)
            # The first question begins an era.
            fleet = Fleet(node.port, count, scripts)
            conn.all(scripts["purged_since"].call(
                **fleet.position(0, b""), who="0", news_max=1_000, lives_ms=3_000), 1)
        passed, cpu_s = asyncio.run(fleet.run(node, purges, seconds))
        took = sorted(fleet.took) or [float("nan")]
        wanted = count * (1 / EVERY_S)
        stats = node.say("INFO", "commandstats")
        spent = re.search(r"cmdstat_evalsha:calls=(\d+),usec=(\d+)", stats)
        each = int(spent[2]) / int(spent[1])
        print(
            f"| {count:,} | {purges} | {fleet.polls / passed:,.0f} | {wanted:,.0f} | {cpu_s / passed:.0%} "
            f"| {cpu_s / max(fleet.polls, 1) * 1e6:.0f} | {each:.0f} | {fleet.looks / max(len(fleet.took), 1):.1f} "
            f"| {took[len(took) // 2] * 1e3:.0f} / {took[-1] * 1e3:.0f} | {fleet.confirmed} of {len(fleet.took)} |",
            flush=True,
        )


async def messages(node, count, sent=200):
    """CPU time of a message to so many subscribers, in us."""
    loop, roused = asyncio.get_running_loop(), asyncio.Event()
    for _ in range(count):
        await loop.create_connection(lambda: Subscription(roused), "127.0.0.1", node.port)
    poller, spent = await Poller().open(node.port), []
    for _ in range(sent):
        before = node.process.run_s()
        await poller.call(servers.packed(["PUBLISH", NAMES["purge_channel"], "t" * 43]))
        # What it cost is known when all have it.
        await asyncio.sleep(0.01)
        spent.append(node.process.run_s() - before)
    return sorted(spent)[sent // 2] * 1e6


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--proxies", type=int, action="append")
    parser.add_argument("--purges", type=float, action="append", help="a second")
    parser.add_argument("--seconds", type=float, default=6)
    options = parser.parse_args()
    lab.many_files()
    print(f"{lab.machine()}\n")
    heads = ["proxies", "purges/s", "polls/s", "wanted without purges", "CPU of Redis", "CPU us a poll",
             "of it in scripts", "looks a purge", "a purge, p50 / most, ms", "confirmed"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for count in options.proxies or [10, 100, 300, 1_000]:
        for purges in options.purges or [0, 2]:
            with lab.scratch_folder() as name:
                measure(pathlib.Path(name), count, purges, options.seconds)
    print("\nA message to all, such as that of a logout:")
    for count in options.proxies or [10, 100, 300, 1_000]:
        with lab.scratch_folder() as name, servers.One(pathlib.Path(name)) as store:
            spent = asyncio.run(messages(store.nodes[0], count))
            print(f"    {count:,} proxies: CPU of Redis {spent:.0f} us", flush=True)


if __name__ == "__main__":
    main()
