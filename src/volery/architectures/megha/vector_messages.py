"""What Megha's masters say to each other about amounts of several resources (arXiv 2103.08413, section IV).

Beside them Request, Withdraw, Launch, Kill and Completed are as on slots; a position is a machine of a partition.
"""

from __future__ import annotations

from volery.core.model import Message, Task, TaskId


class Repartition(Message, frozen=True):
    """GM > LM: give me, for each task, a logical node with what it asks for, from a machine of another GM's partition.

    The task runs on its logical node; what that has goes back to the machine when the task ends. Numbers are those of
    the GM's requests to this LM.
    """

    number: int
    partition: int
    tasks: tuple[Task, ...]
    positions: tuple[int, ...]


class State(Message, frozen=True):
    """What machines of a partition have free, as packed integers of equal length, little endian.

    Args:
        partition: number.
        positions: a bit vector of the machines that are told of, lowest first; empty: all of the partition.
        free: theirs, in this order.
    """

    partition: int
    positions: bytes
    free: bytes


class StateUpdate(Message, frozen=True):
    """LM > GM: what has changed, or the state of the whole cluster.

    Args:
        number: of this LM's updates to this GM.
        heard: the last of the GM's requests that this state contains.
        states: of partitions.
        entries: of how many machines it tells.
    """

    number: int
    heard: int
    states: tuple[State, ...]
    entries: int


class Refusal(Message, frozen=True):
    """LM > GM: these placements were invalid; the state rides along."""

    tasks: tuple[TaskId, ...]
    update: StateUpdate

    @property
    def entries(self) -> int:
        """Of how many machines it tells."""
        return self.update.entries


class Ended(Message, frozen=True):
    """LM > owning GM: these tasks have ended in this instant, and what they took is free.

    Args:
        tasks: theirs.
        heard: as in `StateUpdate`.
    """

    tasks: tuple[TaskId, ...]
    heard: int


VECTOR_MESSAGES: frozenset[type[Message]] = frozenset({Repartition, State, StateUpdate, Refusal, Ended})
