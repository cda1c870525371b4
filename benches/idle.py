#!/usr/bin/env python3
"""Memory of idle connections beside Debian's nginx and HAProxy, in one run.

    benches/idle.py                     builds the release binary and compares
    benches/idle.py --connections 5000
    benches/idle.py --only anteroom     one side alone
    benches/idle.py --waves 5           opens them in so many parts, with silence behind each
    benches/idle.py --tls --http2       Anteroom alone, over TLS, over HTTP/2, or both

Each proxy has one worker. So many connections are opened, each is answered one request, and then all
of them say nothing. The figure is the anonymous memory of the proxy's processes then, less what they
held before the first, divided by the connections. Anteroom lays a connection aside that has been idle
for a moment: it is measured when it has had the time for that. What it held until then stays with the
process, and is used again by whoever comes next: opened in waves, connections show what each keeps. At the
end each connection asks again and has to be answered. Needs nginx-light and haproxy.
"""

import argparse
import contextlib
import pathlib
import socket
import ssl
import struct
import sys
import time

import lab

REQUEST = b"GET /page HTTP/1.1\r\nHost: bench.test\r\n\r\n"
# HTTP/2: what a connection begins with, and the fields of the request, none of them compressed.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FIELDS = {":method": "GET", ":scheme": "https", ":path": "/page", ":authority": "bench.test"}
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1


def anonymous_kib(process):
    """Anonymous memory of a proxy and its children, in KiB."""
    total = 0
    for pid in process.pids():
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                total += int(line.split()[1])
    return total


def ask(peer, request=REQUEST):
    """One request and the whole of its answer."""
    peer.sendall(request)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += received(peer)
    head, _, body = answer.partition(b"\r\n\r\n")
    lengths = [
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    if not head.startswith(b"HTTP/1.1 200") or len(lengths) != 1:
        sys.exit(f"not the answer that was expected:\n{head.decode()}")
    while len(body) < lengths[0]:
        body += received(peer)


def received(peer):
    part = peer.recv(1 << 16)
    if not part:
        sys.exit("a connection was closed that should have been kept")
    return part


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


class Http1:
    """A connection of HTTP/1.1."""

    def __init__(self, peer):
        self.peer = peer

    def ask(self):
        ask(self.peer)


class Http2:
    """A connection of HTTP/2."""

    def __init__(self, peer):
        self.peer, self.stream = peer, -1
        peer.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def ask(self):
        """One request and the whole of its answer; what else came meanwhile is answered."""
        self.stream += 2
        texts = [text.encode() for pair in FIELDS.items() for text in pair]
        plain = [bytes([len(text)]) + text for text in texts]
        block = b"".join(b"\0" + name + value for name, value in zip(plain[::2], plain[1::2]))
        self.peer.sendall(frame(HEADERS, END_STREAM | END_HEADERS, self.stream, block))
        while True:
            head = self.exactly(9)
            kind, flags = head[3], head[4]
            payload = self.exactly(int.from_bytes(head[:3], "big"))
            if kind == PING and not flags & ACK:
                self.peer.sendall(frame(PING, ACK, 0, payload))
            elif kind == SETTINGS and not flags & ACK:
                self.peer.sendall(frame(SETTINGS, ACK, 0))
            elif kind in (RST_STREAM, GOAWAY):
                sys.exit("a request was refused")
            elif kind in (HEADERS, DATA) and flags & END_STREAM:
                return

    def exactly(self, length):
        came = b""
        while len(came) < length:
            part = self.peer.recv(length - len(came))
            if not part:
                sys.exit("a connection was closed that should have been kept")
            came += part
        return came


def connect(proxy, options):
    """A connection in what was asked for."""
    peer = socket.create_connection(("127.0.0.1", proxy.port))
    if options.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2" if options.http2 else "http/1.1"])
        peer = context.wrap_socket(peer, server_hostname="bench.test")
    return peer, (Http2 if options.http2 else Http1)(peer)


def measure(proxy, options, connections):
    with contextlib.ExitStack() as stack:
        # What the first requests of all make is not the connections'.
        for _ in range(20):
            peer, client = connect(proxy, options)
            with peer:
                client.ask()
        time.sleep(options.settle)
        before = anonymous_kib(proxy)
        clients = []
        for _ in range(options.waves):
            for _ in range(connections // options.waves):
                peer, client = connect(proxy, options)
                stack.enter_context(peer)
                client.ask()
                clients.append(client)
            time.sleep(options.settle)
        grown = anonymous_kib(proxy) - before
        for client in clients:
            client.ask()
        awake = anonymous_kib(proxy) - before
    return grown / len(clients), awake / len(clients)


def main():
    parser = argparse.ArgumentParser(description="Memory of idle connections beside nginx and HAProxy.")
    parser.add_argument("--connections", type=int, help="10,000; of HTTP/2, 2,000")
    parser.add_argument("--waves", type=int, default=1)
    parser.add_argument("--settle", type=float, default=8, help="seconds of silence")
    parser.add_argument("--only", choices=["anteroom", "nginx", "haproxy"])
    parser.add_argument("--tls", action="store_true", help="Anteroom alone, over TLS")
    parser.add_argument("--http2", "--h2", action="store_true", help="Anteroom alone, over HTTP/2")
    parser.add_argument("--binary", help="the binary to measure, instead of a release build")
    options = parser.parse_args()
    if options.tls or options.http2:
        options.only = "anteroom"
    # Over HTTP/2 a client is asked after 20 seconds whether it is there, and nobody here says so meanwhile.
    options.connections = options.connections or (2_000 if options.http2 else 10_000)
    files = lab.many_files()
    if files < options.connections + 1_000:
        sys.exit(f"{options.connections} connections need more open files than {files}")
    binary = None if options.only not in (None, "anteroom") else lab.anteroom_binary(options.binary)
    print(lab.machine())
    more = f"[limits]\nconnections = {files}\nconnections_per_address = {files}\nidle_timeout = \"1h\"\n"
    with lab.scratch_folder() as name:
        folder = pathlib.Path(name)
        listen = f'tls.cert = "{lab.certificate(folder)[0]}"' if options.tls else ""
        with lab.nginx_origin(folder) as origin:
            # HAProxy wants two files for each connection that it may have.
            room_of_haproxy = (files - 300) // 2
            proxies = {
                "anteroom": lambda: lab.anteroom(
                    binary, folder, origin.port, more=more, listen=listen
                ),
                "nginx": lambda: lab.nginx(folder, origin.port, connections=files - 1_000),
                "haproxy": lambda: lab.haproxy(folder, origin.port, connections=room_of_haproxy),
            }
            for name, start in proxies.items():
                if options.only in (None, name):
                    with start() as proxy:
                        connections = options.connections
                        if name == "haproxy":
                            connections = min(connections, room_of_haproxy - 50)
                        idle, awake = measure(proxy, options, connections)
                    print(
                        f"{name:10} {idle:6.2f} KiB an idle connection; {awake:6.2f} KiB right after "
                        f"each of the {connections} was answered again"
                    )


if __name__ == "__main__":
    main()
