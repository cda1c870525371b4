"""Upgrades of `upgrade.py` while the queues of connections overflow, beside the same without any upgrade.

It plays in a network namespace, where the longest queue is a matter of its own. Python's standard library only.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import pathlib
import signal
import socket
import struct
import threading
import time

from upgrade_clients import Book, ask_once, wrong
from upgrade_proxy import MINTED, THREADS, adopt_orphans, site

PLACES, CLIENTS = 8, 200
# The proxy is stopped, and continued, again and again; in that time the queues fill.
STOPPED_S, RUNNING_S = 0.2, 0.5
# Linux tells a client again and again that its connection is open, for about a minute.
PATIENCE_S = 70
# How many more requests may be lost than without an upgrade, of each thousand.
MORE_PER_THOUSAND = 2
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def own_network():
    """Puts this process into a network of its own, with short queues. Fails where the system does not allow it."""
    user, flags = os.getuid(), CLONE_NEWNET
    if user:
        flags |= CLONE_NEWUSER
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")
    if user:
        pathlib.Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
    pathlib.Path("/proc/sys/net/core/somaxconn").write_text(str(PLACES))


def overflows():
    """How often a connection found its queue full."""
    names, values = [
        line.split() for line in pathlib.Path("/proc/net/netstat").read_text().splitlines() if line.startswith("TcpExt")
    ]
    return int(dict(zip(names, values))["ListenOverflows"])


class Hiccups:
    """Stops all processes of a proxy again and again, for as long as the `with` block."""

    def __init__(self, proxy):
        self.proxy, self.over = proxy, threading.Event()
        self.thread = threading.Thread(target=self.stop_and_go)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def stop_and_go(self):
        while not self.over.wait(RUNNING_S):
            # The newest process of all may not be known yet, and goes on.
            processes = [self.proxy.process, *self.proxy.old[-1:]]
            for how in (signal.SIGSTOP, signal.SIGCONT):
                for process in processes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, how)
                if how == signal.SIGSTOP:
                    time.sleep(STOPPED_S)


async def crowd(book, port, over):
    """Clients with a connection for each request, without a pause."""

    async def ask(number):
        while not over.is_set():
            began = time.monotonic()
            answer = await ask_once(port, f"/page/{number % 10}", patience_s=PATIENCE_S)
            book.note("requests", began, wrong(answer, "version="))

    tasks = [asyncio.create_task(ask(number)) for number in range(CLIENTS)]
    await asyncio.to_thread(over.wait)
    await asyncio.gather(*tasks)


def run(binary, store, options, upgrades):
    """The clients' tally, how often a queue was full, and the upgrades."""
    book, over, done = Book(), threading.Event(), []
    with site(binary, store, MINTED, options) as (proxy, where):
        clients = threading.Thread(target=lambda: asyncio.run(crowd(book, where.port, over)))
        with Hiccups(proxy):
            clients.start()
            for number in range(options.upgrades):
                time.sleep(options.every)
                if upgrades:
                    proxy.set_threads(THREADS[number % len(THREADS)])
                    done.append(proxy.upgrade())
        over.set()
        clients.join()
    return book.tallies["requests"], overflows(), done, proxy.failures


def run_apart(told, *arguments):
    try:
        own_network()
    except OSError as error:
        return told.send(error)
    adopt_orphans()
    told.send(run(*arguments))


def play(binary, store, options, result):
    tallies = []
    for upgrades in (True, False):
        near, far = multiprocessing.Pipe()
        process = multiprocessing.Process(target=run_apart, args=(far, binary, store, options, upgrades))
        process.start()
        far.close()
        outcome = near.recv()
        process.join()
        if isinstance(outcome, OSError):
            result.notes.append(f"left out: no network namespace ({outcome})")
            return result
        tally, full, done, failures = outcome
        tallies.append(tally)
        lost = f"{len(tally.failures)}/{tally.requests:,} {tally.worst[0] * 1e3:.0f} ms"
        result.cells["over full queues" if upgrades else "the same without an upgrade"] = lost
        result.notes.append(f"{'with' if upgrades else 'without'} upgrades, a queue was full {full:,} times")
        if upgrades:
            result.add_upgrades(done)
        result.add_faults("a process", failures)
    judge(result, *tallies)
    return result


def judge(result, upgraded, alone):
    lost, lost_alone = (len(one.failures) / max(1, one.requests) for one in (upgraded, alone))
    if lost > lost_alone + MORE_PER_THOUSAND / 1_000:
        result.add_faults("over full queues", upgraded.failures)
