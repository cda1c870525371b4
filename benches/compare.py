#!/usr/bin/env python3
"""CPU time per request beside Debian's nginx with proxy_cache, by kind of request, in one run.

    benches/compare.py                  builds the release binary and compares
    benches/compare.py --rounds 5 --seconds 20
    benches/compare.py --kinds hit      hits alone
    benches/compare.py --only nginx     one side alone
    benches/compare.py --anteroom BEFORE AFTER
                                        two binaries and nginx

All serve pages of 1 KiB: one worker each on the same core, an access log in a file, keep-alive
connections from wrk on another core, where the origin is, too; they take turns. The figure is the
CPU time that a proxy's processes spend on a request, which repeats where requests a second do not.
A run counts only if the origin was asked as often as the kind wants, to one request in a thousand,
and if the access log has a line for each request. Needs nginx-light and wrk, and redis-server for
--redis.

    hit        a page from the cache, without a cookie
    session    the same with the cookie of a session that Anteroom knows; nginx does not look at it
    harmless   the same with a cookie that says nothing of the visitor
    forward    a page that is private, no-store; nginx is told of it by a location
    miss       a page at a URL that nobody has asked for, and which is stored
"""

import argparse
import collections
import contextlib
import pathlib
import re
import statistics
import subprocess
import sys

import kinds
import lab

Round = collections.namedtuple("Round", "requests seconds cpu_us")
# A proxy that is measured, what it says where, its access log, and the cookies of the kinds.
Side = collections.namedtuple("Side", "name proxy words log cookies")

# Each request has a URL of its own, below the path that wrk is given behind --.
NEW_URLS = """local number, below = 0, nil
function init(arguments) below = arguments[1] end
function request()
    number = number + 1
    return wrk.format("GET", below .. number)
end
"""


def measure(side, origin, name, number, options, script):
    asked, cpu_s = kinds.asked(origin), side.proxy.cpu_s()
    requests, seconds = drive(side, name, number, options, script)
    cpu_us = (side.proxy.cpu_s() - cpu_s) / requests * 1e6
    # The second count is one request of its own.
    asked = kinds.asked(origin) - asked - 1
    # What was under way when the time was over is asked for, too, and not counted as answered: here, and
    # by the proxy that was measured before.
    wrong = abs(asked - kinds.expected(name, requests)) - 2 * options.connections
    if wrong > requests / 1_000:
        sys.exit(f"{side.name}, {name}: the origin was asked {asked} times for {requests} requests")
    return Round(requests, seconds, cpu_us)


def drive(side, name, number, options, script):
    """Lets wrk ask; how many answers in how many seconds."""
    kind = kinds.KINDS[name]
    command = ["taskset", "-c", str(options.client_core), lab.need("wrk", "wrk")]
    command += ["-t1", f"-c{options.connections}", f"-d{options.seconds}s"]
    if side.cookies[name]:
        command += ["-H", f"Cookie: {side.cookies[name]}"]
    url = f"http://127.0.0.1:{side.proxy.port}{kind.target}"
    if kind.source == "miss":
        command += ["-s", script, url, "--", f"{kind.target}/{number}-"]
    else:
        command.append(url)
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+) requests in ([\d.]+)s", said)
    if found is None or "Socket errors" in said or "Non-2xx" in said:
        sys.exit(f"wrk met errors:\n{said}")
    return int(found[1]), float(found[2])


def check_log(side, requests):
    """All must have paid for their access log."""
    with side.log.open("rb") as lines:
        logged = sum(1 for _ in lines)
    if logged < requests * 0.999:
        sys.exit(f"{side.name} logged {logged} lines for {requests} requests")


def report(figures, names, options):
    """`figures`: the rounds of each kind and proxy."""
    print(f"\n{lab.machine()}")
    print(
        f"pages of {options.size} bytes, wrk -t1 -c{options.connections} and the origin on core "
        f"{options.client_core}, proxies with one worker on core {options.proxy_core}, "
        f"{'Redis' if options.redis else 'embedded store'}, "
        f"{options.rounds} rounds of {options.seconds} s in turns, medians (least to most)\n"
    )
    print(f"{'':10}{'':10}{'CPU us/request':>24}{'requests/s':>28}{'requests':>12}")
    for kind in options.kinds:
        for name in names:
            of = figures[kind, name]
            cpu = spread([one.cpu_us for one in of], "{:.2f}")
            rate = spread([one.requests / one.seconds for one in of], "{:.0f}")
            print(f"{kind:10}{name:10}{cpu:>24}{rate:>28}{sum(one.requests for one in of):>12}")
    print()
    for last, first in ratios(names):
        each = (f"{kind} {ratio(figures, kind, last, first):.3f}" for kind in options.kinds)
        print(f"CPU time per request, {last} / {first}: {', '.join(each)}")


def ratios(names):
    """Which are told beside which."""
    return [(name, "nginx") for name in names[:-1] if names[-1] == "nginx"] + (
        [("after", "before")] if "after" in names else []
    )


def ratio(figures, kind, last, first):
    """The median of the rounds' ratios: what the machine does in a while falls on both."""
    pairs = zip(figures[kind, last], figures[kind, first])
    return statistics.median(one.cpu_us / other.cpu_us for one, other in pairs)


def spread(values, form):
    least, middle, most = min(values), statistics.median(values), max(values)
    return f"{form} ({form} to {form})".format(middle, least, most)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--anteroom", nargs="+", default=[None], metavar="BINARY",
                        help="one, or two beside each other; default: a release build made now")
    parser.add_argument("--only", choices=["anteroom", "nginx"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--size", type=int, default=kinds.BODY_BYTES, help="of a page, in bytes")
    parser.add_argument("--proxy-core", type=int, default=0)
    parser.add_argument("--client-core", type=int, default=1)
    parser.add_argument("--nginx-log-buffer", help="for instance 64k; default: a write a line")
    kinds.add_arguments(parser)
    options = parser.parse_args()
    if len(options.anteroom) > 2:
        parser.error("one binary or two")
    if len(options.anteroom) < 2 and options.before_words:
        parser.error("--before-words is for two binaries")
    return options


def start_sides(stack, options, folder, origin_port):
    sides = []
    if options.only != "nginx":
        names = ["before", "after"] if len(options.anteroom) == 2 else ["anteroom"]
        words = [kinds.words(options.before_words), []]
        for name, given, of in zip(names, options.anteroom, words):
            sides.append(start_anteroom(stack, name, given, of, options, folder, origin_port))
    if options.only != "anteroom":
        sides.append(start_nginx(stack, options, folder, origin_port))
    return sides


def start_anteroom(stack, name, given, words, options, folder, origin_port):
    binary = lab.anteroom_binary(given)
    store = kinds.store(stack, folder / f"{name}-redis", options, options.client_core)
    proxy = kinds.anteroom(binary, folder / name, origin_port, options.proxy_core, store, words)
    kinds.wait_until_ready(stack.enter_context(proxy))
    cookies = {each: kind.cookie for each, kind in kinds.KINDS.items()}
    cookies["session"] = kinds.log_in(proxy.port)
    return Side(name, proxy, kinds.IN_ANTEROOM, proxy.access_log, cookies)


def start_nginx(stack, options, folder, origin_port):
    own = folder / "nginx"
    own.mkdir()
    proxy = lab.nginx(
        own, origin_port, options.proxy_core, options.nginx_log_buffer, more=kinds.FORWARDED_BY_NGINX
    )
    stack.enter_context(proxy)
    cookies = {each: kind.cookie for each, kind in kinds.KINDS.items()}
    # Of the length of ours: nginx has to read it.
    cookies["session"] = "login=" + 43 * "x"
    return Side("nginx", proxy, kinds.IN_NGINX, own / "nginx.log", cookies)


def play(sides, origin, options, script):
    """The rounds of each kind and proxy, which begin in turn."""
    figures = {(kind, side.name): [] for kind in options.kinds for side in sides}
    for kind in options.kinds:
        for side in sides:
            kinds.check(side.proxy.port, kind, side.cookies[kind], side.words, options.size)
        for number in range(options.rounds):
            first = number % len(sides)
            for side in sides[first:] + sides[:first]:
                one = measure(side, origin, kind, number, options, script)
                figures[kind, side.name].append(one)
    return figures


def main():
    options = parse()
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        script = folder / "new-urls.lua"
        script.write_text(NEW_URLS)
        origin = stack.enter_context(kinds.origin(folder, options.client_core, options.size))
        with contextlib.ExitStack() as running:
            sides = start_sides(running, options, folder, origin.port)
            figures = play(sides, origin, options, script)
        # They have ended, and written what was left of their logs.
        for side in sides:
            requests = sum(
                one.requests for (_, name), of in figures.items() for one in of if name == side.name
            )
            check_log(side, requests)
        report(figures, [side.name for side in sides], options)


if __name__ == "__main__":
    main()
