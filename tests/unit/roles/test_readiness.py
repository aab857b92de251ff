"""Tasks of a workflow may start when all that they wait for has finished."""

from __future__ import annotations

from volery.core.model import Task
from volery.roles.readiness import Workflow


def tasks(*estimates_us: int) -> list[Task]:
    """Tasks 0, 1, 2 ... of one job."""
    return [Task(number, 1, 0, estimate_us) for number, estimate_us in enumerate(estimates_us)]


def ids(found: list[Task]) -> list[int]:
    return [task.id for task in found]


def test_a_task_is_ready_after_the_last_of_its_parents() -> None:
    workflow = Workflow()
    assert ids(workflow.add(tasks(1, 1, 1), [(), (), (0, 1)], set())) == [0, 1]
    assert workflow.blocked == 1
    assert ids(workflow.finished(0)) == []
    assert [(task.id, missing) for task, missing in workflow.ahead(1)] == [(2, 1)]
    assert ids(workflow.finished(1)) == [2]
    assert workflow.finished(1) == [], "an end counts once"
    assert (workflow.blocked, workflow.ahead(1)) == (0, [])


def test_parents_of_an_earlier_chunk_that_have_finished_hold_nothing_back() -> None:
    workflow = Workflow()
    workflow.add(tasks(1), (), set())
    workflow.finished(0)
    assert ids(workflow.add([Task(1, 1)], [(0,)], set())) == [1]


def test_whatever_is_below_a_task_that_no_machine_can_run_never_starts() -> None:
    workflow = Workflow()
    assert ids(workflow.add(tasks(1, 1, 1, 1), [(), (0,), (1,), ()], {0})) == [3]
    assert (workflow.never, workflow.blocked) == ({0, 1, 2}, 0)


def test_the_rank_of_a_task_is_the_longest_chain_below_it() -> None:
    workflow = Workflow()
    workflow.add(tasks(5, 10, 2, 1), [(), (0,), (0,), (1, 2)], set())
    assert [workflow.rank_us(number) for number in range(4)] == [16, 11, 3, 1]
    workflow.add([Task(4, 1, 0, 100)], [(2,)], set())
    assert workflow.rank_us(0) == 107, "a further chunk makes chains longer"
