#!/usr/bin/env python3
"""Memory of idle connections beside Debian's nginx and HAProxy, in one run.

    benches/idle.py                     builds the release binary and compares
    benches/idle.py --connections 5000
    benches/idle.py --only anteroom     one side alone

Each proxy has one worker. So many connections are opened, each is answered one request, and then all
of them say nothing. The figure is the anonymous memory of the proxy's processes then, less what they
held before the first, divided by the connections. Anteroom lays a connection aside that has been idle
for a moment: it is measured when it has had the time for that. At the end each connection asks again
and has to be answered. Needs nginx-light and haproxy.
"""

import argparse
import contextlib
import pathlib
import resource
import socket
import sys
import time

import lab

REQUEST = b"GET /page HTTP/1.1\r\nHost: bench.test\r\n\r\n"


def anonymous_kib(process):
    """Anonymous memory of a proxy and its children, in KiB."""
    total = 0
    for pid in process.pids():
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                total += int(line.split()[1])
    return total


def ask(peer):
    """One request and the whole of its answer."""
    peer.sendall(REQUEST)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += received(peer)
    head, _, body = answer.partition(b"\r\n\r\n")
    lengths = [
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    if not head.startswith(b"HTTP/1.1 200") or len(lengths) != 1:
        sys.exit(f"not the answer that was expected:\n{head.decode()}")
    while len(body) < lengths[0]:
        body += received(peer)


def received(peer):
    part = peer.recv(1 << 16)
    if not part:
        sys.exit("a connection was closed that should have been kept")
    return part


def measure(proxy, options):
    with contextlib.ExitStack() as stack:
        # What the first requests of all make is not the connections'.
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", proxy.port)) as peer:
                ask(peer)
        time.sleep(options.settle)
        before = anonymous_kib(proxy)
        peers = []
        for _ in range(options.connections):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
            ask(peer)
            peers.append(peer)
        time.sleep(options.settle)
        grown = anonymous_kib(proxy) - before
        for peer in peers:
            ask(peer)
        awake = anonymous_kib(proxy) - before
    return grown / options.connections, awake / options.connections


def main():
    parser = argparse.ArgumentParser(description="Memory of idle connections beside nginx and HAProxy.")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--settle", type=float, default=8, help="seconds of silence")
    parser.add_argument("--only", choices=["anteroom", "nginx", "haproxy"])
    parser.add_argument("--binary", help="the binary to measure, instead of a release build")
    options = parser.parse_args()

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files < options.connections + 1_000:
        sys.exit(f"{options.connections} connections need more open files than {files}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    binary = None if options.only not in (None, "anteroom") else lab.anteroom_binary(options.binary)
    print(lab.machine())
    more = f"[limits]\nconnections = {files}\nconnections_per_address = {files}\nidle_timeout = \"1h\"\n"
    with lab.scratch_folder() as name:
        folder = pathlib.Path(name)
        with lab.nginx_origin(folder) as origin:
            proxies = {
                "anteroom": lambda: lab.anteroom(binary, folder, origin.port, more=more),
                "nginx": lambda: lab.nginx(folder, origin.port, connections=files - 1_000),
                "haproxy": lambda: lab.haproxy(folder, origin.port, connections=(files - 1_000) // 2),
            }
            for name, start in proxies.items():
                if options.only in (None, name):
                    with start() as proxy:
                        idle, awake = measure(proxy, options)
                    print(
                        f"{name:10} {idle:6.2f} KiB an idle connection; {awake:6.2f} KiB right after "
                        f"each of the {options.connections} was answered again"
                    )


if __name__ == "__main__":
    main()
