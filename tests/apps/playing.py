"""The parts of a run: an app alone or behind Anteroom, each from the same state."""

import asyncio
import importlib.util
import os
import pathlib
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
    spec = importlib.util.spec_from_file_location(f"app_{name}", HERE / name / "app.py")
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    installed = TARGET / "apps" / name
    installed.mkdir(parents=True, exist_ok=True)
    app.install(installed)
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
    try:
        with app.start(folder) as origin, servers.anteroom(binary, config, origin, folder) as port:
            crowd = Crowd(app, port, origin, options.seed, kept)
            asyncio.run(play(crowd, options.requests, visits))
    except servers.Broken as why:
        # What was played until then is told all the same.
        if crowd is None:
            raise
        print(why)
        crowd.problems.append(str(why).partition("\n")[0])
    return crowd


async def play(crowd, enough, visits=None):
    """The visits played; the crowd learns what the app was asked meanwhile."""
    await crowd.gather_regulars()
    before = len(crowd.origin.asked())
    visits = await crowd.play(enough, visits)
    crowd.asked = crowd.origin.asked()[before:]
    return visits
