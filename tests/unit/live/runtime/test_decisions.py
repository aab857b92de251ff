"""Decisions are kept per task and counted per pair of components; the funnel counts machines demand by demand."""

from __future__ import annotations

import pytest

from volery.core.model import Cluster
from volery.core.why import Chosen, Decision
from volery.live.messages import DecisionReport
from volery.live.runtime import decisions
from volery.live.runtime.decisions import KEPT_PER_TASK, STEP_S, STEPS, DecisionBook, candidates, counted


class Clock:
    """Seconds, as they are set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def told(task: int, at: int = 0, chosen: Chosen = "placed", age_us: int = 0) -> DecisionReport:
    decision = Decision(task, 0, chosen, partition=0, machine=3, asked="lm/0", view_age_us=age_us)
    return DecisionReport("gm/0", at, decision)


def test_the_first_and_the_last_decisions_of_a_task_are_kept() -> None:
    book = DecisionBook()
    assert not book.heard
    for at in range(KEPT_PER_TASK + 5):
        book.note(told(7, at))
    steps = book.steps(7, {3: "node/3"})
    assert [step.at_us for step in steps] == [0, *range(6, KEPT_PER_TASK + 5)]
    assert [step.omitted for step in steps] == [0, 5, *[0] * (KEPT_PER_TASK - 2)]
    assert {(step.by, step.node, step.asked) for step in steps} == {("gm/0", "node/3", "lm/0")}
    assert book.heard
    assert book.steps(8, {}) == ()


def test_decisions_of_the_oldest_tasks_are_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "TASKS_MAX", 2)
    book = DecisionBook()
    for task in (1, 2, 1, 3):
        book.note(told(task))
    assert [len(book.steps(task, {})) for task in (1, 2, 3)] == [0, 1, 1]


def test_recent_decisions_of_a_pair_are_counted_apart() -> None:
    clock = Clock()
    book = DecisionBook(clock)
    book.note(told(1, chosen="placed", age_us=100))
    book.note(told(2, chosen="refused"))
    clock.now_s = STEPS * STEP_S
    book.note(told(3, chosen="placed", age_us=300))
    (pair,) = book.pairs()
    assert (pair.by, pair.asked, pair.decisions, pair.refused, pair.view_age_us) == ("gm/0", "lm/0", 2, 1, 200)
    assert (pair.recent, pair.recent_refused, pair.recent_view_age_us) == (1, 0, 300)
    clock.now_s *= 3
    (pair,) = book.pairs()
    assert (pair.decisions, pair.recent, pair.recent_view_age_us) == (2, 0, None)


def test_each_demand_leaves_fewer_machines() -> None:
    cluster = Cluster((0b1, 0b11, 0b11, 0b11, 0b11), (1, 1, 1, 1, 2))
    steps = candidates(cluster, 0b10, (), {1}, {3: 1, 4: 1}, {2})
    assert counted(steps) == counted(
        [("machines", [0, 1, 2, 3, 4]), ("meet its constraints", [1, 2, 3, 4]), ("are not drained", [2, 3, 4]),
         ("answer", [3, 4]), ("have a free slot now", [4])]
    )  # fmt: skip


def test_a_task_that_asks_for_amounts_needs_a_machine_that_is_large_enough_when_empty() -> None:
    cluster = Cluster((0, 0), (1, 1), "x", ("memory_mb",), ((100,), (200,)))
    names = [name for name, _ in candidates(cluster, 0, (150,), (), {})]
    assert names == ["machines", "meet its constraints", "are large enough when empty", "are not drained"]
    assert candidates(cluster, 0, (150,), (), {})[-1][1] == [1]
