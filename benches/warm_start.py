#!/usr/bin/env python3
"""How many requests page memory answers right after a start, with and without warm start.

    benches/warm_start.py                    builds the release binary and measures
    benches/warm_start.py --pages 20000 --binary target/debug/anteroom

An origin has so many pages of 2 KiB, and all are requested once, so that Redis and memory have them. When the list of
pages is in Redis, the proxy is killed with SIGKILL and started again; as soon as /readyz says ready, clients request
pages at random for a second. Redis keeps running. Needs redis-server.
"""

import argparse
import asyncio
import collections
import contextlib
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import lab

SIZE = 2_048
CLIENTS = 16
PATIENCE = 300
CONFIG = """
threads = 2
listen = [{{ address = "127.0.0.1:{port}" }}]
origin.url = "http://127.0.0.1:{origin}"
admin.address = "127.0.0.1:{admin}"
log.access = "off"
store = {{ url = "redis://127.0.0.1:{redis}", pages = "8GiB" }}
cache = {{ memory = "2GiB", warm_start = "{warm_start}", default_ttl = "1d" }}
"""


async def serve_page(reader, writer):
    """Answers each request with a page that is fresh for an hour."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = head.split(b" ", 2)[1].ljust(SIZE, b".")
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: max-age=3600\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            await writer.drain()


async def visit(port, paths, seen):
    """Requests pages on one connection, and counts what Cache-Status says."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for path in paths:
        writer.write(b"GET %b HTTP/1.1\r\nHost: bench.test\r\n\r\n" % path)
        head = await reader.readuntil(b"\r\n\r\n")
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        await reader.readexactly(int(lines[b"content-length"]))
        status = lines.get(b"cache-status", b"")
        memory, store = b"detail=memory" in status, b"detail=store" in status
        seen["memory" if memory else "store" if store else "origin"] += 1
    writer.close()


def path_of(page):
    return b"/page/%d" % page


async def fill(port, pages):
    seen = collections.Counter()
    shares = ([path_of(page) for page in range(first, pages, CLIENTS)] for first in range(CLIENTS))
    await asyncio.gather(*(visit(port, share, seen) for share in shares))


async def first_second(port, pages):
    seen = collections.Counter()
    end = time.monotonic() + 1

    def paths():
        while time.monotonic() < end:
            yield path_of(random.randrange(pages))

    await asyncio.gather(*(visit(port, paths(), seen) for _ in range(CLIENTS)))
    return seen


def redis_answer(port, *words):
    """The first line of the answer to a command."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        command = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        connection.sendall(b"*%d\r\n%b" % (len(words), command))
        return connection.makefile("rb").readline().strip()


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.01)
    sys.exit(f"{what}: not in {PATIENCE} s")


class Proxy:
    """The proxy, until it is killed."""

    def __init__(self, binary, folder, ports, warm_start):
        self.ports = ports
        config = folder / "proxy.toml"
        config.write_text(CONFIG.format(**ports, warm_start=warm_start))
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [binary, "run", "--config", config], cwd=folder, stderr=(folder / "stderr").open("ab")
        )

    def is_ready(self):
        url = f"http://127.0.0.1:{self.ports['admin']}/readyz"
        with urllib.request.urlopen(url, timeout=1) as answer:
            return answer.read().startswith(b"ready")

    def wait_until_ready(self):
        wait_for("the proxy is ready", self.is_ready)
        return time.monotonic() - self.began

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


async def measure(options, binary, folder):
    ports = {name: lab.free_port() for name in ("port", "origin", "admin", "redis")}
    origin = await asyncio.start_server(serve_page, "127.0.0.1", ports["origin"])
    redis = subprocess.Popen(
        ["redis-server", "--port", str(ports["redis"]), "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for("redis", lambda: redis_answer(ports["redis"], b"PING") == b"+PONG")
        proxy = Proxy(binary, folder, ports, "2s")
        try:
            proxy.wait_until_ready()
            await fill(ports["port"], options.pages)
            whole = options.pages * 37
            length = lambda: int(redis_answer(ports["redis"], b"STRLEN", b"hotpages:")[1:])
            while length() < whole:
                await asyncio.sleep(0.5)
            print(f"{options.pages} pages; the list has {length() / 1e6:.1f} MB")
        finally:
            proxy.kill()
        for warm_start in (options.warm_start, "0s") * options.runs:
            proxy = Proxy(binary, folder, ports, warm_start)
            try:
                ready = proxy.wait_until_ready()
                seen = await first_second(ports["port"], options.pages)
            finally:
                proxy.kill()
            all_seen = sum(seen.values())
            print(
                f"warm_start = {warm_start}: ready after {ready:.2f} s; first second: {all_seen} requests, "
                f"{seen['memory'] / all_seen:.1%} memory, {seen['store'] / all_seen:.1%} store, "
                f"{seen['origin'] / all_seen:.1%} origin"
            )
    finally:
        redis.terminate()
        redis.wait()
        origin.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--warm-start", default="2s", help="as [cache] warm_start")
    parser.add_argument("--binary", type=pathlib.Path)
    options = parser.parse_args()
    binary = lab.anteroom_binary(options.binary)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(options, pathlib.Path(binary).resolve(), pathlib.Path(folder)))


if __name__ == "__main__":
    main()
