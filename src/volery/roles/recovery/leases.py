"""A guarded node runs on when its masters crash, and never runs what it may not: the record of truth after crashes.

Two masters, a pair, may lead it; it obeys the one of the highest epoch that it has received, so that an older one
can never launch again (fencing). What runs here, and what has finished and is not forgotten yet, it sends to every new
master. Cut off from its master for longer than its grace it ends what runs, and opens new sessions, so that whatever it
had been sent is refused: the master may then give the tasks to others (the other half of the lease is in `leadership`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from volery.core.component import Component, sent_to
from volery.core.events import Adopted, PeerBack, PeerLost, Reassignment, TaskFinished, TimerFired
from volery.core.model import NEVER, Address, Amounts, JobId, Message, Task, TaskId, Time
from volery.roles.node import NO_EPOCH, Kill
from volery.roles.recovery.channel import LinkPort, Renewed

FENCE: Final = "fence"


class Lease(msgspec.Struct, frozen=True):
    """For how long a node may run tasks without its master, and how long its master waits.

    Args:
        detection_us: Length of an outage of which both ends are informed, see `CrashRecovery.detection_us`.
    """

    detection_us: Time

    @property
    def grace_us(self) -> Time:
        """Time for which a node goes on in an outage: a second master may take over meanwhile."""
        return 2 * self.detection_us

    @property
    def lease_us(self) -> Time:
        """Time for which a master waits in an outage.

        The node is informed of it within one detection time, waits for its grace, and may be informed of the end of the
        outage one detection time before the master is.
        """
        return self.grace_us + 2 * self.detection_us


class RunningAttempt(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An attempt at a node.

    Args:
        owner: Client that placed it.
        unit: Place, in the master's own numbering.
        request: Amounts that it requests; nothing: a slot.
        account: User on whose account it runs, in the owner's numbering.
        term: Epoch of the owner's last relief, see `volery.core.events.Moved`.
    """

    task: TaskId
    job: JobId
    attempt: int
    owner: Address
    unit: int
    request: Amounts = ()
    account: int = 0
    term: int = 0


class Run(Message, frozen=True):
    """Master > node: launch this attempt."""

    epoch: int
    task: Task
    attempt: int
    owner: Address
    unit: int
    account: int = 0
    term: int = 0


class Lead(Message, frozen=True):
    """Master > node: obey me and no older master; send your status.

    Args:
        is_confirmed: For a restarted node: until now no other has claimed the lead. The master of a pair sends it
            again, when its partner has answered; a candidate of many (Pigeon) is confirmed before it leads.
    """

    epoch: int
    is_confirmed: bool = False


class LeaderStatus(Message, frozen=True):
    """Master > its partner: the highest epoch that I know, and whether I lead.

    A restarted master sends it to nodes and clients, too, which answer with the epoch that they know.

    Args:
        epoch, is_leading: Highest epoch, and whether the sender leads.
        node: Node that was lost to the leader for a lease, which asks for it; a follower answers that the node was lost
            to it for a lease as well. Empty: neither.
        at_us: Time when the leader's lease was over, by its own clock; without a node: number of a question whether the
            partner follows now, greater with each question. The answer repeats it.
    """

    epoch: int
    is_leading: bool
    node: Address = ""
    at_us: Time = NEVER


class StaleEpoch(Message, frozen=True):
    """Node or client > master: a master of this epoch leads here.

    Args:
        term: Term of a client of which jobs were moved to another, see `volery.core.events.Moved`.
    """

    epoch: int
    term: int = 0


class Status(Message, frozen=True):
    """Node > master: what runs here and what has finished, as of this epoch; `NO_EPOCH` after a restart.

    Args:
        moves: Moves that the node stores, see `Fence`.
        is_restarted: Whether it was restarted, so that it may have obeyed a later epoch, and no master was confirmed
            since.
    """

    epoch: int
    running: tuple[RunningAttempt, ...]
    finished: tuple[RunningAttempt, ...]
    moves: tuple[Reassignment, ...] = ()
    is_restarted: bool = False


class Unseat(Message, frozen=True):
    """Master > node: the cluster has no place for these attempts any more; end them, then send `Status` again.

    What comes to its own end first is a result as ever.
    """

    epoch: int
    tasks: tuple[TaskId, ...]


class Fence(Message, frozen=True):
    """Master > node: store these moves of jobs between owners, so that each later master learns them from you.

    A node refuses the fence of a master that it does not obey. So a master whose nodes have all stored a move is sure
    that no older master can launch for the origin of that move.
    """

    epoch: int
    moves: tuple[Reassignment, ...]


class Fenced(Message, frozen=True):
    """Node > master: the moves up to this one are stored here."""

    epoch: int
    move: int


class Result(Message, frozen=True):
    """Node > both masters, and the owner where that counts results: the attempt has ended.

    Args:
        is_evicted: Whether it was ended for another task, or could not begin, and has no result; then the master that
            leads alone receives it.
    """

    active: RunningAttempt
    is_evicted: bool = False


class Forget(Message, frozen=True):
    """Owner > masters > node: all that the owner wanted is done; these results need not be kept."""

    coalescable = True
    tasks: tuple[TaskId, ...]


NODE_MESSAGES: Final[frozenset[type[Message]]] = frozenset(
    {Run, Kill, Lead, LeaderStatus, StaleEpoch, Status, Unseat, Fence, Fenced, Result, Forget}
)


class GuardedNode(Component):
    """One worker machine.

    Args:
        pair: Masters, two or more; the first leads in the beginning.
        lease: Lease, for which it goes on without one.
        sends_to_owner: Whether results go to the owner as well.
    """

    __slots__ = (
        "_cancelled_tasks",
        "_epoch",
        "_evicted_tasks",
        "_finished",
        "_incarnation",
        "_is_cut_off",
        "_is_master_renewed",
        "_is_restarted",
        "_lease",
        "_lost_masters",
        "_master",
        "_moves",
        "_pair",
        "_running",
        "_sends_to_owner",
        "_unseated_tasks",
    )

    _port: LinkPort
    """It stands on links."""

    def __init__(self, pair: tuple[Address, ...], lease: Lease, incarnation: int, *, sends_to_owner: bool) -> None:
        self._pair = pair
        self._lease = lease
        self._incarnation = incarnation
        self._sends_to_owner = sends_to_owner
        self._is_restarted = incarnation > 0
        self._epoch = NO_EPOCH if incarnation else 0
        self._master = "" if incarnation else pair[0]
        self._is_master_renewed = False
        self._running: dict[TaskId, RunningAttempt] = {}
        self._finished: dict[TaskId, RunningAttempt] = {}
        self._lost_masters: set[Address] = set()
        self._is_cut_off = False
        self._moves: tuple[Reassignment, ...] = ()
        self._unseated_tasks: set[TaskId] = set()
        self._evicted_tasks: set[TaskId] = set()
        self._cancelled_tasks: set[TaskId] = set()

    def start(self, now: Time) -> None:
        """After a restart: nothing runs here but what was adopted."""
        if self._incarnation:
            self._send_status(*self._pair)

    def on_adopted(self, event: Adopted, source: Address, now: Time) -> None:
        """Go on with an attempt that an earlier incarnation has launched."""
        active = msgspec.msgpack.decode(event.note, type=RunningAttempt)
        self._running[active.task] = active

    def _send_status(self, *masters: Address) -> None:
        running, finished = tuple(self._running.values()), tuple(self._finished.values())
        for master in masters:
            self._port.send(master, Status(self._epoch, running, finished, self._moves, self._is_restarted))

    def obeys(self, epoch: int) -> bool:
        """Find out whether the master of an epoch may have attempts launched and ended here."""
        return epoch == self._epoch

    def on_run(self, message: Run, source: Address, now: Time) -> None:
        """Launch, if the master still leads; what runs or has finished here is not launched again."""
        if not self.obeys(message.epoch):
            if message.epoch < self._epoch:
                self._port.send(source, StaleEpoch(self._epoch))
            return

        # A repeat: an attempt that runs is as good as another.
        task = message.task
        if task.id in self._running:
            return
        attempt, owner, unit = message.attempt, message.owner, message.unit
        account, term = message.account, message.term
        active = RunningAttempt(task.id, task.job, attempt, owner, unit, task.request, account, term)
        if task.id in self._finished:  # an earlier attempt, given up before its result could be sent, is as good
            self._finished[task.id] = active
            self._send_result(Result(active))
            return
        self._running[task.id] = active
        self._port.launch(task, message.attempt, note=msgspec.msgpack.encode(active))

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the task, or the attempt alone, if it still runs."""
        active = self._running.get(message.task)
        if active is None:
            return

        # An eviction counts only from the master that is obeyed here, and for the attempt that it knows of.
        if message.epoch != NO_EPOCH:
            if not self.obeys(message.epoch) or active.attempt != message.attempt:
                return
            self._evicted_tasks.add(message.task)
        else:
            self._cancelled_tasks.add(message.task)
        self._port.kill(message.task, active.attempt)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Send the result to both masters, the leader and the follower, and keep it until it is forgotten."""
        active = self._running.get(event.task.id)
        if active is None or active.attempt != event.attempt:
            self._evicted_tasks.discard(event.task.id)
            return
        del self._running[active.task]
        is_cancelled = active.task in self._cancelled_tasks
        self._cancelled_tasks.discard(active.task)
        if self._evicted_tasks and self._was_evicted(active.task, event.outcome):
            self._port.send(self._master, Result(active, is_evicted=True))
            return

        # What nobody has ordered to end is to be placed again: a member of a gang of which another one has ended.
        is_unordered = event.outcome == "unstarted" or (event.outcome == "killed" and not is_cancelled)
        if is_unordered and active.task not in self._unseated_tasks:
            self._port.send(self._master, Result(active, is_evicted=True))
            return
        if active.task not in self._unseated_tasks or event.outcome not in ("killed", "unstarted"):
            self._finished[active.task] = active
            self._send_result(Result(active))
        if self._unseated_tasks:
            self._unseated_tasks.discard(active.task)
            if not self._unseated_tasks:
                self._send_status(self._master)

    def _was_evicted(self, task: TaskId, outcome: str) -> bool:
        is_evicted = task in self._evicted_tasks and task not in self._unseated_tasks and outcome == "killed"
        self._evicted_tasks.discard(task)
        return is_evicted

    def _send_result(self, result: Result) -> None:
        for master in self._pair:
            self._port.send(master, result)
        if self._sends_to_owner:
            self._port.send(result.active.owner, result)

    def on_forget(self, message: Forget, source: Address, now: Time) -> None:
        for task in message.tasks:
            self._finished.pop(task, None)

    def on_lead(self, message: Lead, source: Address, now: Time) -> None:
        """A master takes over, unless this epoch or a later one is taken."""
        # The epoch of a restarted master is that of its earlier incarnation: the new one needs a higher one.
        is_obeyed = source == self._master and not self._is_master_renewed
        if message.epoch < self._epoch or (message.epoch == self._epoch and not is_obeyed):
            self._port.send(source, StaleEpoch(self._epoch))
            return

        is_new = message.epoch > self._epoch
        self._is_restarted = self._is_restarted and not message.is_confirmed
        self._epoch = message.epoch
        self._master = source
        self._is_master_renewed = False

        # The lease of a new master begins now; that of a restarted node goes on, which may have had another master.
        self._is_cut_off = self._is_cut_off and (self._is_restarted or not is_new)
        self._watch_master(now)
        if is_new:
            self._send_status(source)

    def on_leader_status(self, message: LeaderStatus, source: Address, now: Time) -> None:
        """Send the epoch that is obeyed here; unless its master is confirmed, a restarted node remembers none."""
        self._port.send(source, StaleEpoch(NO_EPOCH if self._is_restarted else self._epoch))

    def on_unseat(self, message: Unseat, source: Address, now: Time) -> None:
        """End attempts that have no place in the cluster any more."""
        if not self.obeys(message.epoch):
            return
        self._unseated_tasks.update(task for task in message.tasks if task in self._running)
        for task in message.tasks:
            if task in self._running:
                self._port.kill(task, self._running[task].attempt)
        if not self._unseated_tasks:
            self._send_status(source)

    def on_fence(self, message: Fence, source: Address, now: Time) -> None:
        """Store moves that the master knows; refuse one that is not obeyed here."""
        if message.epoch < self._epoch:
            self._port.send(source, StaleEpoch(self._epoch))
        elif message.epoch == self._epoch:
            if not self._moves or self._moves[-1].epoch < message.moves[-1].epoch:
                self._moves = message.moves
            self._port.send(source, Fenced(self._epoch, self._moves[-1].epoch))

    def _watch_master(self, now: Time) -> None:
        """Count the lease while the master cannot be reached.

        What was adopted may have had either of a pair, and the master of today may be the one that was deposed: until
        it is confirmed, the loss of any of them counts.
        """
        masters = self._pair if self._is_restarted and self._running else (self._master,)
        is_cut_off = not self._lost_masters.isdisjoint(masters)
        if is_cut_off and not self._is_cut_off:
            self._port.set_timer(FENCE, now + self._lease.grace_us)
        elif not is_cut_off:
            self._port.cancel_timer(FENCE)
        self._is_cut_off = is_cut_off

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """Without its master it goes on for a while."""
        self._lost_masters.add(event.peer)

        # A restarted node has forgotten which of the pair it obeyed.
        if event.peer == self._master or self._is_restarted:
            self._watch_master(now)

    def on_peer_back(self, event: PeerBack, source: Address, now: Time) -> None:
        self._lost_masters.discard(event.peer)
        if event.peer == self._master or self._is_restarted:
            self._watch_master(now)

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """Note that a master has begun anew; the one that leads will send `Lead`, with an epoch of its own."""
        if message.peer == self._master:
            self._is_master_renewed = True

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """The lease is over: end everything, and refuse whatever was sent until now."""
        self._is_cut_off = False
        for active in self._running.values():
            self._port.kill(active.task, active.attempt)
        self._running.clear()
        self._unseated_tasks.clear()
        self._evicted_tasks.clear()
        self._cancelled_tasks.clear()

        # In a new session whatever a master has sent so far is refused: it may give these tasks to others now.
        for master in self._pair:
            self._port.renew(master)
        self._send_status(*self._pair)

    def check(self) -> None:
        assert not self._running.keys() & self._finished.keys(), "a task that has finished runs again"

    def check_rest(self) -> None:
        """Nothing runs and no result waits."""
        assert not self._running, f"{len(self._running)} tasks run"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Run: on_run,
        Kill: on_kill,
        Forget: on_forget,
        Lead: on_lead,
        LeaderStatus: on_leader_status,
        Unseat: on_unseat,
        Fence: on_fence,
        Adopted: on_adopted,
        TaskFinished: on_task_finished,
        TimerFired: on_timer,
        PeerLost: on_peer_lost,
        PeerBack: on_peer_back,
        Renewed: on_renewed,
    }
    sends = (
        sent_to("lm", Status, StaleEpoch, Fenced, Result)
        | sent_to("master", Status, StaleEpoch, Result)
        | sent_to("distributor", Result)
    )
