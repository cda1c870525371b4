"""The parts of a run: an app alone or behind Anteroom, each from the same state."""

import asyncio
import importlib.util
import itertools
import json
import os
import pathlib
import re
import subprocess

import servers
from comparison import Comparison
from crowd import Crowd

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
APPS = ["dokuwiki", "django", "wordpress", "mediawiki"]


def build():
    if subprocess.run(["cargo", "build", "--quiet"], cwd=ROOT).returncode != 0:
        raise servers.Broken("the binary could not be built")
    return TARGET / "debug" / "anteroom"


def load(name):
    """The module of this app, installed."""
    app = module(name)
    installed = TARGET / "apps" / name
    installed.mkdir(parents=True, exist_ok=True)
    app.install(installed)
    return app


def install(names):
    """Installs these apps: the packages of all at once, then what is kept of each."""
    servers.apt(sorted({package for name in names for package in module(name).PACKAGES}))
    for name in names:
        load(name)


def module(name):
    spec = importlib.util.spec_from_file_location(f"app_{name}", HERE / name / "app.py")
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    return app


def part(folder, name):
    folder = folder / name
    folder.mkdir()
    return folder


def play_alone(app, folder, options):
    with app.start(folder) as origin:
        crowd = Crowd(app, origin.port, origin, options.seed, options.kept / app.NAME / "alone")
        visits = asyncio.run(play(crowd, options.requests))
        return crowd, visits


def compare(app, folder, binary, config):
    comparison = Comparison(app)
    with app.start(folder) as origin, servers.anteroom(binary, config, origin, folder) as port:
        asyncio.run(comparison.run(origin, port))
        if app.SCENES:
            comparison.scenes = app.SCENES(app, origin, port)
            asyncio.run(comparison.scenes.run())
            comparison.problems += comparison.scenes.problems
    return comparison


def play_behind(app, folder, binary, config, options, visits):
    kept = options.kept / app.NAME / f"behind-{config.stem}"
    crowd = None
    rate = getattr(options, "audit", None)
    audit = {"ANTEROOM__CACHE__AUDIT": rate} if rate else {}
    try:
        with app.start(folder) as origin, servers.anteroom(binary, config, origin, folder, audit) as port:
            crowd = Crowd(app, port, origin, options.seed, kept)
            crowd.networks = itertools.count() if audit else None
            asyncio.run(play(crowd, options.requests, visits))
            crowd.again, crowd.by_itself = second_questions(folder)
            if audit:
                crowd.audited = audited(binary, folder)
    except servers.Broken as why:
        # What was played until then is told all the same.
        if crowd is None:
            raise
        print(why)
        crowd.problems.append(str(why).partition("\n")[0])
    return crowd


def second_questions(folder):
    """How often the proxy asked the app again for a visitor, by reason; and how often it may have asked by itself: before
    a page expired, after a stale one was the answer, and whose a session is."""
    counts = {name: int(float(value)) for name, value in servers.metrics(folder)}
    again = {
        reason: count for name, count in counts.items() if count
        for reason in re.findall(r'^anteroom_origin_asked_again_total\{reason="(.+)"\}', name)
    }  # fmt: skip
    by_itself = [
        "anteroom_pages_refreshed_ahead_total",
        'anteroom_cache_results_total{result="hit_stale"}',
        "anteroom_verify_questions_total",
    ]
    return again, sum(counts[name] for name in by_itself)


def audited(binary, folder):
    """What the audit has found, as the command tells it."""
    words = [binary, "audit", "--json", "--socket", folder / "data" / "admin.sock"]
    with open(folder / "audit.err", "w") as complaints:
        return json.loads(servers.output([str(word) for word in words], complaints))


async def play(crowd, enough, visits=None):
    """The visits played; the crowd learns what the app was asked meanwhile."""
    await crowd.gather_regulars()
    before = len(crowd.origin.asked())
    visits = await crowd.play(enough, visits)
    crowd.asked = crowd.origin.asked()[before:]
    return visits
