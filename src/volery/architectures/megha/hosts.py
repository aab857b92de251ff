"""Protocols of a Global Master and of a Local Master, as what is attached to them calls them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from volery.architectures.megha.allocations import ClusterState, GmSyncState
from volery.architectures.megha.messages import StateUpdate
from volery.architectures.megha.view import ClusterView, Freed, Place
from volery.core.events import Fact, Reassignment
from volery.core.model import Address, Key, Message, Task, TaskId, Time
from volery.roles.recovery.leases import RunningAttempt
from volery.roles.submission import JobLedger

if TYPE_CHECKING:
    from volery.architectures.megha.gangs.reservations import GangReservations
    from volery.architectures.megha.shares.messages import Preempt


class MasterHost(Protocol):
    """A Global Master as what is attached to it calls it.

    Attributes:
        lms: Local Master that leads, per cluster.
        lm_at: Cluster of a Local Master, by its address.
        attempts: Numbers of attempts, of tasks that were placed more than once.
    """

    lms: list[Address]
    lm_at: dict[Address, int]
    attempts: dict[TaskId, int]

    def send(self, to: Address, message: Message) -> None:
        """Send a message to another component."""

    def observe(self, fact: Fact) -> None:
        """Report a fact to the driver."""

    def place(self, tasks: Iterable[Task], *, is_first: bool = False) -> list[Task]:
        """Match and request tasks, or put them into line; return those that fit nowhere in the view."""

    def still_wanted(self, refused: Sequence[Task]) -> Sequence[Task]:
        """Return refused tasks without those of cancelled jobs, which end here."""

    def attempt_of(self, task: TaskId) -> int:
        """Return the number of a task's present attempt."""


class FairnessHost(MasterHost, Protocol):
    """A Global Master as the shares of its users call it."""

    def set_timer(self, key: Key, at: Time) -> None:
        """Set a timer of the component."""

    def address_request(self, lm: int, tasks: Sequence[Task]) -> tuple[int, tuple[Address, ...], int, int]:
        """Return number and receivers of the next request to a cluster, its leader's epoch, and the term of this GM."""

    def knows_all(self) -> bool:
        """Find out whether all that runs is known."""

    def may_preempt(self) -> bool:
        """Find out whether a preemption may be requested now."""

    def claimed(self, task: Task) -> None:
        """Report a task that takes the place of others."""

    def preempted(self, task: TaskId, attempt: int) -> bool:
        """Forget an attempt that was preempted; find out whether it is the present one of a placed task."""


class MatchingHost(Protocol):
    """A Global Master as its line of task requests calls it."""

    def match(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request tasks; return those that fit nowhere in the view."""

    def ask_all(self) -> None:
        """While tasks wait, ask each Local Master for news once."""


class RecoveryHost(MasterHost, Protocol):
    """A Global Master as its recovery calls it.

    Attributes:
        view: View of the cluster.
        placed: Tasks that were requested and have not ended, of the view.
        last_update: Number of the last update received, by address of the Local Master.
    """

    view: ClusterView
    placed: dict[TaskId, Place]
    last_update: dict[Address, int]

    @property
    def jobs(self) -> JobLedger: ...

    def schedule(self, tasks: Sequence[Task]) -> None:
        """Place tasks; those that fit nowhere now wait."""

    def learn(self, update: StateUpdate, source: Address) -> Freed:
        """Change the view by an update."""

    def offer_all(self, freed: Freed) -> None:
        """Give what has become free to the queue."""

    def ask_all(self) -> None:
        """While tasks wait, ask each Local Master for news once."""

    def answered(self, lm: int) -> None:
        """Ask again: news has come, or the Local Master that was asked is gone."""

    def lost(self, tasks: Iterable[TaskId]) -> None:
        """Report tasks whose attempts are dead."""

    def restart(self, moves: tuple[Reassignment, ...]) -> None:
        """Forget everything but these moves of jobs."""

    def start(self, now: Time) -> None:
        """Begin as a component that was restarted."""


class ClusterHost(ClusterState, Protocol):
    """A Local Master as what is attached to it calls it."""

    def send(self, to: Address, message: Message) -> None:
        """Send a message to another component."""

    def note_end(self, owner: GmSyncState, task: TaskId, now: Time) -> None:
        """Send a GM, in this instant, the end of a task of its own."""

    def set_heartbeat(self, now: Time) -> None:
        """Set the heartbeat to the next multiple of its period, where it is not set."""


class PairHost(ClusterHost, Protocol):
    """A Local Master as the control of its nodes calls it, where it is one of a pair.

    Attributes:
        gangs: Reservations for gangs; None: they do not start whole.
    """

    gangs: GangReservations | None

    def adopt(self, attempt: RunningAttempt) -> None:
        """Take account of an attempt that runs."""

    def release(self, attempt: RunningAttempt) -> None:
        """Free what an attempt had that has ended, unless it was ended for another task."""

    def schedule_news(self, now: Time) -> None:
        """Look soon whether there is room for GMs that have asked."""

    def send_news_soon(self, *, by_heartbeat: bool) -> None:
        """Send news at once: answers to the GMs that have asked, and a heartbeat."""

    def forget_update_request(self, gm: Address) -> None:
        """Drop the question of a GM that has asked for news of room."""

    def forget_all(self) -> None:
        """Forget all attempts, all that is free and all that GMs have been sent."""


class PreemptionHost(ClusterHost, Protocol):
    """A Local Master as its preemptions call it."""

    def accept(self, message: Preempt, tasks: Sequence[Task], source: Address) -> GmSyncState | None:
        """Return the state of the GM whose request is to be answered; None: it has no effect."""

    def is_reachable(self, node: Address) -> bool:
        """Find out whether a node is known to be there, and to obey this master."""

    def launch(self, task: Task, attempt: RunningAttempt, *, is_lent: bool) -> None:
        """Launch an attempt that fits; `is_lent` counts a logical node as a repartition."""

    def evict(self, node: Address, attempt: RunningAttempt) -> None:
        """Have a node end an attempt for another task's sake."""

    def send_ends(self, gm: GmSyncState) -> None:
        """Send a GM the ends of its tasks."""

    def answer(self, gm: GmSyncState) -> None:
        """Answer a request of a GM that was carried out, where that is answered."""
