"""The messages of Megha: one for each intention, whatever is allocated, whether users have shares, and who may crash.

A unit is a worker slot, or a machine where tasks ask for amounts; its partition and its position there name it. Numbers
count the messages of one link, so that a repeated or stale message is recognised. A user is the number of its place in
the tree of shares; users whom the tree does not name share the number after the last. Epochs and terms stay 0 where
no component may crash: see `volery.roles.recovery.election`, and `Request` for the term.
"""

from __future__ import annotations

from typing import Final

import msgspec

from volery.core.events import Moved, ShareChange
from volery.core.model import Amounts, Message, Task, TaskId
from volery.core.records import INCARNATION_ATTEMPTS
from volery.roles import node
from volery.roles.recovery import leases
from volery.roles.recovery.channel import LINK_MESSAGES
from volery.roles.recovery.leases import RunningAttempt

UNIT_SHIFT: Final = 24
"""Number of bits of a unit's number below its partition: those of its position."""
UNIT_MASK: Final = (1 << UNIT_SHIFT) - 1
ATTEMPTS: Final = INCARNATION_ATTEMPTS
"""Attempts that one incarnation of a GM may make at a task: their numbers never collide with an earlier one's."""
MOVE_SHIFT: Final = 20
"""An attempt at a task of a job that was moved counts from the epoch of the move, shifted by this: higher than all
attempts of the GM that had the job before, in any of 65,536 incarnations."""


def place_of(unit: int) -> tuple[int, int]:
    """Partition and position of a unit."""
    return unit >> UNIT_SHIFT, unit & UNIT_MASK


class Request(Message, frozen=True):
    """GM > LM: run these tasks at these units of a partition (validated one by one, at most `batch_max`).

    Of a unit in another GM's partition it may be a repartition: the LM splits a logical node with what the task asks
    for off the machine, and gives that back when the task ends (arXiv 2103.08413, section IV-B4).

    Args:
        number: Number of the request among those of this GM to this LM.
        partition, tasks, positions: Tasks and their units.
        attempts: Number of each task's attempt; empty: 0 for all.
        users: Users of the tasks, where they have shares.
        epoch: Epoch of the LM that leads; a request of another epoch is void.
        term: Epoch of the last move of jobs of which the GM was the origin; one of an earlier term is void.
    """

    number: int
    partition: int
    tasks: tuple[Task, ...]
    positions: tuple[int, ...]
    attempts: tuple[int, ...] = ()
    users: tuple[int, ...] = ()
    epoch: int = 0
    term: int = 0


class Withdraw(Message, frozen=True):
    """GM > LM: end these tasks, which are placed in its cluster; those that have ended already are no news."""

    tasks: tuple[TaskId, ...]


class UpdateRequest(Message, frozen=True):
    """GM > LM: tasks wait here and find no room; send an update once, when you have room that I do not know of."""


class TasksEnded(Message, frozen=True):
    """LM > owning GM: these tasks have ended in this instant, and what they took is free.

    Args:
        last_request: the last of the GM's requests that the LM has received.
    """

    tasks: tuple[TaskId, ...]
    last_request: int = 0


class Change(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Changes in one partition of slots: bit vectors over its positions."""

    partition: int
    freed: bytes
    taken: bytes


class PartitionState(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Free amounts of machines of a partition, as packed integers of equal length, little endian.

    Args:
        positions: a bit vector of the machines in it, lowest first; empty: all of the partition.
        free: Free amounts of these machines, in this order.
    """

    partition: int
    positions: bytes
    free: bytes


class StateUpdate(Message, frozen=True):
    """LM > GM: what has changed, or the state of the whole cluster.

    Args:
        number: Number of the update among those of this LM to this GM.
        last_request: the last of the GM's requests that this state contains, where tasks ask for amounts.
        states: Free amounts of machines.
        entries: number of machines in its states.
        changes: Slots that were freed or taken.
        is_snapshot: Whether the changes are the whole state; then all that is free is freed.
    """

    number: int
    last_request: int = 0
    states: tuple[PartitionState, ...] = ()
    entries: int = 0
    changes: tuple[Change, ...] = ()
    is_snapshot: bool = False

    @property
    def changed_slots(self) -> int:
        """Number of slots in its changes."""
        return sum(int.from_bytes(bits).bit_count() for one in self.changes for bits in (one.freed, one.taken))


class Refusal(Message, frozen=True):
    """LM > GM: these placements were invalid, an inconsistency; the state rides along.

    Args:
        unavailable_victims: Victims of a preemption that cannot be had: they have ended, as was sent before, are being
            preempted for somebody else, or hold a place that the beneficiary's user has lost before.
        is_vetoed: Whether the loser's GM has refused a preemption, because the user would have had less than its
            share.
    """

    tasks: tuple[TaskId, ...]
    update: StateUpdate
    unavailable_victims: tuple[TaskId, ...] = ()
    is_vetoed: bool = False

    @property
    def entries(self) -> int:
        """Number of machines in its states."""
        return self.update.entries

    @property
    def changed_slots(self) -> int:
        """Number of slots in its changes."""
        return self.update.changed_slots


class Preempt(Message, frozen=True):
    """GM > LM: end these tasks of a user on a machine, and run this one there in their place.

    Args:
        number: Number of the request among those of this GM to this LM.
        partition, position: Place of the machine.
        task, user, attempt: Task that is to run there, its user, and its attempt.
        loser, victims: User who is to lose tasks, and these tasks.
        weights_number: Number of the last `Reweigh` that the GM has received.
        gain, loss: Holdings of the two users before and after it, in the GM's view.
        epoch, term: see `Request`.
    """

    number: int
    partition: int
    position: int
    task: Task
    user: int
    attempt: int
    loser: int
    victims: tuple[TaskId, ...]
    weights_number: int = 0
    gain: ShareChange | None = None
    loss: ShareChange | None = None
    epoch: int = 0
    term: int = 0


class PreemptionRequest(Message, frozen=True):
    """LM > GM of a user: give these running tasks of the user up, if it has its share without them.

    Args:
        number: Number of the message among those of this LM, to any GM.
        last_request: the last of the GM's requests that this LM has heard.
        tasks: Tasks that are to be ended.
    """

    number: int
    last_request: int
    user: int
    tasks: tuple[TaskId, ...]


class PreemptionVote(Message, frozen=True):
    """GM > LM: whether the tasks of that preemption request may be ended, and what their user has then."""

    number: int
    is_agreed: bool
    loss: ShareChange | None = None


class PreemptionDone(Message, frozen=True):
    """LM > GM: the task was launched in the place of those that were preempted for it."""

    task: TaskId


class Holding(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A running task, whose it is and what it takes where."""

    task: TaskId
    user: int
    partition: int
    position: int
    request: Amounts


class Holdings(Message, frozen=True):
    """LM > GM, before a state: tasks of other GMs that have ended, then those that have started, since the last one.

    Args:
        number: Number of the message among those of this LM to this GM.
        is_whole: it goes before a whole report, and shows all that runs here.
        leaving_tasks: then, tasks of the GM that it, or an earlier incarnation, has given up and that have not ended
            yet.
    """

    number: int
    ended_tasks: tuple[TaskId, ...]
    started_tasks: tuple[Holding, ...]
    is_whole: bool = False
    leaving_tasks: tuple[TaskId, ...] = ()


class AttemptsLost(Message, frozen=True):
    """LM > owning GM: these attempts are dead, or were preempted; the tasks are yours again."""

    attempts: tuple[RunningAttempt, ...]
    is_preemption: bool = False


class ResyncRequest(Message, frozen=True):
    """GM > LM: I have begun anew and know nothing; in this term, see `Request`."""

    term: int = 0


class ResyncReply(Message, frozen=True):
    """LM > GM: I lead in this epoch; what of yours runs here and what has finished.

    Whole: all that is known, else what has been learnt since. Settled: no other task of yours runs here. Before that,
    some nodes have not answered. Fenced: no master of the cluster launches for the origin of this move of jobs, or of
    an earlier one, what was placed before it.
    """

    epoch: int
    is_whole: bool
    is_settled: bool
    update: StateUpdate
    running_attempts: tuple[RunningAttempt, ...]
    finished_attempts: tuple[RunningAttempt, ...]
    fenced_epoch: int = 0


OWN_MESSAGES: Final[frozenset[type[Message]]] = frozenset(
    {
        Request,
        Withdraw,
        UpdateRequest,
        TasksEnded,
        StateUpdate,
        Refusal,
        Preempt,
        PreemptionRequest,
        PreemptionVote,
        PreemptionDone,
        Holdings,
        AttemptsLost,
        ResyncRequest,
        ResyncReply,
    }
)
MESSAGES: Final[frozenset[type[Message]]] = (
    OWN_MESSAGES | {Moved} | node.NODE_MESSAGES | leases.NODE_MESSAGES | LINK_MESSAGES
)
