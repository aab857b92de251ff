"""The submitter: between the API, which speaks of jobs in words, and the schedulers, which speak messages.

It stands on a host under the address `SUBMITTER` like any component, hears what becomes of jobs, and writes it to the
store in batches: while one commit is under way, the next batch gathers, submissions included. It is not journalled;
its state is the store.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from typing import Any, Final, TypeVar

from volery.core.component import Component, role_of
from volery.core.errors import InputError
from volery.core.events import (
    Cancel,
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
from volery.core.model import Address, JobId, Message, TaskId, Time
from volery.core.shares import Share
from volery.live.config.fleet import Fleet
from volery.live.jobs import JobDescription, demands, task_count
from volery.live.messages import (
    AGENT,
    ConfinementReport,
    DecisionReport,
    OutputReply,
    PeerReport,
    PreemptionReport,
    ReportsStored,
    TaskReport,
)
from volery.live.runtime.explaining import DecisionBook
from volery.live.runtime.presence import Register
from volery.live.service.accepting import Sent, admit, planned_jobs, wanted
from volery.live.service.acknowledging import Acknowledgements, Ends
from volery.live.service.checkpoints import Checkpoints
from volery.live.service.errors import UnwrittenError
from volery.live.service.failover import Failover
from volery.live.service.feeding import Feed, Outgoing
from volery.live.service.history import History
from volery.live.service.looking import Sight
from volery.live.service.outputs import Asking
from volery.live.service.pace import Pace, ended_of
from volery.live.service.questions import Questions
from volery.live.service.rows import OpenJob
from volery.live.service.sharing import Sharing
from volery.live.service.store import JobStore, News
from volery.live.service.writing import Write
from volery.live.status import JobStatus, NodeStatus, Receipt

REPORTS_LATE_S: Final = 2.0
"""Reports travel other ways than the answer of the scheduler, and may come after it; rarely by this much."""
KEPT_REPORTS_LATE_S: Final = 120.0
"""Where they are kept until they are received, they come as late as whatever keeps them away lasts."""
AGAIN_S: Final = 0.5
"""Between two tries at a store that could not be written."""
REPEAT_S: Final = 5.0
"""How long a component that has begun anew may place something on a drained node."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class Desk(Questions, Component):
    """Submits jobs, follows them, and answers the API's questions; all calls come from the event loop's thread.

    Args:
        store: of jobs; closed with the desk.
        fleet: the machines of the federation.
        entry: the address that a job of a user is submitted to.
        nodes: address of each node -> number of its machine.
        post: hands an event to this desk in the host's next turn.
        in_charge: node -> the components that are told what is drained; see `Deployment`.
        due, shares, sharers, looks, standins, detection_us: see `Deployment`.
        agents: node -> the reporter of its host, where that is another one.
        register: makes the register of hosts, of which this is one; it is given what counts assigned jobs.
        reports_late_s: a job that is answered waits so long for reports of its tasks.

    Attributes:
        sharing: who is due what.
        asking: reads the output of tasks on other hosts.
        hosts: all hosts of the federation; None: they are not known.
        told: what nodes have said of attempts, by state: how often.
        pace, history: how fast tasks end, and the last hours.
        commits, commit_s: batches that were written, and the time that took, in seconds.
    """

    __slots__ = (
        "_book", "_checkpoints", "_closed", "_confined", "_drained", "_ends", "_failover", "_feed", "_fleet", "_held",
        "_in_charge", "_late_s", "_latest", "_lost", "_news", "_nodes", "_numbers", "_post", "_resuming", "_running",
        "_sent", "_sight", "_store", "_thread", "_told", "_told_nodes", "_wake", "_writer", "_writes", "asking",
        "commit_s", "commits", "history", "hosts", "pace", "sharing", "told",
    )  # fmt: skip

    def __init__(
        self, store: JobStore, fleet: Fleet, entry: Callable[[JobId, str], Address], nodes: Mapping[Address, int],
        post: Callable[[Event], None], in_charge: Callable[[Address], tuple[Address, ...]] | None = None,
        due: Mapping[str, Fraction] = {}, shares: Callable[[Mapping[str, int]], tuple[Share, ...]] | None = None,
        sharers: Collection[Address] = (), looks: bool = False, reports_late_s: float = REPORTS_LATE_S,
        standins: Sequence[Address] = (), detection_us: Time = 0, agents: Mapping[Address, Address] = {},
        register: Callable[[Callable[[], Mapping[Address, int]]], Register] | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._fleet = fleet
        self._nodes = nodes
        self._post = post
        self._in_charge = in_charge
        self._late_s = reports_late_s
        self._drained = store.drained()
        self._book = DecisionBook()
        self._confined: dict[Address, str] = {}
        self.asking = Asking(self._order, agents)
        self._sight = Sight(self._order) if looks else None
        self.sharing = Sharing(due, shares, sharers, store.shares, self.written, self._order)
        self.told: dict[str, int] = {}
        self.commits, self.pace, self.history = 0, Pace(), History()
        self.commit_s = 0.0
        self._numbers = store.next_numbers()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commits")
        self._checkpoints = Checkpoints(store.checkpoint)
        self._writes: list[Write] = []
        self._feed = Feed(post)
        self._failover = Failover(
            entry, standins, detection_us, store.assigned, self.written, self._order, self._resubmit
        )
        self._held: dict[JobId, Sent] | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._sent: dict[JobId, Sent] = {}
        self._running: dict[tuple[TaskId, int], Address] = {}
        self._latest: dict[TaskId, int] = {}
        self._news: list[News] = []
        self._ends = Acknowledgements(store.sync, self._acknowledge)
        self._told_nodes: list[NodeStatus] = []
        self._lost: set[tuple[Address, Address]] = set()
        self.hosts: Register | None = register(self.assigned) if register is not None else None
        self._wake = asyncio.Event()
        self._told = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._closed = False

    # What the host calls.

    def on_outgoing(self, event: Outgoing, source: Address, now: Time) -> None:
        """Send what the API has written down."""
        for message in event.messages:
            self._port.send(event.to, message)

    def on_report(self, event: TaskReport, source: Address, now: Time) -> None:
        """Note what has become of an attempt."""
        self._note(event)
        state, key = event.state, (event.task, event.attempt)
        self.told[state] = self.told.get(state, 0) + 1
        if state == "running":
            self._running[key] = event.node
            before = self._latest.get(event.task)
            if before is not None and before < event.attempt:  # it ended with its host, which may never say so
                self._running.pop((event.task, before), None)
            self._latest[event.task] = event.attempt
            return
        if self._latest.get(event.task) == event.attempt:
            del self._latest[event.task]
        self._running.pop(key, None)
        if source != event.node and role_of(source) == AGENT:
            self._ends.heard(source, key)

    def on_news(self, event: News, source: Address, now: Time) -> None:
        """Note what has become of a job."""
        self._note(event)
        if isinstance(event, JobRejected):
            self._port.set_timer(event.job, now + event.retry_after_us)
        elif isinstance(event, JobDone) or self._failover.is_settled:
            self._sent.pop(event.job, None)  # not what waits for a move: it was another scheduler that has accepted it

    def _note(self, event: News) -> None:
        self._news.append(event)
        if not self._wake.is_set():
            self._wake.set()

    def on_explained(self, event: DecisionReport, source: Address, now: Time) -> None:
        """Remember what a scheduler has decided."""
        self._book.note(event)

    def on_confined(self, event: ConfinementReport, source: Address, now: Time) -> None:
        """Remember what holds tasks on some nodes."""
        self._confined.update(dict.fromkeys(event.nodes, event.words))

    def on_preempted(self, event: PreemptionReport, source: Address, now: Time) -> None:
        """Write down who has lost what to whom."""
        self.sharing.note(event)

    def on_output(self, event: OutputReply, source: Address, now: Time) -> None:
        """What the host of a node has read."""
        self.asking.told(event, source)

    def on_peer(self, event: PeerReport, source: Address, now: Time) -> None:
        """Remember who is lost to whom."""
        (self._lost.add if event.lost else self._lost.discard)((event.by, event.peer))

    def on_seen(self, event: Seen, source: Address, now: Time) -> None:
        """What a scheduler sees."""
        if self._sight is not None:
            self._sight.seen(event)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Submit a refused job again."""
        assert isinstance(event.key, int)
        if (sent := self._sent.get(event.key)) is not None:
            self._submit(sent)

    def on_peer_lost_or_back(self, event: PeerLost | PeerBack, source: Address, now: Time) -> None:
        """A scheduler does not answer, or answers again."""
        self._failover.on_peer(event)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Outgoing: on_outgoing,
        TaskReport: on_report,
        ConfinementReport: on_confined,
        DecisionReport: on_explained,
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

    async def open(self, elsewhere: Collection[Address] = ()) -> None:
        """Begin to write, and to submit what had not ended when the store was last closed; ended tasks stay ended.

        What is submitted meanwhile is sent after it.

        Args:
            elsewhere: entries on other hosts. What is theirs is submitted when they are heard of (`resubmit`): said
                before, it would wait for one that is away, and name tasks of which the ends are told meanwhile.
        """
        loop = asyncio.get_running_loop()
        self._writer = loop.create_task(self._write())
        self._repeat_orders()
        self._failover.greet_all_but(elsewhere)
        if unfinished := self._store.open_ids():
            self._held = {}
            self._resuming = loop.create_task(self._resume(unfinished, elsewhere))

    async def _resume(self, unfinished: Sequence[JobId], elsewhere: Collection[Address]) -> None:
        try:
            await self._resubmit(unfinished, lambda entry: entry not in elsewhere)
        finally:
            held, self._held = self._held, None
            for sent in (held or {}).values():
                self._submit(sent)

    async def resubmit(self, entries: Collection[Address]) -> None:
        """Submit what has not ended to entries that have begun anew, or are heard of first: they may know nothing."""
        self._lost = {pair for pair in self._lost if pair[0] not in entries}  # they report anew who is lost to them
        self._failover.greet(entries)
        self.sharing.tell(entries)
        await self._resubmit(self._store.open_ids(), lambda entry: entry in entries)

    async def close(self) -> None:
        """Write down what has been heard, and close the store."""
        if self._closed:
            return
        self._closed = True
        await self._failover.close()
        if self._resuming is not None:
            self._resuming.cancel()
            await asyncio.wait((self._resuming,))
        if self._writer is not None:
            self._wake.set()
            await self._writer
        await self._ends.close()
        self._thread.shutdown()
        self._checkpoints.close()
        self._store.close()
        self._told.set()

    async def submit(self, description: JobDescription) -> Receipt:
        """Take a job: it is in the store, committed, when this returns.

        Raises:
            InputError: constraints that the fleet gives no meaning to, or a key that stands for another job.
        """
        (receipt,) = await self._take([description], ["job"])
        return receipt

    async def submit_many(self, descriptions: Sequence[JobDescription]) -> list[Receipt]:
        """Take several jobs in one commit, all of them or none.

        Raises:
            InputError: as for one, naming which.
        """
        return await self._take(descriptions, [f"jobs[{at}]" for at in range(len(descriptions))])

    async def _take(self, descriptions: Sequence[JobDescription], places: Sequence[str]) -> list[Receipt]:
        number, first = self._numbers
        self._numbers = taken = number + len(places), first + sum(map(task_count, descriptions))
        try:
            jobs = await planned_jobs(descriptions, places, number, first, self._fleet)
        except InputError:
            if self._numbers == taken:  # nobody has taken the next ones meanwhile
                self._numbers = number, first
            raise
        receipts = await self.written(lambda: admit(self._store, jobs, self.now_us, self._failover.assign))
        for job, receipt in zip(jobs, receipts, strict=True):
            if not receipt.known:
                sent = Sent(job.number, job.first, job.description, self._fleet, job.tasks)
                if self._held is None:
                    self._submit(sent)
                else:
                    self._held[job.number] = sent
        return receipts

    async def cancel(self, number: JobId) -> JobStatus | None:
        """Give a job up; None where there is no such job."""
        if await self.written(lambda: self._store.cancel(number)):
            status = self._store.job(number)
            assert status is not None
            self._withdraw(number, status.user)
        return self._store.job(number)

    async def drain(self, node: Address, drained: bool) -> NodeStatus | None:
        """Have nothing more placed on a node, or something again; None where there is no such node.

        Raises:
            InputError: the scheduler cannot drain nodes.
        """
        if node not in self._nodes:
            return None
        if self._in_charge is None:
            problem = "this scheduler cannot drain nodes; of those in the registry, Megha can"
            raise InputError(f"nodes/{node}", problem)
        await self.written(lambda: self._store.drain(node, drained))
        (self._drained.add if drained else self._drained.discard)(node)
        self._tell_of_drain(node, drained)
        return next(found for found in self.nodes() if found.address == node)

    def _repeat_orders(self) -> None:
        """Tell of all drained nodes and of weights once more: whoever is concerned may have begun anew."""
        if self._closed:
            return
        for node in sorted(self._drained):
            self._tell_of_drain(node, drained=True)
        self.sharing.tell()
        asyncio.get_running_loop().call_later(REPEAT_S, self._repeat_orders)

    def _tell_of_drain(self, node: Address, drained: bool) -> None:
        for master in self._in_charge(node) if self._in_charge is not None else ():
            self._order(master, Drain(node, drained))

    def _order(self, to: Address, message: Message) -> None:
        self._post(Outgoing(to, (message,)))

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._closed

    @property
    def revision(self) -> int:
        """Of the last change."""
        return self._store.revision

    async def written(self, write: Callable[[], T]) -> T:
        """What a write gives, once it is committed."""
        if self._closed:
            raise InputError("jobs", "the federation is shutting down, or its store has failed; try again later")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._writes.append(Write(write, future))
        self._wake.set()
        return await future  # type: ignore[no-any-return]  # it is what `write` gives

    def _submit(self, sent: Sent) -> None:
        self._sent[sent.number] = sent
        self._failover.send(lambda: self._feed_scheduler(sent))

    def _feed_scheduler(self, sent: Sent) -> None:
        """Begin to send a job to the scheduler that has it now, unless it was given up or submitted again meanwhile."""
        if self._sent.get(sent.number) is sent:
            owner = self._failover.owner(sent.number, sent.description.user)
            self._feed.submit(sent.number, owner.entry, sent.messages(owner.epoch))

    def _withdraw(self, number: JobId, user: str) -> None:
        """Give a job up: nothing more of it is sent, and nothing that waits to be sent is before the order."""
        self._sent.pop(number, None)
        if self._held is not None:
            self._held.pop(number, None)
        self._feed.drop(number)
        self._failover.send(lambda: self._order(self._failover.entry(number, user), Cancel(number)))

    async def _resubmit(self, numbers: Sequence[JobId], is_meant: Callable[[Address], bool] = lambda _: True) -> None:
        """Submit jobs of such entries again, the oldest first, as fast as they are sent."""
        for number in numbers:
            if self._closed:
                return
            user = self._store.open_user(number)
            if user is None or not is_meant(self._failover.entry(number, user)):
                await asyncio.sleep(0)
                continue
            await self._failover.settled()
            await self._feed.room()
            job = None if self._closed else self._store.open_job(number)  # it may have ended by now
            if job is not None:
                await self._submit_again(job)

    async def _submit_again(self, job: OpenJob) -> None:
        try:
            needs = await wanted(demands(job.description, self._fleet))
        except InputError as error:
            reason = f"not submitted again: {error}"
            try:
                await self.written(lambda: self._store.fail(job.id, reason, self.now_us))
            except UnwrittenError:
                log.error("job %d was %s; the next start will try it", job.id, reason)
            return
        if self._store.cancelling(job.id):  # perhaps meanwhile
            self._withdraw(job.id, job.description.user)
            return
        ended = self._store.ended_places(job.id)
        count = needs[-1].first + needs[-1].tasks - len(ended)
        if count:
            begun = self._store.begun(job.id)
            self._submit(Sent(job.id, job.first_task, job.description, self._fleet, count, ended, begun, True))
        else:
            self.on_news(JobDone(job.id), self._port.address, 0)

    async def _write(self) -> None:
        """Write what has gathered, a batch per commit, until the desk is closed or the store fails."""
        while self._news or self._writes or not self._closed:
            await self._checkpoints.until(self._wake)
            self._wake.clear()
            (news, self._news), (writes, self._writes) = (self._news, []), (self._writes, [])
            ends = self._ends.batch()
            try:
                await self._write_batch(news, writes)
            except sqlite3.OperationalError as error:  # a full disk, for example: it may pass
                log.error("the store of jobs could not be written, and is tried again: %s", error)
                self._store.roll_back()
                self._news[:0] = news
                self._ends.failed(ends)
                for write in writes:
                    write.fail(UnwrittenError(f"the store of jobs cannot be written: {error}"))
                if self._closed:
                    return
                await asyncio.sleep(AGAIN_S)
                self._wake.set()
            except sqlite3.Error as error:
                log.critical("the store of jobs cannot be written, and takes nothing more: %s", error)
                self._closed = True
                for write in (*writes, *self._writes):
                    write.fail(error)
            else:
                self._ends.committed(ends, durable=bool(writes))
            self._told.set()
            self._told = asyncio.Event()

    def _acknowledge(self, ends: Ends) -> None:
        for agent, attempts in ends.items():
            self._post(Outgoing(agent, (ReportsStored(tuple(attempts)),)))

    async def _write_batch(self, news: list[News], writes: list[Write]) -> None:
        began = time.perf_counter()
        self._store.begin(durable=bool(writes))
        for write in writes:
            write.make()
        late = self._store.take_in(news, self.now_us)
        # The statements run here, in microseconds; only the wait for the disk is left to a thread. A thread that ran
        # them would have to win the interpreter back from a busy loop after each.
        loop = asyncio.get_running_loop()
        if writes:
            await loop.run_in_executor(self._thread, self._store.commit)
        else:
            self._store.commit()
        self.commits += 1
        self.pace.note(ended_of(self.told))
        self.commit_s += time.perf_counter() - began
        for write in writes:
            write.tell()
        for number in late:
            loop.call_later(self._late_s, self._give_up_waiting, number)
        await self._checkpoints.after_batch()

    def _give_up_waiting(self, number: JobId) -> None:
        if not self._closed:
            loop = asyncio.get_running_loop()
            again, written = partial(loop.call_later, self._late_s, self._give_up_waiting, number), loop.create_future()
            written.add_done_callback(lambda done: done.exception() and again())
            self._writes.append(Write(lambda: self._store.give_up_waiting(number, self.now_us), written))
            self._wake.set()
