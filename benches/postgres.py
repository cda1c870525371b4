#!/usr/bin/env python3
"""The chapter's item view as rows in PostgreSQL, beside the figure for Redis.

    benches/postgres.py                 also measures the proxy's views on Redis (chapter.py)
    benches/postgres.py --views 30000   takes that figure as given
    benches/postgres.py --quick

A view is one transaction: the login's last-seen time, the viewed item with all but the newest 25
trimmed, and the item's count. pgbench sends it as one prepared round trip for each statement, over a
Unix socket, with synchronous_commit on and off and with 1 and 16 clients. Half of what is compared is
HTTP: the proxy answers a page for each view, pgbench answers nothing. Redis writes nothing to disk
here and the proxy records behind its answers, so that only the rows with synchronous_commit=off
promise as little; one statement that did it all would cost PostgreSQL fewer round trips.
Needs postgresql (Debian) and what benches/chapter.py needs.
"""

import argparse
import contextlib
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys

import lab

BINARIES = "/usr/lib/postgresql/15/bin"
TOKENS = 10_000
ITEMS = 1_000
SETTINGS = {"listen_addresses": "", "shared_buffers": "256MB", "max_connections": "40"}
SCHEMA = f"""
CREATE TABLE login (token text PRIMARY KEY, who text NOT NULL, seen timestamptz NOT NULL);
CREATE TABLE viewed (token text, item text, seen timestamptz NOT NULL, PRIMARY KEY (token, item));
CREATE INDEX ON viewed (token, seen DESC);
CREATE TABLE popularity (item text PRIMARY KEY, views bigint NOT NULL);
CREATE INDEX ON login (seen);
INSERT INTO login
  SELECT 'tok-' || to_char(n, 'FM00000000'), 'user-' || n, now()
  FROM generate_series(0, {TOKENS - 1}) AS n;
INSERT INTO popularity SELECT 'item-' || n, 0 FROM generate_series(0, {ITEMS - 1}) AS n;
VACUUM ANALYZE;
"""
VIEW = f"""\\set token random(0, {TOKENS - 1})
\\set item random(0, {ITEMS - 1})
BEGIN;
INSERT INTO login VALUES ('tok-' || to_char(CAST(:token AS int), 'FM00000000'), 'user-' || :token, now())
  ON CONFLICT (token) DO UPDATE SET seen = EXCLUDED.seen;
INSERT INTO viewed VALUES ('tok-' || to_char(CAST(:token AS int), 'FM00000000'), 'item-' || :item, now())
  ON CONFLICT (token, item) DO UPDATE SET seen = EXCLUDED.seen;
DELETE FROM viewed WHERE token = 'tok-' || to_char(CAST(:token AS int), 'FM00000000') AND seen <
  (SELECT seen FROM viewed WHERE token = 'tok-' || to_char(CAST(:token AS int), 'FM00000000')
   ORDER BY seen DESC OFFSET 24 LIMIT 1);
INSERT INTO popularity VALUES ('item-' || :item, 1)
  ON CONFLICT (item) DO UPDATE SET views = popularity.views + 1;
COMMIT;
"""


class Server:
    """A PostgreSQL of the bench's own; ends with the `with` block."""

    def __init__(self, folder, binaries):
        self.folder, self.binaries = folder, binaries
        self.data = folder / "data"

    def __enter__(self):
        options = " ".join(f"-c {name}='{value}'" for name, value in SETTINGS.items())
        self.run("initdb", "-D", self.data, "-A", "trust", "-E", "UTF8", "--locale=C")
        options += f" -k {self.folder}"
        log = self.folder / "log"
        self.run("pg_ctl", "-D", self.data, "-w", "-l", log, "-o", options, "start")
        return self

    def __exit__(self, *_):
        self.run("pg_ctl", "-D", self.data, "-w", "-m", "fast", "stop")

    def run(self, program, *arguments, environment=(), **more):
        """Runs one of its programs, as a user who is not root: it refuses root."""
        command = [str(self.binaries / program), *map(str, arguments)]
        if os.getuid() == 0:
            command = ["runuser", "-u", "postgres", "--", "env", *environment, *command]
        else:
            command = ["env", *environment, *command]
        said = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, **more)
        if said.returncode:
            sys.exit(f"{program} failed:\n{said.stdout}{said.stderr}")
        return said.stdout

    def sql(self, text):
        return self.run(
            "psql", "-h", self.folder, "-d", "postgres", "-qAt", "-v", "ON_ERROR_STOP=1", input=text
        )

    def views(self, script, clients, synchronous, seconds):
        """Transactions a second."""
        said = self.run(
            *("pgbench", "-h", self.folder, "-n", "-M", "prepared", "-f", script),
            *("-c", clients, "-j", min(clients, 2), "-T", seconds, "postgres"),
            environment=[f"PGOPTIONS=-c synchronous_commit={synchronous}"],
        )
        failed = re.search(r"failed transactions: (\d+)", said)
        if failed and int(failed[1]):
            sys.exit(f"transactions failed:\n{said}")
        return float(re.search(r"tps = ([\d.]+)", said)[1])


def binaries(given):
    folder = pathlib.Path(given)
    if not (folder / "initdb").exists() or not (folder / "pgbench").exists():
        sys.exit(f"no PostgreSQL in {folder}: on Debian, apt-get install postgresql; or --binaries")
    if os.getuid() == 0:
        with contextlib.suppress(KeyError):
            pwd.getpwnam("postgres")
            return folder
        sys.exit("PostgreSQL does not run as root, and there is no user postgres")
    return folder


def proxy_views(options):
    """The proxy's views on Redis in this run, from chapter.py."""
    bench = pathlib.Path(__file__).with_name("chapter.py")
    command = [sys.executable, str(bench), "--only", "views-redis", "--tokens", str(TOKENS)]
    command += ["--quick"] if options.quick else []
    command += ["--anteroom", options.anteroom] if options.anteroom else []
    said = subprocess.run(command, capture_output=True, text=True)
    print(said.stdout)
    found = re.search(r"item views, Redis.*?([\d,]+) views/s", said.stdout)
    if found is None:
        sys.exit(said.stderr)
    return float(found[1].replace(",", ""))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--anteroom", help="the binary; default: a release build made now")
    parser.add_argument("--binaries", default=BINARIES)
    parser.add_argument("--folder", default="/var/tmp", help="where its data is: on a disk")
    parser.add_argument("--seconds", type=int, help="of each case; default: 10")
    parser.add_argument("--views", type=float, help="the proxy's views a second, if known")
    parser.add_argument("--quick", action="store_true", help="2 s each")
    options = parser.parse_args()
    folder = binaries(options.binaries)
    seconds = options.seconds or (2 if options.quick else 10)
    views = options.views or proxy_views(options)
    with lab.scratch_folder(options.folder) as scratch:
        scratch = pathlib.Path(scratch)
        if os.getuid() == 0:
            shutil.chown(scratch, "postgres", "postgres")
        script = scratch / "view.sql"
        script.write_text(VIEW)
        script.chmod(0o644)
        with Server(scratch, folder) as server:
            server.sql(SCHEMA)
            compare(server, script, seconds, views)


def compare(server, script, seconds, views):
    version = server.sql("SHOW server_version").strip()
    fsync = server.sql("SHOW fsync").strip()
    settings = ", ".join(f"{name}={value or 'none'}" for name, value in SETTINGS.items())
    print(f"{lab.machine()}")
    print(f"PostgreSQL {version}: fsync={fsync}, {settings}; data in {server.folder.parent}")
    print(f"{TOKENS:,} logins, {ITEMS:,} items, pgbench -M prepared over a Unix socket, {seconds} s")
    print(f"proxy with Redis: {views:,.0f} views/s\n")
    print(f"{'synchronous_commit':>20}{'clients':>10}{'views/s':>12}{'proxy is':>12}")
    for synchronous in ("on", "off"):
        for clients in (1, 16):
            rate = server.views(script, clients, synchronous, seconds)
            print(f"{synchronous:>20}{clients:>10}{rate:>12,.0f}{views / rate:>11.1f}x", flush=True)


if __name__ == "__main__":
    main()
