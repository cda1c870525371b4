#!/usr/bin/env python3
"""Clients that are slow on purpose: what slowhttptest says of the proxy, and what others notice.

    benches/slow.py                     builds the release binary; heads, bodies and reads
    benches/slow.py --only read --connections 1000 --seconds 20 --anteroom target/release/anteroom

So many connections each send a head a few bytes at a time (slowloris), or a body, or read a page of a
megabyte a few bytes at a time, while a visitor asks for a page ten times a second. It prints whether
slowhttptest finds the service available, the longest that the visitor waited, and the memory of the proxy
before, at most, and after. It fails where the visitor was not answered. On one machine the kernel takes
megabytes of a page that nobody reads, and has to copy them: so clients that read slowly come more slowly.
Needs slowhttptest and nginx-light.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import time

import lab

# How each is told to slowhttptest, and how many of its connections are made in a second.
ATTACKS = {
    "head": (["-H", "-i", "5", "-x", "24"], 1_000),
    "body": (["-B", "-i", "5", "-s", "8192", "-x", "10"], 1_000),
    "read": (["-X", "-n", "5", "-w", "10", "-y", "20", "-z", "32", "-k", "3"], 200),
}
REPORTED = re.compile(r"(connected|error|closed|service available|Exit status)\s*:")
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def attack(name, port, options):
    """The last report of slowhttptest, how many tell of no service, and how it ended."""
    arguments, rate = ATTACKS[name]
    path = "/large.html" if name == "read" else "/page"
    command = [lab.need("slowhttptest", "slowhttptest"), *arguments]
    command += ["-c", str(options.connections), "-r", str(rate)]
    command += ["-l", str(options.seconds), "-p", "5", "-u", f"http://127.0.0.1:{port}{path}"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    said = COLOURS.sub("", done.stdout + done.stderr).splitlines()
    lines = [line.strip() for line in said if REPORTED.match(line.strip())]
    last = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines}
    unavailable = sum(line.replace(" ", "") == "serviceavailable:NO" for line in lines)
    return last, unavailable, done.returncode


def main():
    parser = argparse.ArgumentParser(description="What others notice of clients that are slow on purpose.")
    parser.add_argument("--connections", type=int, default=4_000)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--only", choices=list(ATTACKS))
    parser.add_argument("--anteroom", help="the binary to measure, instead of a release build")
    options = parser.parse_args()

    files = lab.many_files()
    if files < options.connections + 1_000:
        sys.exit(f"{options.connections} connections need more open files than {files}")
    binary = lab.anteroom_binary(options.anteroom)
    print(lab.machine())
    # All come from one address here.
    more = "[limits]\nconnections_per_address = 20_000\n"
    failed = False
    for name in ATTACKS:
        if options.only not in (None, name):
            continue
        with lab.scratch_folder() as scratch:
            folder = pathlib.Path(scratch)
            with lab.nginx_origin(folder, more=lab.large_page(folder)) as origin:
                with lab.anteroom(binary, folder, origin.port, more=more) as proxy:
                    proxy.reset_peak()
                    before = proxy.memory_kib("VmRSS")
                    with lab.Visitor(proxy.port) as visitor:
                        last, unavailable, code = attack(name, proxy.port, options)
                    most = proxy.memory_kib("VmHWM")
                    # By then the proxy has noticed that they are gone.
                    time.sleep(5)
                    after = proxy.memory_kib("VmRSS")
        print(f"{name}: slowhttptest ended with {code}; reports of no service: {unavailable}")
        print("    " + ", ".join(f"{key} {value}" for key, value in last.items()))
        print(f"    {visitor.told()}")
        print(f"    memory: {before} KiB before, {most} KiB at most, {after} KiB after")
        failed |= bool(visitor.failures)
    sys.exit(failed)


if __name__ == "__main__":
    main()
