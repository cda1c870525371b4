#!/usr/bin/env python3
"""A collector between the proxy and what keeps its traces: Rotel, which takes OTLP and sends it on.

    target/interop-venv/bin/python tests/interop/collector.py --binary target/debug/anteroom

Starts an app, the collector, a receiver behind it, and the proxy, each on a free port of the loopback address. Each
request must arrive as one whole trace. Then the collector is killed: requests go on, and traces arrive once it is back.
Needs what requirements.txt names.
"""

import argparse
import collections
import contextlib
import gzip
import http.server
import importlib.util
import pathlib
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE.parent / "apps")]

import servers  # noqa: E402

DEADLINE_S = 60
CONFIG = """
[origin]
url = "http://127.0.0.1:{app}"

[store]
url = "embedded:{folder}/data"

[admin]
address = "off"
socket = "off"

[log]
access = "off"

[traces]
endpoint = "http://127.0.0.1:{collector}"
sample = 1.0

[[route]]
name = "pages"
match.path = "/page/**"
"""
# How often each kind of path is requested.
PAGES, OWN, BROKEN = 300, 300, 5
SERVER = 2  # SPAN_KIND_SERVER
ERROR = 2  # STATUS_CODE_ERROR


class App(http.server.BaseHTTPRequestHandler):
    """Pages that may be stored, pages that may not, and failures."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = b"hello"
        self.send_response(500 if self.path.startswith("/broken") else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Cache-Control", "max-age=60" if self.path.startswith("/page/") else "no-store")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps the spans that the collector sends, as Protocol Buffers."""

    protocol_version = "HTTP/1.1"
    spans = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        export = ExportTraceServiceRequest.FromString(body)
        for resource in export.resource_spans:
            assert attributes(resource.resource)["service.name"] == "anteroom"
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def attributes(of):
    return {one.key: one.value.string_value or one.value.int_value for one in of.attributes}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the anteroom to test")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            check(stack, folder, options.binary.resolve())
        except servers.Broken as why:
            sys.exit(f"tests/interop/collector.py: {why}")
    print("all as it must be")


def check(stack, folder, program):
    app, receiver = serve(stack, App), serve(stack, Receiver)
    ports = Ports(receiver=receiver, http=servers.free_port(), grpc=servers.free_port())
    collector = stack.enter_context(contextlib.ExitStack())
    collector.enter_context(start_collector(folder, ports))
    site = stack.enter_context(proxy(program, folder, CONFIG.format(app=app, folder=folder, collector=ports.http)))
    load(site)
    whole = PAGES + OWN + BROKEN
    until(f"{whole} whole traces", lambda: len(whole_traces(Receiver.spans)) == whole)
    what_arrived(whole_traces(Receiver.spans))

    collector.close()
    same("an answer while the collector is away", get(site, "/page/away"), 200)
    collector.enter_context(start_collector(folder, ports))
    # What is sent before the next attempt waits in the proxy.
    until("traces arrive again", lambda: get(site, "/page/back") and arrived("/page/away"))


Ports = collections.namedtuple("Ports", "receiver http grpc")


def serve(stack, handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stack.callback(server.shutdown)
    return server.server_address[1]


@contextlib.contextmanager
def start_collector(folder, ports):
    package = importlib.util.find_spec("rotel") or servers.broken("rotel is missing: pip install -r requirements.txt")
    command = [
        pathlib.Path(package.origin).parent / "rotel-agent", "start",
        "--pid-file", folder / "rotel.pid",
        "--otlp-http-endpoint", f"127.0.0.1:{ports.http}",
        "--otlp-grpc-endpoint", f"127.0.0.1:{ports.grpc}",
        "--exporter", "otlp", "--otlp-exporter-protocol", "http",
        "--otlp-exporter-endpoint", f"http://127.0.0.1:{ports.receiver}",
    ]  # fmt: skip
    with servers.process(command, folder, "collector") as child:
        servers.wait("the collector", child, folder, "collector", lambda: servers.is_open(ports.http))
        yield


@contextlib.contextmanager
def proxy(program, folder, config):
    """Yields its port."""
    file, port = folder / "proxy.toml", servers.free_port()
    file.write_text(config)
    command = [program, "run", "--config", file, "--listen", f"127.0.0.1:{port}"]
    with servers.process(command, folder, "anteroom") as child:
        servers.wait("anteroom", child, folder, "anteroom", lambda: servers.is_open(port))
        yield port


def load(site):
    for number in range(PAGES):
        get(site, f"/page/{number % 10}")
    for _ in range(OWN):
        get(site, "/own")
    for _ in range(BROKEN):
        get(site, "/broken")


def get(site, path):
    """The status."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{site}{path}", timeout=10) as answer:
            answer.read()
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


def whole_traces(spans):
    """Traces that have their first span, and each span's parent."""
    traces = collections.defaultdict(list)
    for span in list(spans):
        traces[span.trace_id].append(span)

    def is_whole(trace):
        ids = {span.span_id for span in trace} | {b""}
        return all(span.parent_span_id in ids for span in trace) and first(trace) is not None

    return [trace for trace in traces.values() if is_whole(trace)]


def first(trace):
    return next((span for span in trace if not span.parent_span_id), None)


def what_arrived(traces):
    firsts = [first(trace) for trace in traces]
    same("first spans", {span.kind for span in firsts}, {SERVER})
    names = collections.Counter(span.name for span in firsts)
    same("their names", dict(names), {"GET pages": PAGES, "GET default": OWN + BROKEN})
    caches = collections.Counter(attributes(span)["anteroom.cache"] for span in firsts)
    same("results", dict(caches), {"miss": 10, "hit_memory": PAGES - 10, "bypass": OWN + BROKEN})
    same("errors", sum(span.status.code == ERROR for span in firsts), BROKEN)
    asked = sum(any(span.name == "origin" for span in trace) for trace in traces)
    same("traces in which the app was asked", asked, 10 + OWN + BROKEN)


def arrived(path):
    return any(attributes(span).get("url.path") == path for span in list(Receiver.spans))


def same(what, found, wanted):
    if found != wanted:
        raise servers.Broken(f"{what}: {found}, not {wanted}")
    print(f"{what}: {found}")


def until(what, holds):
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > deadline:
            raise servers.Broken(f"not within {DEADLINE_S} s: {what}")
        time.sleep(0.1)
    print(what)


if __name__ == "__main__":
    main()
