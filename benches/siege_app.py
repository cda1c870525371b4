"""The apps of `siege.py`: a server in Python, the same pages behind gunicorn, and in PHP behind FPM and nginx.

Each works on a few requests at a time, first come, first served, and sleeps for the time of a page. Python's standard
library only; gunicorn imports this file.
"""

import asyncio
import contextlib
import multiprocessing
import os
import pathlib
import sys
import time

import lab
from shoppers import value_of

FPM = """[global]
daemonize = no
error_log = {folder}/fpm.log
[app]
{user}
listen = 127.0.0.1:{port}
pm = static
pm.max_children = {options.workers}
env[SIEGE_SERVICE_S] = {options.service}
env[SIEGE_FRESH_S] = {options.fresh}
env[SIEGE_LOG] = {log}
"""
FASTCGI = """location ~ . {{
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME {script};
            fastcgi_pass 127.0.0.1:{port};
        }}"""


def seconds_of(target, service):
    """How long the app works on a page."""
    return {"/slow": 3, "/fast": 0.02}.get(target[:5], service)


def page_of(target, user, form, fresh_s):
    """The status, the fields and the text of a page; siege_app.php has the same."""
    status, fields, shown = "200 OK", [("Cache-Control", "no-store")], target
    if "/private" in target:
        shown = user or "no user"
    elif form:
        status = "303 See Other"
        fields += [("Location", "/private"), ("Anteroom-Login", form.partition("user=")[2])]
    elif target.startswith("/login"):
        shown = "<form method=post><input name=user></form>"
    else:
        fields = [("Cache-Control", f"max-age={fresh_s if target.startswith('/read/') else 60}")]
    page = f"<!doctype html><title>Page</title><p>{shown}</p>"
    return status, [*fields, ("Content-Type", "text/html"), ("Content-Length", str(len(page)))], page


class App:
    """A running app. `usage` returns the busy seconds of all workers and the number of requests begun, so far."""

    def __init__(self, port, usage):
        self.port, self.usage = port, usage


def serve_app(port, ready, busy_s, requests, options):
    """The app, in a process of its own; counts busy seconds of all workers, and the requests that it began."""
    free = asyncio.Semaphore(options.workers)
    at_work, since = 0, time.monotonic()

    def count(change):
        nonlocal at_work, since
        now = time.monotonic()
        busy_s.value += at_work * (now - since)
        at_work, since = at_work + change, now

    async def converse(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                form = await reader.readexactly(int(value_of(head, "content-length") or 0))
                target, came = head.split(" ", 2)[1], time.monotonic()
                async with free:
                    requests.value += 1
                    count(1)
                    await asyncio.sleep(seconds_of(target, options.service))
                    count(-1)
                user = value_of(head, "x-anteroom-user")
                status, fields, page = page_of(target, user, form.decode(), options.fresh)
                fields.append(("App-Took", f"{time.monotonic() - came:.6f}"))
                lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
                writer.write(f"HTTP/1.1 {status}\r\n{lines}\r\n{page}".encode())

    async def serve():
        async with await asyncio.start_server(converse, "127.0.0.1", port, backlog=4096):
            ready.set()
            await asyncio.Event().wait()

    asyncio.run(serve())


@contextlib.contextmanager
def python_app(_, options):
    """A server in Python, in a process of its own."""
    port, ready = lab.free_port(), multiprocessing.Event()
    busy_s, requests = multiprocessing.Value("d", 0), multiprocessing.Value("q", 0)
    arguments = (port, ready, busy_s, requests, options)
    process = multiprocessing.Process(target=serve_app, args=arguments, daemon=True)
    process.start()
    ready.wait()
    try:
        yield App(port, lambda: (busy_s.value, requests.value))
    finally:
        process.terminate()
        process.join()


def wsgi(environ, start_response):
    """The app, as gunicorn calls it."""
    length, query = int(environ.get("CONTENT_LENGTH") or 0), environ["QUERY_STRING"]
    form = environ["wsgi.input"].read(length).decode()
    target = environ["PATH_INFO"] + (f"?{query}" if query else "")
    seconds = seconds_of(target, float(os.environ["SIEGE_SERVICE_S"]))
    with open(os.environ["SIEGE_LOG"], "a") as log:
        log.write(f"{time.monotonic()} {seconds}\n")
    time.sleep(seconds)
    user = environ.get("HTTP_X_ANTEROOM_USER")
    status, fields, page = page_of(target, user, form, os.environ["SIEGE_FRESH_S"])
    start_response(status, fields)
    return [page.encode()]


@contextlib.contextmanager
def gunicorn_app(folder, options):
    """gunicorn with workers of the kind sync, in the venv of tests/apps."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", lab.ROOT / "target"))
    python = target / "apps" / "django" / "venv" / "bin" / "python"
    if not python.exists():
        sys.exit(f"gunicorn is missing, there is no {python}: run tests/apps/run django --install")
    port, log = lab.free_port(), request_log(folder)
    values = {"SERVICE_S": options.service, "FRESH_S": options.fresh, "LOG": log}
    command = [python, "-B", "-m", "gunicorn", "--workers", str(options.workers), "--no-control-socket"]
    command += ["--bind", f"127.0.0.1:{port}", "--chdir", pathlib.Path(__file__).parent]
    command += ["--graceful-timeout", "1", "--log-level", "warning"]
    command += [word for name, value in values.items() for word in ("--env", f"SIEGE_{name}={value}")]
    with lab.Process("gunicorn", [*command, "siege_app:wsgi"], port, log=folder / "gunicorn.log"):
        yield App(port, lambda: usage_in(log))


@contextlib.contextmanager
def php_app(folder, options):
    """PHP-FPM with a fixed number of children, behind nginx."""
    # Debian names it by its version.
    programs = sorted(pathlib.Path("/usr/sbin").glob("php-fpm*"))
    if not programs:
        sys.exit("php-fpm is missing: on Debian, apt-get install php-fpm")
    port, log, config = lab.free_port(), request_log(folder), folder / "fpm.conf"
    # In a container there is no other user, as a rule.
    is_root = os.getuid() == 0
    user = "user = root\ngroup = root" if is_root else ""
    config.write_text(FPM.format(folder=folder, user=user, port=port, options=options, log=log))
    command = [programs[-1], "--nodaemonize", "--fpm-config", config]
    command += ["--allow-to-run-as-root"] if is_root else []
    location = FASTCGI.format(script=pathlib.Path(__file__).with_suffix(".php"), port=port)
    with lab.Process("php-fpm", command, port, log=folder / "fpm-said.log"):
        with lab.nginx_origin(folder, more=location) as nginx:
            yield App(nginx.port, lambda: usage_in(log))


def request_log(folder):
    """A file with a line for each request that the app began: when, by the monotonic clock, and how long it works."""
    log = folder / "requests.log"
    log.touch()
    return log


def usage_in(log):
    now, lines = time.monotonic(), log.read_text().splitlines()
    requests = [tuple(map(float, line.split())) for line in lines]
    return sum(min(seconds, max(0, now - began)) for began, seconds in requests), len(requests)


# Each takes a folder for its files.
APPS = {"python": python_app, "gunicorn": gunicorn_app, "php-fpm": php_app}
