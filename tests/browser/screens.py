"""The dashboard's screens in headless Chromium: the proxy whose screens they are, what is looked at, and what must be so.

Needs Debian's chromium and chromium-driver, and npm once, for axe-core.
"""

import argparse
import contextlib
import http.server
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
PACKAGES = TARGET / "dashboard"
AXE = PACKAGES / "node_modules" / "axe-core" / "axe.min.js"
sys.path[:0] = [str(HERE.parent / "apps")]

import servers  # noqa: E402
import webdriver  # noqa: E402

TOKENS = {"admin": "7c1d0b5e9a8f4c32", "reader": "19f0aa36d2c74e58"}
# Stands at the end of each configuration.
OPERATORS = """
[admin]
token = {{ file = "{folder}/admin.token" }}

[[admin.tokens]]
name = "reader"
role = "read"
token = {{ file = "{folder}/reader.token" }}
"""
SCREENS = {
    "now": "Now",
    "routes": "Routes",
    "misses": "Misses",
    "crowd": "Crowd",
    "cookies": "Cookies",
    "learn": "Learn",
    "differences": "Differences",
    "sessions": "Sessions",
    "purge": "Purge",
    "origins": "Origins",
    "rows": "Rows",
    "certificates": "Certificates",
    "fleet": "Fleet",
    "config": "Configuration",
    "audit": "Audit",
}
WIDTHS = {"wide": (1280, 900), "middle": (1024, 768), "narrow": (360, 740)}
THEMES = ["light", "dark"]

# Runs before each page: the policy's refusals do not all reach the console, and streams are seen nowhere else.
WATCH = """
window.refusedByPolicy = [];
document.addEventListener('securitypolicyviolation', (event) => {
  window.refusedByPolicy.push(`${event.violatedDirective}: ${event.blockedURI}`);
});
window.streams = [];
window.EventSource = class extends EventSource {
  constructor(...how) {
    super(...how);
    window.streams.push(this);
  }
};
window.alert = () => window.refusedByPolicy.push('a script of a visitor ran');
"""
FINDINGS = """
const result = await axe.run(document);
return result.violations
  .filter(({ impact }) => ['serious', 'critical'].includes(impact))
  .map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 200)}`);
"""
# What is wider than the screen; what scrolls in a box of its own is not.
TOO_WIDE = """
const width = document.documentElement.clientWidth;
const wide = [...document.querySelectorAll('body *')].filter((element) =>
  element.getBoundingClientRect().right > width + 1 && !element.closest('nav, pre, .skip'));
const names = wide.slice(0, 3).map((element) => element.outerHTML.slice(0, 120));
if (document.documentElement.scrollWidth > width) names.push('the page scrolls sideways');
return names;
"""

problems = []


# The run


def run(description, test, *options):
    """The program: `test` gets the binary, a folder, what closes at its end, and the options."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--binary", type=pathlib.Path, help="the one to test; none is built then")
    for names, how in options:
        parser.add_argument(names, **how)
    options = parser.parse_args()
    program = pathlib.Path(sys.argv[0]).name
    try:
        install()
        binary = options.binary.resolve() if options.binary else build()
        with contextlib.ExitStack() as stack:
            test(binary, new_folder(stack), stack, options)
    except KeyboardInterrupt:
        sys.exit(f"tests/browser/{program}: stopped")
    except (servers.Broken, webdriver.Refused, OSError) as why:
        sys.exit(f"tests/browser/{program}: {why}")
    print(f"FAILED: {', '.join(problems)}" if problems else "all as it must be")
    sys.exit(1 if problems else 0)


def new_folder(stack):
    # Chromium's last processes may write for a moment longer.
    folder = tempfile.TemporaryDirectory(prefix="anteroom-dashboard-", ignore_cleanup_errors=True)
    return pathlib.Path(stack.enter_context(folder))


def install():
    """axe-core, at the version of the lock. The copy of the lock goes in last: all is there."""
    lock, installed = HERE / "package-lock.json", PACKAGES / "installed.json"
    if installed.is_file() and installed.read_bytes() == lock.read_bytes():
        return
    if not shutil.which("npm"):
        raise servers.Broken("npm is missing: install npm")
    PACKAGES.mkdir(parents=True, exist_ok=True)
    for file in ["package.json", "package-lock.json"]:
        shutil.copyfile(HERE / file, PACKAGES / file)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    if subprocess.run(command, cwd=PACKAGES, stdout=subprocess.DEVNULL).returncode != 0:
        raise servers.Broken("npm could not install axe-core")
    shutil.copyfile(lock, installed)


def build():
    if subprocess.run(["cargo", "build", "--quiet", "--bins"], cwd=ROOT).returncode != 0:
        raise servers.Broken("the binary could not be built")
    return TARGET / "debug" / "anteroom"


# The sites and the proxy


class App(http.server.BaseHTTPRequestHandler):
    """An app that answers by `reply`, and says nothing of it."""

    protocol_version = "HTTP/1.1"

    def reply(self, status, text, *fields, kind="text/html; charset=utf-8"):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for field in fields:
            self.send_header(*field)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def site(handler):
    """Serves with this handler; yields the port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def proxy(binary, folder, config, app, settings=None, listen=("--listen", "127.0.0.1:0")):
    """The proxy; yields its process, the port of visitors and that of operators. Its file is proxy.toml; `settings` are in
    its environment, and `listen` has the words for its listeners, if its file does not name them."""
    for name, token in TOKENS.items():
        file = folder / f"{name}.token"
        file.write_text(token)
        file.chmod(0o600)
    file = folder / "proxy.toml"
    file.write_text(config + OPERATORS.format(folder=folder))
    command = [binary, "run", "--config", file, *listen, "--admin", "127.0.0.1:0"]
    command += ["--origin", f"http://127.0.0.1:{app}", "--store", f"embedded:{folder / 'data'}"]
    log = {"ANTEROOM__LOG__TO": str(folder / "requests.log")}
    with servers.process(command, folder, "anteroom", env={**log, **(settings or {})}) as child:
        ports = [
            int(servers.wait(
                "anteroom", child, folder, "anteroom",
                lambda: re.search(rf"{what} at http://127\.0\.0\.1:(\d+)", servers.said(folder, "anteroom")),
            )[1])
            for what in ["visitors are served", "health and metrics are"]
        ]  # fmt: skip
        yield child, *ports


# What is done


@contextlib.contextmanager
def browser(folder, driver=None):
    """A browser that is watched."""
    with contextlib.ExitStack() as stack:
        driver = driver or stack.enter_context(webdriver.chromedriver(folder))
        opened = stack.enter_context(driver.browser("operator", "--force-prefers-reduced-motion"))
        opened.devtools("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        yield opened


def enter(browser, name):
    """Logs in with the token of this name."""
    browser.fill("input[name=token]", TOKENS[name])
    browser.click(".login button")


def look(browser, width, theme):
    """Makes the screen so wide, and the system's theme so."""
    wide, high = WIDTHS[width]
    browser.devtools(
        "Emulation.setDeviceMetricsOverride", width=wide, height=high, deviceScaleFactor=1, mobile=False
    )
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.devtools("Emulation.setEmulatedMedia", features=[scheme])


def show(browser, screen):
    """Goes to a screen, and waits until it has its figures."""
    browser.run("location.hash = `#/${arguments[0]}`", screen)
    check(browser, f"{SCREENS[screen]}: opens", lambda: browser.shown("h1"), SCREENS[screen], quiet=True)
    # Each table shows rows, or says why there are none; each figure has a value.
    is_there = """
      const isShown = (element) => !element.hidden;
      const tables = [...document.querySelectorAll('main .table')];
      return tables.every((table) => [...table.children].some(isShown));
    """
    check(browser, f"{SCREENS[screen]}: figures", lambda: browser.run(is_there), True, quiet=True)


def open_first_row(browser):
    browser.run("document.querySelector('tbody button.open[aria-expanded=false]')?.click()")


def go_to(browser, title):
    click_text(browser, "nav a", title)
    check(browser, f"{title}: opens", lambda: browser.shown("h1"), title, quiet=True)


def click_text(browser, css, text):
    """Clicks the element that has this text."""
    mark = """
      const found = [...document.querySelectorAll(arguments[0])].find((one) => one.textContent === arguments[1]);
      found?.setAttribute('data-clicked', '');
      return found !== undefined;
    """
    check(browser, f"{text} is there", lambda: browser.run(mark, css, text), True, quiet=True)
    browser.click("[data-clicked]")
    browser.run("document.querySelector('[data-clicked]')?.removeAttribute('data-clicked')")


def copied(browser, block):
    """What the button Copy of a block puts into the clipboard."""
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    browser.devtools("Browser.grantPermissions", permissions=permissions)
    browser.click(f"{block} button")
    told = "return document.querySelector(arguments[0]).textContent"
    check(browser, "copied", lambda: browser.run(told, f"{block} .told"), "Copied.", quiet=True)
    return browser.run("return navigator.clipboard.readText()")


def paste(file, lines):
    """Puts lines where an operator puts them: below the heading that they name, if the file has it, instead of lines
    with the same keys there; else at the end."""
    text = file.read_text()
    for part in re.split(r"\n\n+", lines.strip()):
        head, _, rest = part.partition("\n")
        named = re.fullmatch(r'# in the \[\[route\]\] named ("[^"]*"):', head)
        if named:
            text = text.replace(f"name = {named[1]}\n", f"name = {named[1]}\n{rest}\n")
        elif f"\n{head}\n" in text and not head.startswith("[["):
            text = in_table(text, head, rest)
        else:
            text += f"\n{part}\n"
    file.write_text(text)


def in_table(text, head, lines):
    """The text of a file with these lines below a heading."""
    before, after = text.split(f"\n{head}\n", 1)
    table, heading, others = after.partition("\n[")
    keys = set(re.findall(r"(?m)^(\w+) = ", lines))
    kept = [line for line in table.splitlines() if line.partition(" = ")[0] not in keys]
    return f"{before}\n{head}\n{lines}\n" + "".join(f"{line}\n" for line in kept) + heading + others


# What is seen


def is_sound(browser, title):
    """What holds for each screen: no serious finding of axe-core, not too wide, no error, no markup of visitors."""
    same(f"{title}: findings", findings(browser), [])
    same(f"{title}: too wide", browser.run(TOO_WIDE), [])
    same(f"{title}: errors", errors(browser), [])
    same(f"{title}: markup of visitors", browser.run("return document.images.length"), 0)


def findings(browser):
    if not browser.run("return typeof axe === 'object'"):
        browser.call("POST", "/execute/sync", {"script": AXE.read_text(), "args": []})
    return browser.run(FINDINGS)


def errors(browser):
    """What the console has told as an error since the last time, and what the policy refused."""
    told = [text for level, text in browser.console() if level == "SEVERE"]
    return told + browser.run("return window.refusedByPolicy.splice(0)")


def check(browser, what, see, wanted, quiet=False):
    """What must be seen, sooner or later."""
    same(what, browser.until(see, wanted), wanted, quiet)


def same(what, seen, wanted, quiet=False):
    """What must be so now; tells what it is, or, if quiet, only a failure."""
    if seen != wanted:
        print(f"  FAILED  {what}: {seen!r:.600}, and not {wanted!r:.600}")
        problems.append(what)
    elif not quiet:
        print(f"  ok      {what}: {seen!r:.200}")
