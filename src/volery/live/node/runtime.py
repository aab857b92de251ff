"""Node runtime of a host: the executor of its nodes, and the reporter of attempts to the submitter.

A start is kept until the end is: a submitter that restarts learns what has started meanwhile, and since when it runs.
Frames bridge what a transport loses; reports that are kept bridge a failure of the submitter's host. The reporter of a
host has the address agent/HOST and is not journalled: its reports are either stored elsewhere soon, or sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from volery.core.component import Component, Deployment
from volery.core.model import SUBMITTER, Address, TaskId, Time
from volery.live.config.federation import ALL, Federation
from volery.live.config.limits import NodeRules
from volery.live.config.plan import host_recovery, task_lease_s
from volery.live.messages import (
    AGENT,
    ConfinementReport,
    HostName,
    OutputReply,
    OutputRequest,
    ReportsStored,
    TaskReport,
)
from volery.live.node.agent import NodeAgent
from volery.live.node.executor import Executor, Report
from volery.live.node.output import OutputReader
from volery.live.node.shortage import obstacles, permit_descriptors
from volery.live.node.sleep import InstantExecutor, SleepExecutor
from volery.live.node.spawn import Accounts
from volery.live.node.supervisor_client import SupervisorClient

log = logging.getLogger(__name__)


class NodeRuntime(NamedTuple):
    """The parts of a host that run tasks; none of them where no node is.

    Args:
        reporter: keeps ends until they are received; None where nobody could lose them.
        supervised: the executor, where tasks outlive the host.
    """

    executor: Executor | None = None
    reporter: Reporter | None = None
    supervised: SupervisorClient | None = None

    def introduce(self, nodes: Iterable[Address], send: SendReport) -> None:
        """Report what confines tasks on these nodes and what the machine lacks, now and when that changes.

        Where no real processes run there is nothing to report.
        """
        agent = self.executor
        listed = tuple(nodes)
        if not isinstance(agent, NodeAgent | SupervisorClient):
            return

        def report() -> None:
            confinement = ConfinementReport(listed, agent.held, agent.shortage)
            if self.reporter is not None:
                self.reporter.introduce(confinement)
            else:
                send(confinement)

        agent.watch_shortage(report)
        report()


def node_runtime(
    federation: Federation,
    name: HostName,
    deployment: Deployment,
    local: Collection[Address],
    send: SendReport,
    executor: Executor | None = None,
    unreceived: UnreceivedReports | None = None,
) -> NodeRuntime:
    """Make the node runtime of a host.

    Args:
        local: addresses of the components on the host.
        executor: takes the place of the executor that the file names.
        unreceived: ends of an earlier incarnation in this process that were not received; further ones are added.
    """
    if not any(address in deployment.machines for address in local):
        return NodeRuntime()

    folder, kind = federation.folder.resolve(), federation.file.executor
    if executor is None and kind == "agent":
        _compare_limits(federation, name, deployment, local)

    recovery = host_recovery(federation.plan.architecture, deployment)

    # A host that has all nodes would only give the attempt back to itself.
    gives_back = recovery is not None and recovery.takes_back and any(node not in local for node in deployment.machines)
    if executor is None and kind == "agent" and recovery is not None:
        lease_s = task_lease_s(recovery.detection_us) if name != ALL else 0.0
        run_as = federation.file.run_as
        rules = _rules(federation, name, gives_back=gives_back)
        agent = SupervisorClient(folder / "tasks", folder / "agents" / name, lease_s, run_as, rules)
        return NodeRuntime(agent, Reporter(name, send, agent.forget, unreceived, folder / "tasks"), agent)

    # In one process the submitter is not lost alone: nobody has to keep reports for it.
    outputs = folder / "tasks" if executor is None and kind == "agent" else None
    reporter = Reporter(name, send, outputs=outputs) if name != ALL else None
    report: Report = reporter.report if reporter is not None else send
    return NodeRuntime(executor or _executor(federation, name, report, by_incarnation=recovery is not None), reporter)


def _compare_limits(federation: Federation, name: HostName, deployment: Deployment, local: Collection[Address]) -> None:
    """Compare what this machine permits with the tasks that its nodes run at once, and log what is too little.

    Raises:
        InputError: the folder of tasks cannot be used, or no account be used for tasks.
    """
    accounts = Accounts(federation.file.run_as)
    cluster = federation.fleet.cluster
    folder = federation.folder.resolve() / "tasks"

    accounts.check_folder(folder)
    machines = [deployment.machines[address] for address in local if address in deployment.machines]
    slots = sum(cluster.slots[machine] for machine in machines)
    offered_mb = 0
    if "memory_mb" in cluster.resources:
        place = cluster.resources.index("memory_mb")
        offered_mb = sum(cluster.capacities[machine][place] for machine in machines)

    permit_descriptors(slots)

    for words in obstacles(slots, offered_mb, folder, accounts.users()):
        log.warning("host %s: %s", name, words)


def _executor(federation: Federation, name: HostName, report: Report, *, by_incarnation: bool) -> Executor:
    folder, file = federation.folder.resolve(), federation.file
    send = report if file.reports else None

    if file.executor == "sleep":
        return SleepExecutor(report=send, by_incarnation=by_incarnation)
    if file.executor == "instant":
        return InstantExecutor(send, by_incarnation=by_incarnation)

    accounts = Accounts(file.run_as)
    rules = _rules(federation, name)
    agent = NodeAgent(folder / "tasks", folder / "agents" / name, send, accounts=accounts, rules=rules)

    if agent.orphans:
        log.warning("host %s: ended %d processes that an earlier agent had left", name, len(agent.orphans))

    return agent


def _rules(federation: Federation, name: HostName, *, gives_back: bool = False) -> NodeRules:
    file = federation.file
    amounts = bool(federation.fleet.cluster.resources)
    api = federation.api_url(name)
    return NodeRules(file.isolation, file.output, amounts, file.environment, gives_back, file.calls_max, api)


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
        unreceived: ends of an earlier incarnation of this process that were not received; further ones are added.
        outputs: folder of the folders of attempts; None: tasks write none here.
    """

    __slots__ = ("_address", "_confinement", "_forget", "_outputs", "_send", "_starts", "_unreceived_reports")

    def __init__(
        self,
        host: HostName,
        send: SendReport,
        forget: Callable[[TaskId, int], None] | None = None,
        unreceived: UnreceivedReports | None = None,
        outputs: Path | None = None,
    ) -> None:
        self._address: Final = reporter_of(host)
        self._send = send
        self._forget = forget
        self._starts: dict[tuple[TaskId, int], TaskReport] = {}
        self._unreceived_reports: UnreceivedReports = {} if unreceived is None else unreceived
        self._confinement: ConfinementReport | None = None
        self._outputs = None if outputs is None else OutputReader(outputs, self._send_output)

    def _send_output(self, reply: OutputReply) -> None:
        self._send(reply, self._address)

    def introduce(self, confinement: ConfinementReport) -> None:
        """Report the confinement of tasks here, now and whenever the submitter restarts."""
        self._confinement = confinement
        self._send(confinement, self._address)

    def report(self, report: TaskReport) -> None:
        """Report an attempt; keep its end, and the start before it, until the end was received."""
        key = report.task, report.attempt
        if report.state == "running":
            self._starts[key] = report
        else:
            start_report = self._starts.pop(key, None)
            self._unreceived_reports[key] = (report,) if start_report is None else (start_report, report)
        self._send(report, self._address)

    def repeat(self) -> None:
        """Repeat what a submitter that has restarted may not have stored."""
        if self._confinement is not None:
            self._send(self._confinement, self._address)
        for reports in (*self._unreceived_reports.values(), tuple(self._starts.values())):
            for report in reports:
                self._send(report, self._address)

    def on_received(self, message: ReportsStored, source: Address, now: Time) -> None:  # noqa: ARG002 - it is a handler
        """Forget reports that the submitter has stored."""
        if source != SUBMITTER:
            return
        for task, attempt in message.attempts:
            if self._unreceived_reports.pop((task, attempt), None) is not None and self._forget is not None:
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
