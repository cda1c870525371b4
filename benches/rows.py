#!/usr/bin/env python3
"""Rows of a database: how late they are, and what they cost.

    benches/rows.py                     all parts, a minute each
    benches/rows.py --only side         1,000 rows a second: the chapter's loop in Python, and Anteroom
    benches/rows.py --only many         10,000 rows a second in batches
    benches/rows.py --only changes      UPDATE with a trigger until the new value is there over HTTP
    benches/rows.py --quick             short runs, to see that it works

PostgreSQL, Redis and Anteroom (one thread for clients) run on this machine, beside the sampler that reads
schedule and rows from Redis a few times a second. A row holds the time at which PostgreSQL read it. It is
late by the time from when it was due, by its score in `schedule:`, until then. The Python loop reads by
psycopg2, one row by one statement, as it is published. Needs postgresql, redis-server, and redis-py and
psycopg2 for Python.
"""

import contextlib
import http.client
import json
import multiprocessing
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import lab
import postgres

chapter, redis = lab.chapter_functions()

SCHEMA = """
CREATE TABLE items (id int PRIMARY KEY, name text NOT NULL, qty int NOT NULL DEFAULT 0);
INSERT INTO items SELECT n, 'item ' || n FROM generate_series(1, 10000) AS n;
CREATE FUNCTION item_changed() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN PERFORM pg_notify('item_changed', new.id::text); RETURN new; END $$;
CREATE TRIGGER item_changed AFTER UPDATE ON items FOR EACH ROW EXECUTE FUNCTION item_changed();
VACUUM ANALYZE;
"""
COLUMNS = "id, name, qty, extract(epoch from clock_timestamp())::float8 AS read"
ROUTE = '[[route]]\nmatch.path = "/stock/{item}"\nrows = "inventory"\n'
EVERY_S = 1.0
# The sampler begins when the first round is over.
SETTLED_S = 3


def rows_config(url, batch, more=""):
    where = "id = any($1)" if batch > 1 else "id = $1"
    return f"""
[databases.shop]
url = "{url}"
[[rows]]
name = "inventory"
every = "{EVERY_S:.0f}s"
database = "shop"
query = "SELECT {COLUMNS} FROM items WHERE {where}"
batch = {batch}
{more}
{ROUTE}"""


class Database(postgres.Server):
    """PostgreSQL on a TCP port, too, with its CPU time."""

    def __enter__(self):
        self.port = lab.free_port()
        postgres.SETTINGS |= {"listen_addresses": "127.0.0.1", "port": str(self.port)}
        super().__enter__()
        self.sql(SCHEMA)
        return self

    def run(self, program, *arguments, environment=(), **more):
        environment = [f"PGPORT={self.port}", *environment]
        return super().run(program, *arguments, environment=environment, **more)

    @property
    def url(self):
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def cpu_s(self):
        """Of the postmaster and its processes; those that have ended count with the postmaster."""
        own = int((self.data / "postmaster.pid").read_text().split()[0])
        children = pathlib.Path(f"/proc/{own}/task/{own}/children").read_text().split()
        fields = pathlib.Path(f"/proc/{own}/stat").read_text().rpartition(")")[2].split()
        ended = int(fields[13]) + int(fields[14])
        return (sum(map(lab.cpu_ticks, [own, *map(int, children)])) + ended) / lab.TICKS_PER_S

    def stop(self):
        self.run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")

    def start(self):
        options = " ".join(f"-c {name}='{value}'" for name, value in postgres.SETTINGS.items())
        options += f" -k {self.folder}"
        log = self.folder / "log"
        self.run("pg_ctl", "-D", self.data, "-w", "-l", log, "-o", options, "start")


class Loop:
    """cache_rows in Python, as a process of its own."""

    def __init__(self, redis_port, database):
        arguments = (redis_port, database.port)
        self.process = multiprocessing.Process(target=cache_rows, args=arguments, daemon=True)

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.join()

    def cpu_s(self):
        return lab.cpu_ticks(self.process.pid) / lab.TICKS_PER_S


def cache_rows(redis_port, database_port):
    import psycopg2

    conn = redis.Redis(port=redis_port)
    shop = psycopg2.connect(host="127.0.0.1", port=database_port, user="postgres", dbname="postgres")
    shop.autocommit = True
    cursor = shop.cursor()

    def read(row):
        cursor.execute(f"SELECT to_json(t)::text FROM (SELECT {COLUMNS}, 1 AS python FROM items"
                       " WHERE id = %s) AS t", (int(row),))
        return cursor.fetchone()[0]

    while True:
        if chapter.cache_row(conn, read) is None:
            time.sleep(0.05)


def schedule(conn, count):
    """Rows that are due one after another over an interval."""
    now, pipe = time.time() + 0.5, conn.pipeline()
    for n in range(count):
        pipe.zadd("delay:", {n + 1: EVERY_S}).zadd("schedule:", {n + 1: now + EVERY_S * n / count})
    pipe.execute()


def sample(port, count, seconds, between_s, told):
    """By how many seconds each refresh of a row was late, as far as they are seen."""
    conn = redis.Redis(port=port)
    keys = [f"inv:{n + 1}" for n in range(count)]
    due, reads, late = {}, {}, []
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        scores = {int(row): score for row, score in conn.zrange("schedule:", 0, -1, withscores=True)}
        now = time.time()
        for row, content in enumerate(conn.mget(keys), 1):
            read = json.loads(content)["read"] if content else None
            if read != reads.get(row):
                if reads.get(row) is not None and due.get(row) is not None:
                    late.append(read - due[row])
                reads[row], due[row] = read, None
            # A claim stands ten seconds ahead, and hides when the row is due.
            if scores[row] <= now + EVERY_S + 0.1:
                due[row] = scores[row]
        time.sleep(max(0, between_s - (time.monotonic() - began)))
    told.send((late, [time.time() - read for read in reads.values() if read]))


class Figures:
    """CPU time of processes, and lateness, over some seconds."""

    def __init__(self, name, redis_process, count, seconds, **processes):
        self.name, self.processes = name, processes | {"redis": redis_process}
        between_s = 0.1 if count <= 1_000 else 0.25
        near, far = multiprocessing.Pipe()
        arguments = (redis_process.port, count, seconds, between_s, far)
        sampler = multiprocessing.Process(target=sample, args=arguments, daemon=True)
        before = self.cpu()
        sampler.start()
        self.late, self.ages = near.recv()
        self.cpu_ms_s = {name: (used - before[name]) * 1000 / seconds for name, used in self.cpu().items()}
        sampler.join()

    def cpu(self):
        return {name: process.cpu_s() for name, process in self.processes.items()}

    def told(self, seconds, note=""):
        late = sorted(1000 * one for one in self.late)
        at = lambda share: late[min(len(late) - 1, int(share * len(late)))]
        cpu = ", ".join(f"{name} {used:.0f}" for name, used in self.cpu_ms_s.items())
        print(f"{self.name:28}{len(late) / seconds:>9,.0f} seen/s   late ms p50 {at(0.5):.1f}, p99 {at(0.99):.1f}, "
              f"worst {late[-1]:.1f}   oldest {max(self.ages):.2f} s   CPU ms/s: {cpu}{note}", flush=True)


def measure_anteroom(options, database, name, count, batch):
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        store = stack.enter_context(lab.redis_server(folder))
        proxy = stack.enter_context(proxy_of(options, folder, store, rows_config(database.url, batch)))
        schedule(redis.Redis(port=store.port), count)
        time.sleep(SETTLED_S)
        before = lab.metrics(proxy)
        figures = Figures(name, store, count, options.seconds, anteroom=proxy, postgres=database)
        after = lab.metrics(proxy)
        per_s = lambda what: (after[what] - before[what]) / options.seconds
        figures.told(options.seconds, f"; {per_s('anteroom_rows_fetched_total'):,.0f} rows/s by "
                     f"{per_s('anteroom_rows_queries_total'):,.1f} queries/s")


def proxy_of(options, folder, store, config):
    return lab.anteroom(options.binary, folder, lab.free_port(), store=f"redis://127.0.0.1:{store.port}",
                        more=config, access="off")


def measure_python(options, database):
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        store = stack.enter_context(lab.redis_server(folder))
        schedule(redis.Redis(port=store.port), 1_000)
        loop = stack.enter_context(Loop(store.port, database))
        time.sleep(SETTLED_S)
        figures = Figures("the chapter's loop", store, 1_000, options.seconds, python=loop, postgres=database)
        figures.told(options.seconds)


def measure_together(options, database):
    """Both refresh the same rows, and each serves what the other wrote."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        store = stack.enter_context(lab.redis_server(folder))
        conn = redis.Redis(port=store.port)
        proxy = stack.enter_context(proxy_of(options, folder, store, rows_config(database.url, 1)))
        schedule(conn, 1_000)
        stack.enter_context(Loop(store.port, database))
        time.sleep(SETTLED_S)
        served, read = {True: 0, False: 0}, {True: 0, False: 0}
        visitor = http.client.HTTPConnection("127.0.0.1", proxy.port)
        for _ in range(3):
            for n in range(1, 1_001):
                visitor.request("GET", f"/stock/{n}")
                answer = visitor.getresponse()
                served["python" in json.loads(answer.read())] += 1
                read["python" in json.loads(conn.get(f"inv:{n}"))] += 1
        print(f"{'both on one schedule':28}rows that Anteroom served: {served[True]:,} written by the Python loop, "
              f"{served[False]:,} by itself; rows in Redis: {read[True]:,} and {read[False]:,}", flush=True)


def measure_side(options, database):
    measure_python(options, database)
    measure_anteroom(options, database, "Anteroom, row by row", 1_000, 1)
    measure_anteroom(options, database, "Anteroom, batch = 500", 1_000, 500)
    measure_together(options, database)


def measure_many(options, database):
    measure_anteroom(options, database, "Anteroom, batch = 500", 10_000, 500)


def value(visitor, row):
    visitor.request("GET", f"/stock/{row}")
    return json.loads(visitor.getresponse().read())["qty"]


def measure_changes(options, database):
    """From the answer to an UPDATE until the new value is there over HTTP."""
    import psycopg2

    config = rows_config(database.url, 500, 'rows = ["1..1000"]\nlisten = "item_changed"')
    config = config.replace('every = "1s"', 'every = "30s"')
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(lab.scratch_folder()))
        store = stack.enter_context(lab.redis_server(folder))
        proxy = stack.enter_context(proxy_of(options, folder, store, config))
        time.sleep(SETTLED_S)
        visitor = http.client.HTTPConnection("127.0.0.1", proxy.port)
        connect = lambda: psycopg2.connect(
            host="127.0.0.1", port=database.port, user="postgres", dbname="postgres")
        shop = connect()
        shop.autocommit = True
        cursor, took = shop.cursor(), []
        for n in range(1, options.changes + 1):
            row = n % 1_000 + 1
            value(visitor, row)
            cursor.execute("UPDATE items SET qty = %s WHERE id = %s", (n, row))
            began = time.perf_counter()
            while value(visitor, row) != n:
                pass
            took.append(1000 * (time.perf_counter() - began))
        took.sort()
        print(f"{'UPDATE to HTTP, NOTIFY':28}{len(took)} changes, every = 30 s: p50 {statistics.median(took):.1f} ms, "
              f"p99 {took[int(0.99 * len(took))]:.1f} ms, worst {took[-1]:.1f} ms", flush=True)

        shop.close()
        database.stop()
        time.sleep(2)
        kept = value(visitor, 7)
        database.start()
        shop = connect()
        shop.autocommit = True
        # Nothing announces this one.
        shop.cursor().execute("SET session_replication_role = replica; UPDATE items SET qty = -1 WHERE id <= 1000")
        began = time.perf_counter()
        while any(value(visitor, row) != -1 for row in range(1, 1_001)):
            pass
        print(f"{'after a crash of PostgreSQL':28}row 7 meanwhile: {kept}; all 1,000 rows fresh "
              f"{time.perf_counter() - began:.2f} s after it was back, without a notification", flush=True)


PARTS = {"side": measure_side, "many": measure_many, "changes": measure_changes}


def main():
    parser = lab.arguments(__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be repeated")
    parser.add_argument("--seconds", type=int, help="of each measurement; default: 60")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.seconds = options.seconds or (5 if options.quick else 60)
    options.changes = 50 if options.quick else 1_000
    options.binary = binary(options.anteroom)
    print(lab.machine(), flush=True)
    with lab.scratch_folder("/var/tmp") as scratch:
        scratch = pathlib.Path(scratch)
        shutil.chown(scratch, "postgres", "postgres")
        with Database(scratch, postgres.binaries(postgres.BINARIES)) as database:
            for part in options.only or PARTS:
                PARTS[part](options, database)


def binary(given):
    """The binary to measure; one that is built now can read PostgreSQL."""
    if given:
        return pathlib.Path(given).resolve()
    command = ["cargo", "build", "--release", "--features", "postgres"]
    if subprocess.run(command, cwd=lab.ROOT).returncode:
        sys.exit("the build failed")
    return lab.ROOT / "target" / "release" / "anteroom"


if __name__ == "__main__":
    main()
