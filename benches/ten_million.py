#!/usr/bin/env python3
"""A store of ten million sessions: memory, views, cleaning, and commands; on one Redis, and on three primaries.

    benches/ten_million.py                          ten million sessions on one Redis: about 7 GB of memory
    benches/ten_million.py --sessions 2000000 --only three
    benches/ten_million.py --anteroom target/release/anteroom

The sessions are written straight into Redis, in the chapter's layout on one Redis and in the sharded one on a Cluster
of three primaries without replicas: each has a token of 32 bytes, a user with its index, the time when it was last
seen, and one viewed item; a tenth have a cart; one user has 50. Then one proxy with one thread is started. Measured
are: memory for each session; the bytes to and from Redis; the start until the first page for a visitor with a login;
`sessions list` and `sessions revoke --user`; views by tokens drawn from all of them; and the cleaner, with the p99 of
requests of visitors with a login and of an HGET by another client meanwhile. Needs wrk, nginx-light, redis-server.
"""

import binascii
import contextlib
import multiprocessing
import pathlib
import random
import socket
import subprocess
import sys
import time

import lab
import servers
import shards

BATCH = 1_000
OF_ONE_USER = 50
CONFIG = """
[session]
cookie = "login"
token_storage = "plain"
max_sessions = {keep}
clean_batch = {batch}
[[route]]
match.path = ["/item/{{item}}"]
share = "everyone"
[views]
rescale_every = "1h"
"""


def token(number):
    return b"ten-million-sessions-%011d" % number


def user(number):
    return b"user-heavy" if number < OF_ONE_USER else b"user-%d" % number


def bulk(word):
    return b"$%d\r\n%s\r\n" % (len(word), word)


def commands(tag, numbers):
    """What some sessions of one shard are in Redis, packed, and how many commands that is."""
    whole, before = tag, tag + b":" if tag else b""
    log_ins, seen, own, count = [], [], [], 2
    for number in numbers:
        name, its_user = token(number), user(number)
        log_ins.append(bulk(name) + bulk(its_user))
        seen.append(bulk(b"%d" % (1_000_000_000 + number)) + bulk(name))
        time_of = b"$10\r\n%d\r\n" % (1_000_000_000 + number)
        own.append(b"*4\r\n$4\r\nZADD\r\n" + bulk(b"tokens:" + before + its_user) + time_of + bulk(name))
        item = bulk(b"item-%d" % (number % shards.ITEMS))
        own.append(b"*4\r\n$4\r\nZADD\r\n" + bulk(b"viewed:" + before + name) + time_of + item)
        count += 2
        if number % 10 == 0:
            own.append(b"*4\r\n$4\r\nHSET\r\n" + bulk(b"cart:" + before + name) + item + b"$1\r\n2\r\n")
            count += 1
    size = 2 + 2 * len(numbers)
    hset = b"*%d\r\n$4\r\nHSET\r\n%s%s" % (size, bulk(b"login:" + whole), b"".join(log_ins))
    zadd = b"*%d\r\n$4\r\nZADD\r\n%s%s" % (size, bulk(b"recent:" + whole), b"".join(seen))
    return hset + zadd + b"".join(own), count


def send(peer, packed, count):
    peer.sendall(packed)
    while count > 0:
        came = peer.recv(1 << 16)
        if b"-" in came or not came:
            raise RuntimeError(came[:200])
        count -= came.count(b"\n")


def fill(sessions, ports):
    """Writes the sessions whose shards these ports have; in the chapter's layout there is one port."""
    peers = {port: socket.create_connection(("127.0.0.1", port)) for port in set(filter(None, ports))}
    if len(ports) == 1:
        for first in range(0, sessions, BATCH):
            send(peers[ports[0]], *commands(b"", range(first, min(first + BATCH, sessions))))
        return
    of_shard = [[] for _ in range(servers.SHARDS)]

    def flush(shard):
        if of_shard[shard] and ports[shard]:
            send(peers[ports[shard]], *commands(b"{s%d}" % shard, of_shard[shard]))
        of_shard[shard].clear()

    for number in range(sessions):
        shard = binascii.crc_hqx(token(number), 0) % servers.SHARDS
        if ports[shard]:
            of_shard[shard].append(number)
            if len(of_shard[shard]) >= BATCH:
                flush(shard)
    for shard in range(servers.SHARDS):
        flush(shard)


def fill_all(store, sessions):
    """Fills all primaries, by two processes; in how many seconds."""
    began = time.monotonic()
    if len(store.nodes) == 1:
        parts = [[store.nodes[0].port]]
    else:
        ports = [store.primary_of(f"login:{{s{shard}}}").port for shard in range(servers.SHARDS)]
        parts = [[port if shard % 2 == half else None for shard, port in enumerate(ports)] for half in (0, 1)]
    processes = [multiprocessing.Process(target=fill, args=(sessions, ports)) for ports in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            sys.exit("the store could not be filled")
    return time.monotonic() - began


class Prober:
    """Another client in a process of its own, and how long its calls take: an HGET, or a page with a login."""

    def __init__(self, port, requests, until):
        self.over = multiprocessing.Event()
        self.near, far = multiprocessing.Pipe()
        self.process = multiprocessing.Process(
            target=probe, args=(port, requests, until, self.over, far), daemon=True
        )

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        took = sorted(self.near.recv())
        self.p99, self.most = took[len(took) * 99 // 100] * 1e3, took[-1] * 1e3
        self.process.join()


def probe(port, requests, until, over, far):
    peer, took = socket.create_connection(("127.0.0.1", port)), []
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while not over.wait(0.002):
        began = time.perf_counter()
        peer.sendall(random.choice(requests))
        came = b""
        while until not in came:
            came += peer.recv(1 << 16)
        took.append(time.perf_counter() - began)
    far.send(took)


def of_redis(store):
    # Any answer will do: `$…` or MOVED.
    requests = [servers.packed(["HGET", "login:", token(number)]) for number in range(100)]
    return Prober(store.primaries()[0].port, requests, b"\r\n")


def of_pages(proxy, sessions):
    """Visitors with the newest sessions, which are not cleaned; the origin's page ends with this."""
    head = "GET /item/item-{} HTTP/1.1\r\nHost: bench.example\r\nCookie: login={}\r\n\r\n"
    numbers = [sessions - 1 - random.randrange(sessions // 4) for _ in range(2_000)]
    requests = [head.format(number % shards.ITEMS, token(number).decode()).encode() for number in numbers]
    return Prober(proxy.port, requests, b"xxxxxxxx")


def memory(store):
    """Bytes that the servers have allocated, and hold."""
    said = [node.say("INFO", "memory") for node in store.nodes]
    number = lambda text, name: int(text.partition(f"\n{name}:")[2].partition("\r")[0])
    return [sum(number(text, name) for text in said) for name in ("used_memory", "used_memory_rss")]


def traffic(store):
    """Bytes that the servers have received, and sent."""
    said = [node.say("INFO", "stats") for node in store.nodes]
    number = lambda text, name: int(text.partition(f"\n{name}:")[2].partition("\r")[0])
    return [sum(number(text, name) for text in said) for name in ("total_net_input_bytes", "total_net_output_bytes")]


def bytes_each(before, after, count):
    return " / ".join(f"{(late - early) / count:.0f}" for early, late in zip(before, after))


def start(stack, store, keep, batch, layout):
    """The proxy, until it has served a visitor with a login; in how many seconds."""
    folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
    origin = stack.enter_context(lab.nginx_origin(folder))
    url = f'{store.url}"\nlayout = "{layout}'
    proxy = lab.anteroom(main.binary, folder, origin.port, store=url, more=CONFIG.format(keep=keep, batch=batch))
    proxy.config = folder / "proxy.toml"
    began = time.monotonic()
    stack.enter_context(proxy)
    while '"session":"known"' not in ask_me(proxy):
        time.sleep(0.005)
    return proxy, time.monotonic() - began


def ask_me(proxy):
    with socket.create_connection(("127.0.0.1", proxy.port)) as peer:
        head = "GET /_anteroom/me HTTP/1.0\r\nHost: bench.example\r\nCookie: login={}\r\n\r\n"
        peer.sendall(head.format(token(OF_ONE_USER).decode()).encode())
        return b"".join(iter(lambda: peer.recv(1 << 16), b"")).decode()


def command(proxy, *words):
    """How long a command takes, and its last line."""
    began = time.monotonic()
    done = subprocess.run(
        [main.binary, *words, "--config", proxy.config], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    lines = (done.stdout + done.stderr).strip().splitlines() or [""]
    return f"{(time.monotonic() - began) * 1e3:.0f} ms ({len(lines)} lines, the last: {lines[-1][:60]})"


def cleaned(proxy):
    return int(lab.metrics(proxy)["anteroom_sessions_cleaned_total"])


def clean(store, sessions, left, remove, batch, layout):
    """Removes so many of the oldest sessions."""
    with contextlib.ExitStack() as stack:
        proxy, _ = start(stack, store, left - remove, batch, layout)
        servers.until("the cleaner begins", lambda: cleaned(proxy) > 0, 120)
        began, before, carried = time.monotonic(), cleaned(proxy), traffic(store)
        with shards.Spent(proxy, store) as spent, of_redis(store) as hget, of_pages(proxy, sessions) as pages:
            while cleaned(proxy) < remove and time.monotonic() - began < main.seconds * 2:
                time.sleep(0.05)
            count, seconds = max(cleaned(proxy) - before, 1), time.monotonic() - began
        carried = bytes_each(carried, traffic(store), count)
    print(
        f"  cleaned, batch {batch}: {count / seconds:,.0f} tokens/s ({count:,}); CPU us each: proxy / Redis "
        f"{spent.each(count)}; bytes each, to / from Redis {carried}; "
        f"meanwhile HGET p99 {hget.p99:.2f} ms, most {hget.most:.1f}; pages p99 "
        f"{pages.p99:.2f} ms, most {pages.most:.1f}",
        flush=True,
    )


def measure(name, store, layout, options):
    empty = memory(store)
    seconds = fill_all(store, options.sessions)
    full = memory(store)
    print(f"\n{name}: {options.sessions:,} sessions, filled in {seconds:.0f} s")
    each = [(after - before) / options.sessions for before, after in zip(empty, full)]
    print(f"  memory: {each[0]:.0f} bytes a session, {each[1]:.0f} of RSS; {full[1] / 1e9:.2f} GB in all", flush=True)
    with contextlib.ExitStack() as stack:
        proxy, seconds = start(stack, store, options.sessions, 100, layout)
        held = proxy.memory_kib("VmRSS") / 1024
        print(f"  start until a visitor with a login is served: {seconds * 1e3:.0f} ms; proxy {held:.0f} MiB")
        one = user(options.sessions - 1).decode()
        for words in (["list"], ["list", "--user", one], ["list", "--user", "user-heavy"],
                      ["revoke", "--user", one], ["revoke", "--user", "user-heavy"]):
            print(f"  sessions {' '.join(words)}: {command(proxy, 'sessions', *words)}", flush=True)
        views(store, proxy, options)
    left = options.sessions - OF_ONE_USER - 1
    for batch in (100, 1_000):
        clean(store, options.sessions, left, options.remove, batch, layout)
        left = sessions_left(store)


def sessions_left(store):
    count = 0
    for node in store.primaries():
        with servers.Resp(node.port) as conn:
            for key in ["login:"] + [f"login:{{s{shard}}}" for shard in range(servers.SHARDS)]:
                found = conn("HLEN", key)
                count += found if isinstance(found, int) else 0
    return count


def views(store, proxy, options):
    folder = proxy.config.parent
    path = f'format("/item/item-%d", random(0, {shards.ITEMS} - 1))'
    warm = shards.load(folder, path, '""')
    shards.wrk(proxy, options, warm, 2)
    time.sleep(2)
    cookie = f'format("Cookie: login=ten-million-sessions-%011d\\r\\n", random({OF_ONE_USER}, {options.sessions} - 2))'
    before, hits_before, began = shards.visits(proxy), shards.hits(proxy), time.monotonic()
    carried = traffic(store)
    with shards.Spent(proxy, store) as spent:
        with of_redis(store) as hget, of_pages(proxy, options.sessions) as pages:
            shards.wrk(proxy, options, shards.load(folder, path, cookie))
            asked, hits = time.monotonic() - began, shards.hits(proxy) - hits_before
        done = shards.settled(store, proxy) - began
    count = shards.visits(proxy) - before
    unknown = shards.hits(proxy) - hits_before - count
    carried = bytes_each(carried, traffic(store), hits)
    print(
        f"  views by all: {count / done:,.0f} views/s, {hits / asked:,.0f} requests/s meanwhile ({unknown:,} of visitors "
        f"unknown for a moment); CPU us each: proxy / Redis {spent.each(hits)}; bytes each, to / from Redis {carried}; "
        f"HGET p99 {hget.p99:.2f} ms; "
        f"pages p99 {pages.p99:.2f} ms; proxy {proxy.memory_kib('VmRSS') / 1024:.0f} MiB",
        flush=True,
    )


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("--sessions", type=int, default=10_000_000)
    parser.add_argument("--only", choices=["one", "three"], help="default: both")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--remove", type=int, help="how many are cleaned; default: a tenth, 300,000 at most")
    options = parser.parse_args()
    options.remove = options.remove or min(300_000, options.sessions // 10)
    main.binary, main.seconds = lab.anteroom_binary(options.anteroom), options.seconds
    print(f"{lab.machine()}; one thread")
    if options.only != "three":
        with lab.scratch_folder() as name, servers.One(pathlib.Path(name)) as store:
            measure("one Redis, chapter's layout", store, "single", options)
    if options.only != "one":
        with lab.scratch_folder() as name, servers.Cluster(pathlib.Path(name), 3, 0, 10_000) as store:
            measure("three primaries, sharded", store, "sharded", options)


if __name__ == "__main__":
    main()
