"""The yardstick's scheduler: events in, effects out."""

from __future__ import annotations

from tests.unit.architectures.parts import Alone, launched, messages, submit, tasks

from volery.core.events import JobAccepted, JobDone, TaskFinished
from volery.core.model import Cluster
from volery.roles.node import Completed, Launch

WEAK, STRONG = 0b01, 0b11


def scheduler() -> Alone:
    return Alone("oracle", "oracle/0", Cluster((STRONG, WEAK), (1, 1)))


def test_a_task_takes_the_suitable_machine_with_the_fewest_constraints() -> None:
    assert scheduler().hear(submit(0, WEAK)) == [
        ("submitter", JobAccepted(0)),
        ("node/1", Launch(1, tasks(0, WEAK)[0])),
    ]


def test_what_does_not_fit_now_waits_and_a_freed_slot_takes_the_first_that_fits() -> None:
    oracle = scheduler()
    oracle.hear(submit(0, STRONG, WEAK))
    assert messages(oracle.hear(submit(1, STRONG, WEAK)), Launch) == []
    assert messages(oracle.hear(Completed(1), "node/1"), Launch) == [("node/1", Launch(3, tasks(1, 0, WEAK)[1]))]
    assert messages(oracle.hear(Completed(0), "node/0"), Launch) == [("node/0", Launch(4, tasks(1, STRONG)[0]))]


def test_a_job_is_done_with_its_last_task_and_unsatisfiable_ones_are_counted() -> None:
    oracle = scheduler()
    oracle.hear(submit(0, 0b100, WEAK))
    assert oracle.hear(Completed(1), "node/1") == [("submitter", JobDone(0, 1))]
    assert oracle.hear(submit(1, 0b100)) == [("submitter", JobAccepted(1)), ("submitter", JobDone(1, 1))]


def test_a_repeated_completion_frees_nothing() -> None:
    oracle = scheduler()
    oracle.hear(submit(0, WEAK))
    oracle.hear(Completed(0), "node/1")
    assert oracle.hear(Completed(0), "node/1") == []


def test_a_node_launches_each_number_once_and_reports_the_end() -> None:
    node = Alone("oracle", "node/0", Cluster.uniform(1))
    task, later = tasks(0, 0, 0)
    assert launched(node.hear(Launch(1, task), "oracle/0")) == [0]
    assert node.hear(Launch(1, task), "oracle/0") == []
    assert launched(node.hear(Launch(3, later), "oracle/0")) == [1]
    assert node.hear(Launch(2, task), "oracle/0") == [], "overtaken"
    assert node.hear(TaskFinished(task, 0), "node/0") == [("oracle/0", Completed(0))]
