"""What the benches share: processes under measurement, and the proxies' configurations.

Python's standard library only. It measures nothing by itself.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)


class Process:
    """A running program and its children; ends with the `with` block. It has a port if it listens."""

    def __init__(self, name, command, port=None, core=None, log=None):
        self.name, self.command, self.port, self.core = name, command, port, core
        self.log = log

    def __enter__(self):
        pin = (lambda: os.sched_setaffinity(0, {self.core})) if self.core is not None else None
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(open(self.log, "ab")) if self.log else None
            self.popen = subprocess.Popen(
                self.command, preexec_fn=pin, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            if self.port is not None:
                self.wait_until_listening()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.popen.send_signal(signal.SIGTERM)
        try:
            self.popen.wait(10)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()

    def wait_until_listening(self, limit_s=20):
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if self.popen.poll() is not None:
                said = self.log.read_text() if self.log else ""
                sys.exit(f"{self.name} ended with code {self.popen.returncode}\n{said}")
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.02)
        sys.exit(f"{self.name} does not listen on port {self.port} after {limit_s} s")

    def pids(self):
        """Its own and its children's: nginx serves from a worker."""
        own = self.popen.pid
        children = pathlib.Path(f"/proc/{own}/task/{own}/children").read_text().split()
        return [own, *map(int, children)]

    def cpu_s(self):
        """User and system time of all its threads so far, in seconds."""
        return sum(map(cpu_ticks, self.pids())) / TICKS_PER_S

    def run_s(self):
        """The same to a nanosecond, of the threads that it has now: all of a proxy's stay."""
        threads = pathlib.Path(f"/proc/{self.popen.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9

    def memory_kib(self, field):
        """VmRSS (now) or VmHWM (peak), in KiB."""
        for line in pathlib.Path(f"/proc/{self.popen.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
        raise KeyError(field)

    def pss_kib(self):
        """What it and its children hold of memory, in KiB; of shared pages their share of each."""
        return sum(map(pss_kib, self.pids()))

    def reset_peak(self):
        """Lets VmHWM begin again at what the process holds now (proc(5), clear_refs)."""
        pathlib.Path(f"/proc/{self.popen.pid}/clear_refs").write_text("5")


def cpu_ticks(pid):
    # The second field is the program's name in brackets, which may hold spaces.
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def core_s(core):
    """How long a core has worked since the system began, in seconds."""
    lines = pathlib.Path("/proc/stat").read_text().splitlines()
    fields = next(line.split()[1:] for line in lines if line.startswith(f"cpu{core} "))
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = map(int, fields[:8])
    return (user + nice + system + interrupts + soft_interrupts + stolen) / TICKS_PER_S


def pss_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise KeyError("Pss")


class Visitor:
    """Somebody who asks for a page ten times a second, on a connection of its own each time.

    It is a process of its own, for a bench keeps its own interpreter busy. When the `with` block has ended,
    `asked`, `failures` and `worst_ms` tell how it was served.
    """

    def __init__(self, port, path="/page", patience_s=10):
        self.over = multiprocessing.Event()
        self.near, far = multiprocessing.Pipe()
        self.process = multiprocessing.Process(
            target=visit, args=(port, path, patience_s, self.over, far), daemon=True
        )

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.asked, self.failures, self.worst_ms = self.near.recv()
        self.process.join()

    def told(self):
        """One line on it, with the first failures."""
        line = f"a visitor: {self.asked} requests, {len(self.failures)} failed, worst {self.worst_ms:.0f} ms"
        return "\n    ".join([line, *self.failures[:5]])


def visit(port, path, patience_s, over, told):
    asked, failures, worst_s = 0, [], 0
    while not over.wait(0.1):
        since = time.monotonic()
        asked += 1
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=patience_s) as answer:
                answer.read()
        except OSError as error:
            failures.append(f"after {time.monotonic() - since:.1f} s: {error}")
        worst_s = max(worst_s, time.monotonic() - since)
    told.send((asked, failures, worst_s * 1_000))


@contextlib.contextmanager
def python_origin(make, *arguments):
    """The port of an origin that is a process of its own, for as long as the `with` block.

    `make(*arguments)` is called there, and returns what answers: given the head of a request, the bytes of the
    answer. A body with a Content-Length is read and dropped.
    """
    port, ready = free_port(), multiprocessing.Event()
    process = multiprocessing.Process(
        target=answer_all, args=(port, ready, make, arguments), daemon=True
    )
    process.start()
    ready.wait()
    try:
        yield port
    finally:
        process.terminate()
        process.join()


def answer_all(port, ready, make, arguments):
    answer = make(*arguments)

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                if length := LENGTH.search(head):
                    await reader.readexactly(int(length[1]))
                writer.write(answer(head))
        writer.close()

    async def run():
        async with await asyncio.start_server(serve, "127.0.0.1", port):
            ready.set()
            await asyncio.Event().wait()

    asyncio.run(run())


class Connection:
    """One that a visitor keeps open."""

    async def open(self, port):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def ask(self, line, fields=""):
        """The head of the answer, as text, and its body. `fields` are whole lines."""
        self.writer.write(f"{line} HTTP/1.1\r\nHost: bench.test\r\n{fields}\r\n".encode())
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = field(head, "content-length")
        return head, await self.reader.readexactly(int(length))


def field(head, name):
    """The value of a field in a head, by its name in lower case."""
    lines = (line.partition(":") for line in head.split("\r\n")[1:])
    return next(value.strip() for before, _, value in lines if before.lower() == name)


def many_files():
    """Lets this process and its children open as many files as the system allows; how many."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    return files


# What openssl makes a key by.
P_256 = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
RSA_2048 = ("rsa:2048",)


def certificate(folder, name="bench.test", kind=P_256):
    """A certificate with its key in one file, and the file of the authority that it is from."""
    openssl = need("openssl", "openssl")
    key = ["-newkey", *kind, "-nodes"]

    def run(*arguments):
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    run("req", "-x509", *key, "-subj", "/CN=bench authority", "-days", "90", "-keyout", "ca.key",
        "-out", "ca.pem")
    run("req", *key, "-subj", f"/CN={name}", "-keyout", "site.key", "-out", "site.csr")
    (folder / "site.ext").write_text(
        f"subjectAltName=DNS:{name}\nbasicConstraints=CA:FALSE\nkeyUsage=digitalSignature\n"
        "extendedKeyUsage=serverAuth\n"
    )
    run("x509", "-req", "-in", "site.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "89", "-sha256", "-extfile", "site.ext", "-out", "site.crt")
    site = folder / "site.pem"
    site.write_text((folder / "site.crt").read_text() + (folder / "site.key").read_text())
    return site, folder / "ca.pem"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def arguments(description):
    """A parser of arguments, with the one that `anteroom_binary` takes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--anteroom", metavar="BINARY", help="measure this one, and build none")
    return parser


def anteroom_binary(given):
    """The binary to measure: the one given, or a release build made now."""
    if given:
        return pathlib.Path(given).resolve()
    subprocess.run(["cargo", "build", "--release"], cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "anteroom"


def anteroom(binary, folder, origin_port, core=None, store=None, more="", listen="", access="json"):
    """Anteroom with one thread, its access log in a file; the embedded store if none is named.

    `more` is further configuration: tables that are not set here; `listen` are further keys of its listener;
    `access` is the form of the access log, or "off".
    """
    port, admin_port = free_port(), free_port()
    config = folder / "proxy.toml"
    config.write_text(
        f"""threads = 1
[[listen]]
address = "127.0.0.1:{port}"
{listen}
[origin]
url = "http://127.0.0.1:{origin_port}"
[store]
url = "{store or f"embedded:{folder}/anteroom-data"}"
[admin]
address = "127.0.0.1:{admin_port}"
socket = "{folder}/admin.sock"
[log]
access = "{access}"
user = true
to = "{folder}/anteroom.log"
{more}
"""
    )
    command = [binary, "run", "--config", config]
    process = Process("anteroom", command, port, core, folder / "anteroom-said.log")
    process.admin_port = admin_port
    process.admin_socket = folder / "admin.sock"
    process.access_log = folder / "anteroom.log"
    return process


def metrics(proxy):
    """What /metrics shows: each line's name and labels, and its value."""
    address = f"http://127.0.0.1:{proxy.admin_port}/metrics"
    with urllib.request.urlopen(address, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def order(proxy, method, target, body=b""):
    """What the running proxy answers over its socket."""
    head = f"{method} {target} HTTP/1.0\r\nHost: anteroom\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(proxy.admin_socket))
        peer.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: peer.recv(1 << 16), b""))
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def top(proxy, number):
    """The most viewed items and their views."""
    items = order(proxy, "GET", f"/top?most={number}")["items"]
    return {one["item"]: one["views"] for one in items}


def redis_server(folder, core=None):
    """A Redis of the bench's own that writes nothing to disk."""
    port = free_port()
    command = [need("redis-server", "redis-server"), "--bind", "127.0.0.1", "--port", str(port)]
    command += ["--dir", folder, "--save", "", "--appendonly", "no", "--loglevel", "warning"]
    return Process("redis-server", command, port, core, folder / "redis.log")


def chapter_functions():
    """The chapter's functions as an app in Python speaks them, and redis-py."""
    sys.path.insert(0, str(ROOT / "tests" / "interop"))
    try:
        import redis
    except ModuleNotFoundError:
        sys.exit(
            "the Python module redis is missing: run tests/run once, and this with the Python of "
            "the interop-venv that it makes in the target folder"
        )
    import chapter

    return chapter, redis


def seed(url, sessions, items=5, cart=1):
    """Fills a store with sessions tok-00000000 and on, each with views and a cart."""
    arguments = ["--url", url, "--sessions", str(sessions)]
    arguments += ["--items", str(items), "--cart", str(cart)]
    command = ["cargo", "bench", "--quiet", "--bench", "seed", "--", *arguments]
    subprocess.run(command, cwd=ROOT, check=True)


def nginx(
    folder, origin_port, core=None, log_buffer=None, connections=4096, more="", access_log=True, keepalive=256
):
    """nginx with one worker and `proxy_cache`, its access log in a file, or off.

    `more` are further lines of the server, for instance locations; `keepalive` is how many idle connections to
    the origin it keeps.
    """
    port = free_port()
    buffer = f" buffer={log_buffer}" if log_buffer else ""
    log = f"{folder}/nginx.log bench{buffer}" if access_log else "off"
    user = "user www-data;" if os.getuid() == 0 else ""
    folder.chmod(0o711)  # The worker is another user, and its cache is in here.
    config = folder / "nginx.conf"
    config.write_text(
        f"""{user}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
worker_processes 1;
worker_rlimit_nofile {connections + 1_000};
events {{ worker_connections {connections}; }}
http {{
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000;
    log_format bench '$remote_addr - $remote_user [$time_local] "$request" $status '
                     '$body_bytes_sent "$http_referer" "$http_user_agent" $upstream_cache_status';
    access_log {log};
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    proxy_cache_path {folder}/nginx-cache keys_zone=pages:16m;
    upstream origin {{ server 127.0.0.1:{origin_port}; keepalive {keepalive}; keepalive_requests 1000000; }}
    server {{
        listen 127.0.0.1:{port} reuseport backlog=4096;
        {more}
        location / {{
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_cache pages;
            proxy_cache_valid 300s;
            proxy_cache_lock on;
            add_header X-Cache-Status $upstream_cache_status;
        }}
    }}
}}
"""
    )
    return Process("nginx", [need("nginx", "nginx-light"), "-c", config], port, core)


def haproxy(
    folder, origin_port, core=None, connections=4096, cache=(64, 300, 1 << 18), binds="", log=None, unless=""
):
    """HAProxy with one thread and its small-object cache.

    `cache` are its size in MiB, how many seconds a page stays, and the bytes of the largest; `binds` are further
    lines of the frontend; `log` is the file of its access log, which is else off; `unless` is a condition for
    requests that are not looked for in the cache.
    """
    port = free_port()
    config = folder / "haproxy.cfg"
    logs = "log stdout format raw local0\n    option httplog" if log else ""
    config.write_text(
        f"""global
    nbthread 1
    maxconn {connections}
cache pages
    total-max-size {cache[0]}
    max-age {cache[1]}
    max-object-size {cache[2]}
defaults
    mode http
    {logs}
    timeout connect 5s
    timeout client 300s
    timeout server 60s
    timeout http-keep-alive 300s
frontend visitors
    bind 127.0.0.1:{port}
    {binds}
    default_backend origin
backend origin
    http-request cache-use pages {f"unless {unless}" if unless else ""}
    http-response cache-store pages
    server one 127.0.0.1:{origin_port}
"""
    )
    return Process("haproxy", [need("haproxy", "haproxy"), "-db", "-f", config], port, core, log)


def nginx_origin(folder, body_bytes=1024, core=None, more=""):
    """An origin that is no bottleneck: one page at every path, fresh for an hour.

    `more` are further locations.
    """
    port = free_port()
    (folder / "origin").mkdir()
    user = "user www-data;" if os.getuid() == 0 else ""
    folder.chmod(0o711)
    page = "<!doctype html><title>One page</title>".ljust(body_bytes, "x")
    config = folder / "origin" / "nginx.conf"
    config.write_text(
        f"""{user}
daemon off;
pid {folder}/origin/nginx.pid;
error_log {folder}/origin/error.log;
worker_processes 1;
worker_rlimit_nofile {many_files()};
events {{ worker_connections {many_files() - 100}; }}
http {{
    access_log off;
    keepalive_requests 1000000;
    client_body_temp_path {folder}/origin/body;
    proxy_temp_path {folder}/origin/proxy;
    fastcgi_temp_path {folder}/origin/fastcgi;
    uwsgi_temp_path {folder}/origin/uwsgi;
    scgi_temp_path {folder}/origin/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        {more}
        location / {{
            default_type text/html;
            add_header Cache-Control "max-age=3600";
            return 200 "{page}";
        }}
    }}
}}
"""
    )
    return Process("origin", [need("nginx", "nginx-light"), "-c", config], port, core)


def large_page(folder, body_bytes=1 << 20):
    """The location of a large page at /large.html, for an origin's `more`."""
    pages = folder / "pages"
    pages.mkdir()
    page = "<!doctype html><title>A large page</title>"
    (pages / "large.html").write_text(page.ljust(body_bytes, "x"))
    return f"""location = /large.html {{
            types {{ text/html html; }}
            root {pages};
            add_header Cache-Control "max-age=3600";
        }}"""


def found(program):
    """The path of a program, or None."""
    # Debian keeps servers in /usr/sbin, which is not on every user's path.
    return shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")


def need(program, package):
    """The path of a program that the bench runs."""
    path = found(program)
    if path is None:
        sys.exit(f"{program} is missing: on Debian, apt-get install {package}")
    return path


def scratch_folder(parent=None):
    """A temporary folder; in memory where the machine has such a place."""
    shm = pathlib.Path("/dev/shm")
    where = parent or (shm if shm.is_dir() else None)
    return tempfile.TemporaryDirectory(prefix="anteroom-bench-", dir=where)


def parts_of_results(page):
    """A page of results: what benches/peers/run has written, and the section of benches/start.py behind it."""
    text = page.read_text() if page.exists() else ""
    of_peers, heading, of_start = text.partition("\n## Start\n")
    return of_peers, heading + of_start


def machine():
    """One line on what this ran on."""
    cpu = "unknown CPU"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return f"{cpu}, {os.cpu_count()} cores, Linux {os.uname().release}"
