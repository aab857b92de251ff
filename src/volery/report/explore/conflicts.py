"""Scheduling conflicts over time, as a page holds them."""

from __future__ import annotations

import msgspec

from volery.report.demand import ConflictTable
from volery.report.explore.course import short
from volery.report.page import shown


class Conflicts(msgspec.Struct, frozen=True):
    """Conflicts per second of one workload, in intervals evenly spaced from begin_s to (but without) end_s.

    Args:
        name: of workload and cluster.
        waiting, collisions: mean of the interval, mean over seeds.
        waiting_max, collisions_max: of the worst second, of any seed.
    """

    name: str
    begin_s: float
    end_s: float
    waiting: list[float]
    waiting_max: list[float]
    collisions: list[float]
    collisions_max: list[float]


def conflicts_of(found: ConflictTable) -> Conflicts:
    """As the page's script reads them; the last interval may end before the place that its width gives it."""
    begin = float(found.begin_s[0])
    width = float(found.end_s[0]) - begin
    return Conflicts(
        shown(found.title),
        begin,
        begin + width * len(found.begin_s),
        short(found.mean["waiting"]),
        short(found.largest["waiting"]),
        short(found.mean["collisions"]),
        short(found.largest["collisions"]),
    )
