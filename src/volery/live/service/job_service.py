"""Job service: the submitter between the API, which describes jobs in words, and the schedulers, which take messages.

From a request to a process: an endpoint of `api` > `JobService.submit` > `JobSubmissions.submit` > `insert_all` (the
store) > `JobSubmissions.start_sending` > `SubmitThrottle` > `Send`, which is the inbox of the host. A turn of the host
(`live.runtime.host`) hands the job to its scheduler, whose messages lead, on one host or several, to a node; when the
turn of the node's host is in its journal, its executor starts the task (`live.node`). Back from there, reports and
answers come to `SubmitterComponent`. It has the address `SUBMITTER` on its host like any component, and is not
journalled: its state is the store.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from volery.core.capabilities import CrashRecovery, Draining, DueShares
from volery.core.component import Component, Deployment, role_of
from volery.core.errors import InputError
from volery.core.events import Drain, JobAccepted, JobDone, JobRejected, PeerBack, PeerLost, Seen, TimerFired
from volery.core.flow import answers_queries
from volery.core.model import Address, JobId, Time
from volery.live.config.constraints import Fleet
from volery.live.jobs import JobDescription
from volery.live.messages import (
    AGENT,
    ConfinementReport,
    DecisionReport,
    OutputReply,
    PeerReport,
    PreemptionReport,
    Send,
    TaskReport,
)
from volery.live.runtime.failure_detector import HostRegister
from volery.live.service.batches import BatchWriter
from volery.live.service.events import EventFeed
from volery.live.service.outputs import OutputRequests
from volery.live.service.queries import CapacityQueries, JobQueries
from volery.live.service.reports import AttemptCounts, DecisionBook, NodeTable, ReportMemory
from volery.live.service.store import JobStore
from volery.live.service.submissions import JobSubmissions, TokenOf, no_token
from volery.live.service.user_shares import UserShares
from volery.live.status import JobStatus, NodeStatus, Receipt

REPORTS_LATE_S: Final = 2.0
"""Reports travel other ways than the answer of the scheduler, and may come after it; rarely by this much."""
KEPT_REPORTS_LATE_S: Final = 120.0
"""The same where reports are kept until they are received: they are as late as the failure that delays them lasts."""
REPEAT_S: Final = 5.0
"""Longest time for which a component that has restarted may place something on a drained node."""


class NodeDrains:
    """Orders to place nothing on nodes: those that operators have drained, and those that are short of something."""

    def __init__(self, store: JobStore, writer: BatchWriter, nodes: NodeTable, send: Send) -> None:
        self._store = store
        self._writer = writer
        self._nodes = nodes
        self._send = send

    async def drain(self, node: Address, drained: bool) -> NodeStatus | None:
        """Place nothing more on a node, or use it again; None where there is no such node.

        Raises:
            InputError: the scheduler cannot drain nodes.
        """
        nodes = self._nodes
        if node not in nodes.machines:
            return None
        if not nodes.can_drain:
            problem = "this scheduler cannot drain nodes; of those in the registry, Megha can"
            raise InputError(f"nodes/{node}", problem)

        await self._writer.written(partial(self._store.drain, node, drained))
        (nodes.drained.add if drained else nodes.drained.discard)(node)

        self._order(node, node in nodes.closed())
        return next(status for status in nodes.statuses() if status.address == node)

    def confined(self, report: ConfinementReport) -> None:
        """Close the nodes that have become short of something, and open those that no longer are."""
        for node in self._nodes.confined(report):
            self._order(node, node in self._nodes.closed())

    def send_all(self) -> None:
        for node in sorted(self._nodes.closed()):
            self._order(node, drained=True)

    def _order(self, node: Address, drained: bool) -> None:
        for master in self._nodes.masters(node):
            self._send(master, Drain(node, drained))


class SubmitterComponent(Component):
    """Component at the address `SUBMITTER`: hands reports and answers to the parts that keep them.

    Args:
        capacity: asks schedulers for their views; None: they do not answer.
    """

    __slots__ = (
        "_capacity",
        "_counts",
        "_decisions",
        "_drains",
        "_nodes",
        "_outputs",
        "_sharing",
        "_submissions",
        "_writer",
    )

    def __init__(
        self,
        writer: BatchWriter,
        submissions: JobSubmissions,
        memory: ReportMemory,
        drains: NodeDrains,
        sharing: UserShares,
        outputs: OutputRequests,
        capacity: CapacityQueries | None,
    ) -> None:
        self._writer = writer
        self._submissions = submissions
        self._nodes, self._counts, self._decisions = memory
        self._drains = drains
        self._sharing = sharing
        self._outputs = outputs
        self._capacity = capacity

    def on_report(self, event: TaskReport, source: Address, now: Time) -> None:
        self._writer.note(event)
        has_ended = self._nodes.report(event)
        # A report that comes from a node itself, without a reporter, is kept by nobody: nothing to acknowledge.
        if has_ended and source != event.node and role_of(source) == AGENT:
            self._writer.acknowledge(source, (event.task, event.attempt))
        self._counts.report(event)

    def on_news(self, event: JobAccepted | JobRejected | JobDone, source: Address, now: Time) -> None:
        self._writer.note(event)
        if isinstance(event, JobRejected):
            self._port.set_timer(event.job, now + event.retry_after_us)
        else:
            self._submissions.accepted(event.job, is_done=isinstance(event, JobDone))

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Submit a rejected job again."""
        assert isinstance(event.key, int)
        self._submissions.submit_rejected(event.key)

    def on_decision(self, event: DecisionReport, source: Address, now: Time) -> None:
        self._decisions.note(event)

    def on_confined(self, event: ConfinementReport, source: Address, now: Time) -> None:
        self._drains.confined(event)

    def on_preempted(self, event: PreemptionReport, source: Address, now: Time) -> None:
        self._sharing.note(event)

    def on_output(self, event: OutputReply, source: Address, now: Time) -> None:
        self._outputs.receive(event, source)

    def on_peer(self, event: PeerReport, source: Address, now: Time) -> None:
        self._nodes.peer(event)

    def on_seen(self, event: Seen, source: Address, now: Time) -> None:
        if self._capacity is not None:
            self._capacity.seen(event)

    def on_peer_lost_or_back(self, event: PeerLost | PeerBack, source: Address, now: Time) -> None:
        self._submissions.failover.on_peer(event)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        TaskReport: on_report,
        ConfinementReport: on_confined,
        DecisionReport: on_decision,
        PreemptionReport: on_preempted,
        PeerReport: on_peer,
        Seen: on_seen,
        OutputReply: on_output,
        JobAccepted: on_news,
        JobRejected: on_news,
        JobDone: on_news,
        TimerFired: on_timer,
        PeerLost: on_peer_lost_or_back,
        PeerBack: on_peer_lost_or_back,
    }


class JobService:
    """Submits, follows and cancels jobs, and drains nodes; all calls come from the event loop's thread.

    Attributes:
        component: receives what schedulers and hosts answer.
        outputs: asks other hosts for the output of tasks.
    """

    def __init__(
        self,
        store: JobStore,
        writer: BatchWriter,
        submissions: JobSubmissions,
        queries: JobQueries,
        drains: NodeDrains,
        outputs: OutputRequests,
        component: SubmitterComponent,
    ) -> None:
        self._store = store
        self.writer = writer
        self._submissions = submissions
        self.queries = queries
        self._drains = drains
        self.outputs = outputs
        self.component = component

    @property
    def problem(self) -> str:
        """Why no jobs are taken just now; empty where they are."""
        try:
            self._store.demand_files()
        except sqlite3.OperationalError as error:
            return str(error)
        return self.writer.problem

    async def open(self, elsewhere: Collection[Address] = ()) -> None:
        """Begin to write, and to submit what had not ended when the store was last closed; ended tasks stay ended.

        Args:
            elsewhere: entries on other hosts. Their jobs are submitted when they are met (`resubmit`): before that,
                a job would wait for one that is away, and name tasks of which the ends are reported meanwhile.
        """
        self.writer.open()
        self.queries.feed.open()
        self._repeat_orders()
        self._submissions.open(elsewhere)

    async def resubmit(self, entries: Collection[Address]) -> None:
        """Submit unfinished jobs to entries that have restarted, or are met first: they may have lost them."""
        self.queries.table.forget_lost(entries)
        self._submissions.failover.greet(entries)
        self.queries.sharing.send_weights(entries)
        await self._submissions.resubmit(entries)

    async def close(self) -> None:
        """Store what was reported, and close the store."""
        if self.writer.closed:
            return
        self.writer.refuse()
        await self._submissions.stop()
        await self.queries.feed.close()
        await self.writer.close()

    async def submit(self, description: JobDescription) -> Receipt:
        """Take a job: it is in the store, committed, when this returns.

        Raises:
            InputError: constraints that the fleet gives no meaning to, or a key that belongs to another job.
        """
        (receipt,) = await self._submissions.submit([description], ["job"])
        return receipt

    async def submit_many(self, descriptions: Sequence[JobDescription]) -> list[Receipt]:
        """Take several jobs in one commit, all of them or none.

        Raises:
            InputError: as for one, naming which.
        """
        return await self._submissions.submit(descriptions, [f"jobs[{at}]" for at in range(len(descriptions))])

    async def cancel(self, number: JobId) -> JobStatus | None:
        """Cancel a job; None where there is no such job."""
        if await self.writer.written(partial(self._store.cancel, number)):
            status = self._store.job(number)
            assert status is not None
            self._submissions.withdraw(number, status.user)
        return self._store.job(number)

    async def drain(self, node: Address, drained: bool) -> NodeStatus | None:
        """Place nothing more on a node, or use it again; see `NodeDrains.drain`."""
        return await self._drains.drain(node, drained)

    def unanswering(self, user: str, job: JobId | None = None) -> str:
        """One sentence about the scheduler of a job, or of a user's next one, if it does not answer; else empty."""
        register = self.queries.table.register
        return "" if register is None else register.unanswering(self._submissions.scheduler(user, job))

    def _repeat_orders(self) -> None:
        """Repeat all closed nodes and weights: a component may have restarted."""
        if self.writer.closed:
            return
        self._drains.send_all()
        self.queries.sharing.send_weights()

        # Nothing acknowledges these orders, so they are repeated as long as the service runs.
        asyncio.get_running_loop().call_later(REPEAT_S, self._repeat_orders)


def job_service(
    store: JobStore,
    fleet: Fleet,
    deployment: Deployment,
    send: Send,
    reports_late_s: float = REPORTS_LATE_S,
    agents: Mapping[Address, Address] = {},
    register: Callable[[Callable[[], Mapping[Address, int]]], HostRegister] | None = None,
    observe: Callable[[TaskReport], None] | None = None,
    on_durable: Callable[[int], None] | None = None,
    token: TokenOf = no_token,
) -> JobService:
    """Assemble a job service.

    Args:
        store: store of jobs, which is closed with the service.
        deployment: deployment of the federation; its components run elsewhere.
        reports_late_s: a job that is answered waits so long for reports of its tasks.
        agents: node -> the reporter of its host, where that is another one.
        register: makes the register of hosts, given what counts assigned jobs; None: hosts are not known.
        observe: is called with each report of an attempt.
        on_durable: see `BatchWriter`.
        token: see `JobSubmissions`.
    """
    counts = AttemptCounts(observe)

    def on_commit() -> None:
        counts.note()
        feed.on_commit()
        submissions.withdraw_given_up()

    writer = BatchWriter(store, send, on_commit, reports_late_s, on_durable)
    feed = EventFeed(store, writer)
    recovery = deployment.capability(CrashRecovery)
    shares = deployment.capability(DueShares) or DueShares()
    standins, detection_us = (recovery.standins, recovery.detection_us) if recovery is not None else ((), 0)
    submissions = JobSubmissions(store, fleet, writer, send, deployment.entry_for, standins, detection_us, token)

    hosts = register(submissions.assigned) if register is not None else None
    draining = deployment.capability(Draining)
    owners_of = draining.owners_of if draining is not None else None

    # Nodes whose reports go through different agents are on several hosts.
    spread = len({agents.get(node) for node in deployment.machines}) > 1
    nodes = NodeTable(deployment.machines, fleet, store.drained(), owners_of, hosts, spread)
    memory = ReportMemory(nodes, counts, DecisionBook())

    sharing = UserShares(shares.guaranteed, shares.under, shares.weight_subscribers, store.shares, writer.written, send)
    capacity = CapacityQueries(send, submissions.failover.entry) if answers_queries(deployment) else None
    queries = JobQueries(store, fleet, memory, sharing, feed, capacity)
    drains = NodeDrains(store, writer, nodes, send)
    outputs = OutputRequests(send, agents)

    component = SubmitterComponent(writer, submissions, memory, drains, sharing, outputs, capacity)
    return JobService(store, writer, submissions, queries, drains, outputs, component)
