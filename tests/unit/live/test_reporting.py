"""Ends of tasks are told until they are received, by whichever life of a host comes."""

from __future__ import annotations

from volery.core.model import Address
from volery.live.node.executor import AttemptState, Received, TaskReport
from volery.live.node.reporting import Kept, Reporter


def test_ends_are_repeated_until_they_are_received_also_by_the_next_life_in_the_same_process() -> None:
    told: list[tuple[int, Address]] = []
    forgotten: list[tuple[int, int]] = []
    kept: Kept = {}

    def life() -> Reporter:
        return Reporter(
            "node-a",
            lambda report, source: told.append((report.task, source)) if isinstance(report, TaskReport) else None,
            lambda *attempt: forgotten.append(attempt),
            kept,
        )

    first = life()
    states: tuple[AttemptState, ...] = ("running", "finished", "failed")
    for number, state in enumerate(states):
        first.report(TaskReport(number, 0, 0, "node/1", state, 5))
    assert told == [(number, "agent/node-a") for number in range(3)]
    second = life()
    second.again()
    assert [number for number, _ in told[3:]] == [1, 2]
    second.on_received(Received(((1, 0), (9, 0))), "submitter", 0)
    second.again()
    assert [number for number, _ in told[5:]] == [2]
    assert forgotten == [(1, 0)]
