#!/usr/bin/env python3
"""Instructions per request, by kind of request; of one binary, or of two beside each other.

    benches/instructions.py                    builds the release binary and counts
    benches/instructions.py BINARY
    benches/instructions.py BEFORE AFTER       both, and their ratio
    benches/instructions.py BEFORE AFTER --most 1.02
                                               fails where AFTER takes more than that of BEFORE
    benches/instructions.py BEFORE AFTER --redis
    benches/instructions.py --baseline benches/instructions.json
                                               fails where a count is more than 5 % from the one that was recorded
    benches/instructions.py --baseline benches/instructions.json --record
                                               records the counts, for a change that is meant to move them
    benches/instructions.py BINARY --baseline benches/instructions.json --build debug
                                               the same of a debug build

The proxy runs with one worker under valgrind's callgrind, and is asked one request after the other over one
connection. Each round zeroes the counters, asks so often, and takes the counts: starting does not count, nor does
the kernel. The figure is what the worker's thread executed, which serves the whole of a request; other threads
(the access log's, the store's, the allocator's) are told apart, for they work in parts and by the clock. It repeats to
well below 1 % where CPU time differs by ten. valgrind has no instructions for SHA, so that a digest of a session's
token counts more than the processor would execute.

    hit        a page of 1 KiB from the cache, without a cookie
    session    the same with the cookie of a known session, on a route with share = "everyone"
    harmless   the same with a cookie that says nothing of the visitor
    forward    a page of 1 KiB that is private, no-store
    miss       a page of 1 KiB at a URL that nobody has asked for, and which is stored
    http2      a hit over HTTP/2

The baseline has the counts of a release build, which show what inlining saves, and those of a debug build, which the
tests have built anyway: these tell how much is done, not how fast.

Needs valgrind and nginx-light, and redis-server for --redis.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import socket
import statistics
import subprocess
import sys

import kinds
import lab

# Of one round: instructions per request, of the worker and of all other threads.
Round = collections.namedtuple("Round", "worker others")
# How far a count may be from its baseline: they repeat to 2 %.
TOLERANCE = 0.05
HTTP2 = "http2"
# A function of the request path, in a dump.
SERVING = re.compile(r"^fn=\(\d+\) \S*anteroom_proxy::", re.M)
# What the binaries are called where there are two.
NAMES = ["before", "after"]


class Callgrind:
    """Counts the instructions of a process that runs under callgrind."""

    def __init__(self, process, folder):
        self.process, self.out = process, folder / "callgrind.out"
        # The number of the worker's thread.
        self.worker = None
        process.command = [
            lab.need("valgrind", "valgrind"), "--tool=callgrind", "--separate-threads=yes",
            f"--callgrind-out-file={self.out}", *process.command,
        ]

    def order(self, what):
        command = [lab.need("vgdb", "valgrind"), f"--pid={self.process.popen.pid}", what]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)

    def count(self, act):
        """What the worker executed during `act`, and all other threads."""
        self.order("zero")
        act()
        self.order("dump")
        executed, serving = {}, {}
        # A file of each thread, with its sum and the functions that it was in.
        for part in self.out.parent.glob(f"{self.out.name}.*-*"):
            text = part.read_text()
            thread = part.name.rpartition("-")[2]
            executed[thread] = int(re.search(r"^(?:summary|totals): (\d+)", text, re.M)[1])
            serving[thread] = len(SERVING.findall(text))
            part.unlink()
        # The worker is in more of those that serve than the main thread is; the store's threads, which are in none,
        # may execute more than it does. Its first round tells which it is, for all rounds: chosen anew in each, the
        # main thread was taken for it now and then.
        if self.worker is None:
            self.worker = max(serving, key=serving.get)
            if not serving[self.worker]:
                sys.exit("callgrind names no function that serves: the binary has no symbols")
        worker = executed.pop(self.worker, 0)
        return worker, sum(executed.values())


class Client:
    """One connection, on which each answer is read before the next request."""

    def __init__(self, port, kind, cookie):
        self.peer = socket.create_connection(("127.0.0.1", port), 60)
        self.kind, self.number = kind, 0
        own = f"Cookie: {cookie}\r\n" if cookie else ""
        self.fields = f" HTTP/1.1\r\nHost: bench.test\r\n{own}\r\n"

    def ask(self, times):
        for _ in range(times):
            self.number += 1
            own = f"/{self.number:08}" if self.kind.source == "miss" else ""
            self.peer.sendall(f"GET {self.kind.target}{own}{self.fields}".encode())
            self.read()

    def read(self):
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.received()
        head, _, body = answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            sys.exit(f"not the answer that was expected:\n{head.decode()}")
        while len(body) < kinds.BODY_BYTES:
            body += self.received()

    def received(self):
        part = self.peer.recv(1 << 16)
        if not part:
            sys.exit("a connection was closed that should have been kept")
        return part


class Http2Client(Client):
    """The same over HTTP/2 in clear text (RFC 9113), with literal fields that need no Huffman code."""

    def __init__(self, port, kind, cookie):
        super().__init__(port, kind, cookie)
        lines = {":method": "GET", ":scheme": "http", ":authority": "bench.test", ":path": kind.target}
        literal = (
            bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
            for name, value in lines.items()
        )
        self.block = b"".join(literal)
        self.peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
        self.files = self.peer.makefile("rb")
        # What goes out before the next request, in one write: whether the proxy met two writes at once or woke up for
        # each was a matter of timing, and worth a fifth of the count.
        self.due = b""

    def ask(self, times):
        for _ in range(times):
            self.number += 1
            stream = 2 * self.number - 1
            request = frame(HEADERS, END_STREAM | END_HEADERS, stream, self.block)
            self.peer.sendall(self.due + request)
            self.due = b""
            self.read_stream(stream)

    def read_stream(self, stream):
        length = 0
        while True:
            head = self.files.read(9)
            if len(head) < 9:
                sys.exit("a connection was closed that should have been kept")
            kind, flags, of = head[3], head[4], int.from_bytes(head[5:]) & 0x7FFF_FFFF
            payload = self.files.read(int.from_bytes(head[:3]))
            if kind == SETTINGS and not flags & ACK:
                self.due += frame(SETTINGS, ACK, 0)
            if kind == DATA:
                length += len(payload)
                # What was read may be sent again.
                self.due += frame(WINDOW_UPDATE, 0, 0, len(payload).to_bytes(4))
            if kind in (DATA, HEADERS) and of == stream and flags & END_STREAM:
                break
        if length != kinds.BODY_BYTES:
            sys.exit(f"{length} bytes came over HTTP/2 where {kinds.BODY_BYTES} were expected")


# Frame types and flags (RFC 9113 §6).
DATA, HEADERS, SETTINGS, WINDOW_UPDATE = 0, 1, 4, 8
END_STREAM = ACK = 1
END_HEADERS = 4


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def measure(binary, folder, origin, options, words):
    """The rounds of each kind."""
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        store = kinds.store(stack, folder / "redis", options)
        proxy = kinds.anteroom(binary, folder / "anteroom", origin.port, store=store, words=words)
        counter = Callgrind(proxy, folder)
        kinds.wait_until_ready(stack.enter_context(proxy))
        session = kinds.log_in(proxy.port)
        rounds = {}
        for name in options.kinds:
            source, make = ("hit", Http2Client) if name == HTTP2 else (name, Client)
            kind = kinds.KINDS[source]
            cookie = session if kind.cookie == kinds.SESSION else kind.cookie
            kinds.check(proxy.port, source, cookie)
            client = make(proxy.port, kind, cookie)
            client.ask(options.requests // 4)
            before = kinds.asked(origin)
            rounds[name] = [one_round(counter, client, options) for _ in range(options.rounds)]
            check_asked(source, kinds.asked(origin) - before - 1, options)
            client.peer.close()
    return rounds


def one_round(counter, client, options):
    worker, others = counter.count(lambda: client.ask(options.requests))
    return Round(worker / options.requests, others / options.requests)


def check_asked(name, asked, options):
    """Ends the bench where the origin was not asked as often as the kind wants."""
    requests = options.rounds * options.requests
    if asked != kinds.expected(name, requests):
        sys.exit(f"{name}: the origin was asked {asked} times for {requests} requests")


def median(rounds, field="worker"):
    return statistics.median(getattr(one, field) for one in rounds)


def spread(rounds):
    """How far the rounds lie apart, as a part of their median."""
    values = [one.worker for one in rounds]
    return (max(values) - min(values)) / statistics.median(values)


def report(figures, options):
    """A line for each kind; whether all ratios are within bounds."""
    store = "Redis" if options.redis else "the embedded store"
    print(
        f"instructions of the worker per request on {store}; {options.rounds} rounds of {options.requests} requests\n"
        "medians (how far rounds lie apart; instructions of other threads)\n"
    )
    names = NAMES[: len(figures)] if len(figures) == 2 else [""]
    print(f"{'':10}" + "".join(f"{name:>32}" for name in names) + ("     ratio" if len(figures) == 2 else ""))
    within = True
    for kind in options.kinds:
        cells = [
            f"{median(of[kind]):,.0f} ({spread(of[kind]):.2%}; {median(of[kind], 'others'):,.0f})" for of in figures
        ]
        ratio = median(figures[-1][kind]) / median(figures[0][kind])
        more = options.most is not None and ratio > options.most
        within &= not more
        told = f"{ratio:>10.3f}{'  too many' if more else ''}" if len(figures) == 2 else ""
        print(f"{kind:10}" + "".join(f"{cell:>32}" for cell in cells) + told)
    return within


def against_baseline(counted, options):
    """Holds the least of the rounds against those recorded, or records them; whether all are near enough.

    What timers do between the requests only adds to a count, and adds more where the machine is slow.
    """
    found = {kind: round(min(one.worker for one in rounds)) for kind, rounds in counted.items()}
    baseline = json.loads(options.baseline.read_text())
    if options.record:
        baseline[options.build] = found
        options.baseline.write_text(json.dumps(baseline, indent=4) + "\n")
        return True
    recorded = baseline.get(options.build)
    if recorded is None:
        print(f"\n{options.baseline} has no counts of a {options.build} build: the same with --record writes them")
        return False
    print()
    far = False
    for kind, count in found.items():
        moved = count / recorded[kind] - 1
        is_far = abs(moved) > TOLERANCE
        far |= is_far
        print(f"{kind:10}{recorded[kind]:>12,} -> {count:>12,}  {moved:+8.1%}{'  too far' if is_far else ''}")
    if far:
        print(f"if this change is meant to do so, the same with --record, for --build {options.build}")
    return not far


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("binaries", nargs="*", metavar="BINARY", help="default: a release build made now")
    parser.add_argument("--requests", type=int, default=1_000, metavar="N", help="of a round")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each kind")
    parser.add_argument("--most", type=float, metavar="RATIO", help="fail where AFTER / BEFORE is more for any kind")
    parser.add_argument("--baseline", type=pathlib.Path, metavar="FILE", help="counts to compare one binary with")
    parser.add_argument("--build", choices=["release", "debug"], default="release", help="default: release")
    parser.add_argument("--record", action="store_true", help="write the counts to the baseline")
    kinds.add_arguments(parser, (*kinds.KINDS, HTTP2))
    options = parser.parse_args()
    if len(options.binaries) > 2:
        parser.error("one binary or two")
    if len(options.binaries) < 2 and (options.most or options.before_words):
        parser.error("--most and --before-words are for two binaries")
    if options.baseline and len(options.binaries) == 2 or options.record and not options.baseline:
        parser.error("--baseline is for one binary, and --record for a baseline")
    return options


def main():
    options = parse()
    binaries = [lab.anteroom_binary(given) for given in options.binaries or [None]]
    # By chance a hit would go to the app. The draw itself is counted.
    os.environ["ANTEROOM__CACHE__AUDIT"] = "1/1000000"
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        origin = stack.enter_context(kinds.origin(folder))
        words = [kinds.words(options.before_words), []]
        figures = [
            measure(binary, folder / name, origin, options, of)
            for binary, name, of in zip(binaries, NAMES, words)
        ]
    within = report(figures, options)
    if options.baseline:
        within &= against_baseline(figures[0], options)
    if not within:
        sys.exit(1)


if __name__ == "__main__":
    main()
