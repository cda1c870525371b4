"""Chromium by the WebDriver protocol (https://www.w3.org/TR/webdriver2/): JSON over HTTP to chromedriver.

Browsers keep all that they write in a folder of the run, and ask nobody but loopback addresses.
"""

import contextlib
import json
import os
import re
import time
import urllib.error
import urllib.request

import servers

# How long a step may take on a machine that has much else to do.
PATIENCE_S = 30
PAUSE_S = 0.02
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
FLAGS = [
    "--headless=new",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    # What a browser asks the world for by itself.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--disable-quic",
    "--no-pings",
    "--no-proxy-server",
    "--disable-features=AutofillServerCommunication,NetworkTimeServiceQuerying,OptimizationHints",
    # And what is left finds no address.
    "--host-resolver-rules=MAP *.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]


class Refused(Exception):
    """What was asked of the browser did not work: with the protocol's name of the error."""

    def __init__(self, error, message):
        super().__init__(f"{error}: {message}")
        self.error = error


class Driver:
    """A running chromedriver."""

    def __init__(self, folder, port):
        self.folder = folder
        self.base = f"http://127.0.0.1:{port}"

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with LOCAL.open(request, timeout=2 * PATIENCE_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as answer:
            value = json.load(answer)["value"]
            raise Refused(value["error"], value["message"].splitlines()[0]) from None

    @contextlib.contextmanager
    def browser(self, name, *flags):
        """A browser with a profile of its own, which nobody has used."""
        arguments = [*FLAGS, *flags, f"--user-data-dir={self.folder / name}"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")
        chrome = {"binary": servers.binary("chromium"), "args": arguments}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": chrome,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        browser = Browser(self, session["sessionId"], session["capabilities"]["browserVersion"])
        try:
            yield browser
        finally:
            self.call("DELETE", browser.path)


# Whatever proxy the environment names is not asked.
LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextlib.contextmanager
def chromedriver(folder):
    """chromedriver on a port that it finds. Browsers that are left end with it."""
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    command = [servers.binary("chromedriver"), "--port=0"]
    with servers.process(command, folder, "chromedriver", env={**home, "TMPDIR": str(folder)}) as child:
        found = servers.wait(
            "chromedriver", child, folder, "chromedriver",
            lambda: re.search(r"successfully on port (\d+)", servers.said(folder, "chromedriver")),
        )  # fmt: skip
        yield Driver(folder, found[1])


class Browser:
    """A browser, and the tab in it that is looked at."""

    def __init__(self, driver, session, version):
        self.driver = driver
        self.path = f"/session/{session}"
        self.version = version

    def call(self, method, path, body=None):
        return self.driver.call(method, self.path + path, body)

    def go(self, url):
        self.call("POST", "/url", {"url": url})

    def back(self):
        self.call("POST", "/back", {})

    def address(self):
        return self.call("GET", "/url")

    def tab(self):
        return self.call("GET", "/window")

    def new_tab(self):
        """Opens a tab and looks at it."""
        self.look_at(self.call("POST", "/window/new", {"type": "tab"})["handle"])

    def look_at(self, tab):
        self.call("POST", "/window", {"handle": tab})

    def element(self, css):
        found = self.call("POST", "/element", {"using": "css selector", "value": css})
        return f"/element/{found[ELEMENT]}"

    def click(self, css):
        self.call("POST", f"{self.element(css)}/click", {})

    def fill(self, css, text):
        """Types this into a field, instead of what stands there."""
        field = self.element(css)
        self.call("POST", f"{field}/clear", {})
        self.call("POST", f"{field}/value", {"text": text})

    def run(self, script, *arguments):
        """What the body of an async function comes to in the page."""
        script = f"return (async () => {{ {script} }})()"
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def press(self, key):
        """Presses a key, by the protocol's character for it, where the focus is."""
        steps = [{"type": kind, "value": key} for kind in ["keyDown", "keyUp"]]
        keyboard = {"type": "key", "id": "keyboard", "actions": steps}
        self.call("POST", "/actions", {"actions": [keyboard]})

    def devtools(self, command, **parameters):
        """A command of Chromium's own protocol."""
        body = {"cmd": command, "params": parameters}
        return self.call("POST", "/goog/cdp/execute", body)

    def console(self):
        """What the console has said since the last time: levels and texts."""
        lines = self.call("POST", "/se/log", {"type": "browser"})
        return [(line["level"], line["message"]) for line in lines]

    def shown(self, css):
        """The text of an element as it is seen, `None` where it is hidden; raises where it is not there."""
        element = self.element(css)
        if not self.call("GET", f"{element}/displayed"):
            return None
        return self.call("GET", f"{element}/text")

    def is_hidden(self, css):
        """Whether an element is there, and nobody sees it; raises where it is not there."""
        return not self.call("GET", f"{self.element(css)}/displayed")

    def until(self, see, wanted, patience_s=PATIENCE_S):
        """What is seen, as soon as it is as wanted; else what is seen in the end, or why nothing is."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                seen = see()
            except Refused as why:
                # A page that is just going away answers nothing.
                seen = f"({why})"
            if seen == wanted or time.monotonic() > deadline:
                return seen
            time.sleep(PAUSE_S)
