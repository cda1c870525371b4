#!/usr/bin/env python3
"""Clients of HTTP/2 that others have written, at full speed and at a trickle: the proxy cuts none of them off.

    target/interop-venv/bin/python tests/interop/http2_clients.py --binary target/debug/anteroom
    ... --full
    ... --calls 1000000 --only grpcio,h2load

Each client asks for so many small answers over a connection, or over the few that it makes by itself; all run at the
same time. It prints a table: the client, what it asked for, how many answers were right, and in how many seconds.
The run fails where one was not, and where the proxy counts a connection of HTTP/2 that it cut.
Needs what requirements.txt names, Node.js, curl, h2load, nginx, HAProxy, Chromium and openssl.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import queue
import re
import subprocess
import sys
import tempfile
import time

import grpc
import httpx

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE.parent / "apps"), str(HERE.parent / "browser")]

import servers  # noqa: E402
import webdriver  # noqa: E402

# How many answers each client asks for in a full run; otherwise by whether it takes some time for each. Budgets that
# shrank with each small answer were used up after 1,000 to 2,700.
CALLS = 20_000
CALLS_OF_FAST = 8_000
CALLS_OF_SLOW = 4_000
# Calls a second of the client that takes its time, and for how many seconds: a budget that shrinks shows by then.
TRICKLE, TRICKLE_S = 100, 30
# What a page of the browser asks for in one go: WebDriver gives a script 30 s.
IN_A_PAGE = 100
# A client that has not ended by then is stuck.
PATIENCE_S = 600

CONFIG = """
[[listen]]
address = "127.0.0.1:{site.clear}"

[[listen]]
address = "127.0.0.1:{site.tls}"
tls.cert = "{folder}/cert.pem"
tls.key = "{folder}/key.pem"

[origin]
url = "http://127.0.0.1:{site.pages}"

[origins.calls]
url = "http://127.0.0.1:{site.calls}"
http2 = "always"

[store]
url = "embedded:{folder}/data"

[admin]
address = "127.0.0.1:{site.admin}"

[limits]
drain_delay = "0s"

[log]
access = "off"

[[route]]
match.path = "/echo.Echo/**"
origin = "calls"
"""
HAPROXY = """
global
    maxconn 100
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend site
    bind 127.0.0.1:{port}
    default_backend anteroom
backend anteroom
    http-reuse always
    server anteroom 127.0.0.1:{site.clear} proto h2
"""
# nginx speaks HTTP/2 to what it takes for a server of gRPC.
NGINX = """
{user}daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{}}
http {{
    access_log off;
    upstream anteroom {{
        server 127.0.0.1:{site.clear};
        keepalive 8;
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{port};
        keepalive_requests 1000000000;
        location / {{
            grpc_pass grpc://anteroom;
        }}
    }}
}}
"""


@dataclasses.dataclass
class Site:
    """The ports of the proxy, and of the app behind it."""

    clear: int
    tls: int
    admin: int
    pages: int
    calls: int


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the anteroom to test")
    parser.add_argument("--calls", type=int, help="how many answers each client asks for")
    parser.add_argument(
        "--full", action="store_true",
        help=f"{CALLS:,} answers, where a fast client asks for {CALLS_OF_FAST:,} otherwise, and a slow one for {CALLS_OF_SLOW:,}",
    )  # fmt: skip
    parser.add_argument("--only", help="clients by name, separated by commas")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(CLIENTS)
    if unknown := set(names) - set(CLIENTS):
        parser.error(f"there is no client {', '.join(sorted(unknown))}; there are {', '.join(CLIENTS)}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(pathlib.Path(folder), options.binary.resolve(), {name: calls(options, name) for name in names})
        except servers.Broken as why:
            sys.exit(f"tests/interop/http2_clients.py: {why}")


def calls(options, name):
    if options.calls is not None:
        return options.calls
    if options.full:
        return CALLS
    return CALLS_OF_FAST if name in FAST else CALLS_OF_SLOW


def check(folder, program, wanted):
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(start(folder, program))
        clients = stack.enter_context(concurrent.futures.ThreadPoolExecutor(len(wanted)))
        running = {name: clients.submit(timed, CLIENTS[name][1], folder, site, calls) for name, calls in wanted.items()}
        wrong = []
        for name, client in running.items():
            (good, of), seconds = client.result()
            print(f"{name:10} {CLIENTS[name][0]:52} {good:>8} of {of:>8} in {seconds:5.1f} s", flush=True)
            if good != of:
                wrong.append(name)
        cut = cut_off(site)
    print(f"connections that were cut: {cut}")
    if wrong or cut:
        raise servers.Broken(f"answers were missing: {', '.join(wrong) or 'none'}; connections that were cut: {cut}")
    print("all as it must be")


def timed(client, *where):
    began = time.monotonic()
    try:
        return client(*where), time.monotonic() - began
    except (grpc.RpcError, httpx.HTTPError, queue.Empty, subprocess.TimeoutExpired, webdriver.Refused) as error:
        raise servers.Broken(f"{client.__name__}: {error}") from error


@contextlib.contextmanager
def start(folder, program):
    site = Site(*(servers.free_port() for _ in dataclasses.fields(Site)))
    servers.call(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem",
         "-out", folder / "cert.pem"],
        "no certificate",
    )  # fmt: skip
    (folder / "proxy.toml").write_text(CONFIG.format(site=site, folder=folder))
    app = ["node", HERE / "http2_origin.mjs", site.pages, site.calls]
    proxy = [program, "run", "--config", folder / "proxy.toml"]
    with servers.process(app, folder, "app") as child:
        ports = [site.pages, site.calls]
        servers.wait("the app", child, folder, "app", lambda: all(map(servers.is_open, ports)))
        with servers.process(proxy, folder, "anteroom") as child:
            servers.wait("anteroom", child, folder, "anteroom", lambda: servers.is_open(site.tls))
            yield site


def cut_off(site):
    """The connections of HTTP/2 that the proxy has cut, by cause."""
    with webdriver.LOCAL.open(f"http://127.0.0.1:{site.admin}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    counts = re.findall(r'^anteroom_http2_connections_cut_total\{cause="([^"]+)"\} (\d+)$', text, re.MULTILINE)
    if not counts:
        raise servers.Broken("there is no metric of the connections that were cut")
    return {cause: int(count) for cause, count in counts if count != "0"}


def same(answers, wanted):
    """How many there were, and how many were as wanted."""
    answers = list(answers)
    return sum(answer == wanted for answer in answers), len(answers)


def grpcio(_, site, calls):
    """Two WINDOW_UPDATE come with each call."""
    with channel_to(site) as channel:
        say = channel.unary_unary("/echo.Echo/Say")
        return same((say(b"hello", timeout=PATIENCE_S) for _ in range(calls)), b"hello")


def channel_to(site):
    """Whatever proxy the environment names is not asked."""
    return grpc.insecure_channel(f"127.0.0.1:{site.clear}", [("grpc.enable_http_proxy", 0)])


def grpcio_at_a_trickle(_, site, calls):
    with channel_to(site) as channel:
        say = channel.unary_unary("/echo.Echo/Say")

        def slowly():
            for _ in range(min(calls, TRICKLE * TRICKLE_S)):
                began = time.monotonic()
                yield say(b"hello", timeout=PATIENCE_S)
                time.sleep(max(0, 1 / TRICKLE - (time.monotonic() - began)))

        return same(slowly(), b"hello")


def grpcio_to_and_fro(_, site, calls):
    """One stream on which each side waits for the other."""
    with channel_to(site) as channel:
        turns = queue.SimpleQueue()

        def said():
            for _ in range(calls):
                yield b"hello"
                if not turns.get(timeout=PATIENCE_S):
                    return

        good = 0
        try:
            for message in channel.stream_stream("/echo.Echo/Talk")(said(), timeout=PATIENCE_S):
                good += message == b"hello"
                turns.put(True)
        finally:
            turns.put(False)
        return good, calls


def python_httpx(_, site, calls):
    with httpx.Client(http1=False, http2=True, trust_env=False, timeout=PATIENCE_S) as client:
        url = f"http://127.0.0.1:{site.clear}/stored"
        return same((client.get(url).text for _ in range(calls)), "ok")


def node(_, site, calls):
    command = ["node", HERE / "http2_client.mjs", site.clear, "/stored", calls]
    return int(servers.call(command, "Node.js failed", timeout=PATIENCE_S)), calls


def curl(_, site, calls):
    """Over TLS: Debian's curl fails at its second request over an HTTP/2 connection in clear text."""
    return with_curl(f"https://localhost:{site.tls}", "2", calls)


def with_curl(site, version, calls):
    """Over one connection: curl makes another one where the first is closed."""
    words = ["--silent", "--insecure", "--noproxy", "*", "--output", "/dev/null"]
    said = servers.call(
        ["curl", *words, "--write-out", "%{http_version} %{http_code} %{num_connects}\\n", f"{site}/stored#[1-{calls}]"],
        "curl failed", timeout=PATIENCE_S,
    )  # fmt: skip
    answers = [line.split() for line in said.splitlines()]
    if (connections := sum(int(made) for *_, made in answers)) != 1:
        raise servers.Broken(f"curl made {connections} connections to {site}")
    return same((answer[:2] for answer in answers), [version, "200"])


def h2load(_, site, calls):
    """Over four connections, ten requests at a time on each."""
    command = ["h2load", "--requests", calls, "--clients", "4", "--max-concurrent-streams", "10"]
    said = servers.call([*command, f"http://127.0.0.1:{site.clear}/stored"], "h2load failed", timeout=PATIENCE_S)
    found = re.search(r"^status codes: (\d+) 2xx", said, re.MULTILINE)
    return int(found[1]) if found else 0, calls


def haproxy(folder, site, calls):
    port = servers.free_port()
    file = folder / "haproxy.cfg"
    file.write_text(HAPROXY.format(site=site, port=port))
    with servers.process([servers.binary("haproxy"), "-db", "-f", file], folder, "haproxy") as child:
        servers.wait("HAProxy", child, folder, "haproxy", lambda: servers.is_open(port))
        return with_curl(f"http://127.0.0.1:{port}", "1.1", calls)


def nginx(folder, site, calls):
    port = servers.free_port()
    file = folder / "nginx.conf"
    # In a container there is no other user, as a rule.
    user = "user root;\n" if os.geteuid() == 0 else ""
    file.write_text(NGINX.format(site=site, port=port, folder=folder, user=user))
    with servers.process([servers.binary("nginx"), "-c", file, "-p", folder], folder, "nginx") as child:
        servers.wait("nginx", child, folder, "nginx", lambda: servers.is_open(port))
        return with_curl(f"http://127.0.0.1:{port}", "1.1", calls)


def chromium(folder, site, calls):
    """Ten requests at a time, by a page's script."""
    script = """
        const [requests] = arguments;
        let [left, good] = [requests, 0];
        async function visit() {
            while (left-- > 0) {
                const answer = await fetch("/stored", { cache: "no-store" });
                const text = await answer.text();
                good += answer.ok && text === "ok" ? 1 : 0;
            }
        }
        await Promise.all(Array.from({ length: 10 }, visit));
        const version = performance.getEntriesByType("navigation")[0].nextHopProtocol;
        return version === "h2" ? good : 0;
    """
    with webdriver.chromedriver(folder) as driver, driver.browser("chromium", "--ignore-certificate-errors") as browser:
        browser.go(f"https://localhost:{site.tls}/stored")
        parts = [min(IN_A_PAGE, calls - begun) for begun in range(0, calls, IN_A_PAGE)]
        return sum(browser.run(script, part) for part in parts), calls


CLIENTS = {
    "grpcio": ("calls, one after the other", grpcio),
    "trickle": (f"calls of grpcio, {TRICKLE} a second for {TRICKLE_S} s", grpcio_at_a_trickle),
    "stream": ("messages of grpcio to and fro on one stream", grpcio_to_and_fro),
    "httpx": ("hits, one after the other", python_httpx),
    "node": ("hits, ten at a time", node),
    "curl": ("hits, one after the other, over TLS", curl),
    "h2load": ("hits, 40 at a time on four connections", h2load),
    "haproxy": ("hits by HAProxy with proto h2", haproxy),
    "nginx": ("hits by nginx with grpc_pass", nginx),
    "chromium": ("hits by fetch, ten at a time, over TLS", chromium),
}
FAST = ("node", "h2load")


if __name__ == "__main__":
    main()
