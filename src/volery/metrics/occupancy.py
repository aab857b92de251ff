"""Utilisation and waiting tasks over time: exact integrals, not samples."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from volery.core.events import REFUSALS
from volery.core.model import Cluster
from volery.core.records import Records
from volery.metrics.arrays import Floats, Longs, asked, ready_us, view
from volery.metrics.windows import Window

CHUNK = 1 << 18
"""Moments handled at once: a few megabytes of working memory."""


def busy_time_us(begin_us: Longs, end_us: Longs, edges_us: Longs, amount: Longs | None = None) -> Floats:
    """The time that stays of things last in each interval, summed over the things.

    Args:
        begin_us: Begin of each stay; one before the first edge counts from there.
        end_us: End of each stay, not before its begin.
        edges_us: Bounds of the intervals, strictly increasing.
        amount: Amount for which each stay counts; one by default.

    Returns:
        one number per interval, in microseconds.
    """
    arrivals, arrived_us = _until_right_edge(begin_us, edges_us, amount)
    departures, departed_us = _until_right_edge(end_us, edges_us, amount)

    # What is present at an edge fills the interval after it; arrivals add their time until its end, departures take
    # theirs away.
    present_before = np.concatenate(([0], np.cumsum(arrivals - departures)[:-1]))
    busy: Floats = arrived_us - departed_us + present_before * np.diff(edges_us)
    return busy


def _until_right_edge(moments_us: Longs, edges_us: Longs, amount: Longs | None) -> tuple[Floats, Floats]:
    """The amount that falls into each interval, and the sum of the times from those moments to its right edge."""
    count = np.zeros(edges_us.size)
    remaining_us = np.zeros(edges_us.size)
    right = np.append(edges_us[1:], edges_us[-1])

    for at in range(0, moments_us.size, CHUNK):
        clipped = np.clip(moments_us[at : at + CHUNK], edges_us[0], edges_us[-1])
        interval = np.searchsorted(edges_us, clipped, side="right") - 1
        time_to_edge_us = right[interval] - clipped
        if amount is not None:
            weight = amount[at : at + CHUNK]
            count += np.bincount(interval, weights=weight, minlength=edges_us.size)
            time_to_edge_us = time_to_edge_us * weight
        else:
            count += np.bincount(interval, minlength=edges_us.size)
        remaining_us += np.bincount(interval, weights=time_to_edge_us, minlength=edges_us.size)
    return count[:-1], remaining_us[:-1]


class Stays(NamedTuple):
    """Tasks on machines: begin, end and number of the task, of attempts that finished and of those that were killed."""

    begin_us: Longs
    end_us: Longs
    task: Longs


def stays_on_machines(records: Records) -> Stays:
    """Every attempt that ran: those that count, those that were killed, and copies that ended too late to count."""
    start, finish = view(records.start_us), view(records.finish_us)
    task = np.arange(finish.size)
    has_finished = finish >= 0

    if not has_finished.all():
        start, finish, task = start[has_finished], finish[has_finished], task[has_finished]
    if records.killed:
        started_us = {(lost.task, lost.attempt): lost.start_us for lost in records.lost}
        stays = [(started_us.get(key, records.start_us[key[0]]), end, key[0]) for key, end in records.killed.items()]
        begins, ends, tasks = np.array(stays, dtype=np.int64).T
        start, finish, task = np.append(start, begins), np.append(finish, ends), np.append(task, tasks)

    late_copies = [
        (lost_attempt.start_us, lost_attempt.finish_us, lost_attempt.task)
        for lost_attempt in records.lost
        if lost_attempt.finish_us >= 0
    ]
    if late_copies:  # they finished, and another attempt counts
        begins, ends, tasks = np.array(late_copies, dtype=np.int64).T
        start, finish, task = np.append(start, begins), np.append(finish, ends), np.append(task, tasks)
    return Stays(start, finish, task)


def utilisation_by_resource(records: Records, cluster: Cluster, window: Window | None = None) -> dict[str, float]:
    """Amount in use x time / amount offered x time, by resource; "slots" where there are no others.

    Args:
        window: Time over which it is taken; None: from the first submit to the last finish.
    """
    if window is not None:
        return _utilisation_within(records, cluster, window)
    if not cluster.resources:
        return {"slots": mean_utilisation(records, cluster)}
    stays = stays_on_machines(records)
    span = _span_us(stays, records)

    shares = {}
    for k, name in enumerate(cluster.resources):
        offered = sum(amounts[k] for amounts in cluster.capacities) * span
        used = float((asked(records.trace, k)[stays.task] * (stays.end_us - stays.begin_us)).sum())
        shares[name] = used / offered if offered else 0.0
    return shares


def _utilisation_within(records: Records, cluster: Cluster, window: Window) -> dict[str, float]:
    stays, edges = stays_on_machines(records), np.array([window.begin_us, window.end_us], dtype=np.int64)
    span = int(edges[1] - edges[0])

    def share(amount: Longs | None, offered: int) -> float:
        busy = float(busy_time_us(stays.begin_us, stays.end_us, edges, amount)[0])
        return busy / (span * offered) if offered else 0.0

    if not cluster.resources:
        return {"slots": share(None, cluster.slot_count)}
    return {
        name: share(asked(records.trace, k)[stays.task], sum(amounts[k] for amounts in cluster.capacities))
        for k, name in enumerate(cluster.resources)
    }


def _span_us(stays: Stays, records: Records) -> int:
    return int(stays.end_us.max()) - int(view(records.trace.arrival_us)[0]) if stays.end_us.size else 0


def utilisation(records: Records, cluster: Cluster, points: int = 1000) -> tuple[Longs, Floats]:
    """Busy slots / slots over time, as exact averages of equal intervals from the first submit to the last finish.

    Where machines offer several resources it is the one that is used most over the whole run.

    Args:
        points: Count of intervals; fewer when the run lasts fewer microseconds than that.

    Returns:
        the beginning of each interval in microseconds, and the fraction of slots that were busy in it.
    """
    stays = stays_on_machines(records)
    if not stays.end_us.size:
        return np.zeros(0, dtype=np.int64), np.zeros(0)

    begin = int(view(records.trace.arrival_us)[0])
    span = _span_us(stays, records)
    if span <= 0:
        return np.array([begin], dtype=np.int64), np.zeros(1)

    points = min(points, span)
    edges = begin + np.arange(points + 1, dtype=np.int64) * span // points
    offered, amount = cluster.slot_count, None
    if cluster.resources:
        mean = utilisation_by_resource(records, cluster)
        k = cluster.resources.index(max(mean, key=lambda name: mean[name]))
        offered = sum(amounts[k] for amounts in cluster.capacities)
        amount = asked(records.trace, k)[stays.task]

    busy = busy_time_us(stays.begin_us, stays.end_us, edges, amount)
    return edges[:-1], busy / (np.diff(edges) * max(offered, 1))


def waiting_tasks(records: Records, begins_us: Longs) -> Floats:
    """Tasks that could have started and had not, as exact averages of the intervals of `utilisation`.

    A task waits from its submission, or the end of its last parent, to the start of the attempt that counts; what
    never started is left out.

    Args:
        begins_us: Begin of each interval, as `utilisation` returns them; the last ends with the run.
    """
    ends = stays_on_machines(records).end_us
    if not ends.size or int(ends.max()) <= int(begins_us[-1]):
        return np.zeros(begins_us.size)

    edges = np.append(begins_us, ends.max())
    start = view(records.start_us)
    has_started = start >= 0
    ready = ready_us(records)
    if not has_started.all():
        start, ready = start[has_started], ready[has_started]
    waited: Floats = busy_time_us(np.minimum(ready, start), start, edges) / np.diff(edges)
    return waited


def mean_utilisation(records: Records, cluster: Cluster) -> float:
    """Busy slot time / slot time from the first submit to the last finish; zero when nothing ran for any time.

    Where machines offer several resources it is that of the resource that is used most.
    """
    if cluster.resources:
        return max(utilisation_by_resource(records, cluster).values())

    stays = stays_on_machines(records)
    span = _span_us(stays, records)
    busy = int(stays.end_us.sum()) - int(stays.begin_us.sum())
    return busy / (span * cluster.slot_count) if span > 0 else 0.0


def refused_tasks(records: Records, begins_us: Longs) -> Floats:
    """Refused placements in each interval; no numbers where the run has reported none of its own and no transactions.

    What is refused before the first interval counts in it, what is refused after its beginning in the last.

    Args:
        begins_us: Begin of each interval, as `utilisation` returns them.
    """
    moments = [
        (at * histogram.width_us, amount)
        for name in sorted(REFUSALS)
        if (histogram := records.moments.get(name)) is not None
        for at, amount in histogram.amounts.items()
    ]

    moments += [(transaction.ended_us, transaction.refused) for transaction in records.transactions]
    if not moments or not begins_us.size:
        return np.full(begins_us.size, np.nan)

    at_us, amounts = np.array(moments, dtype=np.int64).T
    interval = np.maximum(np.searchsorted(begins_us, at_us, side="right") - 1, 0)
    refused: Floats = np.bincount(interval, weights=amounts, minlength=begins_us.size).astype(np.float64)
    return refused
