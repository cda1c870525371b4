"""The picture of `overload_sim.py`: four scenes in time, with the limit and without it, as SVG."""

import math
import pathlib
from dataclasses import dataclass

from overload_sim import SCENES, STRANGER, USER, AutomaticLimit, Run, off, quantile

TITLE = "Four scenes without and with the order of requests"
# Scene, what its panel says, and the seconds that it shows.
PANELS = (
    ("crawl-after-calm", "A crawl after a calm minute", "4 workers; 200 connections of strangers from second 60", 40, 110),
    ("deploy", "A deploy", "no worker from second 60 to 64, pages take three times as long until 90", 40, 110),
    ("slow-database", "A slow database", "64 workers; pages take four times as long from second 60 to 120", 40, 160),
    ("shoppers-90", "Shoppers keep the app busy", "4 workers, busy 90 % of the time", 0, 300),
)  # fmt: skip
# The scales of seconds and of the limit are logarithmic.
SECONDS, LIMITS = (0.1, 30.0), (4.0, 1_200.0)
BUCKETS, PART = 70, 0.95
WIDTH, HEIGHT = 1000, 664
PANEL_WIDTH, PANEL_HEIGHT, PLOT_HEIGHT, TOP = 488, 294, 206, 60
# The plot within its panel: room for numbers at the left and the right, for the title above.
LEFT, RIGHT, ABOVE = 54, 34, 46

FONTS = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"
INK, QUIET, RULE = "#1f2328", "#59636e", "#d8dee4"
GREEN, BLUE, ORANGE = "#1a7f37", "#0969da", "#bc4c00"
THICK = 'stroke-width="2"'
# Where the two meet, their dashes take turns.
DASHES, OTHER_DASHES = (f'stroke-width="1.3" stroke-dasharray="4" stroke-dashoffset="{offset}"' for offset in (0, 4))
LINES = (
    ("users, without the order", GREEN, DASHES),
    ("users, with it", GREEN, THICK),
    ("strangers, without", BLUE, OTHER_DASHES),
    ("strangers, with it", BLUE, THICK),
    ("the limit", ORANGE, 'stroke-width="1"'),
)


def text(x, y, said, size=12, more=f'fill="{QUIET}"'):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" {more}>{said}</text>'


@dataclass
class Plot:
    """Where a panel has its seconds, times of answers and limits."""

    x: float
    y: float
    begins: float
    ends: float

    @property
    def right(self):
        return self.x + PANEL_WIDTH - LEFT - RIGHT

    def across(self, now):
        part = (now - self.begins) / (self.ends - self.begins)
        return f"{self.x + part * (self.right - self.x):.1f}"

    def up(self, value, scale):
        least, most = map(math.log, scale)
        part = (math.log(min(max(value, scale[0]), scale[1])) - least) / (most - least)
        return f"{self.y + (1 - part) * PLOT_HEIGHT:.1f}"

    def grid(self):
        for value in (0.1, 1, 10):
            y = float(self.up(value, SECONDS))
            yield f'<path d="M{self.x:g} {y:g}H{self.right:g}" stroke="{RULE}"/>'
            yield text(self.x - 6, y + 4, f"{value:g} s", more=f'fill="{QUIET}" text-anchor="end"')
        for value in (10, 100, 1000):
            yield text(self.right + 5, float(self.up(value, LIMITS)) + 4, value, more=f'fill="{ORANGE}"')
        step = 60 if self.ends - self.begins > 150 else 20
        for second in range(math.ceil(self.begins / step) * step, int(self.ends) + 1, step):
            more = f'fill="{QUIET}" text-anchor="middle"'
            yield text(float(self.across(second)), self.y + PLOT_HEIGHT + 18, f"{second} s", more=more)

    def times(self, answered, colour, style):
        """The line of a quantile of those that came in each part of the time."""
        length = (self.ends - self.begins) / BUCKETS
        buckets = [[] for _ in range(BUCKETS)]
        for came, took in answered:
            if self.begins <= came < self.ends:
                buckets[int((came - self.begins) / length)].append(took)
        points = (
            f"{self.across(self.begins + (nth + 0.5) * length)} {self.up(quantile(bucket, PART), SECONDS)}"
            for nth, bucket in enumerate(buckets)
            if bucket
        )
        return line("L".join(points), colour, style)

    def limits(self, limits, colour, style):
        """A step for each change that can be seen."""
        before = max((limit for limit in limits if limit[0] <= self.begins), default=limits[0])
        steps, last = [f"{self.across(self.begins)} {self.up(before[1], LIMITS)}"], None
        for when, limit in limits:
            step = (self.across(when), self.up(limit, LIMITS))
            if self.begins < when < self.ends and step[1] != last:
                steps.append(f"H{step[0]}V{step[1]}")
                last = step[1]
        return line("".join(steps) + f"H{self.right:g}", colour, style)


def line(path, colour, style):
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-linejoin="round" {style}/>'


def panel(nth, seed):
    name, title, subtitle, begins, ends = PANELS[nth]
    left, top = 6 + nth % 2 * PANEL_WIDTH, TOP + nth // 2 * PANEL_HEIGHT
    plot = Plot(left + LEFT, top + ABOVE, begins, ends)
    without, order = (Run(SCENES[name], kind, seed).run() for kind in (off, AutomaticLimit))
    yield text(left + 18, top + 16, title, 15, f'font-weight="600" fill="{INK}"')
    yield text(left + 18, top + 33, subtitle, 12.5)
    yield from plot.grid()
    yield plot.limits(order.limits, *LINES[4][1:])
    series = (without, USER), (order, USER), (without, STRANGER), (order, STRANGER)
    for (run, visitor), (_, colour, style) in reversed(list(zip(series, LINES))):
        yield plot.times(run.answered[visitor], colour, style)


def legend():
    x = 24
    for said, colour, style in LINES:
        yield f'<path d="M{x} 29H{x + 26}" stroke="{colour}" {style}/>'
        yield text(x + 33, 33, said, 13, f'fill="{INK}"')
        x += 48 + 6.6 * len(said)


def draw(file, seed):
    described = "; ".join(f"{title.lower()} ({subtitle})" for _, title, subtitle, _, _ in PANELS)
    note = (
        "From a request to its answer (left; 95 % are quicker), by when the request came; the limit, in requests "
        f"(right). benches/overload_sim.py, seed {seed}."
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' role="img" aria-labelledby="t d" font-family="{FONTS}">',
        f'<title id="t">{TITLE}</title>',
        f'<desc id="d">Times of answers to users and to strangers, and the limit: {described}.</desc>',
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12" fill="#ffffff" stroke="#d0d7de"/>',
        *legend(),
    ]
    for nth in range(len(PANELS)):
        parts.extend(panel(nth, seed))
    parts.append(text(24, HEIGHT - 14, note))
    pathlib.Path(file).write_text("\n".join([*parts, "</svg>", ""]))
