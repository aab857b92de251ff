"""The reporter of a node host keeps reports of attempts until the submitter has stored them.

A start is kept until the end is: a submitter that restarts learns what has started meanwhile, and since when it runs.
Frames bridge what a transport loses; this bridges a failure of the submitter's host. The reporter of a host has the
address agent/HOST and is not journalled: its reports are either stored elsewhere soon, or sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from volery.core.component import Component
from volery.core.model import SUBMITTER, Address, TaskId, Time
from volery.live.messages import (
    AGENT,
    ConfinementReport,
    HostName,
    OutputReply,
    OutputRequest,
    ReportsStored,
    TaskReport,
)
from volery.live.node.output import OutputReader

AgentReport = TaskReport | ConfinementReport | OutputReply


class SendReport(Protocol):
    def __call__(self, report: AgentReport, source: Address = ..., /) -> None:
        """Send a report from an address; without one from the node that it is about."""


UnreceivedReports = dict[tuple[TaskId, int], tuple[TaskReport, ...]]
"""The reports of each attempt that has ended and of which the end was not received yet; the last one is the end."""


def reporter_of(host: HostName) -> Address:
    """The address of a host's reporter."""
    return f"{AGENT}/{host}"


class Reporter(Component):
    """Reports attempts, and repeats what was not received: starts of attempts that run, and ends.

    Args:
        forget: is called for each attempt (task, attempt) of which the end was received.
        kept: what was not received in an earlier incarnation of this process, and where further ends are kept.
        outputs: the folder of the folders of attempts; None: tasks write none here.
    """

    __slots__ = ("_address", "_begun", "_confined", "_forget", "_kept", "_outputs", "_send")

    def __init__(
        self, host: HostName, send: SendReport, forget: Callable[[TaskId, int], None] | None = None,
        kept: UnreceivedReports | None = None, outputs: Path | None = None,
    ) -> None:  # fmt: skip
        self._address: Final = reporter_of(host)
        self._send = send
        self._forget = forget
        self._begun: dict[tuple[TaskId, int], TaskReport] = {}
        self._kept: UnreceivedReports = {} if kept is None else kept
        self._confined: ConfinementReport | None = None
        self._outputs = None if outputs is None else OutputReader(outputs, lambda told: send(told, self._address))

    def introduce(self, confined: ConfinementReport) -> None:
        """Report the confinement of tasks here, now and whenever the submitter restarts."""
        self._confined = confined
        self._send(confined, self._address)

    def report(self, report: TaskReport) -> None:
        """Report an attempt; keep its end, and the start before it, until the end was received."""
        key = report.task, report.attempt
        if report.state == "running":
            self._begun[key] = report
        else:
            begun = self._begun.pop(key, None)
            self._kept[key] = (report,) if begun is None else (begun, report)
        self._send(report, self._address)

    def again(self) -> None:
        """Repeat what a submitter that has restarted may not have stored."""
        if self._confined is not None:
            self._send(self._confined, self._address)
        for reports in (*self._kept.values(), tuple(self._begun.values())):
            for report in reports:
                self._send(report, self._address)

    def on_received(self, message: ReportsStored, source: Address, now: Time) -> None:  # noqa: ARG002 - it is a handler
        """Forget reports that the submitter has stored."""
        if source != SUBMITTER:
            return
        for task, attempt in message.attempts:
            if self._kept.pop((task, attempt), None) is not None and self._forget is not None:
                self._forget(task, attempt)

    def on_output_asked(self, message: OutputRequest, source: Address, now: Time) -> None:  # noqa: ARG002 - it is a handler
        """Read for the submitter, which checks who may see the output; others are not answered."""
        if source != SUBMITTER:
            return
        if self._outputs is not None:
            self._outputs.asked(message)
        else:
            self._send(OutputReply(message.number, "not here"), self._address)

    receives = {ReportsStored: on_received, OutputRequest: on_output_asked}  # noqa: RUF012 - the base class reads the table once and replaces it
