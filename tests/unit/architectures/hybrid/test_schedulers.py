"""What the schedulers of the hybrid designs say when."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.parts import SUBMITTER, Alone, messages, submit, tasks
from tests.unit.effects import TimerSet

from volery.architectures import configure, lookup
from volery.architectures.hybrid.messages import (
    Assign,
    CentralTasks,
    Dropped,
    Ended,
    LongProbe,
    Probe,
    Rejected,
    WithdrawJob,
)
from volery.core.errors import InputError
from volery.core.events import Cancel, JobDone, MoreTasks, Submit, TimerFired
from volery.core.model import SECOND, Cluster, Job
from volery.core.streams import Streams
from volery.roles.reservations import Completed, Kill, NoTask, TaskRequest, Withdraw

CENTRAL = "central/0"
LONG_US = 2_000 * SECOND


def scheduler(design: str = "eagle", workers: int = 40, **parameters: Any) -> Alone:
    return Alone(design, "scheduler/0", Cluster.uniform(workers), schedulers=1, **parameters)


def central(workers: int = 4, **parameters: Any) -> Alone:
    return Alone("hawk", CENTRAL, Cluster.uniform(workers), schedulers=1, short_part=0.0, **parameters)


def long_tasks(number: int, count: int, estimate_us: int = LONG_US) -> CentralTasks:
    return CentralTasks(number, False, estimate_us, tasks(number, *[0] * count, estimate_us=estimate_us))


def test_eagle_probes_twenty_workers_at_least_and_hawk_two() -> None:
    assert len(messages(scheduler().hear(submit(0, 0)), Probe)) == 20
    assert len(messages(scheduler("hawk").hear(submit(0, 0)), Probe)) == 2


def test_long_jobs_go_to_the_central_scheduler() -> None:
    said = scheduler().hear(submit(0, 0, 0, estimate_us=LONG_US))
    sent = tasks(0, 0, 0, estimate_us=LONG_US)
    assert messages(said, CentralTasks) == [(CENTRAL, CentralTasks(1, False, LONG_US, sent))]


def test_wrong_estimates_change_the_class() -> None:
    alone = scheduler(estimate_low=4.0, estimate_high=4.0)
    assert messages(alone.hear(submit(0, 0, estimate_us=1_000 * SECOND)), CentralTasks)


def test_a_rejected_probe_tries_workers_without_long_tasks_and_ends_in_the_short_only_part() -> None:
    alone = scheduler(workers=20, short_part=0.1)
    (node, probe), *_ = messages(alone.hear(submit(0, 0)), Probe)
    vector = b"\xff\xff\x07"
    said = alone.hear(Rejected(probe.batch, probe.number, 3, vector), node)
    assert said == [TimerSet(probe.batch, 0)]
    ((second, retry),) = messages(alone.hear(TimerFired(probe.batch), "scheduler/0"), Probe)
    assert second in ("node/9", "node/19"), "all others have long tasks, the tenth and twentieth are short-only"
    assert (retry.number, retry.final) == (probe.number, False)
    alone.hear(Rejected(probe.batch, probe.number, 3, vector), second)
    ((third, last),) = messages(alone.hear(TimerFired(probe.batch), "scheduler/0"), Probe)
    assert third in ("node/9", "node/19")
    assert last.final


def test_a_sticky_reservation_is_good_for_several_tasks_and_a_repeated_request_for_none() -> None:
    alone = scheduler()
    probes = messages(alone.hear(submit(0, 0, 0)), Probe)
    node, probe = probes[0]
    assert alone.hear(TaskRequest(probe.batch, probe.number, 1, 0), node) == [(node, Assign(1, tasks(0, 0)[0], 1))]
    assert alone.hear(TaskRequest(probe.batch, probe.number, 1, 0), node) == []
    said = alone.hear(TaskRequest(probe.batch, probe.number, 2, 0), node)
    assert said[0] == (node, Assign(2, tasks(0, 0, 0)[1], 0))
    assert messages(said, Withdraw) == [(other, Withdraw(p.number)) for other, p in probes if other != node]


def test_a_reservation_that_moves_is_asked_for_anew_however_often_its_first_worker_has_asked() -> None:
    alone = scheduler()
    (node, probe), *_ = messages(alone.hear(submit(0, 0, 0, 0)), Probe)
    alone.hear(TaskRequest(probe.batch, probe.number, 9, 0), node)
    alone.hear(Rejected(probe.batch, probe.number, 1, b""), node)
    ((other, _),) = messages(alone.hear(TimerFired(probe.batch), "scheduler/0"), Probe)
    assert messages(alone.hear(TaskRequest(probe.batch, probe.number, 1, 0), other), Assign)


def test_hawks_reservation_is_good_for_one_task_wherever_it_was_stolen_to() -> None:
    alone = scheduler("hawk")
    _, probe = messages(alone.hear(submit(0, 0, 0)), Probe)[0]
    request = TaskRequest(probe.batch, probe.number, 1, 0)
    assert messages(alone.hear(request, "node/33"), Assign)
    assert alone.hear(request, "node/33") == [("node/33", NoTask(1))]


def test_cancelling_reaches_reservations_running_tasks_and_the_central_scheduler() -> None:
    alone = scheduler()
    alone.hear(submit(0, 0, 0, estimate_us=LONG_US))
    assert alone.hear(Cancel(0)) == [(CENTRAL, WithdrawJob(0))]
    alone.hear(Dropped(0, (1,)), CENTRAL)
    assert alone.hear(Completed(0, 0), "node/3") == [(SUBMITTER, JobDone(0))]
    node, probe = messages(alone.hear(submit(1, 0)), Probe)[0]
    alone.hear(TaskRequest(probe.batch, probe.number, 1, 0), node)
    assert messages(alone.hear(Cancel(1)), Kill) == [(node, Kill(100))]


def test_long_tasks_go_where_the_wait_is_least() -> None:
    alone = central()
    first = messages(alone.hear(long_tasks(1, 3), "scheduler/0"), LongProbe)
    assert len({node for node, _ in first}) == 3
    second = messages(alone.hear(long_tasks(2, 2, LONG_US // 2), "scheduler/0"), LongProbe)
    idle = ({f"node/{k}" for k in range(4)} - {node for node, _ in first}).pop()
    assert [node for node, _ in second] == [idle, idle], "twice half as long is no longer than the others"
    node, probe = first[0]
    assert alone.hear(TaskRequest(probe.batch, probe.number, 5, 0), node)[0][1].left == 2
    alone.hear(Ended(probe.number, 100, 1), node, now=LONG_US)
    assert messages(alone.hear(long_tasks(3, 1), "scheduler/0", now=LONG_US), LongProbe)[0][0] == node


def test_a_withdrawn_long_task_no_longer_counts_once_its_reservation_is_answered() -> None:
    alone = central(workers=1)
    ((node, probe),) = messages(alone.hear(long_tasks(1, 1), "scheduler/0"), LongProbe)
    assert alone.hear(WithdrawJob(1), "scheduler/0") == [("scheduler/0", Dropped(1, (100,)))]
    assert alone.hear(TaskRequest(probe.batch, probe.number, 1, 0), node) == [(node, NoTask(1))]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"stealing": "random", "sticky": True}, "hybrid:stealing: goes with neither sticky nor sharing"),
        ({"estimate_low": 2.0}, "hybrid:estimate_low: 2.0 is above estimate_high 1.0"),
    ],
)
def test_parameters_that_exclude_each_other_are_refused(parameters: dict[str, Any], problem: str) -> None:
    hawk = lookup("hawk")
    with pytest.raises(InputError, match=problem):
        hawk.build(Cluster.uniform(10), configure(hawk, parameters), Streams(0))


def test_a_job_whose_tasks_all_come_later_is_classified_by_its_estimate() -> None:
    scheduler = Alone("hawk", "scheduler/0", Cluster.uniform(10))
    scheduler.hear(Submit(Job(7, 2, (), 5000 * SECOND)))
    for k in range(2):
        placed = messages(scheduler.hear(MoreTasks(7, k, tasks(7, 0, 0)[k : k + 1])), CentralTasks)
        assert [len(message.tasks) for _, message in placed] == [1], "a long job goes to the central scheduler"


def test_the_estimate_of_a_job_is_forgotten_with_its_last_chunk_or_its_cancellation() -> None:
    scheduler = Alone("hawk", "scheduler/0", Cluster.uniform(10))
    for job in (7, 8):
        scheduler.hear(Submit(Job(job, 2, tasks(job, 0), SECOND)))
    assert len(vars(scheduler.component)["_estimates"]) == 2
    scheduler.hear(MoreTasks(7, 1, tasks(7, 0, 0)[1:]))
    scheduler.hear(Cancel(8))
    assert not vars(scheduler.component)["_estimates"]
