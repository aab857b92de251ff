"""Node runtime of a host: the executor of its nodes, and the reporter of attempts to the submitter."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import NamedTuple

from volery.core.component import Deployment
from volery.core.model import Address
from volery.live.config.accounts import Accounts
from volery.live.config.detection import task_lease_s
from volery.live.config.federation import ALL, Federation
from volery.live.config.limits import NodeRules
from volery.live.config.plan import host_recovery
from volery.live.messages import ConfinementReport, HostName
from volery.live.node.agent import NodeAgent
from volery.live.node.executor import Executor, Report
from volery.live.node.reporter import Reporter, SendReport, UnreceivedReports
from volery.live.node.sleep import InstantExecutor, SleepExecutor
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

    def introduction(self, nodes: Iterable[Address]) -> ConfinementReport | None:
        """The report of what confines tasks on these nodes; None where no real processes run."""
        agent = self.executor
        words = agent.held if isinstance(agent, NodeAgent | SupervisorClient) else ""
        return ConfinementReport(tuple(nodes), words) if words else None


def node_runtime(
    federation: Federation, name: HostName, deployment: Deployment, here: Collection[Address], send: SendReport,
    given: Executor | None = None, unreceived: UnreceivedReports | None = None,
) -> NodeRuntime:  # fmt: skip
    """Make the node runtime of a host.

    Args:
        here: addresses of the components on the host.
        given: takes the place of the executor that the file names.
        unreceived: ends that an earlier incarnation in this process has not got rid of; further ones are kept there.
    """
    if not any(address in deployment.machines for address in here):
        return NodeRuntime()
    folder, kind = federation.folder.resolve(), federation.file.executor
    recovery = host_recovery(federation.plan.architecture, deployment)
    if given is None and kind == "agent" and recovery is not None:
        lease_s = task_lease_s(recovery.detection_us) if name != ALL else 0.0
        run_as, rules = federation.file.run_as, _rules(federation)
        agent = SupervisorClient(folder / "tasks", folder / "agents" / name, lease_s, run_as, rules)
        return NodeRuntime(agent, Reporter(name, send, agent.forget, unreceived, folder / "tasks"), agent)
    outputs = folder / "tasks" if given is None and kind == "agent" else None
    reporter = Reporter(name, send, outputs=outputs) if name != ALL else None
    report: Report = reporter.report if reporter is not None else send
    return NodeRuntime(given or _executor(federation, name, report, by_incarnation=recovery is not None), reporter)


def _executor(federation: Federation, name: HostName, report: Report, *, by_incarnation: bool) -> Executor:
    folder, file = federation.folder.resolve(), federation.file
    told = report if file.reports else None
    if file.executor == "sleep":
        return SleepExecutor(report=told, by_incarnation=by_incarnation)
    if file.executor == "instant":
        return InstantExecutor(told, by_incarnation=by_incarnation)
    accounts, rules = Accounts(file.run_as), _rules(federation)
    agent = NodeAgent(folder / "tasks", folder / "agents" / name, told, accounts=accounts, rules=rules)
    if agent.orphans:
        log.warning("host %s: ended %d processes that an earlier agent had left", name, len(agent.orphans))
    return agent


def _rules(federation: Federation) -> NodeRules:
    file = federation.file
    return NodeRules(file.isolation, file.output, bool(federation.fleet.cluster.resources), file.environment)
