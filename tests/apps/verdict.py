"""What came of a run: told, and judged."""

import sys

from crowd import GIVEN_UP, is_anonymous_read

# By how much, in hundredths, two runs of one script may differ in how much they ask: else the share that the
# app was asked says nothing.
UNEQUAL = 2
# How many pages an app may lose while they are saved: so many times what it lost alone, and as many more where
# that is by chance next to nothing.
BLANKS = 3


def alone(app, crowd):
    """Judges what the proof rests on: the script, played to the app alone."""
    used, good = old_cookies(crowd)
    problems = [f"alone: {text}" for text in [*crowd.problems, *given_up(crowd)]]
    if app.LETS_IN_AGAIN and used and not good:
        problems.append("alone: no old cookie was somebody's after the logout: none behind proves nothing")
    print(f"  alone: {len(crowd.requests)} requests, {told_of_old_cookies(crowd)}")
    if crowd.blanks:
        print(f"    pages that the app answered without their text: {len(crowd.blanks)}")
    return problems


def behind(config, alone, crowd, comparison, requests):
    """Judges the script as it was played through Anteroom, against how it went alone."""
    counts = crowd.counts
    print(
        f"  {config}: {len(crowd.requests)} requests, {counts['logins']} logins, {counts['edits']} edits,"
        f" {counts['logouts']} logouts"
    )
    problems = [*comparison.problems, *crowd.problems, *given_up(crowd), *log_outs(crowd)]
    problems += [*shares(alone, crowd, floors(crowd.app.FLOORS, requests)), *blanks(alone, crowd)]
    tell_times(alone, crowd)
    tell_comparison(comparison)
    if crowd.audited:
        problems += audit(crowd.app, crowd.audited)
    return problems


def audit(app, found):
    """What the audit has found. No page may be stopped but those that the app makes differently for some visitors."""
    figures = ["compared", "same", "noise", "differed", "leaks", "unknown"]
    print("    audit: " + ", ".join(f"{found[name]} {name}" for name in figures))
    for one in found["patterns"]:
        if one["differed"] or one["leaks"]:
            places = ", ".join(f"{place['kind']} at {place['at']}, {place['stored']} bytes" for place in one["places"])
            print(f"      {one['path']} for {one['networks']} networks: {places}")
    for one in found["stopped"]:
        if one["pattern"] in app.DIFFERING:
            print(f"      stopped: {one['pattern']}, {app.DIFFERING[one['pattern']]}")
        else:
            yield f"the audit has stopped {one['pattern']}: {one['by']}"


def given_up(crowd):
    if crowd.counts["visits broken off"] >= GIVEN_UP:
        yield f"given up: {GIVEN_UP} visits had no whole answer"


def old_cookies(crowd):
    return crowd.counts["old cookies used"], crowd.counts["old cookies that were somebody's"]


def told_of_old_cookies(crowd):
    used, good = old_cookies(crowd)
    return f"{good} of {used} old cookies were somebody's after the logout"


def log_outs(crowd):
    _, good = old_cookies(crowd)
    print(f"    {told_of_old_cookies(crowd)}")
    if good:
        yield told_of_old_cookies(crowd)


def floors(known, requests):
    return next((known[least] for least in sorted(known, reverse=True) if requests >= least), None)


def shares(alone, crowd, judged):
    """How much came from the cache, and how much was left for the app."""
    anonymous, everybody, left_at_most = judged or (None, None, 100)
    for what, chosen, least in [
        ("anonymous reads", is_anonymous_read, anonymous),
        ("  pages alone", lambda r: is_anonymous_read(r) and r.is_page, anonymous),
        ("  what they are shown with", lambda r: is_anonymous_read(r) and not r.is_page, None),
        ("reads with a login", lambda r: r.known and r.doing == "reading", None),
        ("all", lambda r: True, everybody),
    ]:
        share, audited, number = crowd.share_of_hits(chosen)
        beside = f", {audited:.1f} % would have but for the audit" if audited else ""
        print(f"    {what:28}{share:6.1f} % of {number} hit{beside}")
        if least and share + audited < least:
            yield f"{what.strip()}: {share:.1f} % hit{beside}, at least {least} % must"
    left = 100 * len(crowd.asked) / max(len(alone.asked), 1)
    print(f"    {'the app was asked':28}{left:6.1f} %: {len(crowd.asked)} of {len(alone.asked)} times")
    once = sum(not request.is_hit for request in crowd.requests)
    again = sum(crowd.again.values())
    each = (len(crowd.asked) - crowd.by_itself - again) / max(once, 1)
    print(f"    {'for each that is no hit':28}{each:8.3f}, and {again} times again {crowd.again or ''}")
    # An audit asks the app for itself what a difference is.
    if each > 1 and not crowd.audited:
        yield f"the app was asked {each:.3f} times for each request that is no hit"
    if judged and left > left_at_most:
        yield f"the app was asked {left:.1f} % of the times, {left_at_most} % at most must be"
    if 100 * abs(len(alone.requests) - len(crowd.requests)) > UNEQUAL * len(alone.requests):
        yield f"{len(crowd.requests)} requests, and {len(alone.requests)} alone: {UNEQUAL} % more or less at most"
    if judged and not (crowd.counts["edits"] and crowd.counts["logouts"]):
        yield "nobody edited, or nobody logged out: nothing is proved of it"


def blanks(alone, crowd):
    """Pages without their text. The app keeps what it has lost, and so does the cache: so pages are counted, and
    not readers. A stored page must be one of the app's answers."""
    made = {(blank.target, blank.body) for blank in crowd.blanks if not blank.is_hit}
    stored = {(blank.target, blank.body) for blank in crowd.blanks if blank.is_hit}
    lost, lost_alone = (len({blank.target for blank in c.blanks if not blank.is_hit}) for c in (crowd, alone))
    if crowd.blanks:
        print(f"    pages without their text: {lost} of the app, in {len(made)} answers; {len(crowd.blanks)} were read")
    if lost > BLANKS * (lost_alone + 1):
        yield f"{lost} pages without their text, and {lost_alone} alone"
    for target, _ in stored - made:
        yield f"{target} is stored without its text, and the app gave nobody such an answer"


def tell_times(alone, crowd):
    for what, known in [("anonymous", False), ("known", True)]:
        times = [c.median_ms(lambda r: r.is_page and r.known == known) for c in (alone, crowd)]
        print(f"    median page, {what:15}{times[0]:6.1f} ms alone, {times[1]:.1f} ms behind Anteroom")


def tell_comparison(comparison):
    compared = ", ".join(f"{number} {what}" for what, number in comparison.compared.items())
    print(f"    answers compared: {compared}; {comparison.hits} of them stored ones; but for:")
    for name, count in comparison.differences.items():
        print(f"      {name} ({count} times)")
    if comparison.scenes:
        scenes = comparison.scenes
        print(f"    one after another: {scenes.seen} changes, and {scenes.left} requests that change nothing")


def end(problems):
    """Prints all problems, and ends the process."""
    print()
    for problem in problems:
        print(problem[:400])
    print(f"FAILED: {len(problems)} problems" if problems else "all as it must be")
    sys.exit(1 if problems else 0)
