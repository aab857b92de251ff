"""The scheduler of the reference architecture's experiments, written down anew, agrees with `pipeline` task by task.

Andreadis et al., SC 2018, section V: a cycle every 10 s; T1 = all parents have finished; T2 sorts; each task in turn
takes a machine with enough cores by R5, and one that fits nowhere does not hold up those behind it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import Random

import msgspec
import pytest
from tests.unit.architectures.pipeline.runs import cores_cluster, run

from volery.core.model import SECOND, Time
from volery.core.trace import Trace
from volery.core.workflows import with_parents
from volery.workload import with_exact_estimates

CYCLE_US = 10 * SECOND
CORES, SPEEDS, REFERENCE = (4, 4, 2, 2, 2), (41, 41, 35, 35, 35), 40
JOBS, SIZE = 90, 5
PICK: dict[str, Callable[[int], int]] = {
    "first-fit": lambda left: 0,
    "best-fit": lambda left: left,
    "worst-fit": lambda left: -left,
}


def workflows(seed: int) -> Trace:
    """Jobs of five tasks, some of several cores, that wait for tasks before them; no two take equally long."""
    draw = Random(seed)
    count = JOBS * SIZE
    arrivals = sorted(draw.sample(range(1, JOBS * 30 * SECOND), JOBS))
    lasts = draw.sample(range(SECOND, 40 * SECOND), count)
    parents = [
        [low + k for k in range(place) if draw.random() < 0.3] for low in range(0, count, SIZE) for place in range(SIZE)
    ]
    trace = Trace(
        "flows",
        array("q", arrivals),
        array("q", range(0, count + 1, SIZE)),
        array("q", lasts),
        array("q", [SECOND] * JOBS),
        resources=("cores",),
        requests=((1,), (2,), (3,), (4,)),
        request=array("H", [draw.choice((0, 0, 0, 1, 2, 3)) for _ in range(count)]),
    )
    return with_exact_estimates(with_parents(trace, parents))


def submitted_apart(trace: Trace, seed: int) -> Trace:
    """The trace whose tasks are submitted over a minute, no two at once, and none before those that it waits for."""
    draw = Random(seed)
    submit_us: list[Time] = []
    for task in range(trace.task_count):
        least = max([submit_us[one] for one in trace.parents_of(task)], default=trace.arrival_us[task // SIZE])
        submit_us.append(least if task % SIZE == 0 else least + draw.randrange(1, 60 * SECOND))
    return msgspec.structs.replace(trace, submit_us=array("q", submit_us))


def published(trace: Trace, fit: str, *, fifo: bool = False) -> tuple[list[Time], list[int]]:
    """Start and machine of every task; shortest work first or in order of submission, ties and machines in order."""
    free, count = list(CORES), trace.task_count
    cores = [trace.requests[trace.request[task]][0] for task in range(count)]
    start_us, finish_us, machine_of = [-1] * count, [1 << 62] * count, [-1] * count
    submit_us = trace.submit_us or [trace.arrival_us[task // SIZE] for task in range(count)]
    running: set[int] = set()
    now = 0
    while min(start_us) < 0:
        for task in [task for task in running if finish_us[task] <= now]:
            running.remove(task)
            free[machine_of[task]] += cores[task]
        ready = [
            task
            for task in range(count)
            if start_us[task] < 0
            and submit_us[task] <= now
            and all(finish_us[parent] <= now for parent in trace.parents_of(task))
        ]
        order = {task: submit_us[task] if fifo else trace.duration_us[task] * cores[task] for task in ready}
        for task in sorted(ready, key=order.__getitem__):
            fitting = [machine for machine in range(len(free)) if free[machine] >= cores[task]]
            if fitting:
                machine = min(fitting, key=lambda machine: PICK[fit](free[machine] - cores[task]))
                free[machine] -= cores[task]
                start_us[task], machine_of[task] = now, machine
                finish_us[task] = now + trace.duration_us[task] * REFERENCE // SPEEDS[machine]
                running.add(task)
        now += CYCLE_US
    return start_us, machine_of


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fit", list(PICK))
def test_the_published_cycle_written_down_anew_agrees_task_by_task(fit: str, seed: int) -> None:
    trace = workflows(seed)
    cluster = cores_cluster(*CORES, speeds=SPEEDS, reference_speed=REFERENCE)
    found = run("pipeline", trace, cluster, T2="srtf", R5=fit, cycle_s="10")
    start_us, machine_of = published(trace, fit)
    assert list(found.start_us) == start_us
    assert list(found.worker) == machine_of
    late = sum(at - trace.arrival_us[task // SIZE] > 2 * CYCLE_US for task, at in enumerate(start_us))
    assert late > 100, "tasks had to wait"


@pytest.mark.parametrize(("order", "seed"), [("srtf", 3), ("fifo-submitted", 4), ("fifo-submitted", 5)])
def test_it_agrees_where_the_tasks_of_a_job_are_submitted_one_by_one(order: str, seed: int) -> None:
    """As those of the published Askalon are: in the order of their submissions, ready or not, for FIFO."""
    trace = submitted_apart(workflows(seed), seed)
    cluster = cores_cluster(*CORES, speeds=SPEEDS, reference_speed=REFERENCE)
    found = run("pipeline", trace, cluster, T2=order, R5="best-fit", cycle_s="10")
    assert (list(found.start_us), list(found.worker)) == published(trace, "best-fit", fifo=order != "srtf")
    if order != "srtf":
        assert list(run("pipeline", trace, cluster, T2="fifo", R5="best-fit", cycle_s="10").start_us) != found.start_us
