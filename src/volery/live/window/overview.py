"""The view of the whole federation: how much of it is used, how fast it is, and how well schedulers know it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from starlette.requests import Request

from volery.core.model import Address
from volery.live.hosts.explaining import PairStatus
from volery.live.service.admission import principal
from volery.live.status import NodeStatus
from volery.live.window import cells, frame
from volery.live.window.frame import View
from volery.live.window.html import Markup, Piece, duration, facts, figures, joined, link, section, share, tag, whole
from volery.live.window.tables import Column, table
from volery.live.window.watched import Watched

WAITS: Final = 1_000
"""Jobs whose waits are counted."""
SPAN_S: Final = 60.0
PERCENTILES: Final = (50, 95, 99)
HEAT_STEPS: Final = 5
_PARTITIONS: Final = (
    Column("cluster", text=True),
    Column("nodes"),
    Column("drained"),
    Column("slots"),
    Column("running"),
    Column("utilisation", text=True),
)


class Pacing(Protocol):
    """Tells how fast tasks end."""

    def per_second(self, ended: int) -> float | None:
        """Tasks per second over the last minute, given how many have ended so far; None: too soon to tell."""


class Pace:
    """How fast tasks end: the reports of the last minute, noted whenever somebody looks.

    Args:
        clock_s: seconds that never go back.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._noted: deque[tuple[float, int]] = deque()

    def per_second(self, ended: int) -> float | None:
        """Tasks per second over the last minute, given how many have ended so far; None: too soon to tell."""
        now_s = self._clock_s()
        while len(self._noted) > 1 and self._noted[1][0] <= now_s - SPAN_S:
            self._noted.popleft()
        if not self._noted or now_s - self._noted[-1][0] >= 1.0:
            self._noted.append((now_s, ended))
        since_s, before = self._noted[0]
        return (ended - before) / (now_s - since_s) if now_s - since_s >= 1.0 else None


def overview(desk: Watched, request: Request, pace: Pacing, in_charge: Mapping[Address, Sequence[Address]]) -> View:
    """The federation as far as this host knows it; who is no operator sees no figures of others' jobs.

    Args:
        desk: answers.
        request: who asks.
        pace: remembers how many tasks had ended.
        in_charge: who is in charge of each node.
    """
    nodes, who = desk.nodes(), principal(request)
    loads = desk.loads(who.sees)
    slots, running = sum(node.slots for node in nodes), sum(node.running for node in nodes)
    known = figures(
        ("nodes", link(frame.NODES, whole(len(nodes)))),
        ("drained", whole(sum(node.drained for node in nodes))),
        ("slots", whole(slots)),
        ("tasks that run", whole(running)),
        ("utilisation", share(running, slots)),
        ("jobs pending" if who.sees is None else "your jobs pending", whole(sum(load.jobs_pending for load in loads))),
        ("jobs running" if who.sees is None else "your jobs running", whole(sum(load.jobs_running for load in loads))),
        (
            "tasks that wait" if who.sees is None else "your tasks that wait",
            whole(sum(load.tasks_pending for load in loads)),
        ),
        *(_speed(desk, pace) if who.sees is None else ()),
    )
    parts, views = [section("Clusters", partitions(nodes, in_charge))], None
    if who.sees is None:
        parts.append(section("Allocation time", waits(desk.waits_us(WAITS))))
        views = section("Views", heat(desk.views()))
    live = joined(
        (
            cells.told(nodes, desk.lost(), desk.mistaken(request.query_params.get("view", ""))),
            known,
            tag("div", *parts, class_="columns"),
            views,
        )
    )
    return View("Federation", live, cells.drawn(), place=frame.HOME, every_s=5.0)


def _speed(desk: Watched, pace: Pacing) -> tuple[tuple[str, Piece], ...]:
    ended = sum(count for state, count in desk.told.items() if state not in ("running", "unknown"))
    speed = pace.per_second(ended)
    told = "being measured" if speed is None else f"{speed:,.1f}"
    return ("tasks that have ended", whole(ended)), ("tasks per second, last minute", told)


def partitions(nodes: Sequence[NodeStatus], in_charge: Mapping[Address, Sequence[Address]]) -> Markup | None:
    """Nodes by who is in charge of them."""
    found: dict[str, list[NodeStatus]] = {}
    for node in nodes:
        found.setdefault(", ".join(in_charge.get(node.address, ())) or "all", []).append(node)
    rows = []
    for name, members in sorted(found.items()):
        slots, running = sum(node.slots for node in members), sum(node.running for node in members)
        drained = sum(node.drained for node in members)
        rows.append(
            (
                name,
                whole(len(members)),
                whole(drained),
                whole(slots),
                whole(running),
                joined((_bar(running, slots), share(running, slots)), " "),
            )
        )
    return table(_PARTITIONS, rows) if rows else None


def _bar(part: int, of: int) -> Markup:
    return tag(
        "svg",
        tag("rect", width=f"{100 * part / of if of else 0:.2f}", height=8, class_="running"),
        class_="bar",
        viewbox="0 0 100 8",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def waits(found: Sequence[int]) -> Markup | None:
    """Percentiles of how long jobs wait for their first task, in microseconds."""
    if not found:
        return None
    ordered = sorted(found)
    told = ((f"p{q}", duration(ordered[min(len(ordered) - 1, len(ordered) * q // 100)])) for q in PERCENTILES)
    said = f"Submission until the first task starts, of the last {whole(len(ordered))} jobs that have started."
    return joined((facts(*told), tag("p", said, class_="soft")))


def heat(pairs: Sequence[PairStatus]) -> Markup:
    """Whose view of whose part was how old, and how often it was wrong; a square per pair."""
    if not pairs:
        return tag("p", "No scheduler reports its decisions; Megha does with the parameter why = true.", class_="soft")
    known = {(pair.by, pair.asked): pair for pair in pairs}
    down, across = sorted({pair.by for pair in pairs}), sorted({pair.asked for pair in pairs})
    head = tag("tr", tag("th", "", scope="col"), *(tag("th", name, scope="col") for name in across))
    rows = (
        tag("tr", tag("th", by, scope="row"), *(_square(known.get((by, asked))) for asked in across)) for by in down
    )
    squares = tag(
        "div",
        tag("table", tag("thead", head), tag("tbody", *rows)),
        class_="scroll",
        tabindex=0,
        role="group",
        aria_label="views",
    )
    told = "Per scheduler and cluster: mean age of its view at a decision; how often it was wrong, of all decisions."
    return joined((squares, tag("p", told, class_="soft")))


def _square(pair: PairStatus | None) -> Markup:
    if pair is None:
        return tag("td", "\N{EN DASH}")
    step = min(HEAT_STEPS - 1, HEAT_STEPS * 2 * pair.refused // pair.decisions) if pair.decisions else 0
    if pair.refused:
        step = max(step, 1)
    return tag(
        "td", f"{duration(pair.view_age_us)}; {whole(pair.refused)} of {whole(pair.decisions)}", class_=f"heat{step}"
    )
