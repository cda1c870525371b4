"""What `run` prints: tables of medians, and how the proxies compare.

Python's standard library only. It measures nothing by itself.
"""

import datetime
import statistics
import textwrap

import lab
import load
import proxies

METHOD = (
    "The figure is the CPU time of all processes of a proxy for a request, which repeats where rates do not. A "
    "hit counts as one only if the origin was not asked. `bare` is hyper with a map as cache, and `floor` an "
    "epoll loop that answers fixed bytes, without reading what it is asked: what could be saved at all. The peers "
    "are told which pages not to look for in their caches, and ignore cookies; Anteroom, with its defaults, finds "
    "out for each request. `idle` is the memory of the processes, without what the kernel takes for a socket."
)
HEADS = ["workload", "proxy", "CPU us/request", "requests/s", "p50 us", "p99 us"]
IDLE = "idle"


def median(figures, field="value"):
    return statistics.median(getattr(one, field) for one in figures)


def form(middle):
    return "{:.0f}" if middle >= 1_000 else "{:.2f}"


def spread(values):
    least, middle, most = min(values), statistics.median(values), max(values)
    one = form(middle)
    return f"{one} ({one} to {one})".format(middle, least, most)


def row(work, name, figures):
    """The cells of a workload and a proxy."""
    if work == IDLE:
        return [work, name, spread([one.value for one in figures]) + " bytes", "", "", ""]
    rate = spread([one.requests / one.seconds for one in figures])
    latencies = (f"{median(figures, field):.0f}" for field in ("p50_us", "p99_us"))
    return [work, name, spread([one.value for one in figures]), rate, *latencies]


def rows(table):
    return [row(work, name, figures) for (work, name), figures in table.items() if figures]


def ratios(table):
    """For each workload, its name and the ratios as pairs of what is divided and the ratio."""
    found = []
    for work in dict.fromkeys(work for work, _ in table):
        of = {name: median(figures) for (each, name), figures in table.items() if each == work and figures}
        own = of.get("anteroom")
        if own and len(of) > 1:
            peers = [(f"{name} / anteroom", of[name] / own) for name in of if name in peers_of_anteroom()]
            budget = [(f"anteroom / {name}", own / of[name]) for name in ("bare", "floor") if of.get(name)]
            found.append((work, peers + budget))
    return found


def peers_of_anteroom():
    return [name for name, peer in proxies.PEERS.items() if peer.logs and name != "anteroom"]


def title(logs):
    return f"Access logs {'on' if logs else 'off'}"


def circumstances(options, what="medians (least to most)"):
    where = "no process is pinned" if options.unpinned else (
        f"proxies on core {proxies.PROXY_CORE}, load generator and origin on core {proxies.CLIENT_CORE}"
    )
    return (
        f"{options.rounds} rounds of {options.seconds} s in turns, {options.connections} connections, one worker a "
        f"proxy, {where}; {what}"
    )


def disturbance(tables):
    """What other programs took of the proxies' core, in the median and at most."""
    parts = [one.others for table in tables.values() for figures in table.values() for one in figures
             if one.seconds]
    if not parts:
        return "nothing was measured"
    return (
        f"other programs took {statistics.median(parts):.0%} of the proxies' core in the median round, and at most "
        f"{max(parts):.0%}"
    )


def show(tables, options):
    """`tables`: by whether logs are on, the rounds of each workload and proxy."""
    print(f"\n{lab.machine()}\n{circumstances(options)}")
    if not options.unpinned:
        print(disturbance(tables))
    for logs, table in tables.items():
        print(f"\n{title(logs)}\n")
        for cells in [HEADS, *rows(table)]:
            print(f"{cells[0]:12}{cells[1]:10}{cells[2]:>30}{cells[3]:>32}{cells[4]:>9}{cells[5]:>9}")
        print("\nCPU time per request (idle: memory), divided")
        for work, each in ratios(table):
            print(f"{work:12}" + ", ".join(f"{pair} {ratio:.2f}" for pair, ratio in each))


def markdown(tables, options, versions, refused):
    """The medians as a page of documentation."""
    lines = [
        f"# CPU time beside other proxies, {datetime.date.today()}",
        "",
        *textwrap.wrap(
            f"`benches/peers/run` on {lab.machine()}: {circumstances(options, 'medians')}. {', '.join(versions)}.", 116
        ),
        "",
        *textwrap.wrap(METHOD, 116),
    ]
    if not options.unpinned:
        lines += ["", disturbance(tables).capitalize() + "."]
    if refused:
        lines += ["", *textwrap.wrap(f"Refused, and not to be relied on: {'; '.join(refused)}.", 116)]
    lines += ["", *(f"- `{name}`: {load.WORKLOADS[name].about}" for name in options.workloads)]
    for logs, table in tables.items():
        lines += ["", f"## {title(logs)}", "", f"In us (`{IDLE}`: bytes):", "", *medians(table)]
    return "\n".join(lines) + "\n"


def medians(table):
    """CPU time: a line a workload, a column a proxy."""
    names = list(dict.fromkeys(name for (_, name), figures in table.items() if figures))
    cells = []
    for work in dict.fromkeys(work for work, _ in table):
        of = {name: median(figures) for (each, name), figures in table.items() if each == work and figures}
        cells.append([work, *(form(of[name]).format(of[name]) if name in of else "" for name in names)])
    return grid([["workload", *names], *cells])


def grid(lines):
    marked = ["| " + " | ".join(cells) + " |" for cells in lines]
    return [marked[0], "|---" * len(lines[0]) + "|", *marked[1:]]
