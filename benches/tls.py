#!/usr/bin/env python3
"""CPU time of TLS: handshakes, and hits over it; of one binary, or of two in turns.

    benches/tls.py                          builds the release binary and measures
    benches/tls.py BINARY
    benches/tls.py BEFORE AFTER             both in turns, and their ratio
    benches/tls.py BEFORE AFTER --only p256-full-x25519 rsa-full-x25519 --rounds 9 --seconds 10

Anteroom runs with one thread on one core; the client and the origin are on another. The proxies take turns in each
round, so that what the machine does meanwhile falls on all. The figure is the CPU time of the proxy per handshake or
request, as the medians of the rounds (least to most), and what that makes in a second of CPU time; the ratio is the
median of the rounds' ratios.

    p256-full-hybrid       a full TLS 1.3 handshake, a certificate with a P-256 key, X25519MLKEM768 offered first. A
                           proxy without it agrees on X25519, in the same round trip, which is printed.
    p256-full-x25519       the same with X25519 alone: both libraries do the same work
    p256-resumed-...       by a ticket; it exchanges keys, too
    rsa-...                a certificate with an RSA key of 2048 bits
    hit-1k, hit-256k       a stored page over kept connections, TLS 1.3 with the suite that wrk's OpenSSL agrees on

A handshake here is all that the proxy does for a connection: accept, handshake, two tickets, close. Connections that
are closed at once use up local ports, which Linux uses again on the loopback (net.ipv4.tcp_tw_reuse).

Needs nginx-light, openssl, wrk and cargo, which builds the client of handshakes.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import re
import statistics
import subprocess
import sys

import kinds
import lab

# How many, in how many seconds, the proxy's CPU time for each in microseconds, and what was agreed on.
Round = collections.namedtuple("Round", "times seconds cpu_us agreed")
# The key of the certificate, the kind of handshake and the key exchange that is offered.
Handshake = collections.namedtuple("Handshake", "key kind exchange")
# The key of the certificate, and the path of a page.
Hit = collections.namedtuple("Hit", "key target")
Side = collections.namedtuple("Side", "name binary proxies")

KEYS = {"p256": lab.P_256, "rsa": lab.RSA_2048}
SIZE = 256 << 10
CASES = {
    f"{key}-{kind}-{exchange}": Handshake(key, kind, exchange)
    for key in KEYS
    for kind in ("full", "resumed")
    for exchange in ("hybrid", "x25519")
}
CASES |= {"hit-1k": Hit("p256", "/page"), "hit-256k": Hit("p256", "/large.html")}


def build_client():
    """The client of handshakes, built now."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--package", "bare", "--bin", "handshakes"]
    subprocess.run(command, cwd=lab.ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", lab.ROOT / "target"))
    return target / "release" / "handshakes"


def start(stack, name, binary, folder, sites, origin_port, options):
    """A proxy for each key."""
    proxies = {}
    for key, site in sites.items():
        own = folder / f"{name}-{key}"
        own.mkdir()
        listen = f'tls.cert = "{site}"'
        proxy = lab.anteroom(binary, own, origin_port, options.proxy_core, listen=listen)
        kinds.wait_until_ready(stack.enter_context(proxy))
        proxies[key] = proxy
    return Side(name, binary, proxies)


def check_hit(proxy, target, size):
    """Fills the cache, and ends the bench where the page is no hit then."""
    kinds.ask(proxy.port, target, tls=True)
    head, body = kinds.ask(proxy.port, target, tls=True)
    if "; hit" not in head["cache-status"] or len(body) != size:
        sys.exit(f"{target}: {head['cache-status']}, {len(body)} bytes; this would measure something else")


def measure(side, case, client, options):
    """One round."""
    proxy = side.proxies[case.key]
    before = proxy.run_s()
    drive = handshakes if isinstance(case, Handshake) else hits
    times, seconds, agreed = drive(proxy.port, case, client, options)
    return Round(times, seconds, (proxy.run_s() - before) * 1e6 / times, agreed)


def handshakes(port, case, client, options):
    command = [client, str(port), str(options.seconds), case.kind, case.exchange]
    said = run(command, options)
    found = re.fullmatch(r"(\d+) in ([\d.]+) s by (\w+)", said.strip())
    return int(found[1]), float(found[2]), found[3]


def hits(port, case, _, options):
    command = [lab.need("wrk", "wrk"), "-t1", f"-c{options.connections}", f"-d{options.seconds}s"]
    said = run([*command, f"https://127.0.0.1:{port}{case.target}"], options)
    found = re.search(r"(\d+) requests in ([\d.]+)s", said)
    if found is None or "Socket errors" in said or "Non-2xx" in said:
        sys.exit(f"wrk met errors:\n{said}")
    return int(found[1]), float(found[2]), ""


def run(command, options):
    """What the client says, which runs on its own core."""
    command = ["taskset", "-c", str(options.client_core), *command]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"{command[3]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def report(figures, sides, options):
    """A line for each case and proxy, and the ratios."""
    print(f"\n{lab.machine()}")
    print(
        f"one thread on core {options.proxy_core}, client and origin on core {options.client_core}, "
        f"{options.rounds} rounds of {options.seconds} s in turns, medians (least to most)\n"
    )
    for side in sides:
        print(f"{side.name:8} {side.binary.stat().st_size / (1 << 20):.2f} MiB  {side.binary}")
    print(f"\n{'':22}{'':8}{'CPU us each':>28}{'each CPU second':>17}  agreed")
    for name in options.only:
        for side in sides:
            rounds = figures[name, side.name]
            values = [one.cpu_us for one in rounds]
            middle = statistics.median(values)
            cpu = f"{middle:.1f} ({min(values):.1f} to {max(values):.1f})"
            print(f"{name:22}{side.name:8}{cpu:>28}{1e6 / middle:>17,.0f}  {rounds[0].agreed}")
        if len(sides) == 2:
            pairs = zip(figures[name, sides[1].name], figures[name, sides[0].name])
            ratio = statistics.median(after.cpu_us / before.cpu_us for after, before in pairs)
            print(f"{'':22}{'ratio':8}{ratio:>28.3f}")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("binaries", nargs="*", metavar="BINARY", help="default: a release build made now")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE",
                        help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=64, help="of wrk")
    parser.add_argument("--proxy-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    options = parser.parse_args()
    if len(options.binaries) > 2:
        parser.error("one binary or two")
    return options


def main():
    options = parse()
    binaries = [lab.anteroom_binary(given) for given in options.binaries or [None]]
    client = build_client()
    names = ["before", "after"] if len(binaries) == 2 else ["anteroom"]
    # By chance a hit would go to the app.
    os.environ["ANTEROOM__CACHE__AUDIT"] = "1/1000000"
    figures = collections.defaultdict(list)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        sites = {}
        for key, kind in KEYS.items():
            own = folder / f"certificate-{key}"
            own.mkdir()
            sites[key], _ = lab.certificate(own, kind=kind)
        origin = lab.nginx_origin(folder, core=options.client_core, more=lab.large_page(folder, SIZE))
        origin = stack.enter_context(origin)
        sides = [
            start(stack, name, binary, folder, sites, origin.port, options)
            for name, binary in zip(names, binaries)
        ]
        for side in sides:
            check_hit(side.proxies["p256"], "/page", kinds.BODY_BYTES)
            check_hit(side.proxies["p256"], "/large.html", SIZE)
        for number in range(options.rounds):
            for name in options.only:
                # Who is first takes turns, too.
                for side in sides if number % 2 == 0 else reversed(sides):
                    figures[name, side.name].append(measure(side, CASES[name], client, options))
    report(figures, sides, options)


if __name__ == "__main__":
    main()
