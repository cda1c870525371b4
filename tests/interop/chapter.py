"""The chapter's functions as an app in Python speaks them, for the interop test.

Usage: chapter.py REDIS_URL VERB [ARGUMENT...]

Prints one JSON value and exits with 0; with 2 when it was called wrongly. It shares no code with
the proxy: only the keys on Redis. Each function is one MULTI/EXEC where it writes.
"""

import argparse
import base64
import json
import sys
import time

try:
    import redis
except ModuleNotFoundError:
    sys.exit("the Python module redis is missing: run tests/run, which installs it")

VIEWED_ITEMS = 25
PAGE_TTL_S = 300
TOP_ITEMS = 10_000
KEPT_RANKS = 20_000


# Sessions


def check_token(conn, token):
    return text(conn.hget("login:", token))


def update_token(conn, token, user, item=None):
    now = time.time()
    with conn.pipeline(transaction=True) as pipe:
        pipe.hset("login:", token, user)
        pipe.zadd("recent:", {token: now})
        if item is not None:
            pipe.zadd(f"viewed:{token}", {item: now})
            pipe.zremrangebyrank(f"viewed:{token}", 0, -VIEWED_ITEMS - 1)
            pipe.zincrby("viewed:", -1, item)
        pipe.execute()


def clean_sessions(conn, limit, batch):
    """One batch; returns the tokens removed, oldest first."""
    return clean(conn, limit, batch, ["viewed:"])


def clean_full_sessions(conn, limit, batch):
    """The same, and carts."""
    return clean(conn, limit, batch, ["viewed:", "cart:"])


def clean(conn, limit, batch, kinds):
    excess = conn.zcard("recent:") - limit
    if excess <= 0:
        return []
    tokens = [text(token) for token in conn.zrange("recent:", 0, min(excess, batch) - 1)]
    with conn.pipeline(transaction=True) as pipe:
        # An empty member would make "viewed:" of it, which is the popularity of all items.
        for token in filter(None, tokens):
            pipe.delete(*(kind + token for kind in kinds))
        pipe.hdel("login:", *tokens)
        pipe.zrem("recent:", *tokens)
        pipe.execute()
    return tokens


def recent(conn):
    """The tokens seen, newest first, with the time."""
    return scored(conn.zrevrange("recent:", 0, -1, withscores=True))


def viewed(conn, token):
    """The items that a session viewed, newest first, with the time."""
    return scored(conn.zrevrange(f"viewed:{token}", 0, -1, withscores=True))


# Carts


def add_to_cart(conn, token, item, count):
    if count <= 0:
        conn.hdel(f"cart:{token}", item)
    else:
        conn.hset(f"cart:{token}", item, count)


def cart(conn, token):
    return {text(item): int(count) for item, count in conn.hgetall(f"cart:{token}").items()}


# Popularity


def rank(conn, item):
    """0 for the item most viewed, None for one that nobody viewed."""
    return conn.zrank("viewed:", item)


def popularity(conn, item):
    """The score: minus the number of views."""
    return conn.zscore("viewed:", item)


def can_cache(conn, item):
    at = rank(conn, item)
    return at is not None and at < TOP_ITEMS


def rescale_viewed(conn):
    with conn.pipeline(transaction=True) as pipe:
        pipe.zremrangebyrank("viewed:", KEPT_RANKS, -1)
        pipe.zinterstore("viewed:", {"viewed:": 0.5})
        pipe.execute()


# Pages, named by the hash that hash_request made


def page(conn, page_hash):
    """The stored bytes in base64 and the TTL that is left, or None."""
    with conn.pipeline(transaction=True) as pipe:
        body, ttl_ms = pipe.get(f"cache:{page_hash}").pttl(f"cache:{page_hash}").execute()
    if body is None:
        return None
    return {"base64": base64.b64encode(body).decode(), "ttl_ms": ttl_ms}


def cache_page(conn, page_hash, body):
    conn.set(f"cache:{page_hash}", base64.b64decode(body, validate=True), ex=PAGE_TTL_S)


# Rows


def schedule_row_cache(conn, row, delay_s):
    with conn.pipeline(transaction=True) as pipe:
        pipe.zadd("delay:", {row: delay_s})
        pipe.zadd("schedule:", {row: time.time()})
        pipe.execute()


def cache_row(conn, row_json):
    """One turn of cache_rows; the row refreshed, or None.

    `row_json` is what the database would give, or a function that reads it for a row.
    """
    due = conn.zrange("schedule:", 0, 0, withscores=True)
    now = time.time()
    if not due or due[0][1] > now:
        return None
    row = text(due[0][0])
    delay_s = conn.zscore("delay:", row)
    with conn.pipeline(transaction=True) as pipe:
        if delay_s is None or delay_s <= 0:
            pipe.zrem("delay:", row).zrem("schedule:", row).delete(f"inv:{row}")
        else:
            content = row_json(row) if callable(row_json) else row_json
            pipe.zadd("schedule:", {row: now + delay_s}).set(f"inv:{row}", content)
        pipe.execute()
    return row


# What there is


def keys(conn):
    """Every key with its type: nothing else is on a Redis that a test started."""
    return {text(key): text(conn.type(key)) for key in sorted(conn.scan_iter())}


def mentions(conn, token):
    """The keys that name a token, in their own name or as a member: none once it is cleaned."""
    needle = token.encode()
    found = sorted(conn.scan_iter())
    return [text(key) for key in found if needle in key or holds(conn, key, needle)]


def holds(conn, key, member):
    kind = text(conn.type(key))
    if kind == "hash":
        return conn.hexists(key, member)
    if kind == "zset":
        return conn.zscore(key, member) is not None
    if kind == "set":
        return conn.sismember(key, member)
    return kind == "string" and member in (conn.get(key) or b"")


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def scored(pairs):
    return [[text(member), score] for member, score in pairs]


def positive(argument):
    number = int(argument)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def verbs(parser):
    """Each function of the chapter with its arguments; None: the argument may be left out."""
    table = [
        (check_token, {"token": str}),
        (update_token, {"token": str, "user": str, "item": None}),
        (clean_sessions, {"limit": int, "batch": positive}),
        (clean_full_sessions, {"limit": int, "batch": positive}),
        (recent, {}),
        (viewed, {"token": str}),
        (add_to_cart, {"token": str, "item": str, "count": int}),
        (cart, {"token": str}),
        (rank, {"item": str}),
        (popularity, {"item": str}),
        (can_cache, {"item": str}),
        (rescale_viewed, {}),
        (page, {"page_hash": str}),
        (cache_page, {"page_hash": str, "body": str}),
        (schedule_row_cache, {"row": str, "delay_s": float}),
        (cache_row, {"row_json": str}),
        (keys, {}),
        (mentions, {"token": str}),
    ]
    chosen = parser.add_subparsers(metavar="VERB", required=True)
    for function, arguments in table:
        verb = chosen.add_parser(function.__name__.replace("_", "-"))
        verb.set_defaults(function=function, arguments=list(arguments))
        for name, kind in arguments.items():
            verb.add_argument(name, type=kind or str, nargs=None if kind else "?")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", metavar="REDIS_URL")
    verbs(parser)
    called = parser.parse_args()
    conn = redis.Redis.from_url(called.url, socket_timeout=10)
    answer = called.function(conn, *(getattr(called, name) for name in called.arguments))
    json.dump(answer, sys.stdout)
    print()


if __name__ == "__main__":
    main()
