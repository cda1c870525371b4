"""What came of a run: gathered, told, and judged."""

import collections
import fnmatch

import shop

COLUMNS = {
    "visitors": 8, "session": 8, "cookies": 8, "seed": 4, "requests": 8, "seconds": 7, "predicted": 9, "real": 5,
    "wrong pages": 11, "wrong answers": 13, "wrong cookies": 13, "harmless found": 14, "undecided": 9,
}  # fmt: skip

NOT_REPORTED = "not reported"

# What is played: how many visitors, whether the session cookie is in the configuration, whether cookies are there from
# the first request on, and the seed.
Scenario = collections.namedtuple("Scenario", "visitors session has_all_cookies seed")


def name_of(scenario):
    words = [scenario.visitors, scenario.session, "all-cookies" if scenario.has_all_cookies else "", scenario.seed]
    return "-".join(str(word) for word in words if word != "")


class Result:
    """What a run showed. `learning` and `serving` are the crowds behind a learning and a serving proxy."""

    def __init__(self, scenario, report, written, crowds, seconds):
        learning, serving = crowds
        verdicts = {page["path"]: told(page) for page in report["pages"]}
        harmless = {cookie["name"] for cookie in report["cookies"] if cookie["verdict"] == "harmless"}
        self.scenario = scenario
        self.seconds = seconds
        self.requests = serving.requests
        self.unreported = learning.requests - report["requests"]
        self.predicted = report["hit_percent"]
        self.real = 100 * serving.hits / serving.requests
        self.wrong = dict(serving.wrong.most_common())
        self.examples = serving.examples
        self.wrong_while_learning = learning.examples
        self.ignored = ignored(written)
        self.wrong_cookies = sorted(name for name in shop.HARMFUL if stands_for(harmless | self.ignored, name))
        self.harmless_found = sorted(shop.HARMLESS & harmless)
        self.undecided = report["undecided_pages"]
        self.verdicts = {path: verdicts.get(path, NOT_REPORTED) for path in shop.PLANTED}
        self.cookies = {cookie["name"]: f"{cookie['verdict']}: {cookie['text']}" for cookie in report["cookies"]}

    def row(self):
        scenario = self.scenario
        return [
            scenario.visitors, scenario.session, "all" if scenario.has_all_cookies else "usual", scenario.seed,
            self.requests, f"{self.seconds:.1f}", f"{self.predicted:.1f}", f"{self.real:.1f}", len(self.wrong),
            sum(self.wrong.values()), ",".join(self.wrong_cookies) or "-",
            f"{len(self.harmless_found)} of {len(shop.HARMLESS)}", self.undecided,
        ]  # fmt: skip

    def problems(self):
        for path, count in self.wrong.items():
            yield f"{path} is wrong in {count} answers, and reported as {self.verdict(path)}: {self.examples[path]}"
        for name in self.wrong_cookies:
            where = "written into ignore_cookies" if stands_for(self.ignored, name) else "called harmless"
            yield f"cookie {name} is {where}; {self.cookies.get(name, NOT_REPORTED)}"
        for path, example in self.wrong_while_learning.items():
            yield f"{path} is wrong while it is learned: {example}"
        if self.unreported:
            yield f"{self.unreported} requests were sent, and are not in the report"

    def verdict(self, path):
        return self.verdicts.get(path, "not planted")

    def record(self):
        """All of it, for programs."""
        scenario = self.scenario._asdict()
        return {**vars(self), "scenario": scenario, "ignored": sorted(self.ignored), "problems": [*self.problems()]}


def told(page):
    return " ".join(str(page[key]) for key in ("verdict", "finding", "cookie") if page[key])


def ignored(written):
    """The patterns of cookies that a written configuration ignores."""
    tables = [written.get("cache", {}), *written.get("route", [])]
    names = {name for table in tables for name in table.get("ignore_cookies", [])}
    return names | ({"*"} if written.get("cache", {}).get("unknown_cookies") == "ignore" else set())


def stands_for(patterns, name):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def tell_columns():
    print("  ".join(f"{name:>{width}}" for name, width in COLUMNS.items()), flush=True)


def tell(result):
    print("  ".join(f"{value:>{width}}" for value, width in zip(result.row(), COLUMNS.values(), strict=True)))
    problems = list(result.problems())
    for problem in problems:
        print(f"    {problem}")
    if problems:
        tell_verdicts(result.verdicts)
    print(end="", flush=True)


def tell_verdicts(verdicts):
    told_of = [f"{path} {verdict}" for path, verdict in verdicts.items() if verdict != NOT_REPORTED]
    silent = [path for path, verdict in verdicts.items() if verdict == NOT_REPORTED]
    print(f"    reported: {', '.join(told_of) or 'none'}; not reported: {', '.join(silent) or 'none'}")


def sum_up(results):
    """Which problems there were, and in how many runs. Returns whether there were none."""
    runs = collections.Counter()
    for result in results:
        runs.update(f"{path} is wrongly shared" for path in result.wrong)
        runs.update(f"cookie {name} is wrongly harmless" for name in result.wrong_cookies)
        runs.update(f"{path} is wrong while it is learned" for path in result.wrong_while_learning)
        runs.update(["requests are missing in the report"] * bool(result.unreported))
    print()
    for problem, count in runs.most_common():
        print(f"{problem}: {count} of {len(results)} runs")
    print(f"FAILED: {len(runs)} problems" if runs else "all as it must be")
    return not runs
