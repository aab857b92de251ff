"""Protocols of what can be attached to masters: shares, recovery, and an observer of decisions.

The protocols of a Global Master come first, then those of a Local Master. `Alone` in `local_master` and the classes in
`shares`, `recovery` and `reasons` implement them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import ClassVar, NamedTuple, Protocol

from volery.architectures.megha.allocations import GmSyncState, Start
from volery.architectures.megha.messages import (
    AttemptsLost,
    Holdings,
    Preempt,
    PreemptionDone,
    PreemptionRequest,
    PreemptionVote,
    Refusal,
    ResyncReply,
    ResyncRequest,
)
from volery.architectures.megha.view import ClusterView
from volery.core.component import Sends
from volery.core.events import Drain, Event, Moved, Reweigh, Submit, TimerFired
from volery.core.model import Address, Job, JobId, Message, Task, TaskId, Time
from volery.core.port import Port
from volery.roles.recovery.leases import Forget, LeaderStatus, Result, RunningAttempt, StaleEpoch


class Fairness(Protocol):
    """Account of what users have, and preemption for those below their share; see `shares`."""

    takes: ClassVar[frozenset[type]]
    sends: ClassVar[Sends]

    def submitted(self, job: Job) -> None:
        """Note whose job it is."""

    def scheduled(self, tasks: Sequence[Task]) -> None:
        """Note that tasks have come, so that there is something to claim."""

    def users_of(self, tasks: Sequence[Task]) -> tuple[int, ...]:
        """Return the users of tasks, for a request."""

    def ended(self, tasks: Sequence[TaskId]) -> dict[JobId, int]:
        """Take ended tasks off; return how many have no place: they had been given up, or never begun; per job."""

    def refused(self, message: Refusal, now: Time) -> None:
        """Take refused tasks off: nobody can take anything from them, and nothing was preempted for them."""

    def enforce(self) -> None:
        """Preempt for users that wait and have less than their share."""

    def on_reweigh(self, message: Reweigh, source: Address, now: Time) -> None:
        """Take other weights of users."""

    def on_holdings(self, message: Holdings, source: Address, now: Time) -> None:
        """Learn which tasks of others run where."""

    def on_preemption_done(self, message: PreemptionDone, source: Address, now: Time) -> None:
        """Note that a preemption has come to its end."""

    def on_preemption_request(self, message: PreemptionRequest, source: Address, now: Time) -> None:
        """Give tasks of a user up, or refuse to."""

    def on_preempted(self, message: AttemptsLost, source: Address, now: Time) -> None:
        """Take tasks back that were preempted."""

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Ask again users that have refused to give up a task."""

    def check(self) -> None:
        """Raise AssertionError where the account and the view differ."""


class StateRecovery(Protocol):
    """State of a Global Master that is rebuilt from reports; see `recovery`.

    Attributes:
        epochs: Epoch of the leader of each cluster.
        term: Epoch of the last move of jobs of this GM's; see `Request`.
        first_attempt: Number of a task's first attempt.
    """

    takes: ClassVar[frozenset[type]]
    sends: ClassVar[Sends]
    epochs: list[int]
    term: int
    first_attempt: int

    def start(self) -> None:
        """Ask every cluster what runs there, after a restart."""

    def masters_of(self, lm: int) -> tuple[Address, ...]:
        """Return the addresses of the Local Masters of a cluster, the one that leads at first before the other."""

    def requested(self, lm: int, tasks: Sequence[Task]) -> tuple[Address, ...]:
        """Note a request of tasks to a cluster; return the addresses to which it is sent."""

    def knows_all(self) -> bool:
        """Find out whether all that runs is known."""

    def submitted(self, message: Submit) -> None:
        """Note whether a job was moved here."""

    def ready(self, tasks: Sequence[Task]) -> Sequence[Task] | None:
        """Return the tasks that have to be scheduled; None: all are held back."""

    def cancelled(self, job: JobId) -> None:
        """Drop what is held back of a job."""

    def ended(self, tasks: Sequence[TaskId], source: Address) -> Iterable[JobId]:
        """Note who keeps the results of tasks, before their ends are counted; return their jobs."""

    def maybe_forget(self, job: JobId) -> None:
        """Have the results of a job dropped when it is done."""

    def preempted(self, task: TaskId, attempt: int) -> None:
        """Forget an attempt that was preempted."""

    def accepts(self, message: Message, source: Address) -> bool:
        """Find out whether a message of a Local Master is valid."""

    def on_resync_reply(self, message: ResyncReply, source: Address, now: Time) -> None:
        """Adopt the report of a leader."""

    def on_attempts_lost(self, message: AttemptsLost, source: Address, now: Time) -> None:
        """Place tasks again whose attempts are dead."""

    def on_moved(self, message: Moved, source: Address, now: Time) -> None:
        """Note that jobs were moved between GMs."""

    def on_leader_status(self, message: LeaderStatus, source: Address, now: Time) -> None:
        """Send the epoch that is known to a master that asks."""


class DecisionObserver(Protocol):
    """Observer of decisions, which reports them with their reasons; see `reasons`. Nothing depends on it."""

    def start(self, now: Time) -> None:
        """Begin: the view is that of an empty cluster, which is true now."""

    def receive(self, event: Event, source: Address, now: Time) -> None:
        """Note an event before it is handled."""

    def place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request tasks by the view, and report what each has met; return those that fit nowhere."""

    def requested(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        """Report tasks that are requested."""

    def refused(self, tasks: Iterable[TaskId]) -> None:
        """Report tasks whose placements were invalid."""

    def dequeued(self, task: Task, partition: int, offered: int, free: int) -> None:
        """Report tasks that had to let this one go first."""

    def dropped(self, tasks: Iterable[Task]) -> None:
        """Note tasks that wait no more."""

    def claimed(self, task: Task) -> None:
        """Report a task that takes the place of others."""

    def preempted(self, task: TaskId) -> None:
        """Report a task that was preempted."""

    def lost(self, tasks: Iterable[TaskId]) -> None:
        """Report tasks whose attempts are dead."""


class MasterParts(NamedTuple):
    """Parts of a Global Master that knows nothing yet."""

    view: ClusterView
    fairness: Fairness | None = None
    recovery: StateRecovery | None = None
    observer: DecisionObserver | None = None


class NodeControl(Protocol):
    """Control of the nodes of a cluster: which may be used, and how attempts are started and ended there.

    Attributes:
        drained: Nodes on which nothing is placed by order.
    """

    takes: ClassVar[frozenset[type]]
    sends: ClassVar[Sends]

    @property
    def drained(self) -> Container[Address]: ...

    @property
    def opened(self) -> bool:
        """True where this master leads, and knows what runs on all nodes that it can reach."""

    def bind(self, port: Port) -> None:
        """Take the master's port."""

    def start(self, now: Time) -> None:
        """Begin: a restarted master asks who leads."""

    def note_requested(self, tasks: Sequence[Task], gm: Address, term: int) -> None:
        """Note tasks that a GM requests in a term, whether they are placed or not."""

    def accepts(self, gm: Address, epoch: int, term: int) -> bool:
        """Find out whether a request is valid: this master leads in its epoch, and the GM still has its jobs."""

    def answers(self, gm: Address) -> bool:
        """Find out whether a GM is sent news of room."""

    def is_usable(self, node: Address) -> bool:
        """Find out whether tasks may be placed on a node."""

    def is_reachable(self, node: Address) -> bool:
        """Find out whether a node is known to be there, and to obey this master."""

    def launch(self, starts: Sequence[Start]) -> None:
        """Have nodes launch attempts."""

    def evict(self, node: Address, attempt: RunningAttempt) -> None:
        """Have a node end an attempt for another task's sake."""

    def withdraw(self, tasks: tuple[TaskId, ...], gm: Address, now: Time) -> None:
        """Have nodes end what still runs of these."""

    def on_drain(self, message: Drain, source: Address, now: Time) -> None:
        """Place nothing on a node, or again."""

    def takes_timer(self, event: TimerFired, now: Time) -> bool:
        """Find out whether a timer was its own, or must not have any effect."""

    def check_rest(self) -> None:
        """Raise AssertionError where something is left that nodes or GMs should have been sent."""


class PairControl(NodeControl, Protocol):
    """Control of nodes by one of two masters, which are rebuilt from their nodes; see `recovery`."""

    def on_election(self, event: Event, source: Address, now: Time) -> None:
        """Take an event of the election, or of a node's lease."""

    def on_stale_epoch(self, message: StaleEpoch, source: Address, now: Time) -> None:
        """Note that a later epoch is known, or a later term of a GM."""

    def on_result(self, message: Result, node: Address, now: Time) -> None:
        """Keep the result of an attempt."""

    def on_forget(self, message: Forget, gm: Address, now: Time) -> None:
        """Drop results of a job that is done."""

    def on_resync_request(self, message: ResyncRequest, gm: Address, now: Time) -> None:
        """Report everything to a GM that knows nothing."""

    def on_moved(self, message: Moved, source: Address, now: Time) -> None:
        """Note that jobs were moved between GMs."""


class Preemptions(Protocol):
    """Preemptions for users with less than their share, and news for GMs of what others have; see `shares`."""

    takes: ClassVar[frozenset[type]]
    sends: ClassVar[Sends]

    def started(self, attempt: RunningAttempt) -> None:
        """Note that an attempt has what it asked for."""

    def absorbs(self, attempt: RunningAttempt) -> bool:
        """Note the end of an attempt; find out whether what it had is set aside for another task."""

    def evicted(self, attempt: RunningAttempt, now: Time) -> bool:
        """Find out whether a killed attempt was ended for another task; then its GM has it back."""

    def resume(self, node: Address, now: Time) -> None:
        """Launch what waits for victims at a node that have ended."""

    def withdraw(self, tasks: tuple[TaskId, ...], now: Time) -> None:
        """Drop tasks that still wait for their victims to end."""

    def send_holdings(self, gm: GmSyncState) -> None:
        """Send a GM the ends and starts of others' tasks, before a state that contains them."""

    def send_outcomes(self) -> None:
        """Send GMs the outcome of their requests, with a heartbeat, so that they can count on their tasks."""

    def clear(self) -> None:
        """Forget everything but weights."""

    def on_preempt(self, message: Preempt, source: Address, now: Time) -> None:
        """Validate a preemption, and ask the GM that is to lose."""

    def on_preemption_vote(self, message: PreemptionVote, source: Address, now: Time) -> None:
        """Take the answer of the GM whose tasks are to be ended."""

    def check(self) -> None:
        """Raise AssertionError where preemptions and attempts differ."""
