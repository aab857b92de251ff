"""What tables XI and XII of the reference architecture's paper were made from (Andreadis et al., SC 2018, section V-B).

The scheduler of its published code in few words, apart from everything of ours, run on the traces that its authors have
published: it gives the published averages. So the tables speak of those traces, and not of the counts in table X; and
NJSL is JMS // (last finish - first start). docs/papers.md tells what follows.
"""

from __future__ import annotations

import gzip
import heapq
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

SHARED = Path(__file__).parents[3] / "shared" / "traces"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces (../shared/traces) are not here")
ASKALON, CHRONOS = "askalon_workload_ee.gwf.gz", "chronos_exp_noscaler_ca.gwf.gz"
CYCLE_S, CORES, SPEEDS = 10, [4] * 16 + [2] * 16, [4100] * 16 + [3500] * 16


class Row(NamedTuple):
    """A task that takes one core, as all of these do; times in seconds."""

    job: int
    task: int
    submit: int
    runtime: int
    parents: list[int]


def rows_of(name: str) -> list[Row]:
    """The tasks in order of submission."""
    lines = gzip.decompress((SHARED / "gwf" / name).read_bytes()).decode().splitlines()[1:]
    fields = [line.split(",") for line in lines]
    assert {words[4].strip() for words in fields} == {"1"}
    rows = [
        Row(int(job), int(task), int(submit), int(runtime), [int(one) for one in parents.split()])
        for job, task, submit, runtime, _, _, parents in fields
    ]
    return sorted(rows, key=lambda row: row.submit)


def averages(rows: list[Row], order: str) -> tuple[float, float, float]:
    """JMS in seconds, NJSL and JWT in seconds, by the published code with best fit."""
    row_of, children, missing = {row.task: row for row in rows}, defaultdict(list), {}
    for row in rows:
        missing[row.task] = len(set(row.parents))
        for parent in set(row.parents):
            children[parent].append(row.task)
    free, queue, coming = list(CORES), list[int](), 0
    running: list[tuple[int, int, int]] = []
    seen: dict[int, int] = {}
    start: dict[int, int] = {}
    finish: dict[int, int] = {}
    now = 0
    while len(finish) < len(rows):
        while coming < len(rows) and rows[coming].submit <= now:
            seen[rows[coming].task] = now
            queue.append(rows[coming].task)
            coming += 1
        while running and running[0][0] <= now:
            at, task, machine = heapq.heappop(running)
            finish[task] = at
            free[machine] += 1
            for child in children[task]:
                missing[child] -= 1
        if idle := sum(free):
            ready = [task for task in queue if not missing[task]]
            if order == "srtf":
                ready = heapq.nsmallest(idle, ready, key=lambda task: row_of[task].runtime)
            for task in ready[:idle]:
                machine = min((k for k in range(len(free)) if free[k]), key=lambda k: free[k])
                free[machine] -= 1
                start[task] = now
                heapq.heappush(running, (now + 4000 * row_of[task].runtime // SPEEDS[machine], task, machine))
            queue = [task for task in queue if task not in start]
        now += CYCLE_S
    jobs = defaultdict(list)
    for row in rows:
        jobs[row.job].append(row.task)
    lives = [
        (min(seen[task] for task in tasks), min(start[task] for task in tasks), max(finish[task] for task in tasks))
        for tasks in jobs.values()
    ]
    count = len(lives)
    return (
        sum(end - came for came, _, end in lives) / count,
        sum((end - came) // max(1, end - began) for came, began, end in lives) / count,
        sum(began - came for came, began, _ in lives) / count,
    )


@pytest.mark.parametrize(
    ("trace", "order", "published"),
    [
        (ASKALON, "srtf", (7929, 5, 3134)),
        (ASKALON, "fifo", (19751, 32, 2478)),
        (CHRONOS, "srtf", (270, 25, 262)),
        (CHRONOS, "fifo", (361, 50, 353)),
    ],
)
def test_the_published_traces_give_the_published_averages(
    trace: str, order: str, published: tuple[int, int, int]
) -> None:
    makespan_s, length, waiting_s = averages(rows_of(trace), order)
    assert makespan_s == pytest.approx(published[0], rel=0.01)
    assert length == pytest.approx(published[1], abs=0.8)
    assert waiting_s == pytest.approx(published[2], rel=0.01)


def test_the_traces_are_not_those_of_table_x() -> None:
    """It counts 757 workflows with 45,786 tasks, and 1,024 with 3,072."""
    counts = [(len({row.job for row in rows}), len(rows)) for rows in (rows_of(ASKALON), rows_of(CHRONOS))]
    assert counts == [(758, 30_746), (10_208, 10_208)]


@pytest.mark.slow
def test_who_goes_first_of_the_tasks_of_one_second_moves_jwt_and_nothing_else() -> None:
    """In the file's order as published; in the order of their jobs, as `pipeline:T2=fifo-submitted` has it."""
    rows = rows_of(ASKALON)
    began: dict[int, int] = {}
    for row in rows:
        began.setdefault(row.job, row.submit)
    found = averages(sorted(rows, key=lambda row: (row.submit, began[row.job])), "fifo")
    assert found == pytest.approx((19_775, 31.7, 2_617), rel=0.005)
