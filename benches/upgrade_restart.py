"""Restarts of `upgrade.py`: the parent of the proxy holds its listening socket, as systemd does.

Python's standard library only.
"""

import array
import contextlib
import multiprocessing
import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import lab
import upgrade_app
from upgrade_clients import Crowd, Site, kept, multiplexed, new
from upgrade_proxy import MINTED, ROUTES, patient

NAME = "web"
PATIENCE_S = 90
# The most files that a message to the service manager carries.
FILES_MAX = 64
# The first file that a service manager passes, and how a shell passes those at other numbers.
FIRST = 3
PASS_ON = 'export LISTEN_PID=$$; exec "$@"'
# Numbers that no file of this process has.
BEHIND = 900


class Manager:
    """Starts a proxy, passes it the sockets that it holds, hears its messages, and keeps what it is given to keep."""

    def __init__(self, folder, command):
        self.folder, self.command = folder, command
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port, self.held = listener.getsockname()[1], [(NAME, listener.detach())]
        self.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ear.bind(str(folder / "notify"))
        self.ready, self.codes = queue.Queue(), []
        threading.Thread(target=self.hear, daemon=True).start()

    def hear(self):
        files = array.array("i")
        while True:
            text, more, _, _ = self.ear.recvmsg(1 << 16, socket.CMSG_SPACE(FILES_MAX * files.itemsize))
            passed = array.array("i")
            for _, kind, data in more:
                if kind == socket.SCM_RIGHTS:
                    passed.frombytes(data[: len(data) - len(data) % files.itemsize])
            said = dict(line.partition("=")[::2] for line in text.decode().splitlines())
            name = said.get("FDNAME", "stored")
            if said.get("FDSTOREREMOVE"):
                self.held = [(one, file) for one, file in self.held if one != name]
            if said.get("FDSTORE"):
                self.held += [(name, file) for file in passed]
            if said.get("READY"):
                self.ready.put(time.monotonic())

    def start(self):
        files = [file for _, file in self.held]

        def place():
            """The files get the numbers from the first on, by way of others, so that none is overwritten."""
            for number, copy in enumerate(files):
                os.dup2(copy, BEHIND + number, inheritable=False)
            for number in range(len(files)):
                os.dup2(BEHIND + number, FIRST + number)

        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(self.folder / "notify"),
            "LISTEN_FDS": str(len(files)),
            "LISTEN_FDNAMES": ":".join(name for name, _ in self.held),
        }
        with open(self.folder / "anteroom-said.log", "ab") as log:
            self.popen = subprocess.Popen(
                ["sh", "-c", PASS_ON, "sh", *map(str, self.command)],
                env=environment,
                preexec_fn=place,
                close_fds=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self.ready.get(timeout=PATIENCE_S)
        except queue.Empty:
            sys.exit("the proxy does not say that it is ready:\n" + (self.folder / "anteroom-said.log").read_text())

    def stop(self):
        self.popen.send_signal(signal.SIGTERM)
        self.codes.append(self.popen.wait(PATIENCE_S))


@contextlib.contextmanager
def managed(binary, store, options):
    """A proxy below a manager, and where clients find it."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        app_port = stack.enter_context(upgrade_app.app(True))
        url = None
        if store == "redis":
            url = f"redis://127.0.0.1:{stack.enter_context(lab.redis_server(folder)).port}/0"
        delay = f'[limits]\ndrain_delay = "{options.drain_delay}"\n'
        process = lab.anteroom(binary, folder, app_port, store=url, more=MINTED + delay + ROUTES)
        patient(process)
        config = process.command[-1]
        config.write_text(re.sub(r"(\[\[listen\]\]\naddress = ).*", rf'\1"systemd:{NAME}"', config.read_text()))
        manager = Manager(folder, process.command)
        manager.start()
        count = multiprocessing.Value("q", 0)
        where = (manager.port, process.admin_port, process.admin_socket, app_port)
        try:
            # Clients that ask more often than others do.
            yield manager, Site(*where, True, options.long, 0.005, count)
        finally:
            manager.stop()


def play(binary, store, options, result):
    """Restarts the proxy until there were enough requests and restarts, evenly over the time."""
    with managed(binary, store, options) as (manager, where):
        with Crowd(where, ((kept, new), (multiplexed,))) as crowd:
            restarts = 0
            while restarts < options.restarts or where.count.value < options.requests:
                due = options.requests * (restarts + 0.5) / options.restarts
                while where.count.value < min(due, options.requests):
                    time.sleep(0.05)
                result.steps.append(time.monotonic())
                manager.stop()
                manager.start()
                restarts += 1
            # The last one is over for clients, too.
            time.sleep(1)
    result.cells["restarts"] = str(restarts)
    result.add_book(crowd.book, losses=())
    bad = [f"a process ended with {code}" for code in manager.codes if code != 0]
    result.add_faults("a restart", [(time.monotonic(), text) for text in bad])
    return result
