"""How much of a cluster is busy when: exact integrals over time, not samples."""

from __future__ import annotations

import numpy as np

from volery.core.model import Cluster
from volery.core.records import Records
from volery.metrics.columns import Floats, Longs, view

CHUNK = 1 << 18
"""Moments handled at once: a few megabytes of working memory."""


def busy_time_us(begin_us: Longs, end_us: Longs, edges_us: Longs) -> Floats:
    """The time that stays of things last in each interval, summed over the things.

    Args:
        begin_us: when each stay begins; before the first edge counts from there.
        end_us: when it ends, not before it begins.
        edges_us: strictly increasing bounds of the intervals.

    Returns:
        one number per interval, in microseconds.
    """
    came, came_us = _until_right_edge(begin_us, edges_us)
    went, went_us = _until_right_edge(end_us, edges_us)
    present_before = np.concatenate(([0], np.cumsum(came - went)[:-1]))
    busy: Floats = came_us - went_us + present_before * np.diff(edges_us)
    return busy


def _until_right_edge(moments_us: Longs, edges_us: Longs) -> tuple[Longs, Floats]:
    """Per interval: how many moments fall into it, and the sum of the times from them to its right edge."""
    count = np.zeros(edges_us.size, dtype=np.int64)
    remaining_us = np.zeros(edges_us.size)
    right = np.append(edges_us[1:], edges_us[-1])
    for at in range(0, moments_us.size, CHUNK):
        clipped = np.clip(moments_us[at : at + CHUNK], edges_us[0], edges_us[-1])
        interval = np.searchsorted(edges_us, clipped, side="right") - 1
        count += np.bincount(interval, minlength=edges_us.size)
        remaining_us += np.bincount(interval, weights=right[interval] - clipped, minlength=edges_us.size)
    return count[:-1], remaining_us[:-1]


def _occupied(records: Records) -> tuple[Longs, Longs]:
    """Begin and end of every stay of a task in a slot: attempts that finished, and those that were killed."""
    start, finish = view(records.start_us), view(records.finish_us)
    ran = finish >= 0
    if not ran.all():
        start, finish = start[ran], finish[ran]
    if records.killed:
        begun = {(lost.task, lost.attempt): lost.start_us for lost in records.lost}
        stays = [(begun.get(key, records.start_us[key[0]]), end) for key, end in records.killed.items()]
        begins, ends = np.array(stays, dtype=np.int64).T
        start, finish = np.concatenate((start, begins)), np.concatenate((finish, ends))
    return start, finish


def utilisation(records: Records, cluster: Cluster, points: int = 1000) -> tuple[Longs, Floats]:
    """Busy slots / slots over time, as exact averages of equal intervals from the first submit to the last finish.

    Args:
        records: of the run.
        cluster: that it ran on.
        points: number of intervals; fewer when the run lasts fewer microseconds than that.

    Returns:
        the beginning of each interval in microseconds, and the fraction of slots that were busy in it.
    """
    start, finish = _occupied(records)
    if not finish.size:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    begin = int(view(records.trace.arrival_us)[0])
    span = int(finish.max()) - begin
    if span <= 0:
        return np.array([begin], dtype=np.int64), np.zeros(1)
    points = min(points, span)
    edges = begin + np.arange(points + 1, dtype=np.int64) * span // points
    return edges[:-1], busy_time_us(start, finish, edges) / (np.diff(edges) * cluster.slot_count)


def mean_utilisation(records: Records, cluster: Cluster) -> float:
    """Busy slot time / slot time from the first submit to the last finish; zero when nothing ran for any time."""
    start, finish = _occupied(records)
    if not finish.size:
        return 0.0
    span = int(finish.max()) - int(view(records.trace.arrival_us)[0])
    return (int(finish.sum()) - int(start.sum())) / (span * cluster.slot_count) if span > 0 else 0.0
