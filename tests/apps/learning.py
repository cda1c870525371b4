"""Anteroom in learn mode before an app, its report, and what of it is right."""

import asyncio
import contextlib
import json
import re
import shutil
import time
import urllib.parse
import urllib.request

import servers
from browser import Browser
from crowd import Crowd
from playing import play

# Verdicts on pages that must not be shared as they are.
LEAKS = {"own-words", "by-visitor", "by-cookie", "differs"}
# How far, in points of a hundred, the share of hits may be from the predicted one.
POINTS = 5
# By how much, in hundredths, the number of counted requests may differ from that of the sent ones.
UNCOUNTED = 2
# How long the report may lag behind the requests.
LAG_S = 20


class LearnersCrowd(Crowd):
    """A crowd whose visitors have addresses of their own, as visitors have; learn mode tells them apart.

    Pages end by time, and learn mode answers more slowly than a cache. So the second run of a script begins each visit
    when the first one did: `begun` has these moments."""

    def __init__(self, *words, begun=None):
        super().__init__(*words)
        self.browsers = 0
        self.is_second = begun is not None
        self.begun = begun or {}
        self.start = None

    def browser(self, port=None, jar=None, address=None):
        self.browsers += 1
        own = f"127.2.{self.browsers // 250}.{self.browsers % 250 + 1}"
        return super().browser(port, jar, address or own)

    async def visit(self, number):
        now = asyncio.get_running_loop().time()
        self.start = self.start or now
        if self.is_second:
            await asyncio.sleep(self.begun.get(number, 0) - (now - self.start))
        else:
            self.begun[number] = now - self.start
        await super().visit(number)


class Proxy:
    """A running Anteroom, and what it is asked by its commands."""

    def __init__(self, program, config, folder, port):
        self.program, self.config, self.folder, self.port = program, config, folder, port

    def command(self, *words):
        socket = ["--socket", self.folder / "data" / "admin.sock"]
        return run(self.program, *words, *socket, cwd=self.folder)

    def report(self, requests, kept):
        """The report that has counted so many requests, or what there is of it in the end. A copy is kept."""
        deadline = time.monotonic() + LAG_S
        while True:
            report = json.loads(self.command("learn", "report", "--json"))
            if report["requests"] >= requests or time.monotonic() > deadline:
                kept.write_text(json.dumps(report, indent=1))
                return report
            time.sleep(0.2)

    def write(self, file):
        self.command("learn", "report", "--write", file)

    def results(self, kept):
        """How often each result was counted. A copy of all figures is kept."""
        at = re.search(r"health and metrics are at (\S+)", servers.said(self.folder, "anteroom"))[1]
        with urllib.request.urlopen(f"{at}/metrics") as answer:
            text = answer.read().decode()
        kept.write_text(text)
        counted = re.findall(r'^anteroom_request_seconds_count\{.*?result="(\w+)".*?\} (\d+)', text, re.M)
        results = {}
        for result, count in counted:
            results[result] = results.get(result, 0) + int(count)
        return results


def run(*words, **options):
    """What the command prints. It must succeed."""
    folder = options["cwd"]
    with open(folder / "command.err", "w") as complaints:
        return servers.output([str(word) for word in words], complaints, **options)


@contextlib.contextmanager
def before(app_origin, program, config, folder):
    # Commands that are told the socket find the configuration here.
    shutil.copyfile(config, folder / "proxy.toml")
    with servers.anteroom(program, config, app_origin, folder) as port:
        yield Proxy(program, config, folder, port)


def learned(app, folder, binary, config, options, visits, begun=None):
    """Plays the script to the app behind a learning Anteroom; visits begin when `begun` says. Returns the crowd, the
    report, the written configuration, and the pages of the report as two loads from the app show them."""
    written = folder / "written.toml"
    with app.start(folder) as origin, before(origin, binary, config, folder) as proxy:
        kept = options.kept / app.NAME / folder.name
        crowd = LearnersCrowd(app, proxy.port, origin, options.seed, kept, begun=begun)
        asyncio.run(play(crowd, options.requests, visits))
        report = proxy.report(len(crowd.requests), crowd.kept / "report.json")
        shutil.copyfile(folder / "requests.log", crowd.kept / "requests.log")
        proxy.write(written)
        loads = {page["path"]: asyncio.run(load_twice(app, origin, page)) for page in report["pages"]}
    return crowd, report, written, loads


def served(app, folder, binary, config, options, visits, begun):
    """The same, behind a serving one. Returns the crowd, and how often each result was counted."""
    with app.start(folder) as origin, before(origin, binary, config, folder) as proxy:
        kept = options.kept / app.NAME / folder.name
        crowd = LearnersCrowd(app, proxy.port, origin, options.seed, kept, begun=begun)
        asyncio.run(play(crowd, options.requests, visits))
        shutil.copyfile(folder / "requests.log", kept / "requests.log")
        return crowd, proxy.results(kept / "metrics")


async def load_twice(app, origin, page):
    """What a stranger gets at this path, and then what a visitor with the app's cookie gets, two times each. Values of
    parameters are not reported."""
    if page["parameters"]:
        return []
    stranger, regular = (Browser(origin.port, app.HOST, lambda *_: None) for _ in range(2))
    await regular.get(app.FORMS[0])
    texts = []
    for browser in [stranger, stranger, regular, regular]:
        texts.append((await browser.get(urllib.parse.quote(page["path"], safe="/%:"))).text)
    await stranger.close()
    await regular.close()
    return texts


def differs_by_cookie(loads):
    """Whether a visitor with the app's cookie sees each time what a stranger never sees."""
    if not loads:
        return False
    one, two, own, again = (set(re.split(r"(?=[<\n{,])", text)) for text in loads)
    return bool((own & again) - (one | two))


def prediction(crowd, report, second, results):
    """Whether the predicted share of hits came true."""
    if crowd.share_of_hits(lambda _: True)[0]:
        yield "learn: an answer came from the cache"
    sent = len(crowd.requests)
    if abs(report["requests"] - sent) * 100 > UNCOUNTED * sent:
        yield f"learn: {report['requests']} requests are counted, and {sent} were sent"
    predicted = report["hit_percent"]
    hits = sum(count for result, count in results.items() if result.startswith("hit"))
    real = 100 * hits / max(sum(results.values()), 1)
    seen, _, number = second.share_of_hits(lambda _: True)
    print(f"    predicted {predicted:5.1f} % of {report['requests']} hit, {report['unknown']} of them not known")
    told = ", ".join(f"{count} {result}" for result, count in sorted(results.items()))
    print(f"    real      {real:5.1f} % of {sum(results.values())}: {told}; visitors saw {seen:.1f} % of {number}")
    if abs(predicted - real) > POINTS:
        yield f"predicted {predicted:.1f} % hit, and {real:.1f} % did: more than {POINTS} points between them"


def pages(app, report, loads):
    """Of an app that is configured as it should be no page leaks; and what it answers alike is not reported."""
    print(f"    {report['compared_pages']} pages compared, {report['same_pages']} the same, and reported:")
    for page in report["pages"]:
        where = f"{page['path']} {page['parameters'] or ''}"
        told = " ".join(str(page[key]) for key in ("verdict", "finding", "cookie") if page[key])
        print(f"      {where:50} {told}: {page['visitors']} visitors, {page['answers']} answers")
        differing = [name for name, pattern in app.DIFFERS if any(re.search(pattern, t) for t in loads[page["path"]])]
        if page["verdict"] == "own-words" and page["path"] == getattr(app, "OWN_WORDS", None):
            continue
        if page["verdict"] == "by-cookie" and differs_by_cookie(loads[page["path"]]):
            print("        and so it is: with the app's cookie it is another page")
            continue
        if page["verdict"] in LEAKS:
            yield f"learn: {where} is reported as {told}"
        elif loads[page["path"]] and not differing and len(set(loads[page["path"]])) == 1:
            yield f"learn: {where} is reported as {told}, and is the same each time"


def cookies(app, report):
    """A cookie that keeps a login must be called one."""
    for cookie in report["cookies"]:
        print(f"      {cookie['name']:50} {cookie['class']}, {cookie['verdict']}: {cookie['text']}")
        if app.keeps_log_in(cookie["name"]) and cookie["verdict"] != "session":
            yield f"first hour: {cookie['name']} is the login, and is called {cookie['verdict']}"
    if not any(app.keeps_log_in(cookie["name"]) for cookie in report["cookies"]):
        yield "first hour: the cookie of the login is not reported"
