#!/usr/bin/env python3
"""Upgrades of a running proxy, again and again: what clients lose.

    target/interop-venv/bin/python benches/upgrade.py        builds the release binary; both stores, every case
    target/interop-venv/bin/python benches/upgrade.py minted --store redis --upgrades 3 --every 5 --long 3
    target/interop-venv/bin/python benches/upgrade.py failing --store embedded --anteroom target/debug/anteroom
    target/interop-venv/bin/python benches/upgrade.py --restart --requests 100000
    target/interop-venv/bin/python benches/upgrade.py --restart --store redis --drain-delay 0s

`anteroom upgrade` puts a new process in the place of the running one, which serves one thread, then four, then two.
All the while clients ask over kept connections, busy ones and others, over a connection for each request, and over
HTTP/2; uploads, downloads, logouts and WebSockets last for ten seconds each, and four of each are always under way;
visitors log in and out and fill carts; pages are purged and read; /readyz is asked a hundred times a second.

minted     the proxy creates the sessions
verified   the app creates them, and is asked about each; `asked again` counts its questions on visitors on which it
           was asked before and that have only read since: those within a second of an upgrade, and all
failing    six upgrades that cannot succeed: a mistake in proxy.toml, a log that may not be written, a program that
           crashes, one that is killed while it holds the store, one that knows no take-over, and a full disk; the old
           process must serve on, and an upgrade must succeed after each
queue      the queues of connections have eight places and overflow, since the proxy is stopped for 0.2 s again and
           again; beside it the same without an upgrade, because a queue that overflows loses by itself

It prints one table: for each kind of client how many requests failed, of how many, and the longest wait for an answer
(less the time that the app takes); then what was acknowledged and was lost. It fails if anything failed or was lost,
but for the case queue, which may lose as much as the run beside it. The clients are Python on the same cores, so that
many a wait is theirs: `--upgrades 0` shows the same without an upgrade. A store that is late is waited for.

With --restart the listening socket is held by a parent that speaks with the proxy as systemd does, and keeps what it
is given to keep (FDSTORE). The proxy is ended by TERM and started again, several times, until there were enough
requests on kept connections.

Needs the Python module h2, which the interop-venv has. `--store redis` needs redis-server, the case queue a network
namespace of its own (root, or a system that lets users make one), and the full disk in failing the right to mount a
tmpfs; what the system does not allow is left out, and said.
"""

import importlib
import sys
import time

import lab
import upgrade_app
import upgrade_faults
import upgrade_queue
import upgrade_restart
from upgrade_clients import READER, Crowd
from upgrade_proxy import MINTED, THREADS, VERIFIED, adopt_orphans, site

# A wait that is told with the time at which it was over.
LONG_WAIT_S = 0.5


class Result:
    """What a case has shown: the cells of its column by their rows, what is wrong, and what is told besides."""

    def __init__(self, step="upgrade"):
        self.cells, self.faults, self.notes = {}, [], []
        # When each upgrade or restart was over.
        self.step, self.steps = step, []

    def add_book(self, book, losses=("sessions", "carts", "logouts", "purges")):
        for kind, tally in book.tallies.items():
            worst_s, at = tally.worst
            self.cells[kind] = f"{len(tally.failures)}/{tally.requests:,} {worst_s * 1e3:.0f} ms"
            if worst_s > LONG_WAIT_S:
                self.notes.append(f"{kind}: the longest wait was over{self.when(at)}")
            self.add_faults(kind, tally.failures)
        for what in losses:
            self.cells[f"{what} lost"] = str(len(book.lost[what]))
            self.add_faults(f"{what} lost", book.lost[what])

    def add_faults(self, what, texts):
        """The first of each are shown."""
        texts = sorted(texts)
        self.faults += [f"{what}: {text};{self.when(at)}" for at, text in texts[:3]]
        if len(texts) > 3:
            self.faults.append(f"{what}: and {len(texts) - 3} more")

    def when(self, at):
        before = [moment for moment in self.steps if moment <= at + 1]
        if not before:
            return f" before the first {self.step}"
        return f" {at - before[-1]:+.2f} s from {self.step} {len(before)}"

    def add_upgrades(self, upgrades):
        good = [one for one in upgrades if one.code == 0]
        took = f" {max(one.took for one in good) * 1e3:.0f} ms" if good else ""
        self.cells["upgrades"] = f"{len(good)} of {len(upgrades)}{took}"
        self.add_faults("an upgrade failed", [(one.at, one.said.strip()) for one in upgrades if one.code])


def pause_until(moment):
    time.sleep(max(0, moment - time.monotonic()))


def upgrades_under_load(binary, store, sessions, options):
    """The cases minted and verified."""
    result, upgrades = Result(), []
    with site(binary, store, sessions, options) as (proxy, where):
        with Crowd(where) as crowd:
            began = time.monotonic()
            # So that the first one, too, finds long requests at every stage.
            pause_until(began + options.long)
            for number in range(options.upgrades):
                proxy.set_threads(THREADS[number % len(THREADS)])
                upgrades.append(proxy.upgrade())
                result.steps.append(upgrades[-1].at)
                pause_until(began + options.long + (number + 1) * options.every)
            pause_until(time.monotonic() + options.long)
        asked = upgrade_app.asked(where.app_port)
    result.add_upgrades(upgrades)
    result.add_book(crowd.book)
    result.add_faults("a process", proxy.failures)
    if sessions == VERIFIED:
        again = asked_again(asked)
        # The command says that the new process serves a moment after that is so.
        soon = sum(-0.2 <= at - one.at <= 1 for at in again for one in upgrades)
        result.cells["asked again"] = f"{soon} of {len(again)}"
    return result


def asked_again(asked):
    """When the app was asked about visitors that only read, but for the first time about each."""
    known, again = set(), []
    for at, user in asked:
        if user and user.startswith(READER):
            if user in known:
                again.append(at)
            known.add(user)
    return again


def minted(binary, store, options):
    return upgrades_under_load(binary, store, MINTED, options)


def verified(binary, store, options):
    return upgrades_under_load(binary, store, VERIFIED, options)


def failing(binary, store, options):
    result = Result()
    with site(binary, store, MINTED, options) as (proxy, where):
        with Crowd(where) as crowd:
            pause_until(time.monotonic() + options.long)
            upgrade_faults.play(proxy, where, result, options)
            pause_until(time.monotonic() + options.long)
    result.add_book(crowd.book)
    result.add_faults("a process", proxy.failures)
    return result


def queue(binary, store, options):
    return upgrade_queue.play(binary, store, options, Result())


CASES = {"minted": minted, "verified": verified, "failing": failing, "queue": queue}
# Rows in this order; others come in the order of their first cell.
FIRST = ("upgrades", "failing upgrades")


def print_table(columns):
    """A row for each kind of client and of loss, a column for each case."""
    rows = dict.fromkeys(FIRST)
    for result in columns.values():
        rows.update(dict.fromkeys(result.cells))
    rows = [row for row in rows if any(row in result.cells for result in columns.values())]
    first = max(map(len, rows))
    widths = [
        max(len(name), *(len(result.cells.get(row, "-")) for row in rows)) for name, result in columns.items()
    ]
    print("".ljust(first), *(f"{name:>{width}}" for name, width in zip(columns, widths)), sep="  ")
    for row in rows:
        cells = (result.cells.get(row, "-") for result in columns.values())
        print(row.ljust(first), *(f"{cell:>{width}}" for cell, width in zip(cells, widths)), sep="  ")
    for name, result in columns.items():
        for text in [*result.notes, *result.faults]:
            print(f"{name}: {text}")


def parse():
    parser = lab.arguments(__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--store", choices=["redis", "embedded"], help="default: both, one after the other")
    parser.add_argument("--upgrades", type=int, default=20, help="of each case but failing; default: 20")
    parser.add_argument("--every", type=float, default=12, help="seconds from upgrade to upgrade; default: 12")
    parser.add_argument("--long", type=float, default=10, help="seconds that a long request takes; default: 10")
    parser.add_argument("--restart", action="store_true", help="restarts with a socket that stays open")
    parser.add_argument("--requests", type=int, default=100_000, help="with --restart, on kept connections")
    parser.add_argument("--restarts", type=int, default=5, help="with --restart, at least")
    parser.add_argument("--drain-delay", default="5s", help="with --restart: [limits] drain_delay; default: 5s")
    parser.add_argument("--logs", metavar="FOLDER", help="where to keep what the proxies say")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(unknown)}")
    return options


def main():
    options = parse()
    try:
        importlib.import_module("upgrade_http2")
    except ModuleNotFoundError:
        sys.exit(
            "the Python module h2 is missing: run tests/run once, and this with the Python of the interop-venv "
            "that it makes in the target folder"
        )
    binary = lab.anteroom_binary(options.anteroom)
    lab.many_files()
    adopt_orphans()
    print(lab.machine(), flush=True)
    columns = {}
    for store in [options.store] if options.store else ["redis", "embedded"]:
        if options.restart:
            columns[f"{store}, restarts"] = upgrade_restart.play(binary, store, options, Result("restart"))
            continue
        for case in options.cases or CASES:
            columns[f"{store}, {case}"] = CASES[case](binary, store, options)
    print_table(columns)
    sys.exit(1 if any(result.faults for result in columns.values()) else 0)


if __name__ == "__main__":
    main()
