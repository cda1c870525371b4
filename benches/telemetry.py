#!/usr/bin/env python3
"""What traces cost: the CPU time of a hit, a miss and a forward, without and with them, in one run.

    benches/telemetry.py                    builds the release binary and measures
    benches/telemetry.py --rounds 21 --requests 20000

One proxy of one thread, whose [traces] a reload changes: none, sample = 0.01, and sample = 1, in turn. (Three proxies
would differ by more, though they were all the same.) A receiver takes the traces. The figure is the CPU time of the
proxy for each request, on all threads, and how much more it is than with none: the median of the rounds. The last
batch, of at most 512 spans, may be sent after the measurement. Below, how much a scrape of /metrics takes.
"""

import asyncio
import contextlib
import os
import pathlib
import signal
import statistics
import tempfile
import time

import lab

BODY = b"x" * 4_096
# [traces] by name; the default of `slow` would trace requests of a busy machine in addition.
TRACES = {
    "no traces": "",
    "sample = 0.01": '[traces]\nendpoint = "http://127.0.0.1:{}"\nsample = 0.01\nslow = "60s"\n',
    "sample = 1": '[traces]\nendpoint = "http://127.0.0.1:{}"\nsample = 1.0\nslow = "60s"\n',
}
KINDS = ["hit", "forward", "miss"]
SCRAPES = 50
CLIENT_CORE, PROXY_CORE = 1, 0


def app():
    """Pages that may be stored, and, at /forward, some that may not."""
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: {}\r\nContent-Length: {}\r\n\r\n"
    stored, own = (head.format(rule, len(BODY)).encode() + BODY for rule in ["max-age=3600", "no-store"])
    return lambda head: own if head.startswith(b"GET /forward") else stored


def receiver():
    """What takes traces."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    return lambda _: answer


class Bench:
    def __init__(self, proxy, config, receiver_port, requests):
        self.proxy, self.config, self.requests = proxy, config, requests
        self.receiver_port = receiver_port
        self.plain = config.read_text()
        self.next_page = 0

    def set(self, traces):
        """Reloads with these lines, and waits until they are in force."""
        before = lab.metrics(self.proxy)["anteroom_reloads_total"]
        self.config.write_text(self.plain + traces.format(self.receiver_port))
        self.proxy.popen.send_signal(signal.SIGHUP)
        while lab.metrics(self.proxy)["anteroom_reloads_total"] == before:
            time.sleep(0.05)

    async def cost(self, kind):
        """CPU seconds of one request of the kind."""
        connection = await lab.Connection().open(self.proxy.port)
        await connection.ask("GET /hit")
        before = self.proxy.run_s()
        for _ in range(self.requests):
            await connection.ask(f"GET {self.path(kind)}")
        spent = self.proxy.run_s() - before
        connection.writer.close()
        return spent / self.requests

    def path(self, kind):
        if kind != "miss":
            return f"/{kind}"
        self.next_page += 1
        return f"/miss/{self.next_page}"

    def rounds(self, count):
        """The costs by kind and setting, one each round. The first round warms up."""
        costs = {(kind, name): [] for kind in KINDS for name in TRACES}
        names = list(TRACES)
        for turn in range(count + 1):
            for name in names[turn % 3 :] + names[: turn % 3]:
                self.set(TRACES[name])
                for kind in KINDS:
                    cost = asyncio.run(self.cost(kind))
                    if turn > 0:
                        costs[kind, name].append(cost)
        return costs

    def scrape(self):
        """CPU seconds of a scrape."""
        before = self.proxy.run_s()
        for _ in range(SCRAPES):
            lab.metrics(self.proxy)
        return (self.proxy.run_s() - before) / SCRAPES


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=9, metavar="N")
    parser.add_argument("--requests", type=int, default=8_000, metavar="N", help="of each kind in a round")
    given = parser.parse_args()

    binary = lab.anteroom_binary(given.anteroom)
    # What asks and what answers share a core, and the proxy has another.
    os.sched_setaffinity(0, {CLIENT_CORE})
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(lab.python_origin(app))
        sink = stack.enter_context(lab.python_origin(receiver))
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxy = stack.enter_context(lab.anteroom(binary, folder, port, PROXY_CORE))
        bench = Bench(proxy, folder / "proxy.toml", sink, given.requests)
        costs = bench.rounds(given.rounds)
        told(costs, lab.metrics(proxy), bench.scrape())


def told(costs, counted, scrape_s):
    for kind in KINDS:
        for name in TRACES:
            own, none = costs[kind, name], costs[kind, "no traces"]
            ratios = [one / other for one, other in zip(own, none)]
            print(f"{kind:8} {name:14} {statistics.median(own) * 1e6:6.1f} us of CPU, x{statistics.median(ratios):.3f}")
    exported, dropped = (counted[f"anteroom_traces_{what}_total"] for what in ["exported", "dropped"])
    print(f"{exported:.0f} spans sent, {dropped:.0f} dropped")
    print(f"a scrape of /metrics: {scrape_s * 1e3:.2f} ms of CPU")


if __name__ == "__main__":
    main()
