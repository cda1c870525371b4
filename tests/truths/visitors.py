"""The crowd: visitors with addresses, browsers, languages and cookies, and what each of them asks for and sees.

What a visitor does is made from the seed and the visitor's number: the same crowd can be played twice.
"""

import asyncio
import collections
import random

import servers
import shop

WORKERS_MAX = 60
TIMEOUT_S = 60
# How much of a wrong answer is told.
EXAMPLE_MAX = 60
AGENTS = {
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36": 34,
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 Version/17.5 Mobile Safari/604.1": 22,
    "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Mobile": 18,
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari": 10,
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:127.0) Gecko/20100101 Firefox/127.0": 7,
    "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0": 4,
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Edg/126.0": 3,
    "Mozilla/5.0 (Linux; Android 13; SM-A536B) SamsungBrowser/25.0 Chrome/121.0 Mobile Safari/537.36": 2,
}
LANGUAGES = {"de-DE,de;q=0.9,en;q=0.8": 60, "en-US,en;q=0.9": 30, "fr-FR,fr;q=0.9,en;q=0.8": 10}
COUNTRIES = {"1": 60, "2": 30, "3": 10}
CURRENCIES = {"USD": 50, "GBP": 40, "EUR": 10}
FIRST_NAMES = "Anneliese Bartholomew Clementine Dagobert Eleonora Ferdinand Gwendolyn Humphrey Isabella Jerome".split()
LAST_NAMES = "Aardvark Bumblebee Chinchilla Dragonfly Echidna Flamingo Grasshopper Hummingbird Impala Jellyfish".split()
# How often a visitor asks for one of the planted pages, in hundredths of the visitors.
PLANTED_TIMES = {0: 20, 1: 30, 2: 50}
# The other pages of a visit: 6 to 14 with the planted ones as the average visit has them, a quarter.
OTHERS_OF_VISIT = (4, 11)
OTHER_WEIGHTS = {"item": 66, "tag": 12, "/": 9, "/style.css": 5, "/logo.png": 5, "/about": 3}

Answer = collections.namedtuple("Answer", "status fields set_cookies body")


class Visitor:
    """What a browser sends and keeps, what scripts of the site will set, and the visits to come."""

    def __init__(self, seed, number, has_all_cookies):
        chance = random.Random(f"{seed}/{number}")
        self.address = f"10.{pick(chance, COUNTRIES)}.{number // 250}.{number % 250 + 1}"
        self.agent = pick(chance, AGENTS)
        self.language = pick(chance, LANGUAGES)
        self.name = name_of(number)
        self.cookies = {}
        self.user = None
        # Items since the login: the site keeps them for it.
        self.viewed = []
        self.pages = 0
        self.to_come = scripts(chance, has_all_cookies)
        self.visits = [other_steps(chance) for _ in range(chance.randint(1, 4))]
        add_planted(chance, self.visits)
        self.add_log_in(chance)
        self.add_currency(chance)
        self.moments = sorted(chance.random() for _ in self.visits)
        self.lock = asyncio.Lock()
        self.run_scripts()

    def add_log_in(self, chance):
        """Almost a third has a login, from the first or the second visit on."""
        visit = self.visits[min(chance.randint(0, 1), len(self.visits) - 1)]
        if chance.random() < 0.3:
            visit.insert(1, "login")

    def add_currency(self, chance):
        """Some have chosen a currency long before; some choose it in their second visit."""
        has_one, is_old, currency = chance.random() < 0.4, chance.random() < 0.5, pick(chance, CURRENCIES)
        if has_one and (is_old or len(self.visits) == 1):
            self.cookies["currency"] = currency
        elif has_one:
            self.visits[1].insert(1, f"/currency?to={currency}")

    def run_scripts(self):
        """After a page, its scripts set cookies."""
        while self.to_come and self.to_come[0][0] <= self.pages:
            _, name, value = self.to_come.pop(0)
            self.cookies[name] = value

    def keep_cookies(self, answer):
        for line in answer.set_cookies:
            name, _, value = line.partition(";")[0].partition("=")
            if "max-age=0" in line.lower():
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value

    def view(self):
        return shop.View(self.address, self.agent, self.language, self.cookies, self.user, self.viewed)

    def head(self, method, target):
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return (
            f"{method} {target} HTTP/1.1\r\nHost: {shop.HOST}\r\nUser-Agent: {self.agent}\r\nAccept: */*\r\n"
            f"Accept-Language: {self.language}\r\nX-Forwarded-For: {self.address}\r\n"
            + (f"Cookie: {cookies}\r\n" if cookies else "")
        )


def pick(chance, weights):
    return chance.choices(list(weights), list(weights.values()))[0]


def name_of(number):
    last, rest = LAST_NAMES[number // 10 % 10], number // 100
    return f"{FIRST_NAMES[number % 10]} {last}" + (f" {rest}" if rest else "")


def scripts(chance, has_all_cookies):
    """Cookies that scripts set: after how many pages, and to what."""
    variant, consent = chance.choice("ab"), chance.choices(["yes", "no"], [70, 30])[0]
    answers_banner, after = chance.random() < 0.8, chance.randint(1, 4)
    tracker = f"{chance.getrandbits(64):016x}"
    if has_all_cookies:
        return [(0, "ab", variant), (0, "tracker", tracker), (0, "consent", consent)]
    return [(1, "ab", variant), (1, "tracker", tracker)] + [(after, "consent", consent)] * answers_banner


def other_steps(chance):
    return [other_page(chance) for _ in range(chance.randint(*OTHERS_OF_VISIT))]


def other_page(chance):
    kind = pick(chance, OTHER_WEIGHTS)
    if kind == "item":
        return f"/item/{chance.choices(range(1, shop.ITEMS + 1), [1 / n for n in range(1, shop.ITEMS + 1)])[0]}"
    if kind == "tag":
        # A long tail.
        return f"/tag/{int(shop.TAGS * chance.random() ** 2) + 1}"
    return kind


def add_planted(chance, visits):
    for path in shop.PLANTED:
        for _ in range(pick(chance, PLANTED_TIMES)):
            chance.choice(visits).append(path)
    for visit in visits:
        chance.shuffle(visit)


class Crowd:
    """All visitors, and what they were shown."""

    def __init__(self, seed, number, has_all_cookies):
        self.visitors = [Visitor(seed, n, has_all_cookies) for n in range(number)]
        self.requests = 0
        self.hits = 0
        # Answers that were wrong, by page; and of each page one of them.
        self.wrong = collections.Counter()
        self.examples = {}
        self.seen_values = set()

    async def play(self, port):
        """Visits begin in the order of their moments, as many at a time as suits the crowd."""
        visits = [(moment, v, n) for v in self.visitors for n, moment in enumerate(v.moments)]
        visits = iter(sorted(visits, key=lambda visit: visit[0]))

        async def work():
            for _, visitor, number in visits:
                async with visitor.lock:
                    await self.visit(port, visitor, visitor.visits[number])

        workers = min(WORKERS_MAX, max(4, len(self.visitors) // 3))
        await asyncio.gather(*(work() for _ in range(workers)))

    async def visit(self, port, visitor, steps):
        client = await Client.connect(port)
        try:
            for step in steps:
                async with asyncio.timeout(TIMEOUT_S):
                    await self.step(client, visitor, step)
        except (OSError, EOFError, LookupError, ValueError) as why:
            raise servers.Broken(f"{visitor.name} has no whole answer to {step}: {why!r}") from why
        finally:
            client.close()

    async def step(self, client, visitor, step):
        if step == "login":
            return await self.log_in(client, visitor)
        answer = await self.ask(client, visitor, step)
        if step.startswith("/item/") and visitor.user:
            visitor.viewed.append(step.removeprefix("/item/"))
        path = step.partition("?")[0]
        if path != "/currency":
            self.judge(path, visitor, answer)
        visitor.keep_cookies(answer)
        if answer.status == 200 and answer.fields.get("content-type", "").startswith("text/html"):
            visitor.pages += 1
            visitor.run_scripts()

    async def log_in(self, client, visitor):
        body = f"user={visitor.name.replace(' ', '+')}"
        answer = await self.ask(client, visitor, "/login", body)
        visitor.keep_cookies(answer)
        if answer.status != 303 or "sid" not in visitor.cookies:
            return self.note_wrong("/login", "a login", f"{answer.status} {answer.set_cookies}")
        visitor.user = visitor.name

    async def ask(self, client, visitor, target, body=None):
        answer = await client.ask(visitor, target, body)
        self.requests += 1
        self.hits += "; hit" in answer.fields.get("cache-status", "")
        return answer

    def judge(self, path, visitor, answer):
        status, view = 302 if path == "/go" else 200, visitor.view()
        seen = shop.shown(path, answer.fields.get("location"), answer.body)
        if answer.status != status:
            self.note_wrong(path, status, answer.status)
        elif not shop.is_right(path, view, seen):
            self.note_wrong(path, shop.part(path, view), seen)
        else:
            self.judge_set_cookies(path, answer)

    def judge_set_cookies(self, path, answer):
        """The site sets each value of `seen` once."""
        for line in answer.set_cookies:
            if line.startswith("seen=") and line in self.seen_values:
                self.note_wrong(path, "a cookie of its own", line)
            self.seen_values.add(line)

    def note_wrong(self, path, must, seen):
        self.wrong[path] += 1
        self.examples.setdefault(path, f"must be {shortened(must)}, is {shortened(seen)}")


def shortened(text):
    text = str(text)
    return repr(text if len(text) <= EXAMPLE_MAX else f"{text[:EXAMPLE_MAX]}…")


class Client:
    """A connection to the proxy that is kept open."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port):
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, visitor, target, body):
        head = visitor.head("GET" if body is None else "POST", target)
        if body is not None:
            head += f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n"
        self.writer.write(f"{head}\r\n{body or ''}".encode())
        return await self.answer()

    async def answer(self):
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        fields, set_cookies = {}, []
        for line in lines:
            name, _, value = line.partition(": ")
            name = name.lower()
            if name == "set-cookie":
                set_cookies.append(value)
            fields[name] = value
        body = await self.reader.readexactly(int(fields["content-length"]))
        return Answer(int(first.split(" ", 2)[1]), fields, set_cookies, body)

    def close(self):
        self.writer.close()
