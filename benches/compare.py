#!/usr/bin/env python3
"""Hits beside Debian's nginx with proxy_cache, in one run.

    benches/compare.py                  builds the release binary and compares
    benches/compare.py --rounds 5 --seconds 20
    benches/compare.py --only nginx     one side alone

Both serve one page of 1 KiB from their caches: one worker each on the same core, an access log in a
file, keep-alive connections from wrk on another core; they take turns. The figure is the CPU time
that a proxy's processes spend on a request, which repeats where requests a second do not. A run
counts only if the origin was asked for fewer than one request in a thousand, and if the access log
has a line for each request. Needs nginx-light and wrk.
"""

import argparse
import collections
import contextlib
import http.client
import http.server
import pathlib
import re
import statistics
import subprocess
import sys
import threading

import lab

Round = collections.namedtuple("Round", "requests seconds cpu_us hit_rate")


class Origin(http.server.BaseHTTPRequestHandler):
    """One page, with a validator and without Cache-Control: the proxies' own TTLs apply."""

    protocol_version = "HTTP/1.1"
    page = b""
    asked = 0

    def do_GET(self):
        type(self).asked += 1
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(self.page)))
        self.send_header("ETag", '"one"')
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, *_):
        pass


def measure(proxy, options):
    asked, cpu_s = Origin.asked, proxy.cpu_s()
    requests, seconds = drive(proxy.port, options)
    cpu_us = (proxy.cpu_s() - cpu_s) / requests * 1e6
    hit_rate = 1 - (Origin.asked - asked) / requests
    if hit_rate < 0.999:
        sys.exit(f"{proxy.name}: only {hit_rate:.2%} hits; this would compare something else")
    return Round(requests, seconds, cpu_us, hit_rate)


def drive(port, options):
    """Lets wrk fetch the page; how many answers in how many seconds."""
    command = [lab.need("wrk", "wrk"), "-t1", f"-c{options.connections}", f"-d{options.seconds}s"]
    pinned = ["taskset", "-c", str(options.client_core), *command, f"http://127.0.0.1:{port}/page"]
    said = subprocess.run(pinned, check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+) requests in ([\d.]+)s", said)
    if found is None or "Socket errors" in said or "Non-2xx" in said:
        sys.exit(f"wrk met errors:\n{said}")
    return int(found[1]), float(found[2])


def warm(proxy, page):
    """Fills the cache, and checks that what comes is the page."""
    for _ in range(3):
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
        connection.request("GET", "/page")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200 or body != page:
            sys.exit(f"{proxy.name} answered {answer.status} with {len(body)} bytes")
        connection.close()


def check_log(name, log, requests):
    """Both must have paid for their access log."""
    with log.open("rb") as lines:
        logged = sum(1 for _ in lines)
    if logged < requests * 0.999:
        sys.exit(f"{name} logged {logged} lines for {requests} requests")


def report(rounds, options):
    print(f"\n{lab.machine()}")
    print(
        f"hits of {options.size} bytes, wrk -t1 -c{options.connections} on core "
        f"{options.client_core}, proxies with one worker on core {options.proxy_core}, "
        f"{options.rounds} rounds of {options.seconds} s in turns, medians (least to most)\n"
    )
    print(f"{'':10}{'CPU us/request':>24}{'requests/s':>28}{'hit rate':>10}{'requests':>12}")
    for name, of in rounds.items():
        cpu = spread([one.cpu_us for one in of], "{:.2f}")
        rate = spread([one.requests / one.seconds for one in of], "{:.0f}")
        hits = min(one.hit_rate for one in of)
        print(f"{name:10}{cpu:>24}{rate:>28}{hits:>10.3%}{sum(one.requests for one in of):>12}")
    if len(rounds) == 2:
        ours, theirs = (
            statistics.median(one.cpu_us for one in rounds[name]) for name in ("anteroom", "nginx")
        )
        print(f"\nCPU time per request, anteroom / nginx: {ours / theirs:.2f}")


def spread(values, form):
    least, middle, most = min(values), statistics.median(values), max(values)
    return f"{form} ({form} to {form})".format(middle, least, most)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--anteroom", help="the binary; default: a release build made now")
    parser.add_argument("--only", choices=["anteroom", "nginx"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--size", type=int, default=1024, help="of the page, in bytes")
    parser.add_argument("--proxy-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--nginx-log-buffer", help="for instance 64k; default: a write a line")
    return parser.parse_args()


def start_proxies(stack, options, folder, origin_port):
    core = options.proxy_core
    proxies = []
    if options.only != "nginx":
        binary = lab.anteroom_binary(options.anteroom)
        proxies.append(lab.anteroom(binary, folder, origin_port, core))
    if options.only != "anteroom":
        proxies.append(lab.nginx(folder, origin_port, core, options.nginx_log_buffer))
    return [stack.enter_context(proxy) for proxy in proxies]


def main():
    options = parse()
    Origin.page = b"<!doctype html><title>One page</title>".ljust(options.size, b"x")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        origin = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin))
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        stack.callback(origin.shutdown)
        with contextlib.ExitStack() as running:
            proxies = start_proxies(running, options, folder, origin.server_port)
            rounds = {proxy.name: [] for proxy in proxies}
            for proxy in proxies:
                warm(proxy, Origin.page)
            for _ in range(options.rounds):
                for proxy in proxies:
                    rounds[proxy.name].append(measure(proxy, options))
        # They have ended, and written what was left of their logs.
        for name, of in rounds.items():
            check_log(name, folder / f"{name}.log", sum(one.requests for one in of))
        report(rounds, options)


if __name__ == "__main__":
    main()
