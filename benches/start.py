#!/usr/bin/env python3
"""Time and memory of a start beside Debian's nginx and HAProxy, in one run.

    benches/start.py                    builds the release binary and compares
    benches/start.py --runs 30
    benches/start.py --binary target/dist/anteroom
    benches/start.py --markdown docs/design/benchmarks.md
                                        writes the table into that page, too

Each proxy has one worker, one origin, a cache and an access log in a file. They are started in turns. A start
begins before the process is made, and ends with the first answer of 200, which the origin makes; a connection
that is refused is tried again after half a millisecond. `new` and `again` are Anteroom with an embedded store
that it has to make, and with the store that it has closed before.

The CPU time is that of the processes until then. The memory is the sum of Pss over all processes of the proxy
(smaps_rollup): after the first answer, and after 1,000 more. Needs nginx-light and haproxy.
"""

import argparse
import collections
import http.client
import pathlib
import statistics
import sys
import textwrap
import time

import lab

REQUESTS = 1_000
# How long a connection that was refused is left alone, in seconds.
PAUSE = 0.0005
PATIENCE = 20
MEANING = (
    "A start ends with the first answer, which the origin makes; CPU time and memory are those of all processes of the "
    "proxy. `new` has to make its embedded store, `again` has one. HAProxy takes the 64 MiB of its cache at the start."
)
# Of one start: milliseconds to the first answer, CPU milliseconds, and KiB then and later.
Start = collections.namedtuple("Start", "answered_ms cpu_ms first_kib later_kib")


def cpu_ms(process):
    """CPU time of all its processes, with threads that have ended."""
    # The clock of another process's CPU time, as clock_getcpuclockid(3) makes it.
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in process.pids()) * 1_000


def ask(connection):
    connection.request("GET", "/page", headers={"Host": "bench.test"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def first_answer(proxy, port):
    """A connection that has been answered 200."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if proxy.popen.poll() is not None:
            sys.exit(f"{proxy.name} ended with code {proxy.popen.returncode}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            if ask(connection) == 200:
                return connection
        except ConnectionError:
            pass
        connection.close()
        time.sleep(PAUSE)
    sys.exit(f"{proxy.name} did not answer in {PATIENCE} s")


def start(proxy):
    # The wait of the process itself is too coarse here.
    port, proxy.port = proxy.port, None
    begun = time.monotonic()
    with proxy:
        connection = first_answer(proxy, port)
        answered_ms = (time.monotonic() - begun) * 1_000
        cpu, first_kib = cpu_ms(proxy), proxy.pss_kib()
        for _ in range(REQUESTS):
            if ask(connection) != 200:
                sys.exit(f"{proxy.name} did not answer 200")
        later_kib = proxy.pss_kib()
        connection.close()
    return Start(answered_ms, cpu, first_kib, later_kib)


def in_turns(sides, folder, runs):
    """All starts of each side."""
    starts = {name: [] for name in sides}
    for run in range(runs):
        for name, make in sides.items():
            # A folder for each start, and for a start again the folder of the start before.
            place = folder / f"{run}-{name.split()[0]}"
            place.mkdir(exist_ok=True)
            place.chmod(0o711)
            starts[name].append(start(make(place)))
    return starts


def spread(values, unit, digits):
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f} to {most:.{digits}f}) {unit}"


def rows(starts):
    """The table, row by row: the medians, least to most."""
    yield ["proxy", "first answer", "CPU time until then", "memory then", f"after {REQUESTS:,} more"]
    for name, all_of_it in starts.items():
        answered, cpu, first, later = zip(*all_of_it)
        yield [
            name,
            spread(answered, "ms", 1),
            spread(cpu, "ms", 1),
            spread([kib / 1024 for kib in first], "MiB", 1),
            spread([kib / 1024 for kib in later], "MiB", 1),
        ]


def plain(lines):
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def section(about, lines):
    """The same as a section of documentation."""
    lines = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    grid = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    about = textwrap.fill(f"`benches/start.py` on {about}. {MEANING}", 116)
    return f"\n## Start\n\n{about}\n\n{grid}\n"


def main():
    parser = argparse.ArgumentParser(description="Time and memory of a start beside nginx and HAProxy.")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--binary", help="the binary to measure, instead of a release build")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write the table there, too")
    options = parser.parse_args()
    binary = lab.anteroom_binary(options.binary)
    about = f"{lab.machine()}: {options.runs} starts of each, in turns; medians (least to most)"
    print(f"{about}\n")
    with lab.scratch_folder() as name:
        folder = pathlib.Path(name)
        with lab.nginx_origin(folder) as origin:
            sides = {
                "anteroom (new)": lambda place: lab.anteroom(binary, place, origin.port),
                "anteroom (again)": lambda place: lab.anteroom(binary, place, origin.port),
                "nginx": lambda place: lab.nginx(place, origin.port),
                "haproxy": lambda place: lab.haproxy(place, origin.port, log=place / "haproxy.log"),
            }
            lines = list(rows(in_turns(sides, folder, options.runs)))
    print(plain(lines))
    if options.markdown:
        of_peers, _ = lab.parts_of_results(options.markdown)
        options.markdown.write_text(of_peers + section(about, lines))


if __name__ == "__main__":
    main()
