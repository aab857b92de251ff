"""The master copy of the cell state: the micro-vectors of conflict detection, and what a scheduler is told."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.parts import Alone, messages, tasks

from volery.architectures.omega.messages import Changes, Commit, Ended, Refresh, Verdict
from volery.architectures.omega.messages import Withdraw as WithdrawTasks
from volery.core.model import Cluster, Task
from volery.roles.node import Completed, Kill, Launch

X, Y = "scheduler/0", "scheduler/1"


def cell(*slots: int, **parameters: Any) -> Alone:
    """Machines with so many CPUs free; CPUs are slots here."""
    return Alone("omega", "cell/0", Cluster((0,) * len(slots), slots), **parameters)


def cpus(first: int, *amounts: int) -> tuple[Task, ...]:
    """Tasks that ask for so many CPUs."""
    return tuple(Task(first + k, first, request=(amount,)) for k, amount in enumerate(amounts))


def commit(claimed: tuple[Task, ...], *machines: int, sequences: tuple[int, ...], gang: bool = False) -> Commit:
    return Commit(1, gang, claimed, machines, sequences)


def refused(master: Alone, message: Commit, source: str) -> tuple[int, ...]:
    ((_, verdict),) = messages(master.hear(message, source), Verdict)
    return tuple(verdict.refused)


def looked(master: Alone, *sources: str) -> None:
    for source in sources:
        master.hear(Refresh(1), source)


@pytest.mark.parametrize(("conflicts", "expected"), [("fine", ()), ("coarse", (20,))])
def test_claims_that_fit_together_conflict_only_by_sequence_numbers(conflicts: str, expected: tuple[int, ...]) -> None:
    """X claims 2 x 1 CPU and Y 1 x 2 CPUs of 4 (section 5.2): fine: both commit; coarse: Y's machine has changed."""
    master = cell(4, conflicts=conflicts)
    looked(master, X, Y)
    assert refused(master, commit(cpus(10, 1, 1), 0, 0, sequences=(0, 1)), X) == ()
    assert refused(master, commit(cpus(20, 2), 0, sequences=(0,)), Y) == expected


@pytest.mark.parametrize("conflicts", ["fine", "coarse"])
def test_claims_that_do_not_fit_together_always_conflict(conflicts: str) -> None:
    master = cell(4, conflicts=conflicts)
    looked(master, X, Y)
    assert refused(master, commit(cpus(10, 1, 1), 0, 0, sequences=(0, 1)), X) == ()
    assert refused(master, commit(cpus(20, 3), 0, sequences=(0,)), Y) == (20,)


@pytest.mark.parametrize(("gang", "expected"), [(False, (20,)), (True, (20, 21))])
def test_an_incremental_transaction_keeps_what_is_not_in_conflict_and_a_gang_nothing(
    gang: bool, expected: tuple[int, ...]
) -> None:
    """Y claims 3 CPUs of machine 0, which X has taken, and 1 of machine 1 (section 3.4)."""
    master = cell(4, 4)
    refused(master, commit(cpus(10, 1, 1), 0, 0, sequences=(0, 1)), X)
    effects = master.hear(commit(cpus(20, 3, 1), 0, 1, sequences=(0, 0), gang=gang), Y)
    assert messages(effects, Verdict) == [(Y, Verdict(1, expected))]
    assert [to for to, _ in messages(effects, Launch)] == ([] if gang else ["node/1"])


@pytest.mark.parametrize(("restore", "expected"), [("true", ()), ("false", (30,))])
def test_a_gang_that_is_undone_leaves_no_trace_in_sequence_numbers_unless_it_is_told_to(
    restore: str, expected: tuple[int, ...]
) -> None:
    master = cell(4, 1, conflicts="coarse", restore_sequences=restore)
    looked(master, X, Y)
    refused(master, commit(cpus(10, 1), 1, sequences=(0,)), X)
    assert refused(master, commit(cpus(20, 1, 1), 0, 1, sequences=(0, 0), gang=True), Y) == (20, 21)
    assert refused(master, Commit(2, False, cpus(30, 1), (0,), (0,)), X) == expected


def test_a_scheduler_is_told_what_has_changed_since_it_last_looked() -> None:
    master = cell(4, 4, 4)
    assert messages(master.hear(Refresh(1), X), Changes) == [(X, Changes(1, (), b"", ()))]
    refused(master, commit(cpus(20, 3), 2, sequences=(0,)), Y)
    ((_, told),) = messages(master.hear(Refresh(2), X), Changes)
    assert (told.machines, told.sequences, told.entries) == ((2,), (1,), 1)
    assert messages(master.hear(Refresh(2), X), Changes) == [], "a repeated question"
    master.hear(Completed(20), "node/2")
    ((_, told),) = messages(master.hear(Refresh(3), X), Changes)
    assert (told.machines, told.sequences) == ((2,), (1,)), "the end of a task leaves the sequence number"


def test_a_scheduler_that_has_not_looked_for_long_is_told_everything() -> None:
    master = cell(1, 1)
    for number in range(1, 5000):
        (task,) = tasks(number, 0)
        master.component.handle(Commit(number, False, (task,), (0,), (number - 1,)), Y, 0)
        master.component.handle(Completed(task.id), "node/0", 0)
    ((_, told),) = messages(master.hear(Refresh(1), X), Changes)
    assert told.machines == (0, 1)
    assert told.sequences == (4999, 0)


def test_the_owner_is_told_of_the_end_and_a_withdrawn_task_is_killed() -> None:
    master = cell(4)
    (task,) = tasks(3, 0)
    refused(master, commit((task,), 0, sequences=(0,)), X)
    assert master.hear(WithdrawTasks((task.id, 7)), X) == [("node/0", Kill(task.id))]
    assert master.hear(Completed(task.id), "node/0") == [(X, Ended(3, task.id))]
    assert master.hear(Completed(task.id), "node/0") == [], "repeated"


def test_a_repeated_commit_claims_nothing_twice() -> None:
    master = cell(4)
    once = commit(cpus(10, 1), 0, sequences=(0,))
    assert refused(master, once, X) == ()
    assert master.hear(once, X) == []
