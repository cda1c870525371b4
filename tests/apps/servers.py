"""Processes: what is started for a run, each with a folder for what it writes, and ended with it."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

# Also where a build keeps the machine busy.
START_S = 120
STOP_S = 10
# As Debian's nginx has it, but for the folder: one log line for each request that comes.
NGINX = """{user}daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
worker_processes 1;
events {{}}
http {{
    include /etc/nginx/mime.types;
    log_format one '$status $request_method $request_uri';
    access_log {folder}/access.log one;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
{server}
    }}
}}
"""
# As many processes as the crowd needs, under one user: in a container there is no other one, as a rule.
FPM = """[global]
daemonize = no
error_log = {folder}/fpm.log
[app]
user = root
group = root
listen = {folder}/fpm.sock
pm = static
pm.max_children = 4
{settings}
"""


class Broken(Exception):
    """The run cannot be made, for this reason."""


class Origin:
    """The app behind nginx. What it was asked stands in nginx's log."""

    def __init__(self, folder, port):
        self.folder = folder
        self.port = port
        self.log = folder / "access.log"

    def asked(self):
        """The requests so far, as "STATUS METHOD URI"."""
        return self.log.read_text(errors="replace").splitlines()


@contextlib.contextmanager
def process(command, folder, name, **options):
    """A process in a session of its own: Ctrl-C is ours. It is ended with those that it began.

    By chance a hit would go to the app: no proxy audits unless `env` says how often, or with `None` that its file does."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANTEROOM_")}
    env |= {"ANTEROOM__CACHE__AUDIT": "off"} | options.pop("env", {})
    env = {key: value for key, value in env.items() if value is not None}
    with open(folder / f"{name}.out", "wb") as out, open(folder / f"{name}.err", "wb") as err:
        child = subprocess.Popen(
            [str(word) for word in command], cwd=folder, env=env, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, **options,
        )  # fmt: skip
    try:
        yield child
    finally:
        stop(child)


def stop(child):
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def wait(what, child, folder, name, is_there):
    deadline = time.monotonic() + START_S
    while not (found := is_there()):
        if child.poll() is not None or time.monotonic() > deadline:
            raise Broken(f"{what} did not come up\n{said(folder, name)}")
        time.sleep(0.05)
    return found


def said(folder, name):
    files = [folder / f"{name}.{stream}" for stream in ["out", "err", "log"]]
    return "".join(file.read_text(errors="replace") for file in files if file.is_file())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_open(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def nginx(folder, server):
    """nginx with this in its `server`; `{folder}` stands for the folder."""
    port = free_port()
    # In a container there is no other user, as a rule.
    user = "user root;\n" if os.geteuid() == 0 else ""
    text = NGINX.format(folder=folder, port=port, user=user, server=server.format(folder=folder))
    file = folder / "nginx.conf"
    file.write_text(text)
    with process([binary("nginx"), "-c", file, "-p", folder], folder, "nginx") as child:
        wait("nginx", child, folder, "nginx", lambda: is_open(port))
        yield Origin(folder, port)


@contextlib.contextmanager
def php_fpm(folder, settings):
    """PHP with these settings, as nginx finds it at fpm.sock. Debian names it by its version."""
    file = folder / "fpm.conf"
    file.write_text(FPM.format(folder=folder, settings=settings.format(folder=folder)))
    name = max(path.name for path in pathlib.Path("/usr/sbin").glob("php-fpm*"))
    command = [f"/usr/sbin/{name}", "--fpm-config", file, "--nodaemonize"]
    if os.geteuid() == 0:
        command.append("--allow-to-run-as-root")
    with process(command, folder, "fpm") as child:
        wait("php-fpm", child, folder, "fpm", (folder / "fpm.sock").is_socket)
        yield


@contextlib.contextmanager
def anteroom(program, config, origin, folder, settings=None):
    """The proxy with the app's own configuration, and more `settings` in its environment; yields its port."""
    command = [program, "run", "--config", config, "--listen", "127.0.0.1:0"]
    command += ["--admin", "127.0.0.1:0", "--origin", f"http://127.0.0.1:{origin.port}"]
    command += ["--store", f"embedded:{folder / 'data'}"]
    log = {"ANTEROOM__LOG__TO": str(folder / "requests.log")}
    with process(command, folder, "anteroom", env={**log, **(settings or {})}) as child:
        where = r"visitors are served at http://127\.0\.0\.1:(\d+)"
        found = wait(
            "anteroom", child, folder, "anteroom",
            lambda: re.search(where, said(folder, "anteroom")),
        )  # fmt: skip
        yield int(found[1])
        if child.poll() is not None:
            raise Broken(f"anteroom ended by itself\n{said(folder, 'anteroom')}")


def metrics(folder):
    """The names with their labels, and the values, of the proxy that writes to this folder."""
    port = re.search(r"health and metrics are at http://127\.0\.0\.1:(\d+)", said(folder, "anteroom"))[1]
    # Whatever proxy the environment names is not asked.
    local = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with local.open(f"http://127.0.0.1:{port}/metrics", timeout=START_S) as answer:
        lines = answer.read().decode().splitlines()
    return [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]


def binary(name):
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return found or broken(f"{name} is missing")


def broken(why):
    raise Broken(why)


def call(command, why, **options):
    """Runs a command to its end; raises with what it said when it fails."""
    options = {"stdin": subprocess.DEVNULL, **options}
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", **options,
    )  # fmt: skip
    if done.returncode != 0:
        raise Broken(f"{why}\n{done.stdout[-2000:]}")
    return done.stdout


def output(command, complaints, **options):
    """What a command prints; what it complains of goes to the file."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=complaints, text=True, **options)
    if done.returncode != 0:
        raise Broken(f"{' '.join(command)} failed: {pathlib.Path(complaints.name).read_text()}")
    return done.stdout


def apt(packages):
    """Debian packages that are needed: installed where they are not."""
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *packages]
    there = subprocess.run(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    installed = {line.split()[0] for line in there.stdout.splitlines() if " ii" in line}
    missing = [package for package in packages if package not in installed]
    if not missing:
        return
    as_root = []
    if os.geteuid() != 0:
        if not shutil.which("sudo"):
            raise Broken(f"not root and no sudo: please install {' '.join(missing)}")
        as_root = ["sudo", "--non-interactive"]
    env = [*as_root, "env", "DEBIAN_FRONTEND=noninteractive"]
    call([*env, "apt-get", "update"], "apt-get update failed")
    command = [*env, "apt-get", "install", "-y", "--no-install-recommends", *missing]
    call(command, f"could not install {' '.join(missing)}")
