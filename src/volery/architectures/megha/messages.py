"""The messages of Megha's base: one for each intention, whatever is allocated; what is attached has further ones.

A unit is a worker slot, or a machine where tasks ask for amounts; its partition and its position there name it. Numbers
count the messages of one link, so that a message that is repeated, or that a later one has overtaken, is recognised. A
user is the number of its place in the tree of shares; users whom the tree does not name share the number after the
last. Epochs and terms stay 0 where no component may crash: see `volery.roles.recovery.leadership`, and `Request` for
the term.
"""

from __future__ import annotations

from typing import Final

import msgspec

from volery.core.model import Message, Task, TaskId

UNIT_SHIFT: Final = 24
"""Number of bits of a unit's number below its partition: those of its position."""
UNIT_MASK: Final = (1 << UNIT_SHIFT) - 1


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
        last_request: Number of the last of the GM's requests that the LM has received.
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
        positions: Bit vector of the machines in it, lowest first; empty: all of the partition.
        free: Free amounts of these machines, in this order.
    """

    partition: int
    positions: bytes
    free: bytes


class StateUpdate(Message, frozen=True):
    """LM > GM: what has changed, or the state of the whole cluster.

    Args:
        number: Number of the update among those of this LM to this GM.
        last_request: Number of the last of the GM's requests that this state contains, where tasks ask for amounts.
        states: Free amounts of machines.
        entries: Number of machines in its states.
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
        return sum(int.from_bytes(bits).bit_count() for change in self.changes for bits in (change.freed, change.taken))


class Refusal(Message, frozen=True):
    """LM > GM: these placements were invalid (an inconsistency); what the GM has to know of the cluster rides along.

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


BASE_MESSAGES: Final[frozenset[type[Message]]] = frozenset(
    {Request, Withdraw, UpdateRequest, TasksEnded, StateUpdate, Refusal}
)
