#!/usr/bin/env python3
"""Certificates that the proxy orders, from Debian's pebble: what visitors see while they are renewed, again and again.

    benches/acme.py                              builds the release binary; every case
    benches/acme.py renew kill --anteroom target/debug/anteroom
    benches/acme.py renew --validity 20 --renewals 5

renew     certificates of 90 s for two names, until each was renewed 30 times; half an hour
nonces    the same for a tenth of the renewals, while pebble refuses 5 of 100 good nonces, as by default
kill      20 times: an operator renews, the process is killed at any moment of the orders, and starts again
away      pebble ends, and comes back with another root and without its accounts: the certificates stay, and are renewed
fleet     two proxies on one Redis: one orders for both; it is killed, and the other renews

Two visitors verify as browsers do: the chain up to pebble's root, the name, the time. Each makes a connection for each
request, to both names in turn. It prints a column for each case: requests, those that failed, the longest wait, hits of
100, how many certificates the visitors saw, and how many were issued. It fails if a request failed; in kill only wrong
certificates and answers count, because a killed process takes along what it has in hand.

Needs pebble, and redis-server for fleet.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import pathlib
import random
import signal
import socket
import ssl
import sys
import time
import urllib.request

import lab

NAMES = ("a.test", "b.test")
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: max-age=3600\r\nContent-Length: 5\r\n\r\nhello"
# How long an order may take on a busy machine.
PATIENCE_S = 120
# As long as no case lasts.
LONG_S = 86_400


def app():
    return lambda _head: PAGE


class Pebble:
    """The authority with its name server. It asks at one port of this machine, whatever the name."""

    def __init__(self, folder, validity_s, refused_nonces=0):
        self.folder, self.validity_s, self.refused_nonces = folder, validity_s, refused_nonces
        self.port, self.management = lab.free_port(), lab.free_port()
        self.names, self.records = lab.free_port(), lab.free_port()
        lab.certificate(folder, "localhost")
        self.roots = folder / "roots.pem"

    def settings(self):
        return f'directory = "https://localhost:{self.port}/dir"\nca = "{self.folder}/ca.pem"'

    def name_server(self):
        command = [lab.need("pebble-challtestsrv", "pebble"), "-defaultIPv6", "", "-http01", "", "-https01", ""]
        command += ["-tlsalpn01", "", "-management", f"127.0.0.1:{self.records}", "-dns01", f"127.0.0.1:{self.names}"]
        return lab.Process("pebble-challtestsrv", command, self.records, log=self.folder / "names.log")

    @contextlib.contextmanager
    def running(self, http_port):
        config = {
            "listenAddress": f"127.0.0.1:{self.port}",
            "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.folder / "site.crt"),
            "privateKey": str(self.folder / "site.key"),
            "httpPort": http_port,
            "tlsPort": http_port,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": False,
            "certificateValidityPeriod": self.validity_s,
        }
        file = self.folder / "pebble.json"
        file.write_text(json.dumps({"pebble": config}))
        os.environ |= {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": str(self.refused_nonces)}
        command = [lab.need("pebble", "pebble"), "-config", file, "-dnsserver", f"127.0.0.1:{self.names}"]
        with lab.Process("pebble", command, self.management, log=self.folder / "pebble.log"):
            self.trust_root()
            yield

    def trust_root(self):
        """Pebble has a new root at each start. Visitors trust all of them."""
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        url = f"https://localhost:{self.management}/roots/0"
        with urllib.request.urlopen(url, timeout=10, context=context) as answer:
            roots = answer.read()
        if self.roots.exists():
            roots += self.roots.read_bytes()
        # In one step: visitors read it meanwhile.
        new = self.folder / "roots.new"
        new.write_bytes(roots)
        new.replace(self.roots)


def visit(port, roots, over, told):
    """Asks for a page of each name in turn, over a connection each time; tells what came."""
    asked, failures, hits, seen, worst_s = 0, [], 0, set(), 0
    while not over.wait(0.05):
        for name in NAMES:
            since = time.monotonic()
            asked += 1
            try:
                context = ssl.create_default_context(cafile=roots)
                with socket.create_connection(("127.0.0.1", port), 10) as plain:
                    with context.wrap_socket(plain, server_hostname=name) as stream:
                        seen.add(hashlib.sha256(stream.getpeercert(binary_form=True)).hexdigest())
                        stream.sendall(f"GET /page HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
                        answer = b"".join(iter(lambda: stream.recv(1 << 16), b""))
                if not (answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"hello")):
                    raise OSError(f"the answer is {answer[:60]}")
                hits += b"; hit" in answer
            except ConnectionRefusedError:
                # Nothing listens: a process starts again.
                asked -= 1
            except OSError as error:
                failures.append((time.time(), f"{name}: {error}"))
            worst_s = max(worst_s, time.monotonic() - since)
    told.send((asked, failures, hits, seen, worst_s))


class Visitors:
    """Two processes that visit; what they have met is known when the `with` block has ended."""

    def __init__(self, port, roots):
        self.over, self.ends = multiprocessing.Event(), []
        for _ in range(2):
            near, far = multiprocessing.Pipe()
            process = multiprocessing.Process(target=visit, args=(port, roots, self.over, far), daemon=True)
            self.ends.append((near, process))

    def __enter__(self):
        for _, process in self.ends:
            process.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.requests, self.failures, self.hits, self.seen, self.worst_s = 0, [], 0, set(), 0
        for near, process in self.ends:
            requests, failures, hits, seen, worst_s = near.recv()
            self.requests, self.hits = self.requests + requests, self.hits + hits
            self.failures += failures
            self.seen |= seen
            self.worst_s = max(self.worst_s, worst_s)
            process.join()


class Site:
    """An app, a name server and proxies, each for as long as the `with` block."""

    def __init__(self, binary, folder, pebble):
        self.binary, self.folder, self.pebble = binary, folder, pebble
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        self.stack.enter_context(self.pebble.name_server())
        self.origin_port = self.stack.enter_context(lab.python_origin(app))
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    def proxy(self, name="proxy", store=None, more=""):
        """A proxy that is not started yet."""
        folder = self.folder / name
        folder.mkdir()
        https_port = lab.free_port()
        settings = (
            f'[[listen]]\naddress = "127.0.0.1:{https_port}"\ntls = "auto"\n[acme]\n{self.pebble.settings()}\n'
            f'hosts = {json.dumps(NAMES)}\nchallenge = "http-01"\nfolder = "{folder}/acme"\n{more}\n'
        )
        process = lab.anteroom(self.binary, folder, self.origin_port, store=store, more=settings)
        process.https_port = https_port
        return process


def states(proxy):
    return lab.order(proxy, "GET", "/certificates")["ordered"]


def issued(proxy):
    return int(lab.metrics(proxy)["anteroom_certificates_issued_total"])


def wait_until(what, holds, limit_s=PATIENCE_S):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        # A process that starts has no socket yet.
        with contextlib.suppress(OSError):
            if holds():
                return
        time.sleep(0.2)
    sys.exit(f"not within {limit_s} s: {what}")


def in_use(proxy):
    return all(one["state"] in ("in-use", "renewing") for one in states(proxy))


def ends(proxy):
    """When the certificates end. Those that are issued from now on end later: by a second at least."""
    time.sleep(1.1)
    return [one["not_after"] for one in states(proxy)]


def renew_by_hand(proxy):
    lab.order(proxy, "POST", "/certificates/renew", b'{"all":true}')


def renewals(site, options, count):
    """Waits until each certificate was renewed so often."""
    proxy = site.stack.enter_context(site.proxy())
    site.stack.enter_context(site.pebble.running(proxy.port))
    wait_until("the first certificates are in use", lambda: in_use(proxy))
    with Visitors(proxy.https_port, site.pebble.roots) as visitors:
        limit_s = PATIENCE_S + 2 * count * options.validity
        wait_until("they are renewed", lambda: issued(proxy) >= len(NAMES) * (count + 1), limit_s)
    return visitors, issued(proxy)


def renew(site, options):
    return renewals(site, options, options.renewals)


def nonces(site, options):
    site.pebble.refused_nonces = 5
    return renewals(site, options, max(options.renewals // 10, 1))


def kill(site, options):
    proxy, count = site.proxy(), 0
    site.stack.enter_context(site.pebble.running(proxy.port))
    with contextlib.ExitStack() as last:
        last.enter_context(proxy)
        wait_until("the first certificates are in use", lambda: in_use(proxy))
        with Visitors(proxy.https_port, site.pebble.roots) as visitors:
            for _ in range(options.kills):
                before = ends(proxy)
                renew_by_hand(proxy)
                # The wish is noted on disk by then.
                time.sleep(random.uniform(0.1, 1.5))
                count += issued(proxy)
                proxy.popen.send_signal(signal.SIGKILL)
                proxy.popen.wait()
                proxy.__enter__()
                wait_until("the operator's certificates are in use", lambda: settled(proxy, before))
        count += issued(proxy)
    visitors.failures = [one for one in visitors.failures if "verify failed" in one[1] or "the answer" in one[1]]
    return visitors, count


def settled(proxy, before):
    """Each name has another certificate. One that failed, because the authority found no process, is tried at once."""
    now = states(proxy)
    if failed := [one["name"] for one in now if one["failures"]]:
        lab.order(proxy, "POST", "/certificates/renew", json.dumps({"names": failed}).encode())
    return all(one["state"] == "in-use" and one["not_after"] > old for one, old in zip(now, before))


def away(site, options):
    proxy = site.stack.enter_context(site.proxy())
    with site.pebble.running(proxy.port):
        wait_until("the first certificates are in use", lambda: in_use(proxy))
    with Visitors(proxy.https_port, site.pebble.roots) as visitors:
        before = ends(proxy)
        renew_by_hand(proxy)
        wait_until("orders fail", lambda: all(one["failures"] for one in states(proxy)))
        with site.pebble.running(proxy.port):
            wait_until("they are renewed", lambda: settled(proxy, before))
    return visitors, issued(proxy)


def fleet(site, options):
    store = site.stack.enter_context(lab.redis_server(site.folder))
    (site.folder / "secret").write_text("s" * 64)
    more = f'secret = {{ file = "{site.folder}/secret" }}'
    url = f"redis://127.0.0.1:{store.port}"
    first, second = site.proxy("first", url, more), site.proxy("second", url, more)
    with first:
        wait_until("the first one orders", lambda: all(one["failures"] for one in states(first)))
        # The authority asks the second one.
        site.stack.enter_context(second)
        site.stack.enter_context(site.pebble.running(second.port))
        renew_by_hand(second)
        wait_until("both show them", lambda: in_use(first) and in_use(second))
        with Visitors(second.https_port, site.pebble.roots) as visitors:
            renew_by_hand(second)
            wait_until("the first one renews", lambda: issued(first) == 2 * len(NAMES))
            count = issued(first) + issued(second)
            first.popen.send_signal(signal.SIGKILL)
            first.popen.wait()
            renew_by_hand(second)
            wait_until("the second one renews", lambda: issued(second) == len(NAMES))
    return visitors, count + issued(second)


# Each with how long its certificates last, in seconds; None: as the option says.
CASES = {
    "renew": (renew, None),
    "nonces": (nonces, None),
    "kill": (kill, LONG_S),
    "away": (away, LONG_S),
    "fleet": (fleet, LONG_S),
}


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--renewals", type=int, default=30, help="of each name, in renew; default: 30")
    parser.add_argument("--validity", type=int, default=90, help="of a certificate there, in seconds; default: 90")
    parser.add_argument("--kills", type=int, default=20, help="default: 20")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(unknown)}")
    binary, columns, has_failed = lab.anteroom_binary(options.anteroom), {}, False
    print(lab.machine(), flush=True)
    for name in options.cases or CASES:
        play, validity_s = CASES[name]
        with lab.scratch_folder() as folder:
            folder = pathlib.Path(folder)
            with Site(binary, folder, Pebble(folder, validity_s or options.validity)) as site:
                since = time.monotonic()
                visitors, count = play(site, options)
        columns[name] = {
            "requests": f"{visitors.requests:,}",
            "failed": str(len(visitors.failures)),
            "longest wait": f"{visitors.worst_s * 1e3:.0f} ms",
            "hits": f"{100 * visitors.hits / max(visitors.requests, 1):.1f} %",
            "certificates seen": str(len(visitors.seen)),
            "issued": str(count),
            "took": f"{time.monotonic() - since:.0f} s",
        }
        has_failed = has_failed or bool(visitors.failures)
        for moment, failure in visitors.failures[:5]:
            print(f"{name}: {time.strftime('%H:%M:%S', time.localtime(moment))} {failure}", flush=True)
    print("".ljust(18), *(name.rjust(10) for name in columns))
    for row in next(iter(columns.values())):
        print(row.ljust(18), *(column[row].rjust(10) for column in columns.values()))
    sys.exit(has_failed)


if __name__ == "__main__":
    main()
