"""Starts and ends of tasks are reported until they are received, by whichever incarnation of a host comes."""

from __future__ import annotations

from volery.core.model import Address
from volery.live.messages import AttemptState, ReportsStored, TaskReport
from volery.live.node.runtime import Reporter, UnreceivedReports


def test_ends_are_repeated_until_they_are_received_also_by_the_next_life_in_the_same_process() -> None:
    told: list[tuple[int, Address]] = []
    forgotten: list[tuple[int, int]] = []
    kept: UnreceivedReports = {}

    def incarnation() -> Reporter:
        return Reporter(
            "node-a",
            lambda report, source="": told.append((report.task, source)) if isinstance(report, TaskReport) else None,
            lambda *attempt: forgotten.append(attempt),
            kept,
        )

    first = incarnation()
    states: tuple[AttemptState, ...] = ("running", "finished", "failed")
    for number, state in enumerate(states):
        first.report(TaskReport(number, 0, 0, "node/1", state, 5))
    assert told == [(number, "agent/node-a") for number in range(3)]
    second = incarnation()
    second.repeat()
    assert [number for number, _ in told[3:]] == [1, 2]
    second.on_received(ReportsStored(((1, 0), (9, 0))), "submitter", 0)
    second.repeat()
    assert [number for number, _ in told[5:]] == [2]
    assert forgotten == [(1, 0)]


def test_what_has_begun_is_repeated_with_its_time_for_a_submitter_that_restarts() -> None:
    told: list[tuple[int, AttemptState, int]] = []
    reporter = Reporter(
        "node-a",
        lambda report, _="": (
            told.append((report.task, report.state, report.at_unix_us)) if isinstance(report, TaskReport) else None
        ),
    )
    reporter.report(TaskReport(0, 0, 0, "node/1", "running", 5))
    reporter.report(TaskReport(1, 0, 0, "node/2", "running", 6))
    reporter.report(TaskReport(1, 0, 0, "node/2", "finished", 7))
    told.clear()
    reporter.repeat()
    assert told == [(1, "running", 6), (1, "finished", 7), (0, "running", 5)]
    reporter.on_received(ReportsStored(((1, 0),)), "submitter", 0)
    told.clear()
    reporter.repeat()
    assert told == [(0, "running", 5)]
