"""The workloads that `run` measures: the origin with their pages, the load generators, and what must hold.

Python's standard library only. It measures nothing by itself.
"""

import collections
import contextlib
import math
import re
import socket
import subprocess
import time

import idle
import kinds
import lab
import proxies

# What is asked for, where the answer is from ("hit" or "forward"), the bytes of its body, the port that is asked, the
# load generator, whether a session's cookie is sent, and which proxies can do it.
Workload = collections.namedtuple("Workload", "about target source bytes port tool cookie peers")

KIB = 1024
ALL = tuple(proxies.PEERS)
PROXIES = tuple(name for name in ALL if name != "floor")
WITH_TLS = ("anteroom", "nginx", "haproxy", "ats")
PAGES = 10_000

WORKLOADS = {
    "hit-1k": Workload("a page of 1 KiB from the cache", "/hit/1k", "hit", KIB, "plain", "wrk", False, ALL),
    "hit-16k": Workload("the same of 16 KiB", "/hit/16k", "hit", 16 * KIB, "plain", "wrk", False, ALL),
    "hit-256k": Workload("the same of 256 KiB", "/hit/256k", "hit", 256 * KIB, "plain", "wrk", False, ALL),
    "zipf": Workload(f"pages of 1 KiB from the cache at {PAGES:,} URLs, asked for as Zipf(1.0) has it",
                     "/zipf/", "hit", KIB, "plain", "zipf", False, ALL),
    "session": Workload("a page of 1 KiB from the cache, with the cookie of a session that Anteroom knows",
                        "/everyone/1k", "hit", KIB, "plain", "wrk", True, ALL),
    "forward-1k": Workload("a page of 1 KiB that is private, no-store", "/own/1k", "forward", KIB, "plain", "wrk",
                           False, PROXIES),
    "forward-16k": Workload("the same of 16 KiB", "/own/16k", "forward", 16 * KIB, "plain", "wrk", False, PROXIES),
    "tls": Workload("hit-1k over TLS", "/hit/1k", "hit", KIB, "tls", "wrk", False, WITH_TLS),
    "http2": Workload("hit-1k over HTTP/2 and TLS", "/hit/1k", "hit", KIB, "tls", "h2load", False, WITH_TLS),
    "close": Workload("hit-1k with a connection for each request", "/hit/1k", "hit", KIB, "close", "closing", False,
                      ALL),
    "idle": Workload("memory of an idle keep-alive connection, of 1,000, after 15 s of silence", "/hit/1k", "hit",
                     KIB, "plain", "idle", False, PROXIES),
}
IDLE_CONNECTIONS = 1_000
# Until what a proxy no longer needs has gone back to the system.
SILENCE_S = 15

# A round of a workload. `value` is CPU time in us per request, or of "idle" the bytes of a connection; `others` is the
# part of the proxy's core that other programs took meanwhile.
Figure = collections.namedtuple("Figure", "value requests seconds p50_us p99_us others")

# Draws by the inverse of the sums, with a seed of its own: all proxies are asked for the same pages.
ZIPF = f"""local pages, draws, sums, number = {{}}, {{}}, {{}}, 0
local PAGES, DRAWS = {PAGES}, 131072
function init()
    local sum = 0
    for page = 1, PAGES do
        pages[page] = wrk.format("GET", "/zipf/" .. page)
        sum = sum + 1 / page
        sums[page] = sum
    end
    math.randomseed(20260101)
    for draw = 1, DRAWS do
        local point, low, high = math.random() * sum, 1, PAGES
        while low < high do
            local middle = math.floor((low + high) / 2)
            if sums[middle] < point then low = middle + 1 else high = middle end
        end
        draws[draw] = pages[low]
    end
end
function request()
    number = number % DRAWS + 1
    return draws[number]
end
"""


class Refused(Exception):
    """A round that did not measure what it says."""


def origin(folder, core):
    """An nginx with the pages of all workloads; it counts its requests at /count."""
    pages = folder / "pages"
    pages.mkdir()
    for kib in (1, 16, 256):
        (pages / f"{kib}k.html").write_text("<!doctype html><title>One page</title>".ljust(kib * KIB, "x"))
    page = f"root {pages}; types {{ text/html html; }}"
    more = f"""location = /count {{ stub_status; }}
        location = /login {{
            add_header Anteroom-Login alice;
            return 200 "welcome";
        }}
        location /zipf/ {{
            {page} rewrite ^ /1k.html break;
            add_header Cache-Control "max-age=3600";
        }}
        location /own/ {{
            {page} rewrite ^/own/(.*)$ /$1.html break;
            add_header Cache-Control "private, no-store";
        }}
        location ~ ^/(hit|everyone)/ {{
            {page} rewrite ^/[a-z]+/(.*)$ /$1.html break;
            add_header Cache-Control "max-age=3600";
        }}"""
    return lab.nginx_origin(folder, core=core, more=more)


def fill(side, name):
    """Has the cache of the proxy filled, and looks at the answers."""
    work = WORKLOADS[name]
    tls, cookie = work.port == "tls", side.cookie if work.cookie else None
    if work.tool == "zipf":
        fill_zipf(side.ports["plain"])
        return
    for _ in range(2):
        _, body = kinds.ask(side.ports[work.port], work.target, cookie, tls=tls)
        if len(body) != work.bytes:
            raise Refused(f"{len(body)} bytes instead of {work.bytes}")


def fill_zipf(port):
    with contextlib.closing(kinds.connect(port)) as connection:
        for page in range(1, PAGES + 1):
            connection.request("GET", f"/zipf/{page}")
            answer = connection.getresponse()
            if len(answer.read()) != KIB or answer.status != 200:
                raise Refused(f"page {page}: {answer.status}")


def measure(side, origin, name, options, folder):
    """One round of one proxy."""
    work = WORKLOADS[name]
    asked, cpu_s, core_s = kinds.asked(origin), side.cpu_s(), lab.core_s(proxies.PROXY_CORE)
    driven = drive(side, work, options, folder)
    cpu_s, core_s = side.cpu_s() - cpu_s, lab.core_s(proxies.PROXY_CORE) - core_s
    # The second count is one request of its own.
    asked = kinds.asked(origin) - asked - 1
    side.requests += driven.requests
    wanted = driven.requests if work.source == "forward" else 0
    # What is under way when the time is over is asked for, too, and not counted as answered.
    wrong = abs(asked - wanted) - 2 * options.connections
    if wrong > driven.requests / 1_000:
        raise Refused(f"the origin was asked {asked} times for {driven.requests} requests, not {wanted}")
    others = 0 if options.unpinned else max(0, core_s - cpu_s) / driven.seconds
    return driven._replace(value=cpu_s / driven.requests * 1e6, others=others)


def drive(side, work, options, folder):
    """Lets the load generator ask."""
    scheme = "https" if work.port == "tls" else "http"
    url = f"{scheme}://127.0.0.1:{side.ports[work.port]}{work.target}"
    if work.tool == "h2load":
        return h2load(url, work, options, folder)
    more = []
    if work.cookie:
        more += ["-H", f"Cookie: {side.cookie}"]
    if work.tool == "closing":
        more += ["-H", "Connection: close"]
    if work.tool == "zipf":
        script = folder / "zipf.lua"
        script.write_text(ZIPF)
        more += ["-s", script]
    return wrk([*more, url], work, options)


def pinned(options):
    return [] if options.unpinned else ["taskset", "-c", str(proxies.CLIENT_CORE)]


def wrk(arguments, work, options):
    command = [*pinned(options), lab.need("wrk", "wrk"), "-t1", f"-c{options.connections}"]
    command += [f"-d{options.seconds}s", "--latency", *arguments]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+) requests in ([\d.]+)(s|m), ([\d.]+)([KMGT]?)B read", said)
    if found is None or int(found[1]) == 0:
        raise Refused(f"wrk: {said}")
    requests = int(found[1])
    errors = [line for line in said.splitlines() if "Socket errors" in line or "Non-2xx" in line]
    failed = sum(int(number) for line in errors for number in re.findall(r"\b\d+\b(?!xx)", line.partition(":")[2]))
    if failed > requests / 1_000:
        raise Refused(f"{failed} of {requests} requests failed: {'; '.join(map(str.strip, errors))}")
    # The heads are read, too, so this finds bodies that are cut, and no more.
    if float(found[4]) * KIB ** " KMGT".index(found[5] or " ") < 0.99 * requests * work.bytes:
        raise Refused(f"{requests} answers with {found[4]}{found[5]}B are too short")
    seconds = float(found[2]) * (60 if found[3] == "m" else 1)
    return Figure(None, requests, seconds, latency_us(said, 50), latency_us(said, 99), None)


def latency_us(said, percent):
    """The percentile that wrk tells."""
    found = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s|m)$", said, re.MULTILINE)
    return float(found[1]) * {"us": 1, "ms": 1e3, "s": 1e6, "m": 6e7}[found[2]]


def h2load(url, work, options, folder):
    """Asks on a quarter of the connections, four requests at a time on each."""
    log = folder / "h2load.log"
    log.unlink(missing_ok=True)
    connections = max(1, options.connections // 4)
    command = [*pinned(options), lab.need("h2load", "nghttp2-client"), "-t1", f"-c{connections}", "-m4"]
    command += ["-D", str(options.seconds), f"--log-file={log}", url]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    total = re.search(r"requests: .* (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", said)
    seconds = re.search(r"finished in ([\d.]+)(ms|s)", said)
    if "Application protocol: h2\n" not in said or total is None or seconds is None or int(total[2]) == 0:
        raise Refused(f"h2load: {said}")
    done, succeeded = int(total[1]), int(total[2])
    if done - succeeded > done / 1_000:
        raise Refused(f"{done - succeeded} of {done} requests failed")
    read = int(re.search(r"\((\d+)\) data", said)[1])
    if read < 0.999 * succeeded * work.bytes:
        raise Refused(f"{succeeded} answers with {read} bytes are too short")
    times = sorted(int(line.rsplit("\t", 1)[1]) for line in log.read_text().splitlines())
    percentile = (times[math.ceil(len(times) * part) - 1] for part in (0.5, 0.99))
    return Figure(None, succeeded, float(seconds[1]) / (1_000 if seconds[2] == "ms" else 1), *percentile, None)


def measure_idle(side):
    """Memory per connection of a proxy that has just begun, some time after each has been answered once."""
    port = side.ports["plain"]
    request = f"GET /hit/1k HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        # What the first requests of all make is not the connections'.
        for _ in range(20):
            with connect(port) as peer:
                idle.ask(peer, request)
        time.sleep(3)
        before = side.pss_kib()
        peers = []
        for _ in range(IDLE_CONNECTIONS):
            peers.append(stack.enter_context(connect(port)))
            idle.ask(peers[-1], request)
        time.sleep(SILENCE_S)
        grown = side.pss_kib() - before
        for peer in peers:
            idle.ask(peer, request)
    return Figure(grown * KIB / IDLE_CONNECTIONS, 2 * IDLE_CONNECTIONS, 0, 0, 0, 0)


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30)
