"""A visitor's browser: HTTP/1.1, cookies, forms, and a cache for what pages are made of."""

import asyncio
import email.utils
import html
import re
import time
import urllib.parse
import zlib

TIMEOUT_S = 120
REDIRECTS = {301, 302, 303, 307, 308}


class BrokenOff(Exception):
    """No whole answer came to what was asked."""


class Answer:
    def __init__(self, status, fields, body, seconds):
        self.status = status
        self.fields = fields
        self.body = body
        self.seconds = seconds

    def all(self, name):
        return [value for field, value in self.fields if field == name]

    def get(self, name):
        return ", ".join(self.all(name))

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    @property
    def is_html(self):
        return self.get("content-type").startswith("text/html")

    @property
    def is_hit(self):
        return "anteroom; hit" in self.get("cache-status")

    @property
    def is_audited(self):
        """Whether a stored page would have been the answer, but for the audit."""
        return "detail=audit" in self.get("cache-status")


class Form:
    """A form of a page, as it stands: fill in `fields`, then `Browser.submit` it."""

    def __init__(self, action, method, fields):
        self.action = action
        self.method = method
        self.fields = fields


class Browser:
    """`watch(browser, method, target, answer)` sees each answer before it is used."""

    def __init__(self, port, host, watch, jar=None, address=None):
        self.port = port
        self.host = host
        self.watch = watch
        self.jar = dict(jar or {})
        # Where it comes from, where an app counts by address.
        self.local = (address, 0) if address else None
        self.kept = set()
        self.user = None
        self.reader = self.writer = None
        # Whether anything came for what was asked last.
        self.has_heard = False

    async def get(self, target):
        return await self.ask("GET", target)

    async def open(self, target, hops=5):
        """A page as it is looked at: redirects are followed, and its parts fetched."""
        answer = await self.get(target)
        return await self.follow(target, answer, hops)

    async def follow(self, target, answer, hops=5):
        while answer.status in REDIRECTS and hops:
            target = self.resolve(target, answer.get("location"))
            answer = await self.get(target)
            hops -= 1
        if answer.is_html:
            for part in parts(answer.text):
                part = self.resolve(target, part)
                if part and part not in self.kept:
                    got = await self.get(part)
                    if "no-store" not in got.get("cache-control"):
                        self.kept.add(part)
        return answer

    async def submit(self, page, form):
        """The answer itself, and where it came from: redirects are left to the caller."""
        target = self.resolve(page, form.action)
        data = urllib.parse.urlencode(form.fields)
        if form.method == "get":
            target = f"{target.partition('?')[0]}?{data}"
            return target, await self.get(target)
        return target, await self.ask("POST", target, data.encode())

    def resolve(self, page, reference):
        """The target on this host, or "" for what is elsewhere."""
        url = urllib.parse.urljoin(f"http://{self.host}{page}", html.unescape(reference))
        url = urllib.parse.urlsplit(url)
        if url.netloc != self.host:
            return ""
        return (url.path or "/") + (f"?{url.query}" if url.query else "")

    async def ask(self, method, target, body=None, more=None):
        """`more`: fields beside those of every request, and instead of them."""
        fields = {
            "Host": self.host,
            "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            "Accept": "text/html,application/xhtml+xml,*/*;q=0.8",
            "Accept-Language": "en",
            "Accept-Encoding": "gzip",
        }
        if cookies := [f"{name}={value}" for name, value in self.cookies_for(target)]:
            fields["Cookie"] = "; ".join(cookies)
        if body is not None:
            fields["Content-Type"] = "application/x-www-form-urlencoded"
            fields["Content-Length"] = len(body)
            fields["Origin"] = f"http://{self.host}"
        fields |= more or {}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        request = "\r\n".join([*lines, "", ""]).encode() + (body or b"")
        try:
            answer = await self.exchange_or_again(method, request)
        except (OSError, EOFError, asyncio.LimitOverrunError, zlib.error) as why:
            raise BrokenOff(f"{method} {target} has no whole answer: {why!r}") from why
        self.watch(self, method, target, answer)
        for line in answer.all("set-cookie"):
            self.keep(line)
        return answer

    async def exchange_or_again(self, method, request):
        begun = time.perf_counter()
        fresh = self.writer is None
        try:
            return await self.exchange_in_time(request, begun)
        except (ConnectionError, asyncio.IncompleteReadError):
            # A connection kept may be closed just then; a fresh one is not, and none amid an answer.
            if fresh or method != "GET" or self.has_heard:
                raise
            return await self.exchange_in_time(request, begun)

    async def exchange_in_time(self, request, begun):
        try:
            return await asyncio.wait_for(self.exchange(request, begun), TIMEOUT_S)
        except Exception:
            # What is left of this answer must not be read as the next one.
            await self.close()
            raise

    async def exchange(self, request, begun):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(
                "127.0.0.1", self.port, limit=1 << 20, local_addr=self.local
            )
        self.has_heard = False
        self.writer.write(request)
        await self.writer.drain()
        status, fields = await self.head()
        while status < 200:
            status, fields = await self.head()
        body = await self.read_body(status, fields)
        seconds = time.perf_counter() - begun
        if ("connection", "close") in fields:
            await self.close()
        if ("content-encoding", "gzip") in fields:
            body = zlib.decompress(body, 31)
        return Answer(status, fields, body, seconds)

    async def head(self):
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as why:
            self.has_heard = self.has_heard or bool(why.partial)
            raise
        self.has_heard = True
        lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:] if line)
        return int(lines[0].split()[1]), [(n.lower(), v.strip()) for n, _, v in pairs]

    async def read_body(self, status, fields):
        named = dict(fields)
        if status in (204, 304):
            return b""
        if "chunked" in named.get("transfer-encoding", ""):
            body = b""
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readuntil(b"\r\n")
            return body
        if "content-length" in named:
            return await self.reader.readexactly(int(named["content-length"]))
        return await self.reader.read()

    def keep(self, line):
        """A Set-Cookie, as a browser takes it. Cookies of one name may have several paths."""
        name, value, is_gone = read_cookie(line)
        path = re.search(r"(?i);\s*path=([^;]*)", line)
        key = (name, path[1].strip() if path else "/")
        self.jar.pop(key, None)
        if not is_gone:
            self.jar[key] = value

    def cookies_for(self, target):
        """RFC 6265 §5.1.4: the cookies of this path and of those above it."""
        at = target.partition("?")[0]
        for (name, path), value in self.jar.items():
            if at == path or at.startswith(path.rstrip("/") + "/"):
                yield name, value

    def has_cookie(self, is_it):
        return any(is_it(name) for name, _ in self.jar)

    async def close(self):
        if self.writer is not None:
            self.writer.close()
            self.reader = self.writer = None


def read_cookie(line):
    """Name, value, and whether it ends the cookie."""
    pair, *attributes = line.split(";")
    name, _, value = (word.strip() for word in pair.partition("="))
    named = {}
    for attribute in attributes:
        key, _, word = attribute.partition("=")
        named[key.strip().lower()] = word.strip()
    if "max-age" in named:
        return name, value, int(named["max-age"]) <= 0
    if "expires" in named:
        return name, value, email.utils.parsedate_to_datetime(named["expires"]).timestamp() < time.time()
    return name, value, False


def parts(page):
    """What a browser fetches to show this page."""
    tags = re.findall(r"<(?:link|script|img)\b[^>]*>", page)
    for tag in tags:
        if tag.startswith("<link") and not re.search(r"""rel=["'](?:stylesheet|shortcut icon|icon)["']""", tag):
            continue
        if found := re.search(r"""\b(?:src|href)=["']([^"']+)["']""", tag):
            yield found[1]


def find_form(page, mark):
    """The form in which `mark` stands, with what is in its fields. Its buttons are not pressed."""
    for tag, inside in re.findall(r"(<form\b[^>]*>)(.*?)</form>", page, re.S):
        if mark not in tag and mark not in inside:
            continue
        fields = {}
        for field in re.findall(r"<input\b[^>]*>", inside):
            named = attributes(field)
            if named.get("type") not in ("submit", "button", "checkbox", "image") and "name" in named:
                fields[named["name"]] = named.get("value", "")
        for field, text in re.findall(r"(<textarea\b[^>]*>)(.*?)</textarea>", inside, re.S):
            # Browsers drop the newline behind the tag, and send CRLF.
            text = html.unescape(text).removeprefix("\r\n").removeprefix("\n")
            fields[attributes(field)["name"]] = re.sub(r"\r?\n", "\r\n", text)
        named = attributes(tag)
        return Form(named.get("action", ""), named.get("method", "get").lower(), fields)
    raise LookupError(f"no form with {mark}")


def attributes(tag):
    pairs = re.findall(r"""([\w-]+)=(?:"([^"]*)"|'([^']*)')""", tag)
    return {name: html.unescape(one or other) for name, one, other in pairs}
