"""What a Sparrow scheduler says when."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.unit.architectures.parts import SUBMITTER, Alone, messages, submit, tasks

from volery.architectures.sparrow.node import Assign, Place, Probe, QueueLength
from volery.core.events import Cancel, JobDone, MoreTasks, Submit
from volery.core.model import Cluster, Job
from volery.roles.reservations import Completed, Kill, NoTask, TaskRequest, Withdraw

NODES = Cluster.uniform(20)


def scheduler(cluster: Cluster = NODES, **parameters: Any) -> Alone:
    return Alone("sparrow", "scheduler/0", cluster, schedulers=1, **parameters)


def request(probe: Probe, number: int = 1) -> TaskRequest:
    return TaskRequest(probe.batch, probe.number, number, 0)


def test_a_job_of_m_tasks_leaves_d_m_reservations_on_distinct_nodes() -> None:
    probes = messages(scheduler(probe_ratio=1.5).hear(submit(0, 0, 0, 0)), Probe)
    assert len({node for node, _ in probes}) == len(probes) == 5


def test_more_probes_than_nodes_are_spread_over_all() -> None:
    probes = messages(scheduler(Cluster.uniform(3)).hear(submit(0, *[0] * 4)), Probe)
    assert sorted(Counter(node for node, _ in probes).values()) == [2, 3, 3]


def test_tasks_go_to_whoever_asks_first_and_the_rest_is_withdrawn() -> None:
    alone = scheduler()
    probes = messages(alone.hear(submit(0, 0, 0)), Probe)
    (late, first), *others = probes[3], *probes[:3]
    assert alone.hear(request(first), late) == [(late, Assign(1, tasks(0, 0)[0]))]
    node, second = others[0]
    said = alone.hear(request(second, 7), node)
    assert said[0] == (node, Assign(7, tasks(0, 0, 0)[1]))
    assert said[1:] == [(other, Withdraw(probe.number)) for other, probe in others[1:]]


def test_a_request_that_comes_too_late_and_a_repeated_one_get_nothing() -> None:
    alone = scheduler(cancellation=False)
    (a, first), (b, second) = messages(alone.hear(submit(0, 0)), Probe)
    assert messages(alone.hear(request(first), a), Assign)
    assert alone.hear(request(first), a) == [(a, NoTask(1))]
    assert alone.hear(request(second, 5), b) == [(b, NoTask(5))]


def test_reservations_go_to_machines_that_satisfy_the_task() -> None:
    cluster = Cluster((1, 0, 1, 0, 1), (1,) * 5)
    probes = messages(scheduler(cluster, constrained_ratio=1).hear(submit(0, 1, 1)), Probe)
    assert {node for node, _ in probes} <= {"node/0", "node/2", "node/4"}
    assert len(probes) == 2


def test_a_reservation_whose_tasks_are_gone_serves_the_jobs_other_tasks_where_they_fit() -> None:
    """Probes are shared between the tasks of a job, each batch's own reservations first (section 3.4 of the paper)."""
    cluster = Cluster((1, 1, 0, 0), (1,) * 4)
    alone = scheduler(cluster, constrained_ratio=2, probe_ratio=1)
    probes = messages(alone.hear(submit(0, 1, 0)), Probe)
    strong = [(node, probe) for node, probe in probes if probe.batch == probes[0][1].batch]
    assert [node for node, _ in strong] in (["node/0", "node/1"], ["node/1", "node/0"])
    (a, first), (b, second) = strong
    assert alone.hear(request(first), a) == [(a, Assign(1, tasks(0, 1)[0]))]
    assert alone.hear(request(second), b)[0] == (b, Assign(1, tasks(0, 1, 0)[1]))


def test_a_task_that_fits_nowhere_is_reported() -> None:
    alone = scheduler(Cluster((1, 0), (1, 1)))
    assert (SUBMITTER, JobDone(0, 1)) in alone.hear(submit(0, 2))


def test_done_is_said_after_the_last_result_and_repeated_results_are_ignored() -> None:
    alone = scheduler()
    probes = messages(alone.hear(submit(0, 0, 0)), Probe)
    for node, probe in probes[:2]:
        alone.hear(request(probe), node)
    assert alone.hear(Completed(0, 0), probes[0][0]) == []
    assert alone.hear(Completed(0, 0), probes[0][0]) == []
    assert alone.hear(Completed(1, 0), probes[1][0]) == [(SUBMITTER, JobDone(0))]


def test_cancelling_drops_what_waits_withdraws_its_reservations_and_kills_what_runs() -> None:
    alone = scheduler()
    probes = messages(alone.hear(submit(0, 0, 0)), Probe)
    node, probe = probes[0]
    alone.hear(request(probe), node)
    said = alone.hear(Cancel(0))
    assert said == [*((other, Withdraw(p.number)) for other, p in probes[1:]), (node, Kill(0))]
    assert alone.hear(Completed(0, 0), node) == [(SUBMITTER, JobDone(0))]


def test_per_task_sampling_probes_for_each_task_alone() -> None:
    probes = messages(scheduler(sampling="per-task").hear(submit(0, 0, 0, 0)), Probe)
    assert len(probes) == 6
    assert len({probe.batch for _, probe in probes}) == 3


def test_tasks_that_each_need_something_else_cannot_be_sampled_as_one_batch() -> None:
    cluster = Cluster((1, 1, 2, 2, 4, 4), (1,) * 6)
    found = []
    for sampling in ("batch", "per-task"):
        probes = messages(scheduler(cluster, sampling=sampling).hear(submit(0, 1, 2, 4)), Probe)
        found.append(sorted((probe.batch, node) for node, probe in probes))
    assert found[0] == found[1]
    assert sorted(Counter(batch for batch, _ in found[0]).values()) == [2, 2, 2]


def test_without_late_binding_tasks_go_to_the_shortest_queues_when_all_have_answered() -> None:
    alone = scheduler(late_binding=False)
    probes = messages(alone.hear(submit(0, 0, 0)), Probe)
    lengths = (3, 0, 2, 1)
    for (node, probe), length in zip(probes[:3], lengths[:3], strict=True):
        assert alone.hear(QueueLength(probe.batch, probe.number, length), node) == []
    node, probe = probes[3]
    placed = messages(alone.hear(QueueLength(probe.batch, probe.number, lengths[3]), node), Place)
    assert [(to, place.task.id) for to, place in placed] == [(probes[1][0], 0), (probes[3][0], 1)]


def test_nodes_hear_of_users_only_where_their_queues_care() -> None:
    job = Submit(Job(0, 1, tasks(0, 0), 0, "ann"))
    assert {probe.user for _, probe in messages(scheduler().hear(job), Probe)} == {""}
    assert {probe.user for _, probe in messages(scheduler(queue="fair").hear(job), Probe)} == {"ann"}


def test_the_user_of_a_job_is_forgotten_with_its_last_chunk() -> None:
    scheduler = Alone("sparrow", "scheduler/0", Cluster.uniform(10), queue="fair")
    scheduler.hear(Submit(Job(7, 2, tasks(7, 0), user="ann")))
    late = messages(scheduler.hear(MoreTasks(7, 1, tasks(7, 0, 0)[1:])), Probe)
    assert {message.user for _, message in late} == {"ann"}
    batches = vars(scheduler.component)["_batches"]
    assert not vars(batches)["_users"]


@pytest.mark.parametrize("late_binding", [True, False])
def test_the_user_of_a_cancelled_job_is_forgotten_though_chunks_of_it_never_come(late_binding: bool) -> None:
    scheduler = Alone("sparrow", "scheduler/0", Cluster.uniform(10), queue="fair", late_binding=late_binding)
    scheduler.hear(Submit(Job(7, 2, tasks(7, 0), user="ann")))
    scheduler.hear(Submit(Job(8, 2, (), user="bob")))
    scheduler.hear(Cancel(7))
    assert messages(scheduler.hear(Cancel(8)), JobDone) == [(SUBMITTER, JobDone(8))], "nothing of it has come"
    batches = vars(scheduler.component)["_batches"]
    assert not vars(batches)["_users"]
