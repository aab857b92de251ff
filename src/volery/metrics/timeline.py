"""Task runs of a small run by machine and lane; a heat map of groups of machines of a large one.

The bounds keep a picture readable and a results folder small; neither part changes what a run costs while it runs.
"""

from __future__ import annotations

import heapq
from typing import Any, Final

import numpy as np

from volery.core.model import Cluster
from volery.core.records import Records
from volery.metrics.arrays import Floats, Longs, asked, view
from volery.metrics.occupancy import busy_time_us, utilisation_by_resource

TASK_RUNS_MAX: Final = 2000
LANES_MAX: Final = 200
"""A run is small while it has at most so many task runs, on at most so many lanes."""
HEAT_ROWS_MAX, HEAT_BINS_MAX = 100, 120
TASK_RUNS, HEAT = "taskruns", "heat"
"""Parts of a stored run; a run has one of them."""
Columns = dict[str, Any]


def timeline(records: Records, cluster: Cluster) -> dict[str, Columns]:
    """The task runs of a small run, else a heat map of its machines; nothing where no task ran.

    `TASK_RUNS`, one row per attempt that ended, by machine, start and finish: task, job, machine, lane, lanes (of this
    machine), start_us, finish_us, attempt, killed, share. A machine with slots has a lane per slot; one with amounts
    of resources has as many as tasks ran there at once. `share` is a slot's part of its machine, or the task's dominant
    share: the largest part of any of the machine's resources (Ghodsi et al., NSDI 2011, section 4.1).

    `HEAT`, one row per group of machines and interval: machine (the first), machines, begin_us, end_us, percent. What
    is in use is counted as `metrics.utilisation` counts it.
    """
    runs = task_runs(records)
    if not runs["task"].size:
        return {}
    if runs["task"].size <= TASK_RUNS_MAX and len(cluster.constraints) <= LANES_MAX:
        runs_with_lanes = _with_lanes(runs, records, cluster)
        if _lane_count(runs_with_lanes, cluster) <= LANES_MAX:
            return {TASK_RUNS: runs_with_lanes}
    return {HEAT: heat(runs, records, cluster)}


def task_runs(records: Records) -> Columns:
    """Attempts that ended, whether finished or killed: task, machine, start_us, finish_us, attempt, killed."""
    start, finish = view(records.start_us), view(records.finish_us)
    task = np.flatnonzero(finish >= 0)
    machine, attempt = np.asarray(records.worker)[task], np.asarray(records.attempt)[task]
    ended = [
        (
            lost_attempt.task,
            lost_attempt.worker,
            lost_attempt.start_us,
            records.killed.get((lost_attempt.task, lost_attempt.attempt), lost_attempt.finish_us),
            lost_attempt.attempt,
            (lost_attempt.task, lost_attempt.attempt) in records.killed,
        )
        for lost_attempt in records.lost
    ]
    ended += [
        (number, records.worker[number], records.start_us[number], at, last, True)
        for (number, last), at in records.killed.items()
        if records.attempt[number] == last
    ]

    other_runs = np.array(ended, dtype=np.int64).reshape(-1, 6).T
    finished_runs = (task, machine, start[task], finish[task], attempt, np.zeros(task.size))
    names = ("task", "machine", "start_us", "finish_us", "attempt", "killed")
    columns = {
        name: np.append(a, b).astype(np.int64) for name, a, b in zip(names, finished_runs, other_runs, strict=True)
    }
    return columns | {"killed": columns["killed"].astype(np.bool_)}


def _with_lanes(ran: Columns, records: Records, cluster: Cluster) -> Columns:
    ran, lane, peak = in_lanes(ran, len(cluster.constraints))
    lanes = peak if cluster.resources else np.maximum(peak, cluster.slots)
    job = np.searchsorted(view(records.trace.first), ran["task"], side="right") - 1
    return {
        "task": ran["task"].astype(np.int32),
        "job": job.astype(np.int32),
        "machine": ran["machine"].astype(np.int16),
        "lane": lane.astype(np.int16),
        "lanes": lanes[ran["machine"]].astype(np.int16),
        "start_us": ran["start_us"],
        "finish_us": ran["finish_us"],
        "attempt": ran["attempt"].astype(np.uint8),
        "killed": ran["killed"],
        "share": _shares(ran, records, cluster).astype(np.float32),
    }


def in_lanes(ran: Columns, machines: int) -> tuple[Columns, Longs, Longs]:
    """Task runs by machine, start and finish, the lane of each, and the number of lanes that each machine takes.

    Args:
        ran: Columns task, machine, start_us, finish_us and others.
    """
    order = np.lexsort((ran["task"], ran["finish_us"], ran["start_us"], ran["machine"]))
    ran = {name: column[order] for name, column in ran.items()}
    lane = _lanes(ran)
    peak = np.zeros(machines, dtype=np.int64)
    np.maximum.at(peak, ran["machine"], lane + 1)
    return ran, lane, peak


def _lanes(ran: Columns) -> Longs:
    """The lowest lane of its machine that was free when each task run began; rows by machine and start."""
    lane = np.zeros(ran["task"].size, dtype=np.int64)
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    previous_machine = -1
    lane_count = 0
    rows = zip(ran["machine"].tolist(), ran["start_us"].tolist(), ran["finish_us"].tolist(), strict=True)

    for row, (machine, start, finish) in enumerate(rows):
        if machine != previous_machine:
            free = []
            busy = []
            previous_machine = machine
            lane_count = 0

        while busy and busy[0][0] <= start:
            heapq.heappush(free, heapq.heappop(busy)[1])

        if not free:
            heapq.heappush(free, lane_count)
            lane_count += 1

        lane[row] = heapq.heappop(free)
        heapq.heappush(busy, (finish, int(lane[row])))
    return lane


def _shares(ran: Columns, records: Records, cluster: Cluster) -> Floats:
    if not cluster.resources:
        shares: Floats = 1 / np.asarray(cluster.slots, dtype=np.float64)[ran["machine"]]
        return shares

    requested = np.array(records.trace.requests, dtype=np.float64)[np.asarray(records.trace.request)[ran["task"]]]
    offered = np.array(cluster.capacities, dtype=np.float64)[ran["machine"]]
    dominant: Floats = np.divide(requested, offered, out=np.zeros_like(requested), where=offered > 0).max(axis=1)
    return dominant


def _lane_count(runs: Columns, cluster: Cluster) -> int:
    """The lanes of all machines; one that ran nothing takes one where there are no slots."""
    if not cluster.resources:
        return cluster.slot_count
    _, rows = np.unique(runs["machine"], return_index=True)
    return int(runs["lanes"][rows].sum()) + len(cluster.constraints) - rows.size


def heat(ran: Columns, records: Records, cluster: Cluster) -> Columns:
    """The columns of `HEAT`; exact time averages, rounded to a percent."""
    offered, amount = _offered(ran, records, cluster)
    begin = int(view(records.trace.arrival_us)[0])
    machines = offered.size

    starts = group_starts(machines, HEAT_ROWS_MAX)
    first, row_of = np.unique(starts, return_inverse=True)
    rows = first.size
    span = max(1, int(ran["finish_us"].max()) - begin)
    bins = min(span, HEAT_BINS_MAX)

    edges = np.arange(bins + 1, dtype=np.int64) * span // bins
    # Rows stand one behind the other in time, so that one pass counts all of them.
    shift = row_of[ran["machine"]] * span - begin
    row_edges = np.append((np.arange(rows)[:, None] * span + edges[:-1]).ravel(), rows * span)

    busy = busy_time_us(ran["start_us"] + shift, ran["finish_us"] + shift, row_edges, amount).reshape(rows, bins)
    capacity = np.bincount(row_of, weights=offered, minlength=rows)[:, None] * np.diff(edges)
    share = np.divide(busy, capacity, out=np.zeros_like(busy), where=capacity > 0)
    return {
        "machine": np.repeat(first, bins).astype(np.int32),
        "machines": np.repeat(np.bincount(row_of, minlength=rows), bins).astype(np.int32),
        "begin_us": np.tile(begin + edges[:-1], rows),
        "end_us": np.tile(begin + edges[1:], rows),
        "percent": np.rint(100 * np.clip(share, 0, 1)).astype(np.uint8).ravel(),
    }


def group_starts(machines: int, groups_max: int) -> Longs:
    """Machines in groups of nearly equal size, at most so many: per machine, the first of its group."""
    rows = min(machines, groups_max)
    row_of = np.arange(machines) * rows // machines
    starts: Longs = np.searchsorted(row_of, row_of)
    return starts


def _offered(ran: Columns, records: Records, cluster: Cluster) -> tuple[Longs, Longs | None]:
    """The offer of each machine of the resource that is used most, and the part that each task run took."""
    if not cluster.resources:
        return np.asarray(cluster.slots, dtype=np.int64), None
    mean = utilisation_by_resource(records, cluster)
    resource = cluster.resources.index(max(mean, key=lambda name: mean[name]))
    offered = np.array([capacity[resource] for capacity in cluster.capacities], dtype=np.int64)
    return offered, asked(records.trace, resource)[ran["task"]]
