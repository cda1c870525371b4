"""Whether answers stay as they were: the same targets of the same state, from the app and through Anteroom.

Bodies are compared byte by byte, and all fields but those of the exchange itself and what Anteroom adds or
takes away on purpose."""

import collections
import email.utils
import re

from browser import Browser, BrokenOff, parts
from people import PEOPLE

# What tells of one exchange, of how the body was carried, and of the caches on the way.
OF_THE_EXCHANGE = {
    "age", "cache-status", "connection", "content-length", "date", "keep-alive", "transfer-encoding", "via",
    # Of tests/every-key.
    "x-every-key", "x-request-id",
}  # fmt: skip
# What an answer to a known visitor gets where the app says nothing to caches.
PRIVATE = [("cache-control", "private, no-cache"), ("vary", "cookie")]
# What compression on the way adds.
CODED = ("content-encoding", "gzip")
BY_CODING = ("vary", "Accept-Encoding")
VALIDATORS = {"etag", "last-modified"}
# An answer that is stale at once says so by the time at which the app made it; the server dates it later.
AT_ONCE_S = 2
PUBLIC_PAGES = 20
KNOWN_PAGES = 8

Level = collections.namedtuple("Level", "status fields body")


class Comparison:
    def __init__(self, app):
        self.app = app
        self.problems = []
        self.differences = collections.Counter()
        # Answers through Anteroom that were held against the app's, by what they are, and those from the cache.
        self.compared = collections.Counter()
        self.hits = 0
        self.scenes = None

    async def run(self, origin, port):
        self.origin, self.proxy = origin.port, port
        pages, forms = self.app.public_pages()[:PUBLIC_PAGES], self.app.FORMS
        shown_with = await self.parts_of(pages)
        await self.compare("nobody", "pages", pages, is_public=True)
        await self.compare("nobody", "parts", shown_with, is_public=True)
        await self.compare("nobody", "forms", forms)
        # A visitor with the cookie that the app gives to all is nobody, too.
        regular = self.browser(self.origin)
        await regular.get(forms[0])
        await regular.close()
        await self.compare("a regular", "pages", pages, jar=regular.jar, as_nobody=True, is_public=True)
        await self.compare("a regular", "parts", shown_with, jar=regular.jar, is_public=True)
        await self.compare_known(PEOPLE[0], shown_with)

    async def compare_known(self, person, shown_with):
        browser = self.browser(self.origin)
        await self.app.log_in(browser, person)
        await browser.close()
        pages = [*self.app.public_pages()[:KNOWN_PAGES], self.app.own_page(person)]
        pages += [target for target, _ in self.app.personal_pages(person)]
        await self.compare(person.login, "pages", pages, jar=browser.jar)
        await self.compare(person.login, "parts", shown_with, jar=browser.jar)
        await self.compare(person.login, "forms", [self.app.edit_form(person)], jar=browser.jar)

    def browser(self, port, jar=None):
        return Browser(port, self.app.HOST, lambda *_: None, jar)

    async def parts_of(self, pages):
        """What these pages are shown with: styles, scripts and images, each once."""
        found = {}
        browser = self.browser(self.origin)
        for page in pages:
            answer = await browser.get(page)
            found |= dict.fromkeys(browser.resolve(page, part) for part in parts(answer.text))
        found = [target for target in found if target]
        for target in found:
            # What an app makes at the first request has another time then.
            await browser.get(target)
        await browser.close()
        return found

    async def compare(self, who, what, targets, jar=None, as_nobody=False, is_public=False):
        """`as_nobody`: what comes through Anteroom is held against what the app answers to strangers.
        `is_public`: a stored answer must have been compared, in the end."""
        for target in targets:
            where = f"{target} for {who}"
            try:
                own = [await self.get(self.origin, target, {} if as_nobody else jar) for _ in range(2)]
                carried = [await self.get(self.proxy, target, jar) for _ in range(2)]
                # Of a URL that may be a secret, the first request is the visitor's own, and the second is stored.
                if is_public and not carried[-1].is_hit:
                    carried.append(await self.get(self.proxy, target, jar))
            except BrokenOff as why:
                self.problems.append(f"{where}: {why}")
                continue
            self.hold(where, own, carried)
            self.compared[what] += len(carried)
            self.hits += sum(answer.is_hit for answer in carried)
            if is_public and not carried[-1].is_hit:
                status = carried[-1].get("cache-status")
                self.problems.append(f"{where} is not from the cache in the end: {status}")

    async def get(self, port, target, jar):
        browser = self.browser(port, jar)
        answer = await browser.get(target)
        await browser.close()
        return answer

    def hold(self, where, own, carried):
        first, wanted = map(self.level, own)
        if first != wanted:
            self.problems.append(f"{where} differs by itself: {differs(first, wanted)}")
        for answer in carried:
            expected = as_carried(wanted, answer)
            seen = without_additions(self.level(answer), expected)
            if seen != expected:
                self.problems.append(f"{where} is not as it was: {differs(expected, seen)}")

    def level(self, answer):
        """Without what differs by nature, or tells of the exchange."""
        body = answer.body
        for name, pattern in self.app.DIFFERS:
            body, count = re.subn(pattern.encode(), rb"\1", body)
            self.differences[name] += count
        fields = [(name, value) for name, value in answer.fields if name not in OF_THE_EXCHANGE]
        date = answer.get("date")
        max_age = re.search(r"max-age=(\d+)", answer.get("cache-control"))
        lifetime = int(max_age[1]) if max_age else 0
        return Level(answer.status, sorted(level_field(field, date, lifetime) for field in fields), body)


def level_field(field, date, max_age):
    """A cookie without its value and its end, and a lifetime that ends with the answer itself or is the one of
    `max-age`: they are new each time."""
    name, value = field
    if name == "expires" and date:
        lifetime = seconds(value) - seconds(date)
        if abs(lifetime) <= AT_ONCE_S:
            value = "at once"
        elif abs(lifetime - max_age) <= AT_ONCE_S:
            value = "as max-age says"
    if name == "set-cookie":
        value = re.sub(r"^\s*([^=]+)=[^;]*", r"\1=", value)
        value = re.sub(r"(?i)(expires=)[^;]*", r"\1", value)
    return name, value


def seconds(date):
    """A date of HTTP as Unix time; what is none is long ago (RFC 9111 §5.3)."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp()
    except ValueError:
        return 0


def as_carried(wanted, answer):
    """What the app's answer must be once Anteroom has carried it: a stored one without cookies, and where
    it was compressed on the way, with a tag that says so, and not to be had in parts."""
    fields = wanted.fields
    if answer.is_hit or "stored" in answer.get("cache-status"):
        fields = [field for field in fields if field[0] != "set-cookie"]
    if is_coded(answer.fields) and not is_coded(fields):
        fields = [(name, weak(value) if name == "etag" else value) for name, value in fields]
        fields = [field for field in fields if field[0] != "accept-ranges"]
        fields.append(CODED)
    return wanted._replace(fields=sorted(fields))


def is_coded(fields):
    return CODED in fields


def weak(tag):
    return tag if tag.startswith("W/") else f"W/{tag}"


def without_additions(seen, expected):
    """Without what Anteroom adds on purpose: a validator to what is stored without one, what compression
    depends on, and a word to caches where a visitor is known and the app has none for them."""
    fields, names = list(seen.fields), {name for name, _ in expected.fields}
    if not names & VALIDATORS:
        fields = [field for field in fields if field[0] != "etag"]
    added = [BY_CODING] if "cache-control" in names else [BY_CODING, *PRIVATE]
    for field in added:
        if field in fields and field not in expected.fields:
            fields.remove(field)
    return seen._replace(fields=fields)


def differs(one, other):
    """Where they do, in short."""
    if one.status != other.status:
        return f"{one.status} / {other.status}"
    if one.fields != other.fields:
        only = [[f for f in a.fields if f not in b.fields] for a, b in ((one, other), (other, one))]
        return f"{only[0]} / {only[1]}"
    pairs = enumerate(zip(one.body, other.body))
    at = next((n for n, (a, b) in pairs if a != b), min(len(one.body), len(other.body)))
    return f"{one.body[max(at - 40, 0):at + 60]!r} / {other.body[max(at - 40, 0):at + 60]!r}"
