#!/usr/bin/env python3
"""A rolling restart of two proxies behind HAProxy: which requests are lost.

    benches/rolling_restart.py                       builds the release binary; 100,000 requests
    benches/rolling_restart.py --requests 10000 --anteroom target/release/anteroom

HAProxy has the configuration of docs/guides/behind-a-proxy.md, but for the addresses. Half of the
clients make a connection for each request, the others keep theirs until the answer says `Connection: close`. A client
repeats nothing: whatever is not a whole answer with status 200 is lost. While the requests come, the proxies are
restarted by TERM, one after the other and over again, each once HAProxy has found the other one up. It prints what
was asked for, what was lost and how, and what HAProxy noticed, and fails where anything was lost.
Needs HAProxy and redis-server.
"""

import collections
import contextlib
import csv
import multiprocessing
import pathlib
import re
import signal
import socket
import sys
import time

import lab

CLIENTS = 8
# One of so many requests goes to the origin.
FORWARDED_EACH = 10
# Pages that may be stored.
PAGES = 50
PATIENCE_S = 60
GUIDE = lab.ROOT / "docs/guides/behind-a-proxy.md"


def origin():
    """What answers: pages that may be stored, and others."""

    def answer(head):
        lifetime = b"max-age=600" if b" /page/" in head else b"no-store"
        return b"HTTP/1.1 200 OK\r\nCache-Control: " + lifetime + b"\r\nContent-Length: 5\r\n\r\nhello"

    return answer


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    options = parser.parse_args()
    binary = lab.anteroom_binary(options.anteroom)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        redis = stack.enter_context(lab.redis_server(folder))
        origin_port = stack.enter_context(lab.python_origin(origin))
        proxies = [stack.enter_context(proxy(binary, folder / name, origin_port, redis)) for name in "ab"]
        balancer = stack.enter_context(haproxy(folder, proxies))
        until_up(balancer)
        lost = under_load(balancer, proxies, options.requests)
    sys.exit(1 if lost else 0)


def proxy(binary, folder, origin_port, redis):
    folder.mkdir()
    store = f"redis://127.0.0.1:{redis.port}"
    return lab.anteroom(binary, folder, origin_port, store=store, listen='proxy_protocol.from = ["127.0.0.1"]')


def haproxy(folder, proxies):
    """With the configuration of the guide, before these proxies."""
    config = re.search(r"```text\n(global\n.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    port, stats = lab.free_port(), folder / "haproxy.sock"
    config = config.replace("bind :80", f"bind 127.0.0.1:{port}")
    config = config.replace("maxconn 50000", f"maxconn 1000\n    stats socket {stats} level admin")
    ours = "".join(
        f"    server {name} 127.0.0.1:{one.port} port {one.admin_port}\n" for name, one in zip("ab", proxies, strict=True)
    )
    config = re.sub(r"check port \d+", "check", re.sub(r"    server .*\n?", "", config)) + "\n" + ours
    (folder / "haproxy.cfg").write_text(config)
    command = [lab.need("haproxy", "haproxy"), "-db", "-f", folder / "haproxy.cfg"]
    balancer = lab.Process("haproxy", command, port, log=folder / "haproxy.log")
    balancer.stats = stats
    return balancer


def noticed(balancer):
    """What HAProxy knows of each proxy: its status and its counts."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(balancer.stats))
        peer.sendall(b"show stat\n")
        text = b"".join(iter(lambda: peer.recv(1 << 16), b"")).decode()
    rows = csv.DictReader(text.lstrip("# ").splitlines())
    return {row["svname"]: row for row in rows if row["svname"] in ("a", "b")}


def until_up(balancer):
    deadline = time.monotonic() + PATIENCE_S
    while any(row["status"] != "UP" for row in noticed(balancer).values()):
        if time.monotonic() > deadline:
            sys.exit(f"HAProxy does not find both proxies up:\n{noticed(balancer)}")
        time.sleep(0.1)


def under_load(balancer, proxies, requests):
    """Restarts the proxies while clients ask for pages; how many requests were lost."""
    results, rest = multiprocessing.Queue(), multiprocessing.Value("q", requests)
    clients = [
        multiprocessing.Process(target=ask, args=(balancer.port, number % 2 == 0, rest, results), daemon=True)
        for number in range(CLIENTS)
    ]
    began, restarts = time.monotonic(), 0
    for client in clients:
        client.start()
    try:
        # Each proxy at least once.
        while restarts < len(proxies) or rest.value > 0:
            restart(proxies[restarts % len(proxies)])
            restarts += 1
            time.sleep(1)
            until_up(balancer)
    finally:
        rest.value = -1
    counts = {kept: collections.Counter() for kept in (False, True)}
    for _ in clients:
        kept, counted = results.get(timeout=2 * PATIENCE_S)
        counts[kept].update(counted)
    lost = 0
    for kept, counted in counts.items():
        of_these = {why: count for why, count in counted.items() if why != "answered"}
        lost += sum(of_these.values())
        what = "kept connections" if kept else "a connection for each request"
        print(f"{what}: {sum(counted.values()):,} requests, {sum(of_these.values())} lost {of_these or ''}")
    for name, row in noticed(balancer).items():
        said = {key: row[key] for key in ("chkdown", "econ", "eresp", "wretr", "wredis")}
        print(f"HAProxy on {name}: {said}")
    print(f"{restarts} restarts in {time.monotonic() - began:.0f} s")
    return lost


def restart(process):
    process.popen.send_signal(signal.SIGTERM)
    process.popen.wait(PATIENCE_S)
    process.__enter__()


def ask(port, keeps, rest, results):
    """Asks for pages until there were enough; a negative rest means that the last restart is over."""
    counted, number, peer = collections.Counter(), 0, None
    while rest.value >= 0:
        with rest.get_lock():
            if rest.value > 0:
                rest.value -= 1
        number += 1
        path = f"/own/{number}" if number % FORWARDED_EACH == 0 else f"/page/{number % PAGES}"
        why, peer = fetch(port, peer, path, keeps)
        counted[why] += 1
    results.put((keeps, counted))


def fetch(port, peer, path, keeps):
    """How a request ended, and the connection if it is kept."""
    phase = "connect" if peer is None else "write"
    try:
        if peer is None:
            peer = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        phase = "write"
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: bench.test\r\n\r\n".encode())
        phase = "read"
        data = b""
        while not (data.endswith(b"hello") or b"\r\n\r\n" in data and not data.startswith(b"HTTP/1.1 200")):
            part = peer.recv(1 << 16)
            if not part:
                return f"closed after {len(data)} bytes", None
            data += part
    except OSError as error:
        return f"{phase}: {error}", None
    status = data.split(None, 2)[1].decode()
    if status != "200" or not keeps or re.search(rb"\r\nconnection: *close", data, re.IGNORECASE):
        peer.close()
        peer = None
    return "answered" if status == "200" else status, peer


if __name__ == "__main__":
    main()
