#!/usr/bin/env python3
"""Cleaning sessions over a network that takes 1 ms there and back.

    benches/delay.py                    200,000 sessions
    benches/delay.py --sessions 20000 --rtt 2

    benches/delay.py --relay            where the kernel has no netem

Makes a network namespace of its own, in which there is nothing but a loopback that delays (tc netem,
half of the round trip each way), and runs Redis and the proxy in it. With --relay a small relay
stands before Redis instead and holds what passes for as long. Beside it stands the same without the
delay, and the chapter's loop in Python. Needs root, or a user who may make network namespaces;
iproute2; and what benches/chapter.py needs.
"""

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import queue
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

import lab

chapter, redis = lab.chapter_functions()

SESSION = """
[session]
token_storage = "plain"
max_sessions = 1
clean_batch = {batch}
"""


def unable(why):
    sys.exit(f"this machine cannot slow its network down ({why}); --relay needs no such thing")


def enter(options):
    """Begins anew inside a network namespace, which goes with its last process."""
    for program in ("unshare", "ip", "tc"):
        if shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
            unable(f"{program} is missing (Debian: apt-get install util-linux iproute2)")
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        unable("it lets this user make no network namespace; root may")
    binary = lab.anteroom_binary(options.anteroom)
    # Inside there is no network to fetch a dependency from.
    subprocess.run(["cargo", "bench", "--quiet", "--bench", "seed"], cwd=lab.ROOT, check=True)
    arguments = [*sys.argv[1:], "--inside", "--anteroom", str(binary)]
    own = [sys.executable, str(pathlib.Path(__file__).resolve()), *arguments]
    os.execvp("unshare", ["unshare", "--net", "--", *own])


def slow_down(rtt_ms):
    command = ["tc", "qdisc", "replace", "dev", "lo", "root", "netem", "limit", "100000"]
    command += ["delay", f"{rtt_ms / 2}ms"]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode:
        unable(said.stderr.strip() or "tc knows no netem")


def speed_up():
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], capture_output=True)


def round_trip_ms(conn):
    took = []
    for _ in range(50):
        began = time.perf_counter()
        conn.ping()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


class Relay:
    """Stands before a port and holds what passes for half the round trip, in a process of its own."""

    def __init__(self, target, rtt_ms):
        self.target, self.hold_s = target, rtt_ms / 2000

    def __enter__(self):
        server = socket.create_server(("127.0.0.1", 0))
        self.port = server.getsockname()[1]
        self.process = multiprocessing.get_context("fork").Process(
            target=self.serve, args=(server,), daemon=True
        )
        self.process.start()
        server.close()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.join()

    def serve(self, server):
        while True:
            client, _ = server.accept()
            redis_side = socket.create_connection(("127.0.0.1", self.target))
            for peer in (client, redis_side):
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.pump(client, redis_side)
            self.pump(redis_side, client)

    def pump(self, source, sink):
        held = queue.Queue(1_000)

        def take():
            while data := receive(source):
                held.put((time.monotonic() + self.hold_s, data))
            held.put((0, b""))

        def give():
            with contextlib.suppress(OSError):
                while (due_data := held.get())[1]:
                    time.sleep(max(0, due_data[0] - time.monotonic()))
                    sink.sendall(due_data[1])
                sink.shutdown(socket.SHUT_WR)

        for work in (take, give):
            threading.Thread(target=work, daemon=True).start()


def receive(peer):
    try:
        return peer.recv(1 << 16)
    except OSError:
        return b""


def clean(options, batch, rtt_ms):
    """How many tokens a second the proxy cleans."""
    with contextlib.ExitStack() as stack:
        conn, port = seeded(stack, options, options.sessions, rtt_ms)
        trip = round_trip_ms(redis.Redis(port=port))
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        session, url = SESSION.format(batch=batch), f"redis://127.0.0.1:{port}"
        proxy = lab.anteroom(options.anteroom, folder, lab.free_port(), store=url, more=session)
        stack.enter_context(proxy)
        wait(lambda: conn.zcard("recent:") < options.sessions, 0.001)
        began, had = time.monotonic(), conn.zcard("recent:")
        wait(lambda: conn.zcard("recent:") <= 1, 0.01)
        report("proxy", trip, batch, had / (time.monotonic() - began))


def clean_in_python(options, batch, rtt_ms):
    with contextlib.ExitStack() as stack:
        _, port = seeded(stack, options, options.sessions // 10, rtt_ms)
        conn = redis.Redis(port=port)
        trip, began, removed = round_trip_ms(conn), time.monotonic(), 0
        while tokens := chapter.clean_full_sessions(conn, 1, batch):
            removed += len(tokens)
        report("loop in Python", trip, batch, removed / (time.monotonic() - began))


def seeded(stack, options, sessions, rtt_ms):
    """A Redis with sessions: a connection to it, and the port that is slow to reach."""
    folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
    store = stack.enter_context(lab.redis_server(folder))
    lab.seed(f"redis://127.0.0.1:{store.port}", sessions)
    port = store.port
    if rtt_ms and options.relay:
        port = stack.enter_context(Relay(port, rtt_ms)).port
    elif rtt_ms:
        slow_down(rtt_ms)
        stack.callback(speed_up)
    return redis.Redis(port=store.port), port


def wait(done, pause_s, limit_s=600):
    deadline = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > deadline:
            sys.exit(f"not done after {limit_s} s")
        time.sleep(pause_s)


def report(who, trip_ms, batch, rate):
    print(f"{who:16}{trip_ms:>12.2f} ms{batch:>8}{rate:>14,.0f} tokens/s", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--anteroom", help="the binary; default: a release build made now")
    parser.add_argument("--sessions", type=int, default=200_000)
    parser.add_argument("--rtt", type=float, default=1.0, help="there and back, in ms")
    parser.add_argument("--batch", type=int, action="append", help="default: 100 and 1,000")
    parser.add_argument("--relay", action="store_true", help="delay by a relay, not by netem")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.relay:
        options.anteroom = lab.anteroom_binary(options.anteroom)
    elif not options.inside:
        enter(options)
    else:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        slow_down(options.rtt)
        speed_up()
    how = "a relay before Redis" if options.relay else "netem on a loopback of its own"
    print(f"{lab.machine()}; delayed by {how}")
    print(f"{options.sessions:,} sessions with a cart and 5 viewed items\n")
    print(f"{'':16}{'round trip':>15}{'batch':>8}{'cleaned':>23}")
    for rtt_ms in (0, options.rtt):
        for batch in options.batch or [100, 1_000]:
            clean(options, batch, rtt_ms)
            clean_in_python(options, batch, rtt_ms)


if __name__ == "__main__":
    main()
