"""Job service: the submitter between the API, which describes jobs in words, and the schedulers, which take messages.

It has the address `SUBMITTER` on its host like any component, and is not journalled; its state is the store.
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
from volery.core.events import (
    Drain,
    Event,
    JobAccepted,
    JobDone,
    JobRejected,
    PeerBack,
    PeerLost,
    Seen,
    TimerFired,
)
from volery.core.flow import answers_queries
from volery.core.model import Address, JobId, Message, Time
from volery.live.config.constraints import Fleet
from volery.live.jobs import JobDescription, task_count
from volery.live.messages import (
    AGENT,
    ConfinementReport,
    DecisionReport,
    OutputReply,
    PeerReport,
    PreemptionReport,
    TaskReport,
)
from volery.live.runtime.failure_detector import HostRegister
from volery.live.service.batches import BatchWriter
from volery.live.service.events import EventFeed
from volery.live.service.outputs import OutputRequests
from volery.live.service.queries import CapacityQueries, JobQueries
from volery.live.service.reports import AttemptCounts, DecisionBook, NodeTable
from volery.live.service.store import JobStore
from volery.live.service.submissions import JobSubmissions, Outgoing, TokenOf, insert_all, no_token, planned_jobs
from volery.live.service.user_shares import UserShares
from volery.live.status import JobStatus, NodeStatus, Receipt

REPORTS_LATE_S: Final = 2.0
"""Reports travel other ways than the answer of the scheduler, and may come after it; rarely by this much."""
KEPT_REPORTS_LATE_S: Final = 120.0
"""The same where reports are kept until they are received: they are as late as the failure that delays them lasts."""
REPEAT_S: Final = 5.0
"""Longest time for which a component that has restarted may place something on a drained node."""


class JobService(Component):
    """Submits jobs, follows them, and gives orders to schedulers; all calls come from the event loop's thread.

    Args:
        submissions: the jobs that have not ended.
        capacity: asks schedulers for their views; None: they do not answer.
        order: sends a message to a component in the host's next turn.
        observe: is called with each report of an attempt.

    Attributes:
        outputs: asks other hosts for the output of tasks.
    """

    __slots__ = (
        "_book",
        "_capacity",
        "_counts",
        "_fleet",
        "_numbers",
        "_observe",
        "_send",
        "_store",
        "_submissions",
        "nodes",
        "outputs",
        "queries",
        "writer",
    )

    def __init__(
        self,
        store: JobStore,
        fleet: Fleet,
        nodes: NodeTable,
        counts: AttemptCounts,
        writer: BatchWriter,
        submissions: JobSubmissions,
        queries: JobQueries,
        outputs: OutputRequests,
        book: DecisionBook,
        capacity: CapacityQueries | None,
        send: Callable[[Address, Message], None],
        observe: Callable[[TaskReport], None] | None = None,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self.nodes = nodes
        self._counts = counts
        self.writer = writer
        self._submissions = submissions
        self.queries = queries
        self.outputs = outputs
        self._book = book
        self._capacity = capacity
        self._send = send
        self._observe = observe
        self._numbers = store.first_numbers()

    # What the host calls.

    def on_outgoing(self, event: Outgoing, source: Address, now: Time) -> None:
        """Send messages that the store has."""
        for message in event.messages:
            self._port.send(event.to, message)

    def on_report(self, event: TaskReport, source: Address, now: Time) -> None:
        self.writer.note(event)
        counts_by_state = self._counts.told
        counts_by_state[event.state] = counts_by_state.get(event.state, 0) + 1
        # A report that comes from a node itself, without a reporter, is kept by nobody: nothing to acknowledge.
        if self.nodes.report(event) and source != event.node and role_of(source) == AGENT:
            self.writer.acknowledge(source, (event.task, event.attempt))
        if self._observe is not None:
            self._observe(event)

    def on_news(self, event: JobAccepted | JobRejected | JobDone, source: Address, now: Time) -> None:
        self.writer.note(event)
        if isinstance(event, JobRejected):
            self._port.set_timer(event.job, now + event.retry_after_us)
        else:
            self._submissions.accepted(event.job, is_done=isinstance(event, JobDone))

    def on_decision(self, event: DecisionReport, source: Address, now: Time) -> None:
        self._book.note(event)

    def on_confined(self, event: ConfinementReport, source: Address, now: Time) -> None:
        for node in self.nodes.confined(event):
            self._order_drain(node, drained=node in self.nodes.closed())

    def on_preempted(self, event: PreemptionReport, source: Address, now: Time) -> None:
        self.queries.sharing.note(event)

    def on_output(self, event: OutputReply, source: Address, now: Time) -> None:
        self.outputs.receive(event, source)

    def on_peer(self, event: PeerReport, source: Address, now: Time) -> None:
        self.nodes.peer(event)

    def on_seen(self, event: Seen, source: Address, now: Time) -> None:
        if self._capacity is not None:
            self._capacity.seen(event)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Submit a rejected job again."""
        assert isinstance(event.key, int)
        self._submissions.submit_rejected(event.key)

    def on_peer_lost_or_back(self, event: PeerLost | PeerBack, source: Address, now: Time) -> None:
        self._submissions.failover.on_peer(event)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Outgoing: on_outgoing,
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

    # What the API calls.

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
        self.nodes.forget_lost(entries)
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
        (receipt,) = await self._submit_all([description], ["job"])
        return receipt

    async def submit_many(self, descriptions: Sequence[JobDescription]) -> list[Receipt]:
        """Take several jobs in one commit, all of them or none.

        Raises:
            InputError: as for one, naming which.
        """
        return await self._submit_all(descriptions, [f"jobs[{at}]" for at in range(len(descriptions))])

    async def _submit_all(self, descriptions: Sequence[JobDescription], places: Sequence[str]) -> list[Receipt]:
        # Numbers are taken before the first wait, so that jobs which are submitted meanwhile get the next ones.
        number, first = self._numbers
        self._numbers = end = number + len(places), first + sum(map(task_count, descriptions))
        try:
            jobs = await planned_jobs(descriptions, places, number, first, self._fleet)
        except InputError:
            if self._numbers == end:  # nobody has taken the next ones meanwhile
                self._numbers = number, first
            raise

        assign = self._submissions.failover.assign
        long_descriptions = [job.encoded for job in jobs if job.encoded.is_long]
        receipts = await self.writer.written(
            lambda: insert_all(self._store, jobs, self.queries.now_us, assign),
            partial(self._store.keep, long_descriptions) if long_descriptions else None,
            partial(self._store.drop_unused, long_descriptions) if long_descriptions else None,
        )

        for job, receipt in zip(jobs, receipts, strict=True):
            if not receipt.known:
                self._submissions.start_sending(job)

        return receipts

    def unanswering(self, user: str, job: JobId | None = None) -> str:
        """One sentence about the scheduler of a job, or of a user's next one, if it does not answer; else empty."""
        register, failover = self.nodes.register, self._submissions.failover
        if register is None:
            return ""
        scheduler = failover.choice(self._numbers[0], user) if job is None else failover.entry(job, user)
        return register.unanswering(scheduler)

    async def cancel(self, number: JobId) -> JobStatus | None:
        """Cancel a job; None where there is no such job."""
        if await self.writer.written(partial(self._store.cancel, number)):
            status = self._store.job(number)
            assert status is not None
            self._submissions.withdraw(number, status.user)
        return self._store.job(number)

    async def drain(self, node: Address, drained: bool) -> NodeStatus | None:
        """Place nothing more on a node, or use it again; None where there is no such node.

        Raises:
            InputError: the scheduler cannot drain nodes.
        """
        if node not in self.nodes.machines:
            return None
        if not self.nodes.can_drain:
            problem = "this scheduler cannot drain nodes; of those in the registry, Megha can"
            raise InputError(f"nodes/{node}", problem)

        await self.writer.written(partial(self._store.drain, node, drained))
        (self.nodes.drained.add if drained else self.nodes.drained.discard)(node)

        self._order_drain(node, node in self.nodes.closed())
        return next(status for status in self.nodes.statuses() if status.address == node)

    def _repeat_orders(self) -> None:
        """Repeat all closed nodes and weights: a component may have restarted."""
        if self.writer.closed:
            return
        for node in sorted(self.nodes.closed()):
            self._order_drain(node, drained=True)
        self.queries.sharing.send_weights()

        # Nothing acknowledges these orders, so they are repeated as long as the service runs.
        asyncio.get_running_loop().call_later(REPEAT_S, self._repeat_orders)

    def _order_drain(self, node: Address, drained: bool) -> None:
        for master in self.nodes.masters(node):
            self._send(master, Drain(node, drained))


def job_service(
    store: JobStore,
    fleet: Fleet,
    deployment: Deployment,
    post: Callable[[Event], None],
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
        post: hands an event to the service in the host's next turn.
        reports_late_s: a job that is answered waits so long for reports of its tasks.
        agents: node -> the reporter of its host, where that is another one.
        register: makes the register of hosts, given what counts assigned jobs; None: hosts are not known.
        observe: is called with each report of an attempt.
        on_durable: see `BatchWriter`.
        token: see `JobSubmissions`.
    """
    send = partial(_send, post)
    book = DecisionBook()
    counts = AttemptCounts()

    def on_commit() -> None:
        counts.note()
        feed.on_commit()
        submissions.withdraw_given_up()

    writer = BatchWriter(store, send, on_commit, reports_late_s, on_durable)
    feed = EventFeed(store, writer)
    recovery = deployment.capability(CrashRecovery)
    shares = deployment.capability(DueShares) or DueShares()
    standins, detection_us = (recovery.standins, recovery.detection_us) if recovery is not None else ((), 0)
    submissions = JobSubmissions(store, fleet, writer, post, send, deployment.entry_for, standins, detection_us, token)

    hosts = register(submissions.assigned) if register is not None else None
    draining = deployment.capability(Draining)
    owners_of = draining.owners_of if draining is not None else None

    # Nodes whose reports go through different agents are on several hosts.
    spread = len({agents.get(node) for node in deployment.machines}) > 1
    table = NodeTable(deployment.machines, fleet, store.drained(), owners_of, hosts, spread)
    capacity = CapacityQueries(send) if answers_queries(deployment) else None

    sharing = UserShares(shares.guaranteed, shares.under, shares.weight_subscribers, store.shares, writer.written, send)
    queries = JobQueries(store, fleet, table, counts, writer, submissions.failover.entry, sharing, book, feed, capacity)
    outputs = OutputRequests(send, agents)

    return JobService(store, fleet, table, counts, writer, submissions, queries, outputs, book, capacity, send, observe)


def _send(post: Callable[[Event], None], to: Address, message: Message) -> None:
    # Only a handler may use the port: the service posts the message to itself.
    post(Outgoing(to, (message,)))
