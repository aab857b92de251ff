"""Reservations: numbers, withdrawals, kills and the account of results."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.parts import SUBMITTER, messages, submit, tasks
from tests.unit.effects import Observed, RecordingPort, Sent

from volery.core.events import Counted, JobDone
from volery.roles.reservations import Completed, Kill, Numbers, ReservingScheduler, Withdraw, by_needs


class Bare(ReservingScheduler):
    """Hands out what the tests reach for."""

    def begin(self) -> RecordingPort:
        port = RecordingPort.under(self, "scheduler/0")
        self.start(0)
        self._jobs.admit(submit(0, 0, 0), SUBMITTER, 0)
        self._running[0] = {0: "node/0", 1: "node/1"}
        port.drain()
        return port

    def give_up(self, first: int, nodes: list[str | None], served: str = "") -> None:
        self._withdraw(first, nodes, served)

    def end(self, spared: str = "") -> None:
        self._kill(0, spared)

    receives = {Completed: ReservingScheduler.on_completed}  # noqa: RUF012 - replaced by the base class


def sent(port: RecordingPort) -> list[Any]:
    return [(effect.to, effect.message) for effect in port.drain() if isinstance(effect, Sent)]


def test_groups_and_their_tasks_come_last_first() -> None:
    """The next task is popped from the end of the first group, reversed."""
    groups = by_needs(tasks(0, 0, 3, 0, 3, 1))
    assert list(reversed(groups)) == [0, 3, 1]
    assert [[task.id for task in group] for group in groups.values()] == [[4], [3, 1], [2, 0]]


def test_reservations_are_withdrawn_by_number_except_where_they_are_used_up_or_served() -> None:
    scheduler = Bare(Numbers(2, 5))
    port = scheduler.begin()
    scheduler.give_up(7, ["node/0", None, "node/1", "node/2"], served="node/1")
    assert sent(port) == [("node/0", Withdraw(7)), ("node/2", Withdraw(22))]


def test_a_repeated_result_counts_once_and_the_last_one_answers_and_reports() -> None:
    scheduler = Bare(Numbers(0, 1))
    port = scheduler.begin()
    for task in (0, 0):
        scheduler.handle(Completed(task, 0, 40), "node/0", 5)
    assert port.drain() == []
    scheduler.handle(Completed(1, 0, 2), "node/1", 9)
    effects = port.drain()
    facts = [effect.fact for effect in effects if isinstance(effect, Observed)]
    assert facts == [Counted("blocked_us", 42)]
    answers = messages([(e.to, e.message) for e in effects if isinstance(e, Sent)], JobDone)
    assert answers == [(SUBMITTER, JobDone(0))]


def test_numbers_are_a_step_apart_and_no_two_senders_share_one() -> None:
    first, second = Numbers(0, 2), Numbers(1, 2)
    assert [first.take(), first.take(3), first.take()] == [0, 2, 8]
    assert [second.take(), second.take(3), second.take()] == [1, 3, 9]


def test_running_tasks_are_killed_except_at_one_address() -> None:
    scheduler = Bare(Numbers(0, 1))
    port = scheduler.begin()
    scheduler.end(spared="node/0")
    assert sent(port) == [("node/1", Kill(1))]
    scheduler.end()
    assert sent(port) == [("node/0", Kill(0)), ("node/1", Kill(1))]
