#!/usr/bin/env python3
"""What testssl.sh finds wrong with a listener that speaks TLS.

    benches/testssl.py                  builds the release binary and scans a listener of it
    benches/testssl.py --all --anteroom target/release/anteroom

It prints the findings by their severity, and fails where one is above LOW. What a certificate of one's own
brings with it (nobody says where it is revoked, no log knows it) is no finding of the proxy's. Needs
testssl.sh, openssl and nginx-light; takes some minutes.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys

import lab

HARMLESS = ("OK", "INFO", "LOW", "DEBUG")
# Of the certificate that is made here, not of the proxy.
OF_THE_CERTIFICATE = ("cert_revocation", "cert_caIssuers", "OCSP_stapling", "certificate_transparency", "DNS_CAArecord")


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
        if one["severity"] in ("OK", "INFO", "DEBUG"):
            if one["id"] in ("overall_grade", "final_score"):
                print(f"{one['id']}: {one['finding']}")
            continue
        excused = one["severity"] not in HARMLESS and one["id"].startswith(OF_THE_CERTIFICATE)
        faults += one["severity"] not in HARMLESS and not excused
        print(f"{one['severity']}{' (of the certificate)' if excused else ''} {one['id']}: {one['finding']}")
    if not any(one["id"].startswith("TLS1_3") for one in found):
        sys.exit("the scan did not get as far as TLS")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
