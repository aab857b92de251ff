"""What carries out the launches of a host with nodes: which executor, and who reports what becomes of attempts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from volery.core.component import Deployment
from volery.core.model import SECOND, Address
from volery.live.config.accounts import Accounts
from volery.live.config.building import survives
from volery.live.config.federation import ALL, Federation
from volery.live.config.isolation import NodeRules
from volery.live.messages import ConfinementReport, HostName
from volery.live.node.agent import NodeAgent
from volery.live.node.executor import Executor, Report
from volery.live.node.kept import KeptAgent
from volery.live.node.reporting import Kept, Reporter, Tell
from volery.live.node.sleep import InstantExecutor, SleepExecutor

LEASE_DETECTIONS: Final = 1.5
"""Detection times that tasks go on without their node host. A master that hears nothing of a node gives its tasks up
after 4.75 of them, less what its last beat was old. A host that comes back takes 0.75 to see that its master is away,
and a node without a master goes on for 2: that leaves 1.5 for the time between, and half of one to spare."""

log = logging.getLogger(__name__)


class Hands(NamedTuple):
    """Of a host; nothing where no node stands there.

    Args:
        executor: carries out.
        reporter: keeps ends until they are received; None where nobody could lose them.
        kept: the executor, where tasks outlive the host.
    """

    executor: Executor | None = None
    reporter: Reporter | None = None
    kept: KeptAgent | None = None

    def introduction(self, nodes: Iterable[Address]) -> ConfinementReport | None:
        """What holds tasks on these nodes, or that nothing does; None where no real processes run."""
        agent = self.executor
        words = agent.held if isinstance(agent, NodeAgent | KeptAgent) else ""
        return ConfinementReport(tuple(nodes), words) if words else None


def hands_of(
    federation: Federation, name: HostName, deployment: Deployment, tell: Tell, lost: Callable[[Exception], None],
    given: Executor | None = None, unreceived: Kept | None = None,
) -> Hands:  # fmt: skip
    """The hands of a host with nodes.

    Args:
        federation: of the file.
        name: of the host.
        deployment: of the federation.
        tell: sends a report.
        lost: told when what runs is lost, and the host has to begin anew.
        given: takes the place of the executor that the file names.
        unreceived: ends that an earlier life in this process has not got rid of; what is not received is kept there.
    """
    folder, kind, file = federation.folder.resolve(), federation.file.executor, federation.file
    rules = NodeRules(file.isolation, file.output, bool(federation.fleet.cluster.resources), file.environment)
    by_incarnation = survives(federation.plan.architecture, deployment)
    if given is None and kind == "agent" and by_incarnation:
        lease_s = LEASE_DETECTIONS * deployment.detection_us / SECOND if name != ALL else 0.0
        keeping = Reporter(name, tell, lambda task, attempt: agent.forget(task, attempt), unreceived, folder / "tasks")
        agent = KeptAgent(folder / "tasks", folder / "agents" / name, lease_s, keeping.report, lost, file.run_as, rules)
        return Hands(agent, keeping, agent)
    outputs = folder / "tasks" if given is None and kind == "agent" else None
    reporter = Reporter(name, tell, outputs=outputs) if name != ALL else None
    report: Report = reporter.report if reporter is not None else lambda told: tell(told, "")
    told = report if file.reports else None
    if given is not None:
        return Hands(given, reporter)
    if kind == "sleep":
        return Hands(SleepExecutor(report=told, by_incarnation=by_incarnation), reporter)
    if kind == "instant":
        return Hands(InstantExecutor(told, by_incarnation=by_incarnation), reporter)
    accounts = Accounts(file.run_as)
    ended = NodeAgent(folder / "tasks", folder / "agents" / name, told, accounts=accounts, rules=rules)
    if ended.orphans:
        log.warning("host %s: ended %d processes that an earlier agent had left", name, len(ended.orphans))
    return Hands(ended, reporter)
