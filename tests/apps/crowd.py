"""A crowd of visitors: most read, some log in, edit and log out; and what each of them must see.

The script is made from a seed, and each visit from the seed and its number, so that the same script
can be played to the app alone and to the app behind Anteroom.
"""

import asyncio
import collections
import random
import re
import statistics
import traceback

from browser import Browser, BrokenOff, read_cookie
from people import PEOPLE, told_of

WORKERS = 8
NETWORKS = 200
PROBLEMS_SHOWN = 20
# Behind so many visits without a whole answer, nobody is there.
GIVEN_UP = 50

Request = collections.namedtuple("Request", "known doing is_page is_hit is_audited seconds")
# A page that came without its text.
Blank = collections.namedtuple("Blank", "target body is_hit")


class Crowd:
    """What answers show that is wrong is `kept` in this folder."""

    def __init__(self, app, port, origin, seed, kept):
        self.app = app
        self.kept = kept
        self.kept.mkdir(parents=True, exist_ok=True)
        for file in self.kept.iterdir():
            file.unlink()
        self.port = port
        self.origin = origin
        self.seed = seed
        self.problems = []
        self.requests = []
        self.owners = {}
        self.revisions = dict.fromkeys((p.login for p in PEOPLE), 0)
        # By what is changed: a login, or what an app's errands name.
        self.locks = collections.defaultdict(asyncio.Lock)
        self.counts = collections.Counter()
        self.blanks = []
        self.regulars = []
        self.last = None
        # How often the proxy asked the app again, by reason, and by itself.
        self.again, self.by_itself = {}, 0
        # Whether each browser is in one of many networks, and what an audit of the proxy has found then.
        self.networks, self.audited = None, {}

    def browser(self, port=None, jar=None, address=None):
        if self.networks and not address:
            address = f"127.0.{1 + next(self.networks) % NETWORKS}.1"
        browser = Browser(port or self.port, self.app.HOST, self.watch, jar, address)
        browser.owner, browser.was = browser, None
        browser.doing = "reading"
        return browser

    async def gather_regulars(self):
        """They open a page with a form at the app itself, before Anteroom was there.

        Before them each page is read once: what an app makes at the first request, and keeps, must not be made by
        eight at a time."""
        first = self.browser(self.origin.port)
        for target in [*self.app.public_pages(), *map(self.app.own_page, PEOPLE)]:
            await first.open(target)
        await first.close()
        for _ in range(self.app.REGULARS):
            browser = self.browser(self.origin.port)
            await browser.get(self.app.FORMS[0])
            await browser.close()
            browser.port = self.port
            browser.lock = asyncio.Lock()
            self.regulars.append(browser)
        self.requests.clear()

    async def play(self, enough, visits=None):
        """Plays visits until there were enough requests, or that many visits; says how many it were."""
        begun = 0

        def next_visit():
            nonlocal begun
            if begun == visits or visits is None and len(self.requests) >= enough:
                return None
            if self.counts["visits broken off"] >= GIVEN_UP:
                return None
            begun += 1
            return begun - 1

        async def work():
            while (number := next_visit()) is not None:
                await self.visit(number)

        await asyncio.gather(*(work() for _ in range(WORKERS)))
        return begun

    async def visit(self, number):
        rng = random.Random(f"{self.seed}/{number}")
        try:
            if self.app.ERRANDS and rng.random() < 0.06:
                await self.app.ERRANDS[number % len(self.app.ERRANDS)](self, rng, number)
            elif rng.random() < 0.09:
                await self.personal_visit(rng, PEOPLE[rng.randrange(len(PEOPLE))])
            elif rng.random() < 0.7:
                regular = self.regulars[rng.randrange(len(self.regulars))]
                async with regular.lock:
                    await self.anonymous_visit(rng, regular)
            else:
                await self.anonymous_visit(rng, self.browser())
        except (LookupError, AttributeError, TypeError, ValueError) as why:
            # A page without the form or the text that the visitor looked for.
            where = traceback.extract_tb(why.__traceback__)[-1].name
            self.problem(f"visit {number}: {why!r} in {where}", self.last)
        except BrokenOff as why:
            self.counts["visits broken off"] += 1
            self.problem(f"visit {number}: {why}")

    # What visitors do

    async def anonymous_visit(self, rng, browser):
        for _ in range(rng.randint(3, 10)):
            await self.read(rng, browser)
        if rng.random() < 0.04:
            # Looks at the form, and thinks better of it.
            browser.doing = "opening a form"
            await browser.open(self.app.FORMS[0])
            browser.doing = "reading"
        await browser.close()

    async def personal_visit(self, rng, person):
        app = self.app
        async with self.locks[person.login]:
            browser = self.browser()
            await self.read(rng, browser)
            seen = await self.log_in(browser, person)
            if seen is None:
                return
            for _ in range(rng.randint(4, 9)):
                seen = await self.read(rng, browser)
            for target, mark in app.personal_pages(person):
                page = await browser.open(target)
                if mark not in page.text:
                    self.problem(f"{person.login} does not find its own page at {target}", page)
            if rng.random() < 0.5:
                await self.edit(browser, person)
            seen = await self.read(rng, browser)
            await self.log_out(browser, person, seen)

    async def read(self, rng, browser):
        """A page: the first ones are read the most; sometimes one that somebody edits."""
        app, person = self.app, None
        if rng.random() < 0.08:
            person = PEOPLE[rng.randrange(len(PEOPLE))]
            target = app.own_page(person)
        else:
            pages = app.public_pages()
            target = pages[min(int(rng.expovariate(0.09)), len(pages) - 1)]
        expected = self.revisions[person.login] if person else None
        page = await browser.open(target)
        self.expect(page.status == 200, f"{target} answered {page.status}")
        self.expect_shown(browser, target, page)
        if app.is_blank(page.text):
            self.blanks.append(Blank(target, page.body, page.is_hit))
        elif person:
            self.expect_revision(target, page, lambda shown: shown >= expected)
        return page

    async def log_in(self, browser, person):
        browser.doing = "logging in"
        target, answer = await self.app.log_in(browser, person)
        if answer.status != 302 or not browser.has_cookie(self.app.keeps_log_in):
            self.problem(f"{person.login} cannot log in: {answer.status}", answer)
            return None
        browser.user = person
        browser.doing = "reading"
        self.counts["logins"] += 1
        page = await browser.follow(target, answer)
        self.expect_shown(browser, target, page)
        return page

    async def edit(self, browser, person):
        browser.doing = "editing"
        number = self.revisions[person.login] + 1
        target, answer = await self.app.edit(browser, person, number)
        self.expect(answer.status in (200, 302), f"{person.login} cannot save: {answer.status}")
        self.revisions[person.login] = number
        self.counts["edits"] += 1
        browser.doing = "reading"
        # What a script saved has no redirect to the page.
        is_by_script = answer.status == 200
        page = await (browser.open(self.app.own_page(person)) if is_by_script else browser.follow(target, answer))
        if self.app.is_blank(page.text):
            self.blanks.append(Blank(target, page.body, page.is_hit))
        else:
            self.expect_revision(target, page, lambda shown: shown == number)

    async def log_out(self, browser, person, seen):
        """With it the old cookies are nobody's, at once."""
        app, old = self.app, dict(browser.jar)
        browser.doing = "logging out"
        target, answer = await app.log_out(browser, seen)
        browser.user = None
        self.counts["logouts"] += 1
        ghost = self.browser(jar=old)
        # What comes is counted; what belongs to others is a leak all the same.
        ghost.owner, ghost.was, ghost.doing = browser.owner, person, "using old cookies"
        for target, mark in [*app.personal_pages(person), (app.public_pages()[0], person.name)]:
            page = await ghost.open(target)
            self.counts["old cookies used"] += 1
            if mark in page.text or app.shown(page.text) is not None:
                self.counts["old cookies that were somebody's"] += 1
        await ghost.close()
        page = await browser.follow(target, answer)
        browser.doing = "reading"
        page = await browser.open(app.public_pages()[0])
        self.expect_shown(browser, app.public_pages()[0], page)
        await browser.close()

    # What is looked at

    def watch(self, browser, method, target, answer):
        """Each answer: does it hold anything that is another's?"""
        self.last = answer
        doing = (browser.user is not None, browser.doing)
        is_page = answer.is_html and answer.status == 200
        self.requests.append(Request(*doing, is_page, answer.is_hit, answer.is_audited, answer.seconds))
        if answer.status >= 500:
            self.problem(f"{method} {target} answered {answer.status}", answer)
        who = browser.user.login if browser.user else "nobody"
        text = answer.text + "\n".join(f"{name}: {value}" for name, value in answer.fields)
        for person in PEOPLE:
            if person in (browser.user, browser.was):
                continue
            if told := told_of(person, text):
                self.problem(f"LEAK: {method} {target}, asked by {who}, tells of {told}", answer)
        for token in self.tokens(answer):
            if self.owners.setdefault(token, browser.owner) is not browser.owner:
                told = f"LEAK: {method} {target}, asked by {who}, has a token of another: {token}"
                self.problem(told, answer)

    def tokens(self, answer):
        for groups in self.app.TOKENS.findall(answer.text):
            yield from filter(None, [groups] if isinstance(groups, str) else groups)
        for line in answer.all("set-cookie"):
            name, value, is_gone = read_cookie(line)
            if not is_gone and not name.startswith(self.app.SAME_FOR_ALL):
                yield value

    def expect_shown(self, browser, target, page):
        shown = self.app.shown(page.text)
        wanted = browser.user.login if browser.user else None
        if shown != wanted:
            self.problem(f"{target} was made for {shown}, and asked by {wanted}", page)

    def expect_revision(self, target, page, is_good):
        """What is saved is seen by the next who asks."""
        if not is_good(shown := self.app.revision(page.text)):
            self.problem(f"{target} shows revision {shown}, and another is saved", page)

    def expect(self, is_so, problem):
        if not is_so:
            self.problem(problem)

    def problem(self, text, answer=None):
        """With the answer that shows it, which is kept."""
        self.counts["problems"] += 1
        if len(self.problems) == PROBLEMS_SHOWN:
            self.problems.append("and more of the kind")
        if len(self.problems) > PROBLEMS_SHOWN:
            return
        if answer is not None:
            file = self.kept / f"problem-{len(self.problems)}"
            fields = "".join(f"{name}: {value}\n" for name, value in answer.fields)
            file.write_bytes(f"{answer.status}\n{fields}\n".encode() + answer.body)
            text = f"{text}: see {file}"
        self.problems.append(text)

    # What is told

    def share_of_hits(self, chosen):
        """In hundredths; the same of requests that the audit took from the cache; and of how many requests."""
        some = [request for request in self.requests if chosen(request)]
        share = lambda these: 100 * sum(these) / max(len(some), 1)  # noqa: E731
        return share(one.is_hit for one in some), share(one.is_audited for one in some), len(some)

    def median_ms(self, chosen):
        some = [request.seconds for request in self.requests if chosen(request)]
        return 1000 * statistics.median(some) if some else float("nan")


def is_anonymous_read(request):
    return not request.known and request.doing == "reading"
