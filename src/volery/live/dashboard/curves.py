"""Curves of the last hours: use, queue and failures, on one axis of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from volery.live.dashboard.html import Markup, duration, joined, moment, share, tag, whole
from volery.live.service.history import Sample

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
    used = [sum(one.used for one in group) / max(1, sum(one.usable for one in group)) for group in groups]
    waiting = [max(one.waiting for one in group) for group in groups]
    failed = [sum(one.failed for one in group) for group in groups]
    last, span_us = samples[-1], samples[-1].at_us - samples[0].at_us
    drawn = (
        _curve("utilisation", used, 1.0, f"last {share(last.used, last.usable)}", lambda top: share(top, 1)),
        _curve("tasks that wait", waiting, max(waiting), f"last {whole(last.waiting)}", lambda top: whole(round(top))),
        _curve(
            "failed attempts", failed, max(failed), f"{whole(sum(failed))} in all", lambda top: whole(round(top)),
        ),
    )  # fmt: skip
    told = joined((moment(samples[0].at_us), " to ", moment(last.at_us), f", {duration(span_us)}"))
    return joined((tag("div", *drawn, class_="curves"), tag("p", told, class_="soft")))


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
    said = tag("figcaption", tag("b", title), f" {last}, at most {highest}")
    return tag("figure", said, drawn)
