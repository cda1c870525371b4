"""Anteroom before the site: learning, or serving with what it has learned."""

import contextlib
import json
import pathlib
import re
import sys
import time

import servers
import shop

HERE = pathlib.Path(__file__).resolve().parent
# How long the report may lag behind the requests.
LAG_S = 20
# Where the site is stands in the command.
LEARNS = f"""[origin]
url = "http://127.0.0.1:3000"
hosts = ["{shop.HOST}"]

[client]
trusted_proxies = ["127.0.0.1"]

[cache]
mode = "learn"

[limits]
drain_delay = "0s"
"""
NAMES_SESSION = """
[session]
cookie = ["sid"]
"""


class Proxy:
    """One that runs, and what it is asked by its commands."""

    def __init__(self, program, folder, port):
        self.program, self.folder, self.port = program, folder, port

    def command(self, *words):
        socket = ["--socket", self.folder / "data" / "admin.sock"]
        return run(self.program, *words, *socket, cwd=self.folder)

    def report(self, requests):
        """What it has learned of so many requests, or of all that it knows of in the time."""
        deadline = time.monotonic() + LAG_S
        while True:
            report = json.loads(self.command("learn", "report", "--json"))
            if report["requests"] >= requests or time.monotonic() > deadline:
                return report
            time.sleep(0.2)

    def write(self, file):
        self.command("learn", "report", "--write", file)


class Site:
    """The site, as `servers.anteroom` wants it."""

    def __init__(self, port):
        self.port = port


@contextlib.contextmanager
def site(folder):
    with servers.process([sys.executable, "-B", HERE / "origin.py"], folder, "origin") as child:
        found = servers.wait("the site", child, folder, "origin", lambda: re.match(r"\d+\n", said_by_site(folder)))
        yield Site(int(found[0]))


def said_by_site(folder):
    return (folder / "origin.out").read_text()


@contextlib.contextmanager
def before_site(program, config, folder):
    """Anteroom with this configuration and an empty store, before a site that has seen nothing."""
    with site(folder) as origin:
        # Commands find the configuration here.
        (folder / "proxy.toml").write_text(config)
        with servers.anteroom(program, folder / "proxy.toml", origin, folder) as port:
            yield Proxy(program, folder, port)


def check(program, config, folder):
    run(program, "check", "--config", config, cwd=folder)


def run(*words, cwd):
    """What the command prints. It must succeed."""
    with open(cwd / "command.err", "w") as complaints:
        return servers.output([str(word) for word in words], complaints, cwd=cwd)
