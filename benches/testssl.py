#!/usr/bin/env python3
"""What testssl.sh finds wrong with a listener that speaks TLS.

    benches/testssl.py                  builds the release binary and scans a listener of it
    benches/testssl.py --all --anteroom target/release/anteroom

It prints the findings by their severity, and fails where one is above LOW and not excused below. Needs
testssl.sh, openssl and nginx-light; takes some minutes.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys

import lab

FINE = ("OK", "INFO", "DEBUG")
EXCUSED = {
    "cert_revocation": "the authority made for the scan revokes nothing",
    "engine_problem": "of the scanner's own openssl",
    "BREACH": "only pages that are the same for everyone are compressed: they hold nobody's secret",
}


def scan(binary, folder, options):
    site, authority = lab.certificate(folder)
    report = folder / "report.json"
    listen = f'tls.cert = "{site}"\ntls.hsts = "365d"'
    with lab.nginx_origin(folder) as origin:
        with lab.anteroom(binary, folder, origin.port, listen=listen) as proxy:
            command = [lab.need("testssl", "testssl.sh"), "--quiet", "--color", "0", "--warnings", "batch"]
            command += ["--jsonfile", report, "--add-ca", authority, "--ip", "127.0.0.1"]
            command += [f"bench.test:{proxy.port}"]
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if options.all:
                print(done.stdout)
    return json.loads(report.read_text())


def main():
    parser = argparse.ArgumentParser(description="What testssl.sh finds wrong with a listener.")
    parser.add_argument("--all", action="store_true", help="print all that it says")
    parser.add_argument("--anteroom", help="the binary to scan, instead of a release build")
    options = parser.parse_args()

    binary = lab.anteroom_binary(options.anteroom)
    with lab.scratch_folder() as scratch:
        found = scan(binary, pathlib.Path(scratch), options)
    print(dict(collections.Counter(one["severity"] for one in found)))
    faults = 0
    for one in found:
        name, severity = one["id"], one["severity"]
        if severity in FINE:
            continue
        faults += severity != "LOW" and name not in EXCUSED
        excuse = f" ({EXCUSED[name]})" if name in EXCUSED else ""
        print(f"{severity} {name}: {one['finding']}{excuse}")
    if not any(one["id"].startswith("TLS1_3") for one in found):
        sys.exit("the scan did not get as far as TLS")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
