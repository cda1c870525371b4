"""Redis servers for the benches: one, a Cluster, a primary behind Sentinels; and a client without a library.

Python's standard library only. It measures nothing by itself.
"""

import binascii
import contextlib
import signal
import socket
import subprocess
import sys
import time

import lab

# How many shards the sharded layout has.
SHARDS = 64


class Resp:
    """A connection to one server. A reply that is an error is returned as a `RespError`."""

    def __init__(self, port, patience_s=10):
        self.socket = socket.create_connection(("127.0.0.1", port), patience_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", 1 << 16)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def __call__(self, *words):
        self.socket.sendall(packed(words))
        return self.reply()

    def all(self, packed_commands, count):
        """Sends commands that are packed already; their replies."""
        self.socket.sendall(packed_commands)
        return [self.reply() for _ in range(count)]

    def reply(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("the server has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode("latin-1")
        if kind == b"*":
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        if kind == b":":
            return int(rest)
        return RespError(rest.decode()) if kind == b"-" else rest.decode()


class RespError(str):
    """What a server said instead of an answer."""


def packed(words):
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(it), it) for it in parts)


def slot_of(key):
    """The slot of a key in a Cluster: of its hash tag, where it has one."""
    before, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return binascii.crc_hqx((tag if opened and closed and tag else key).encode(), 0) % 16384


def shard_of(name):
    """The shard of a token, an item or a hash."""
    return binascii.crc_hqx(name.encode(), 0) % SHARDS


class Node:
    """A server that this bench has started; it listens on a port and, in a Cluster, on another one."""

    def __init__(self, folder, command, port, core=None):
        self.port, self.folder = port, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.process = lab.Process(f"node {port}", command, port, core, folder / "said.log")
        self.is_paused = False

    def __enter__(self):
        self.process.__enter__()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.resume()
            self.process.popen.kill()
        self.process.popen.wait()

    def kill(self):
        self.process.popen.kill()
        self.process.popen.wait()

    def pause(self):
        self.process.popen.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self):
        if self.is_paused:
            self.process.popen.send_signal(signal.SIGCONT)
            self.is_paused = False

    def is_running(self):
        return self.process.popen.poll() is None and not self.is_paused

    def say(self, *words):
        with Resp(self.port) as conn:
            return conn(*words)

    def try_say(self, *words):
        """The reply; None if there is none within a second."""
        with contextlib.suppress(OSError):
            if self.is_running():
                with Resp(self.port, 1) as conn:
                    return conn(*words)
        return None


def redis_command(folder, port, *more):
    command = [lab.need("redis-server", "redis-server"), "--bind", "127.0.0.1", "--port", str(port)]
    command += ["--dir", folder, "--save", "", "--appendonly", "no", "--loglevel", "warning"]
    return command + ["--repl-diskless-sync-delay", "0", *more]


class One:
    """One server, and nothing beside it."""

    def __init__(self, folder, core=None):
        port = lab.free_port()
        self.nodes = [Node(folder / "redis", redis_command(folder / "redis", port), port, core)]
        self.url = f"redis://127.0.0.1:{port}"

    def __enter__(self):
        self.nodes[0].__enter__()
        return self

    def __exit__(self, *_):
        self.nodes[0].__exit__()

    def primaries(self):
        return self.nodes

    def primary_of(self, _key):
        return self.nodes[0]


class Cluster:
    """A Cluster of so many primaries, each with so many replicas."""

    def __init__(self, folder, primaries=3, replicas=1, node_timeout_ms=2_000):
        self.primary_count, self.replicas = primaries, replicas
        self.nodes, self.stack = [], contextlib.ExitStack()
        for number in range(primaries * (1 + replicas)):
            port, of_node = port_with_bus(), folder / f"node-{number}"
            more = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout_ms)]
            more += ["--cluster-require-full-coverage", "no"]
            self.nodes.append(Node(of_node, redis_command(of_node, port, *more), port))
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def __enter__(self):
        with self.stack:
            for node in self.nodes:
                self.stack.enter_context(node)
            addresses = [f"127.0.0.1:{node.port}" for node in self.nodes]
            redis_cli("--cluster", "create", *addresses, "--cluster-replicas", str(self.replicas), "--cluster-yes")
            until("the Cluster is whole", lambda: self.is_whole() and self.replicas_up() == self.replica_count())
            self.stack = self.stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def replica_count(self):
        return self.primary_count * self.replicas

    def replicas_up(self):
        said = (node.try_say("INFO", "replication") or "" for node in self.nodes)
        return sum("master_link_status:up" in one for one in said)

    def is_whole(self):
        """Whether every node that runs says that all slots are served."""
        said = [node.try_say("CLUSTER", "INFO") or "" for node in self.nodes if node.is_running()]
        return all("cluster_state:ok" in one and "cluster_slots_ok:16384" in one for one in said)

    def primaries(self):
        return [node for node in self.nodes if (node.try_say("ROLE") or [""])[0] == "master"]

    def primary_of(self, key):
        """The node that has a key."""
        for node in self.nodes:
            said = node.try_say("EXISTS", key)
            if said is not None and not isinstance(said, RespError):
                return node
        raise LookupError(f"no node has {key}")

    def replica_of(self, primary):
        """A replica of this node."""
        its_id = primary.say("CLUSTER", "MYID")
        for line in primary.say("CLUSTER", "NODES").splitlines():
            words = line.split()
            if words[3] == its_id and "fail" not in words[2]:
                port = int(words[1].partition("@")[0].rpartition(":")[2])
                return next(node for node in self.nodes if node.port == port)
        raise LookupError("it has no replica")


class Sentinels:
    """A primary and a replica, which three Sentinels watch."""

    def __init__(self, folder, down_after_ms=2_000):
        self.nodes, self.sentinels = [], []
        self.stack = contextlib.ExitStack()
        for number in range(2):
            port, of_node = lab.free_port(), folder / f"node-{number}"
            more = ["--replicaof", "127.0.0.1", str(self.nodes[0].port)] if number else []
            self.nodes.append(Node(of_node, redis_command(of_node, port, *more), port))
        for number in range(3):
            port, of_node = lab.free_port(), folder / f"sentinel-{number}"
            of_node.mkdir(parents=True)
            config = of_node / "sentinel.conf"
            config.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {of_node}\n"
                f"sentinel monitor mymaster 127.0.0.1 {self.nodes[0].port} 2\n"
                f"sentinel down-after-milliseconds mymaster {down_after_ms}\n"
                "sentinel failover-timeout mymaster 10000\n"
            )
            command = [lab.need("redis-server", "redis-server"), config, "--sentinel"]
            self.sentinels.append(Node(of_node, command, port))
        addresses = ",".join(f"127.0.0.1:{node.port}" for node in self.sentinels)
        self.url = f"redis+sentinel://{addresses}/mymaster"

    def __enter__(self):
        with self.stack:
            for node in self.nodes + self.sentinels:
                self.stack.enter_context(node)
            until("the replica follows", lambda: "slaves=1" in self.known() and self.replicas_up() == 1)
            until("the Sentinels know each other", lambda: "sentinels=3" in self.known())
            self.stack = self.stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def known(self):
        return self.sentinels[0].try_say("INFO", "sentinel") or ""

    def replicas_up(self):
        said = (node.try_say("INFO", "replication") or "" for node in self.nodes)
        return sum("master_link_status:up" in one for one in said)

    def is_whole(self):
        return len(self.primaries()) == 1

    def primaries(self):
        return [node for node in self.nodes if (node.try_say("ROLE") or [""])[0] == "master"]

    def primary_of(self, _key):
        return self.primaries()[0]

    def replica_of(self, primary):
        return next(node for node in self.nodes if node is not primary)


def redis_cli(*arguments):
    command = [lab.need("redis-cli", "redis-tools"), *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def port_with_bus():
    """A port whose bus port, 10,000 above it, is free, too; both are below those that clients get."""
    while True:
        port = 20_000 + port_with_bus.next
        port_with_bus.next = (port_with_bus.next + 1) % 2_700
        with contextlib.suppress(OSError):
            for one in (port, port + 10_000):
                socket.create_server(("127.0.0.1", one)).close()
            return port


port_with_bus.next = time.time_ns() // 1_000_000 % 2_700


def until(what, condition, limit_s=60):
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"not so after {limit_s} s: {what}")
        time.sleep(0.05)


def popularity(store):
    """The sum of all views that the store has counted."""
    total = 0
    for node in store.primaries():
        with Resp(node.port) as conn:
            for key in ["viewed:"] + [f"viewed:{{s{shard}}}" for shard in range(SHARDS)]:
                found = conn("ZRANGE", key, 0, -1, "WITHSCORES")
                if found and not isinstance(found, RespError):
                    total -= sum(map(float, found[1::2]))
    return round(total)
