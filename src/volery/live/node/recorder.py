"""Recorders of the attempts that a live host runs."""

from __future__ import annotations

from typing import Protocol

from volery.core.events import Outcome
from volery.core.model import Address, Task, Time
from volery.core.records import LostAttempt, Records


class Recorder(Protocol):
    """Hears of every attempt on a host, in microseconds of the host's clock."""

    def started(self, node: Address, task: Task, attempt: int, waited_us: Time, now: Time) -> None:
        """An attempt has been handed to the executor."""

    def ended(self, _node: Address, task: Task, attempt: int, outcome: Outcome, now: Time) -> None:
        """An attempt has ended."""


class TraceRecorder:
    """Fills the lab's own table when a federation replays a trace, so that the lab's metrics read it as one of theirs.

    Tasks have the numbers that they have in the trace.

    Args:
        records: of the trace.
        machines: address of each node -> number of its machine.
    """

    def __init__(self, records: Records, machines: dict[Address, int]) -> None:
        self._records = records
        self._machines = machines

    def started(self, node: Address, task: Task, attempt: int, waited_us: Time, now: Time) -> None:
        """Write the start; an earlier attempt is kept as lost."""
        records, number = self._records, task.id
        if attempt:
            records.lost.append(
                LostAttempt(
                    number, records.attempt[number], records.worker[number], records.start_us[number],
                    records.finish_us[number],
                )
            )  # fmt: skip
        records.start_us[number] = now
        records.worker[number] = self._machines[node]
        records.attempt[number] = attempt
        if waited_us:
            records.waited_us[number] = waited_us

    def ended(self, _node: Address, task: Task, attempt: int, outcome: Outcome, now: Time) -> None:
        """Write the end; only a finished attempt has finished."""
        if outcome == "finished":
            self._records.finish_us[task.id] = now
        else:
            self._records.killed[task.id, attempt] = now
