"""The view of the whole federation: its use, its speed, and how often schedulers' views are wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
from starlette.requests import Request

from volery.core.model import Address, split_evenly
from volery.live.dashboard import frame
from volery.live.dashboard.frame import Column, PageView, table
from volery.live.dashboard.nodes import absences
from volery.live.dashboard.tasks import UNREPORTED
from volery.live.service.figures import (
    AllocationPercentiles,
    ClusterStatus,
    FederationSummary,
    Pacing,
    in_order,
    summary_of,
)
from volery.live.service.queries import FederationView
from volery.live.service.reports import Sample
from volery.live.service.requests import principal
from volery.live.status import NodeStatus, PairStatus
from volery.look.html import Markup, Piece, address, bar, figures, joined, link, moment, part, section, tag
from volery.look.text import NOTHING, share, time_span, whole

HEAT_STEPS: Final = 5
JUDGED_MIN: Final = 100
"""Fewer decisions show nothing about a view: the first ones of an idle federation are often wrong."""
_CLUSTERS: Final = (
    Column("cluster", text=True),
    Column("nodes"),
    Column("drained"),
    Column("lost"),
    Column("slots"),
    Column("running"),
    Column("utilisation", text=True),
)


def overview(
    queries: FederationView, request: Request, pace: Pacing, owners: Mapping[Address, Sequence[Address]]
) -> PageView:
    """The federation as far as this host sees it; without the role of an operator there are no figures of others' jobs.

    Args:
        pace: remembers how fast tasks have ended.
        owners: the components responsible for each node.
    """
    nodes, caller = queries.nodes(), principal(request)
    summary, everybody = summary_of(queries, pace, owners, caller.sees, nodes), caller.sees is None
    parts = [section("Clusters", partitions(summary.clusters)), section("Allocation time", waits(summary.allocation))]
    views = (section("Age of views", *ages(summary.views)), section("Inconsistencies", *inconsistencies(summary.views)))
    over_time = section("Over time", curves(queries.samples())) if everybody else None
    pieces = (
        absences(queries), cells_content(nodes, queries.lost(), queries.mistaken(request.query_params.get("view", ""))),
        figures(*_known(summary, everybody=everybody)), over_time,
        tag("div", *parts, class_="columns"),
        tag("div", *views, class_="columns") if everybody else None,
    )  # fmt: skip
    return PageView("Federation", joined(pieces), cells_canvas(), place=frame.HOME, every_s=5.0, idle_s=10.0)


def _known(summary: FederationSummary, *, everybody: bool) -> list[tuple[str, Piece]]:
    owner = "" if everybody else "your "
    rows: list[tuple[str, Piece]] = [
        ("nodes", link(frame.NODES, whole(summary.nodes))),
        *_unusable(summary),
        ("slots", whole(summary.slots)),
        ("tasks that run", whole(summary.running)),
        ("utilisation of usable slots", share(summary.used, summary.usable)),
        (f"{owner}jobs pending", link(f"{frame.JOBS}?state=pending", whole(summary.jobs_pending))),
        (f"{owner}jobs running", link(f"{frame.JOBS}?state=running", whole(summary.jobs_running))),
        (f"{owner}tasks that wait", whole(summary.tasks_pending)),
    ]
    if summary.ended is not None:
        rows.append(("tasks that have ended", whole(summary.ended)))
        pace = NOTHING if summary.per_second is None else f"{summary.per_second:,.1f} / s"
        rows.append(("throughput, last minute", pace))
    return rows


def _unusable(summary: FederationSummary) -> list[tuple[str, Piece]]:
    """The nodes that cannot be used, as far as there are any."""
    counts = (("drained", summary.drained), ("lost", summary.lost))
    return [(state, link(address(frame.NODES, {"state": state}), whole(count))) for state, count in counts if count]


def partitions(clusters: Sequence[ClusterStatus]) -> Markup | None:
    rows = [
        (
            cluster.name, whole(cluster.nodes), whole(cluster.drained), whole(cluster.lost), whole(cluster.slots),
            whole(cluster.running),
            joined((_filled(cluster.used, cluster.usable), share(cluster.used, cluster.usable)), " "),
        )
        for cluster in clusters
    ]  # fmt: skip
    return table(_CLUSTERS, rows, label="clusters") if rows else None


def _filled(count: int, of: int) -> Markup:
    return bar(part(100 * count / of if of else 0, "running"))


def waits(percentiles: AllocationPercentiles | None) -> Markup | None:
    """Percentiles of allocation times, as bars on one scale."""
    if percentiles is None:
        return None
    rows = (
        tag("li", tag("span", name, class_="demand"), tag("span", time_span(us), class_="count"),
            bar(part(100 * us / max(1, percentiles.p99))))
        for name, us in (("p50", percentiles.p50), ("p95", percentiles.p95), ("p99", percentiles.p99))
    )  # fmt: skip
    count = whole(percentiles.tasks)
    note = f"From submission until a task's first attempt starts, of the last {count} that have started."
    return joined((tag("ol", *rows, class_="funnel percentiles"), tag("p", note, class_="soft")))


def ages(pairs: Sequence[PairStatus]) -> tuple[Markup, ...]:
    """The age of views at decisions, a square per pair of components."""

    def square(pair: PairStatus) -> tuple[str, int, str]:
        if (age_us := pair.recent_view_age_us) is None:
            return NOTHING, 0, f"{time_span(pair.view_age_us)} before"
        return time_span(age_us), 0, f"{whole(pair.recent)} decisions"

    note = (
        "How old the view of a scheduler (rows) of a cluster (columns) was when it decided, the mean of five minutes. "
        "A view grows old where nothing changes, so that age alone is no fault."
    )
    return _squares(pairs, square, note, "age of views")


def inconsistencies(pairs: Sequence[PairStatus]) -> tuple[Markup, ...]:
    """The frequency of inconsistencies, a square per pair of components."""

    def square(pair: PairStatus) -> tuple[str, int, str]:
        words = f"since the start {whole(pair.refused)} of {whole(pair.decisions)}"
        if not pair.recent and not pair.recent_refused:
            return NOTHING, 0, words
        enough = pair.recent >= JUDGED_MIN
        step = _step(2 * pair.recent_refused, pair.recent) if enough else 0
        return f"{whole(pair.recent_refused)} of {whole(pair.recent)}", step, words

    note = (
        "How often it was wrong, so that the cluster refused what was placed there, of all decisions of five minutes. "
        f"Only {JUDGED_MIN} decisions or more are coloured."
    )
    return _squares(pairs, square, note, "inconsistencies")


def _step(value: int, of: int) -> int:
    """The shade of a square: 0 where there is nothing, else from 1 up to the darkest."""
    return 0 if not value or not of else min(HEAT_STEPS - 1, 1 + (HEAT_STEPS - 1) * value // of)


def _squares(
    pairs: Sequence[PairStatus], square: Callable[[PairStatus], tuple[str, int, str]], note: str, label: str
) -> tuple[Markup, ...]:
    if not pairs:
        return (tag("p", UNREPORTED, class_="soft"),)
    grid = {(pair.by, pair.asked): pair for pair in pairs}
    down = sorted({pair.by for pair in pairs}, key=in_order)
    across = sorted({pair.asked for pair in pairs}, key=in_order)
    head = tag("tr", tag("td"), *(tag("th", name, scope="col") for name in across))

    def cell(pair: PairStatus | None) -> Markup:
        if pair is None:
            return tag("td", NOTHING)
        shown, step, detail = square(pair)
        return tag("td", shown, tag("small", detail), class_=f"heat{step}")

    rows = (tag("tr", tag("th", by, scope="row"), *(cell(grid.get((by, peer))) for peer in across)) for by in down)
    drawn = tag("table", tag("thead", head), tag("tbody", *rows), class_="heat")
    return (
        tag("div", drawn, class_="scroll", tabindex=0, role="group", aria_label=label),
        tag("p", note, class_="soft"),
    )


POINTS_MAX: Final = 180
"""Of one curve; several samples share a point where there are more."""
WIDE: Final = 600
TALL: Final = 60


def curves(samples: Sequence[Sample]) -> Markup | None:
    """The curves; nothing before there are two samples."""
    if len(samples) < 2:
        return None
    size = -(-len(samples) // POINTS_MAX)
    groups = [samples[at : at + size] for at in range(0, len(samples), size)]
    used = [sum(sample.used for sample in group) / max(1, sum(sample.usable for sample in group)) for group in groups]
    waiting = [max(sample.waiting for sample in group) for group in groups]
    failed = [sum(sample.failed for sample in group) for group in groups]
    last, span_us = samples[-1], max(0, samples[-1].at_us - samples[0].at_us)
    drawn = (
        _curve("utilisation", used, 1.0, f"last {share(last.used, last.usable)}", lambda top: share(top, 1)),
        _curve("tasks that wait", waiting, max(waiting), f"last {whole(last.waiting)}", lambda top: whole(round(top))),
        _curve(
            "failed attempts", failed, max(failed), f"{whole(sum(failed))} in all", lambda top: whole(round(top)),
        ),
    )  # fmt: skip
    period = joined((moment(samples[0].at_us), " to ", moment(last.at_us), f", {time_span(span_us)}"))
    return joined((tag("div", *drawn, class_="curves"), tag("p", period, class_="soft")))


def _curve(title: str, values: Sequence[float], top: float, last: str, words: Callable[[float], str]) -> Markup:
    """One curve above its axis, with its largest value in words."""
    step = WIDE / max(1, len(values) - 1)
    points = " ".join(
        f"{step * place:.1f},{TALL - TALL * min(1.0, value / top) if top else TALL:.1f}"
        for place, value in enumerate(values)
    )
    highest = words(max(values))
    area = tag("polygon", points=f"0,{TALL} {points} {WIDE},{TALL}")
    line = tag("polyline", points=points)
    drawn = tag(
        "svg", tag("title", f"{title}: {last}, at most {highest}"), area, line, viewbox=f"0 0 {WIDE} {TALL}",
        preserveAspectRatio="none", role="img", class_="curve",
    )  # fmt: skip
    caption = tag("figcaption", tag("b", title), f" {last}, at most {highest}")
    return tag("figure", caption, drawn)


CELLS_MAX: Final = 500
"""That is some 20 KB of a page, whatever the federation."""


class Cell(msgspec.Struct, frozen=True, array_like=True):
    """Nodes that follow each other: the address of the first, how many, and of all slots, running, drained, lost.

    Believed: about so many slots a scheduler, whose view is held against what is, was wrong.
    """

    first: str
    nodes: int
    slots: int
    running: int
    drained: int
    lost: int
    believed_free: int = 0
    believed_taken: int = 0


Wrong = Mapping[Address, tuple[int, int]]
"""Node -> slots there, or in the group that it is the first of, that are believed free, and believed taken."""
NONE: Final[Wrong] = MappingProxyType({})


def cells_of(nodes: Sequence[NodeStatus], lost: Collection[Address] = (), wrong: Wrong = NONE) -> list[Cell]:
    """All nodes, in at most `CELLS_MAX` cells of nearly equal size."""
    cells = []
    for piece in split_evenly(len(nodes), min(len(nodes), CELLS_MAX)) if nodes else ():
        of = nodes[piece.start : piece.stop]
        counts = (sum(node.slots for node in of), sum(node.running for node in of), sum(node.drained for node in of))
        addresses = [node.address for node in of] if lost or wrong else []
        mistakes = [wrong[node] for node in addresses if node in wrong]
        # A view is compared at the end of an interval; what has changed since is no mistake.
        free = min(sum(free for free, _ in mistakes), counts[1])
        believed_taken = min(sum(believed_taken for _, believed_taken in mistakes), counts[0] - counts[1])
        cells.append(
            Cell(of[0].address, len(of), *counts, sum(node in lost for node in addresses), free, believed_taken)
        )
    return cells


def cells_content(nodes: Sequence[NodeStatus], lost: Collection[Address] = (), wrong: Wrong = NONE) -> Markup:
    """The data of the drawing, which is fetched again with the live part of the page."""
    return tag("div", id="cells", hidden=True, data_cells=msgspec.json.encode(cells_of(nodes, lost, wrong)).decode())


def cells_canvas() -> Markup:
    """The canvas of the drawing; empty without scripts."""
    return tag("div", id="field", data_nodes=frame.NODES)
