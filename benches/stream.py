#!/usr/bin/env python3
"""How much memory the proxy holds while large bodies pass through it.

    benches/stream.py                   2 GiB each way, by length and in chunks
    benches/stream.py --size 256MiB --anteroom target/release/anteroom

For each case: what the process held before, its peak while the body passed (VmHWM, reset before
each case), and whether every byte came through (SHA-256 at both ends). Exits with 1 where the peak
grew by more than `--allow` or a body changed.
"""

import argparse
import hashlib
import pathlib
import re
import socket
import socketserver
import sys
import threading
import time

import lab

BLOCK = 256 * 1024
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

# Name, method, in chunks, the body's type. An image with a validator is what the cache would like
# to keep: it must notice that this one is too large, from its length or on the way.
CASES = [
    ("download", "GET", False, "application/octet-stream"),
    ("download, in chunks", "GET", True, "application/octet-stream"),
    ("download of a cacheable type", "GET", False, "image/png"),
    ("download of a cacheable type, in chunks", "GET", True, "image/png"),
    ("upload", "PUT", False, "application/octet-stream"),
    ("upload, in chunks", "PUT", True, "application/octet-stream"),
]


def blocks(size):
    """`size` bytes of which no block is like another, so that a lost or doubled one shows."""
    filling = bytes(range(256)) * (BLOCK // 256)
    for start in range(0, size, BLOCK):
        yield (start.to_bytes(8, "big") + filling)[: min(BLOCK, size - start)]


def send_body(out, size, chunked):
    for block in blocks(size):
        out.sendall(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
    if chunked:
        out.sendall(b"0\r\n\r\n")


def measured(pieces_of_body):
    """How many bytes there are, and their SHA-256, in one text."""
    digest, count = hashlib.sha256(), 0
    for piece in pieces_of_body:
        digest.update(piece)
        count += len(piece)
    return f"{count} bytes {digest.hexdigest()}"


def read_head(stream):
    """The first line, and the fields by their lower-case names."""
    first = stream.readline().decode("latin-1").strip()
    fields = {}
    while (line := stream.readline().decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
    return first, fields


def read_body(stream, fields):
    """The pieces of a body, to its end."""
    if "transfer-encoding" in fields:
        return chunks(stream)
    return pieces(stream, int(fields.get("content-length", 0)))


def chunks(stream):
    while (size := int(stream.readline().split(b";")[0], 16)) > 0:
        yield from pieces(stream, size)
        stream.readline()
    while stream.readline().strip():
        pass


def pieces(stream, left):
    while left > 0:
        piece = stream.read(min(BLOCK, left))
        if not piece:
            raise EOFError(f"the body ended {left} bytes early")
        left -= len(piece)
        yield piece


class Origin(socketserver.StreamRequestHandler):
    """Sends the body for GET, and for PUT says what came."""

    size = 0
    body = ""

    @classmethod
    def take_size(cls, size):
        cls.size, cls.body = size, measured(blocks(size))

    def handle(self):
        line, fields = read_head(self.rfile)
        if line.startswith("GET"):
            self.download(line.split()[1].split("?"))
        else:
            answer = measured(read_body(self.rfile, fields)).encode()
            self.head("text/plain", f"Content-Length: {len(answer)}")
            self.wfile.write(answer)

    def download(self, target):
        chunked = target[0] == "/chunks"
        kind = target[1].removeprefix("type=")
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {self.size}"
        self.head(kind, length)
        send_body(self.connection, self.size, chunked)

    def head(self, kind, length):
        fields = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", 'ETag: "one"', length]
        self.wfile.write("\r\n".join([*fields, "Connection: close", "", ""]).encode())


def download(port, chunked, kind):
    """Fetches a body; what is wrong with it, if anything."""
    client = socket.create_connection(("127.0.0.1", port), 60)
    with client, client.makefile("rb") as stream:
        target = f"/{'chunks' if chunked else 'length'}?type={kind}"
        client.sendall(request("GET", target, "Accept: */*"))
        line, fields = read_head(stream)
        came = measured(read_body(stream, fields))
    return None if came == Origin.body else f"{line}: {came} came, not {Origin.body}"


def upload(port, chunked, kind):
    """Sends a body; what is wrong with what the origin got, if anything."""
    client = socket.create_connection(("127.0.0.1", port), 60)
    with client, client.makefile("rb") as stream:
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {Origin.size}"
        client.sendall(request("PUT", "/upload", length, f"Content-Type: {kind}"))
        send_body(client, Origin.size, chunked)
        line, fields = read_head(stream)
        came = b"".join(read_body(stream, fields)).decode("latin-1")
    return None if came == Origin.body else f"{line}: {came[:200]!r} came, not {Origin.body!r}"


def request(method, target, *fields):
    head = [f"{method} {target} HTTP/1.1", "Host: bench.example", *fields, "Connection: close"]
    return "\r\n".join([*head, "", ""]).encode()


def run(proxy, case, allowed_kib):
    """One case with its line of the report; whether all was well."""
    name, method, chunked, kind = case
    proxy.reset_peak()
    before, start = proxy.memory_kib("VmRSS"), time.monotonic()
    wrong = (download if method == "GET" else upload)(proxy.port, chunked, kind)
    rate = Origin.size / (time.monotonic() - start) / UNITS["MiB"]
    peak = proxy.memory_kib("VmHWM")
    if wrong is None and peak - before > allowed_kib:
        wrong = "holds too much"
    figures = f"{before / 1024:>10.1f}{peak / 1024:>10.1f}{(peak - before) / 1024:>10.1f}"
    print(f"{name:42}{figures}{rate:>10.0f}  {wrong or 'whole'}", flush=True)
    return wrong is None


def size(text):
    found = re.fullmatch(r"(\d+)(KiB|MiB|GiB)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 2GiB or 256MiB")
    return int(found[1]) * UNITS[found[2]]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--anteroom", help="the binary; default: a release build made now")
    parser.add_argument("--size", type=size, default="2GiB", help="of each body")
    parser.add_argument("--allow", type=size, default="16MiB", help="that the peak may grow by")
    options = parser.parse_args()
    socketserver.ThreadingTCPServer.daemon_threads = True
    with (
        lab.scratch_folder() as folder,
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), Origin) as origin,
    ):
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        binary = lab.anteroom_binary(options.anteroom)
        with lab.anteroom(binary, pathlib.Path(folder), origin.server_address[1]) as proxy:
            # The first request makes what is made once, such as connections and buffers.
            Origin.take_size(1 << 20)
            download(proxy.port, False, "text/plain")
            Origin.take_size(options.size)
            print(f"{lab.machine()}\nbodies of {Origin.size / UNITS['MiB']:.0f} MiB, one thread\n")
            print(f"{'':42}{'MiB held':>10}{'peak':>10}{'grew by':>10}{'MiB/s':>10}")
            fine = [run(proxy, case, options.allow >> 10) for case in CASES]
        origin.shutdown()
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
