"""Tasks that wait at a Global Master in the order of their jobs' priorities (Megha 2021, section VIII)."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from volery.architectures import configure, lookup
from volery.architectures.megha.priorities import PriorityQueue
from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster, Job, JobId, Task
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.policies.queues import ConstraintQueue
from volery.sim import Options, simulate

ONE = Cluster.uniform(1)


def four_jobs(priorities: list[int]) -> Trace:
    """Jobs of one task of a second, a millisecond apart: the first runs, and the others wait for it."""
    trace = trace_of("urgent", [0, 1000, 2000, 3000], [[SECOND]] * 4)
    return msgspec.structs.replace(trace, priority=array("q", priorities))


def order_of_starts(trace: Trace, cluster: Cluster = ONE, design: str = "megha", **given: str) -> list[int]:
    records = run(trace, cluster, design, **given)
    return sorted(range(trace.task_count), key=lambda task: records.start_us[task])


def run(trace: Trace, cluster: Cluster, design: str, **given: str) -> Records:
    megha = lookup(design)
    config = configure(megha, {"gms": "1", "lms": "1", **given})
    return simulate(megha.build(cluster, config, Streams(0)), trace, cluster, options=Options(check=True))


@pytest.mark.parametrize("design", ["megha", "megha-2021"])
def test_the_most_urgent_waiting_task_starts_next(design: str) -> None:
    assert order_of_starts(four_jobs([0, 1, 5, 1]), design=design) == [0, 1, 2, 3]
    assert order_of_starts(four_jobs([0, 1, 5, 1]), design=design, order="priority") == [0, 2, 1, 3]
    assert order_of_starts(four_jobs([0, -1, 0, 7]), design=design, order="priority") == [0, 3, 2, 1]


def test_a_less_urgent_task_that_fits_starts_before_a_more_urgent_one_that_does_not() -> None:
    """The second machine alone has what the urgent task needs, and is busy for longer."""
    trace = trace_of("fits", [0, 1000, 2000, 3000], [[SECOND], [3 * SECOND], [SECOND], [SECOND]])
    trace = msgspec.structs.replace(trace, priority=array("q", [0, 0, 9, 0]), constraints=array("q", [0, 1, 1, 0]))
    records = run(trace, Cluster((0, 1), (1, 1)), "megha", match="min-constraints", order="priority")
    assert records.start_us[3] < records.start_us[2]


class LateJobs:
    """Jobs of which the first 900 are done."""

    def is_open(self, job: JobId) -> bool:
        return job >= 900


class HostOfLateJobs:
    """A Global Master whose first jobs are done."""

    jobs = LateJobs()


def test_priorities_of_jobs_that_are_done_are_forgotten() -> None:
    queue = PriorityQueue(ConstraintQueue, HostOfLateJobs())
    for number in range(1000):
        queue.submitted(Job(number, 1, (), priority=number))
    assert len(queue._priorities) < 200
    for number in (950, 990, 970):
        queue.push(Task(number, number, 0))
    assert queue.length == 3
    popped = [queue.pop_fitting(0) for _ in range(4)]
    assert [task.id for task in popped if task is not None] == [990, 970, 950]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"shares": "a:1+b:1"}, "users have turns"),
        ({"reliable": "true"}, "without the priorities of their jobs"),
        ({"launch": "synchronous"}, "not requests in line"),
    ],
)
def test_another_order_beside_priorities_is_refused(given: dict[str, str], problem: str) -> None:
    megha = lookup("megha-2021")
    with pytest.raises(InputError, match=problem):
        megha.build(
            Cluster.uniform(9), configure(megha, {"gms": "3", "lms": "3", "order": "priority", **given}), Streams(0)
        )
