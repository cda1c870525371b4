"""The proxies of `upgrade.py`: their configuration, and the processes that follow each other.

Python's standard library only.
"""

import collections
import contextlib
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request

import lab
import upgrade_app
from upgrade_clients import Site

THREADS = (4, 2, 1)
# How long a process may take to become ready, and to end.
END_S = 60
PR_SET_CHILD_SUBREAPER = 36

ROUTES = """
[[route]]
match.path = ["/item/{item}"]
share = "everyone"
[[route]]
match.path = ["/page/**"]
share = "everyone"
[[route]]
match.path = ["/my/**"]
share = "user"
[[route]]
match.path = ["/**"]
share = "none"
[views]
rescale_every = "1h"
"""
MINTED = '[session]\nmint = true\ncookie = "login"\n'
VERIFIED = """[session]
cookie = "login"
[session.verify]
path = "/whoami"
user = { json = "/user" }
nobody = { json = "/user", equals = "null" }
verify_every = "1h"
"""

# An upgrade: when it was over, how long the command took, its exit code, what it said, and the new process.
Upgrade = collections.namedtuple("Upgrade", "at took code said process")


class Proxy:
    """A proxy whose processes follow each other."""

    def __init__(self, binary, first, folder, url):
        self.binary, self.first, self.folder, self.url = binary, first, folder, url
        self.config = pathlib.Path(first.command[-1])
        self.process, self.old, self.failures = first.popen.pid, [], []

    def set_threads(self, threads):
        text = re.sub(r"\Athreads = \d+", f"threads = {threads}", self.config.read_text())
        self.config.write_text(text)

    def upgrade(self, *more, meanwhile=None):
        """Runs the command; `meanwhile` is called until it ends, with the id of the new process."""
        began = time.monotonic()
        command = [self.binary, "upgrade", "--socket", self.first.admin_socket, *more]
        popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said, process = "", None
        for line in popen.stdout:
            said += line
            if found := re.match(r"process (\d+) starts", line):
                process = int(found[1])
                if meanwhile:
                    meanwhile(process, popen)
        code = popen.wait()
        at = time.monotonic()
        if code == 0 and process:
            self.old.append(self.process)
            self.process = process
        return Upgrade(at, at - began, code, said, process)

    def end(self):
        """Ends the last process, and waits for all. Whatever ends otherwise than by itself is a failure."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGTERM)
        for process in [*self.old, self.process]:
            how = self.wait_for(process)
            if how != 0:
                self.failures.append((time.monotonic(), f"process {process} ended with {how}"))

    def wait_for(self, process):
        """The exit code, which is negative for a signal. A process that does not end is killed."""
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            if process == self.first.popen.pid:
                code = self.first.popen.poll()
            else:
                code = exit_code(process)
            if code is not None:
                return code
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        return f"SIGKILL after {END_S} s"


def adopt_orphans():
    """A process that outlives its parent becomes a child of this one, so that its end is seen."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("this process cannot become the parent of its grandchildren (prctl)")


def exit_code(process):
    """Of a process that is a child of this one, or will be; None while it runs."""
    try:
        ended, status = os.waitpid(process, os.WNOHANG)
    except ChildProcessError:
        return None if pathlib.Path(f"/proc/{process}").exists() else 0
    return os.waitstatus_to_exitcode(status) if ended else None


@contextlib.contextmanager
def site(binary, store, sessions, options):
    """An app, a store and a proxy, and where clients find them."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        app_port = stack.enter_context(upgrade_app.app(sessions == MINTED))
        url = None
        if store == "redis":
            url = f"redis://127.0.0.1:{stack.enter_context(lab.redis_server(folder)).port}/0"
        process = lab.anteroom(binary, folder, app_port, store=url, more=sessions + ROUTES)
        patient(process)
        proxy = Proxy(binary, stack.enter_context(process), folder, url)
        wait_until_ready(process)
        try:
            where = (process.port, process.admin_port, process.admin_socket, app_port)
            yield proxy, Site(*where, sessions == MINTED, options.long)
        finally:
            proxy.end()
            if options.logs:
                keep_logs(folder, options.logs)


def patient(process):
    """A store that is late because the cores are busy with clients is no loss."""
    config = pathlib.Path(process.command[-1])
    config.write_text(config.read_text().replace("[admin]", 'timeout = "2s"\n[admin]', 1))


def wait_until_ready(process):
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://127.0.0.1:{process.admin_port}/readyz", timeout=5):
                break
        time.sleep(0.02)
    else:
        sys.exit("the proxy does not become ready")
    # The first purge in an empty store takes a second.
    lab.order(process, "POST", "/purge", b'{"urls": ["http://bench.test/"]}')


def keep_logs(folder, where):
    """What the proxies have said."""
    where = pathlib.Path(where)
    where.mkdir(parents=True, exist_ok=True)
    target = where / f"{time.time():.0f}-said.log"
    target.write_bytes((folder / "anteroom-said.log").read_bytes())
