"""How many requests a server works on well at a time: the rules of Anteroom in Python, for `overload_sim.py`.

Python's standard library only. Constants, types and functions have the names and the order that they have in
crates/origin/src/servers: `automatic_limit/usual_times.rs`, `automatic_limit/round.rs`, `automatic_limit/mod.rs` and
`places.rs`. So the two can be read side by side; the comments with the reasons are there. A rule is changed in both.

Left out: `overload = "watch"` and `"shed"`, a list that takes servers over, `max_connections`, and the places of
logins. Times are seconds of a clock that only goes forward.
"""

import collections
import math
from dataclasses import dataclass, field, replace

# automatic_limit/usual_times.rs

GAIN = 1 / 16
KINDS_MAX = 1_024
SHARED_KINDS = 64
SWEPT_EVERY_S = 60.0
RARE = 4
FIRST_ANSWERS = 16
LOW_RUN = 4

YES, UNPROVEN, NO = "yes", "unproven", "no"


@dataclass
class UsualTime:
    seconds: float
    answers: int
    low_run: int = 0


class UsualTimes:
    """How long each kind of page takes in calm. A kind is any number."""

    def __init__(self, now):
        self.kinds = {}
        self.swept = now

    def key(self, kind):
        has_room = len(self.kinds) < KINDS_MAX or kind in self.kinds
        return kind if has_room else kind % SHARED_KINDS

    def of(self, key):
        known = self.kinds.get(key)
        return None if known is None else known.seconds

    def learn(self, now, key, took, calm):
        known = self.kinds.get(key)
        if known is None:
            self.make_room(now)
            self.kinds[key] = UsualTime(took, answers=1)
            return took
        known.low_run = known.low_run + 1 if took < known.seconds / 2 else 0
        is_first = calm == UNPROVEN and known.answers < FIRST_ANSWERS
        if calm == YES or is_first or known.low_run >= LOW_RUN:
            known.answers += 1
            gain = max(GAIN, 1 / known.answers)
            known.seconds += (min(took, 4 * known.seconds) - known.seconds) * gain
        return known.seconds

    def most_answered(self, most):
        by_answers = sorted(self.kinds.items(), key=lambda kind: (-kind[1].answers, kind[0]))
        return sorted((key, known.seconds) for key, known in by_answers[:most])

    def recall(self, kinds):
        for key, seconds in kinds:
            if len(self.kinds) >= KINDS_MAX:
                return
            self.kinds.setdefault(key, UsualTime(seconds, answers=RARE))

    def scale(self, times):
        for known in self.kinds.values():
            if known.seconds <= WORK_MAX_S:
                known.seconds = min(known.seconds * times, WORK_MAX_S)

    def make_room(self, now):
        if len(self.kinds) >= KINDS_MAX and now >= self.swept + SWEPT_EVERY_S:
            self.swept = now
            self.kinds = {key: known for key, known in self.kinds.items() if known.answers >= RARE}
            for known in self.kinds.values():
                known.answers //= 2


# automatic_limit/round.rs

SAMPLES_MIN = 24
SAMPLES_MAX = 200
FEW_SAMPLES = 8
ROUND_MIN_S = 0.1
ROUND_MAX_S = 5.0
EXTENSIONS_MAX = 2
DRAINS = 0.8


class Round:
    """Answers to requests that were sent since the limit changed."""

    def __init__(self, now):
        self.began = now
        self.waits = []
        self.usual = 0.0
        self.time = 0.0
        self.at_server = 0.0
        self.full = 0.0
        self.samples_wanted = SAMPLES_MIN
        self.extensions = 0

    def note_full(self, seconds):
        self.full += seconds

    def note(self, took, usual, at_server):
        self.usual += usual
        self.time += took
        self.at_server += at_server
        self.waits.append(took - usual)

    def is_over(self, now, limit):
        samples, elapsed = len(self.waits), now - self.began
        wanted = max(self.samples_wanted, min(limit, SAMPLES_MAX))
        longest = ROUND_MAX_S * (1 + self.extensions)
        return (
            samples >= wanted and elapsed >= ROUND_MIN_S
            or elapsed >= longest and samples >= FEW_SAMPLES
        )  # fmt: skip

    def extend(self):
        may_go_on = self.extensions < EXTENSIONS_MAX
        if may_go_on:
            self.extensions += 1
            self.samples_wanted = 2 * len(self.waits)
        return may_go_on

    def was_full(self, now):
        return self.full > 0.5 * (now - self.began)

    def was_full_at_times(self):
        return self.full > 0

    def result(self):
        self.waits.sort()
        waits, samples = self.waits, len(self.waits)
        quartiles = waits[samples * 3 // 4] - waits[samples // 4]
        at_server = self.at_server / samples
        return RoundResult(
            at_server=at_server,
            rate=max(at_server, 1.0) * samples / max(self.time, 1e-6),
            usual=self.usual / samples,
            wait=waits[samples // 2],
            error=0.93 * quartiles / math.sqrt(samples),
        )


@dataclass(frozen=True)
class RoundResult:
    """What a round shows."""

    at_server: float
    rate: float
    usual: float
    wait: float
    error: float

    def is_calm(self):
        return self.wait <= calm(self.usual)

    def is_slow(self, wait):
        return wait > slow(self.usual)

    def wait_in_all(self, waiting):
        return self.wait + waiting / self.rate

    def drained(self):
        return self.at_server - DRAINS * self.rate * self.wait

    def slowdown(self):
        return min(max((self.usual + self.wait) / max(self.usual, 1e-6), 1.0), 100.0)

    def speedup(self):
        return min(max((self.usual + self.wait) / max(self.usual, 1e-6), 0.1), 1.0)

    def rebased(self):
        usual = self.usual * self.slowdown()
        return replace(self, usual=usual, wait=self.usual + self.wait - usual)


def calm(usual):
    return max(CALM_S, CALM_PART * usual)


def slow(usual):
    return max(SLOW_S, SLOW_PART * usual)


# automatic_limit/mod.rs

START = 6.0
FLOOR = 4.0
MAX = 10_000.0
CALM_PART = 0.4
CALM_S = 0.2
SLOW_PART = 3.0
SLOW_S = 1.0
SURE_PART = 5.0
SURE_S = 5.0
SLOW_ROUNDS = 3
CALM_ROUNDS = 3
STALL_PART = 3.0
STALL_S = 2.0
SILENCE_S = 1.0
WORK_MAX_S = 5.0
QUICK_S = 2.5
QUICK_LASTS_S = 10.0
UP = 1.5
GROWS = 2.0
LESS = 0.75
STILL_FULL = 0.95
SURE_ERROR = 0.08
RISES = 1.25
DRAINED_S = 10.0
REST_MIN_S = 2.0
REST_MAX_S = 16.0
LETS_GO_S = 10.0
FOLLOWS_EVERY_S = 60.0
FOLLOWS = 2.0


@dataclass(frozen=True)
class KnownServer:
    """What is known of a server and kept over restarts."""

    calm_at: float
    kinds: list


@dataclass(frozen=True)
class RequestAtServer:
    """A request at the server."""

    began: float
    at_server: int
    kind: int
    number: int
    counts: bool


@dataclass
class WaitingStrangers:
    """The strangers that wait, when that was told, and when there were some."""

    count: float
    told: float
    seen: float


@dataclass
class RecentUse:
    """The most requests at the server in this minute."""

    most: int
    since: float


@dataclass(frozen=True)
class LimitTrial:
    """Another limit that is tried, and what was known before."""

    is_up: bool
    limit: float
    before: RoundResult


class AutomaticLimit:
    """The limit of one server."""

    def __init__(self, now):
        self.limit = START
        self.calm_at = START
        self.at_server = 0
        self.next = 0
        self.unsure = collections.OrderedDict()
        self.excused = set()
        self.usual_times = UsualTimes(now)
        self.trial = None
        self.round = Round(now)
        self.has_queue = False
        self.drains = False
        self.waiting = WaitingStrangers(count=0.0, told=now, seen=now)
        self.recent_wait = 0.0
        self.recent_time = 0.0
        self.slow_rounds = 0
        self.calm_rounds = 0
        self.rest = REST_MIN_S
        self.rests_until = now
        self.answered = now
        self.quick = -math.inf
        self.grew_in_silence = now
        self.away_until = now
        self.used = RecentUse(most=0, since=now)

    def known(self, kinds_max):
        return KnownServer(max(self.calm_at, START), self.usual_times.most_answered(kinds_max))

    def recall(self, known):
        self.usual_times.recall(known.kinds)
        self.quick = max(self.quick, self.answered)
        is_at_start = self.limit == START and self.calm_at == START
        if is_at_start and not self.has_queue and self.trial is None:
            self.calm_at = max(known.calm_at, START)
            self.set(self.calm_at)

    def is_full(self):
        return self.waiting.count > 0

    def usual(self, request):
        usual = self.usual_times.of(request.kind)
        return usual if usual is not None and usual <= WORK_MAX_S else None

    def begin(self, now, kind, has_upload):
        kind = self.usual_times.key(kind)
        usual = self.usual_times.of(kind)
        is_quick = now - self.quick < QUICK_LASTS_S
        is_known_work = usual is not None and usual <= WORK_MAX_S
        counts = usual is None or is_known_work or not is_quick
        number = self.next
        self.next += 1
        if counts and (not is_known_work or has_upload):
            self.unsure[number] = now
        if self.at_server == 0:
            self.answered = now
        self.at_server += counts
        return RequestAtServer(now, self.at_server, kind, number, counts)

    def observe(self, now, waiting):
        if self.is_full():
            self.round.note_full(now - self.waiting.told)
            self.waiting.seen = now
        self.waiting.told, self.waiting.count = now, waiting
        before = self.at_server
        while self.unsure:
            number, began = next(iter(self.unsure.items()))
            if now - began <= WORK_MAX_S:
                break
            del self.unsure[number]
            self.excused.add(number)
            self.at_server = max(self.at_server - 1, 0)
        return self.at_server < before or self.grow_in_silence(now)

    def grow_in_silence(self, now):
        is_used = self.at_server + len(self.excused) >= 0.5 * self.limit
        is_held = self.is_full() and not self.has_queue and self.trial is None and is_used
        is_silent = now - max(self.answered, self.grew_in_silence) > SILENCE_S
        if is_held and is_silent:
            self.grew_in_silence = now
            self.set(self.limit + 1)
        return is_held and is_silent

    def end(self, request):
        is_excused = request.number in self.excused
        self.excused.discard(request.number)
        self.at_server = max(self.at_server - (request.counts and not is_excused), 0)
        self.unsure.pop(request.number, None)

    def answer(self, now, request):
        self.observe(now, self.waiting.count)
        self.end(request)
        if self.was_away(now, request):
            self.give_up_trial()
            self.away_until = now
            self.round = Round(now)
            return
        took = now - request.began
        if took < QUICK_S:
            self.quick = now
        usual = self.learn(now, request, took)
        if usual > WORK_MAX_S:
            return
        self.recent_wait += (took - usual - self.recent_wait) / 8
        self.recent_time += (usual - self.recent_time) / 8
        self.follow_use(now, request)
        self.grow(request, took)
        is_drained = self.at_server <= RISES * self.limit + 1
        if self.drains and (is_drained or now - self.round.began > DRAINED_S):
            self.drains = False
            self.round = Round(now)
        if self.drains or request.began < self.round.began:
            return
        is_calm = self.recent_wait <= calm(self.recent_time)
        if is_calm and self.trial is None and not self.is_full() and not self.has_queue:
            self.slow_rounds = 0
            self.round = Round(now)
            if took - usual <= calm(usual):
                self.calm_at = max(self.calm_at, request.at_server)
            return
        self.round.note(took, usual, request.at_server)
        if self.round.is_over(now, self.limit):
            self.end_round(now)

    def was_away(self, now, request):
        silent = now - self.answered
        self.answered = now
        usual = self.usual(request)
        return usual is not None and silent > max(STALL_S, STALL_PART * max(usual, self.recent_time))

    def give_up_trial(self):
        if self.trial is not None:
            self.limit = self.trial.limit
            self.trial = None
        self.drains = False

    def learn(self, now, request, took):
        is_usable = self.trial is None and request.began >= self.away_until
        is_alone = request.at_server <= max(self.calm_at / 2, 2)
        calm = YES if is_alone else NO if self.has_queue else UNPROVEN
        return self.usual_times.learn(now, request.kind, took, calm if is_usable else NO)

    def follow_use(self, now, request):
        none_waits = not self.is_full() and now - self.waiting.seen > LETS_GO_S
        if none_waits and self.trial is None:
            self.has_queue = False
        self.used.most = max(self.used.most, request.at_server)
        if now - self.used.since <= FOLLOWS_EVERY_S:
            return
        if self.trial is None and not self.is_full():
            self.set(max(min(self.limit, FOLLOWS * self.used.most), START))
            self.calm_at = min(self.calm_at, self.limit)
        self.used = RecentUse(most=0, since=now)

    def grow(self, request, took):
        was_full = request.at_server >= 0.75 * self.limit
        if self.has_queue or self.trial is not None or not self.is_full() or not was_full:
            return
        in_all = self.recent_wait + self.waiting.count * took / self.limit
        if self.recent_wait <= calm(self.recent_time) / 2 or in_all < slow(self.recent_time):
            self.set(self.limit + 1)

    def end_round(self, now):
        was_full = self.round.was_full(now)
        result = self.round.result()
        if self.trial is not None:
            if not self.judge(self.trial, result, now):
                return
        elif was_full:
            self.adjust(result, now)
        else:
            self.suspect(result, now)
        self.round = Round(now)

    def adjust(self, result, now):
        in_all = result.wait_in_all(self.waiting.count)
        proves_nothing = not self.has_queue and not result.is_slow(in_all)
        if result.is_calm():
            self.rise(result)
            return
        self.calm_rounds = 0
        if proves_nothing:
            return
        is_unsure = not self.has_queue and in_all < max(SURE_S, SURE_PART * result.usual)
        if is_unsure or not self.try_less(result) and now >= self.rests_until:
            self.try_limit(True, self.limit * UP, result)

    def suspect(self, result, now):
        self.slow_rounds = self.slow_rounds + 1 if result.is_slow(result.wait) else 0
        if self.has_queue and result.is_calm() and self.round.was_full_at_times():
            self.rise(result)
        if self.slow_rounds >= SLOW_ROUNDS and now >= self.rests_until:
            self.slow_rounds = 0
            self.try_less(result)

    def rise(self, result):
        self.calm_at = max(self.calm_at, result.at_server)
        if not self.has_queue and result.wait > calm(result.usual) / 2:
            return
        self.set(self.limit * RISES)
        is_clear = result.wait <= calm(result.usual) / 4
        self.calm_rounds = self.calm_rounds + 1 if is_clear else 0
        if self.calm_rounds >= CALM_ROUNDS:
            self.has_queue = False

    def try_limit(self, is_up, limit, before):
        self.trial = LimitTrial(is_up, self.limit, before)
        self.drains = not is_up
        self.calm_rounds = 0
        self.set(limit)

    def try_less(self, result):
        is_less = result.drained() < 0.9 * self.limit and self.limit > FLOOR
        if is_less:
            self.try_limit(False, result.drained(), result)
        return is_less

    def judge(self, trial, result, now):
        change = result.at_server - trial.before.at_server
        if abs(change) < 0.1 * trial.before.at_server:
            self.give_up_trial()
            return True
        expected = change / result.rate
        error = math.hypot(result.error, trial.before.error)
        if abs(expected) < 4 * error and self.round.extend():
            return False
        self.trial = None
        share = (result.wait - trial.before.wait) / expected
        is_load = share + error / abs(expected) >= 0.5
        if trial.is_up and is_load:
            self.more_was_in_vain(trial, result, now)
        elif is_load:
            self.less_was_right(trial, result)
        else:
            self.is_slow_of_itself(trial.is_up, trial, result, now)
        return True

    def less_was_right(self, trial, result):
        self.has_queue = True
        self.calm_at = min(self.calm_at, self.limit)
        is_sure = result.error <= SURE_ERROR * result.usual
        if not is_sure:
            return
        if result.wait < 0:
            self.usual_times.scale(result.speedup())
        if result.rate >= STILL_FULL * trial.before.rate and self.limit > FLOOR:
            before = result if result.wait >= 0 else replace(result, usual=result.usual + result.wait, wait=0.0)
            self.try_limit(False, LESS * self.limit, before)

    def more_was_in_vain(self, trial, result, now):
        self.limit = trial.limit
        if self.has_queue:
            self.rest = min(2 * self.rest, REST_MAX_S)
        had_queue, self.has_queue = self.has_queue, True
        if had_queue or not self.try_less(result):
            self.rests_until = now + self.rest

    def is_slow_of_itself(self, is_up, trial, result, now):
        self.has_queue = False
        self.calm_at = max(self.calm_at, result.at_server)
        if is_up:
            self.rest = REST_MIN_S
            before = result if result.is_calm() else result.rebased()
            self.try_limit(True, self.limit * GROWS, before)
        else:
            self.limit = trial.limit
            self.rests_until = now + self.rest
        if not result.is_calm():
            self.usual_times.scale(result.slowdown())

    def set(self, limit):
        self.limit = min(max(limit, FLOOR), MAX)


# places.rs

KNOWN_PART = 4
PEAK_LASTS = 30.0


@dataclass
class Peak:
    """The most places that known visitors took at once in the last minute or so."""

    now: int = 0
    before: int = 0
    since: float | None = None

    def note(self, taken, now):
        if self.since is None or now - self.since > PEAK_LASTS:
            is_old = self.since is None or now - self.since > 2 * PEAK_LASTS
            self.before, self.now, self.since = 0 if is_old else self.now, 0, now
        self.now = max(self.now, taken)

    def most(self, now):
        if self.since is None or now - self.since > 2 * PEAK_LASTS:
            return 0
        return max(self.now, self.before) if now - self.since <= PEAK_LASTS else self.now


@dataclass
class Places:
    """The places of known visitors at one server, and whether there is room for a stranger."""

    taken: int = 0
    known: Peak = field(default_factory=Peak)

    def take(self, now):
        self.taken += 1
        self.known.note(self.taken, now)

    def leave(self):
        self.taken = max(self.taken - 1, 0)

    def has_room(self, limit, at_server, now):
        return at_server + self.left(limit, now) < limit

    def left(self, of, now):
        most = self.known.most(now)
        if most == 0 or of < KNOWN_PART:
            return 0
        return max(min(most + 1, of // KNOWN_PART) - self.taken, 0)
