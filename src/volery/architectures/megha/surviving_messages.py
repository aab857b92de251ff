"""What Global and Local Masters say to each other where components may crash, beside what they always say."""

from __future__ import annotations

from typing import Final

from volery.architectures.megha.fair_messages import Holding, Preempt
from volery.architectures.megha.messages import Update
from volery.architectures.megha.vector_messages import StateUpdate
from volery.core.model import Message, Task, TaskId
from volery.core.records import INCARNATION_ATTEMPTS
from volery.policies.guarded import NODE_MESSAGES, Active
from volery.policies.leading import PAIR_MESSAGES
from volery.policies.links import LINK_MESSAGES


class Place(Message, frozen=True):
    """GM > LM: a Request, or a Repartition, of an epoch; one of another epoch is void.

    Accounts: the users of the tasks, by number, where users have shares.
    """

    epoch: int
    number: int
    partition: int
    tasks: tuple[Task, ...]
    positions: tuple[int, ...]
    attempts: tuple[int, ...]
    accounts: tuple[int, ...] = ()


class Lost(Message, frozen=True):
    """LM > owning GM: these attempts are dead; place the tasks again."""

    attempts: tuple[Active, ...]


class Join(Message, frozen=True):
    """GM > LM: I have begun anew and know nothing."""


class Report(Message, frozen=True):
    """LM > GM: I lead in this epoch; what of yours runs here and what has finished.

    Whole: all that is known, else what has been learnt since. Settled: no other task of yours runs here. Before that,
    some nodes have not answered.
    """

    epoch: int
    whole: bool
    settled: bool
    update: Update | StateUpdate
    running: tuple[Active, ...]
    finished: tuple[Active, ...]


class Contest(Message, frozen=True):
    """GM > LM: a Preempt of an epoch; one of another epoch is void."""

    epoch: int
    preempt: Preempt


class Picture(Message, frozen=True):
    """LM > GM, before a whole report: all that runs here.

    Args:
        others: the tasks of other GMs.
        leaving: tasks of its own that it, or an earlier incarnation, has given up and that have not ended yet.
    """

    others: tuple[Holding, ...]
    leaving: tuple[TaskId, ...]


class Vacate(Message, frozen=True):
    """LM > node: end this attempt for another task's sake; Vacated follows, or a Result has gone before."""

    epoch: int
    task: TaskId
    attempt: int


class Vacated(Message, frozen=True):
    """Node > LM: the attempt was ended, has no result, and what it took is free."""

    active: Active


SURVIVING_MESSAGES: Final[frozenset[type[Message]]] = frozenset(
    {
        Place, Lost, Join, Report, Contest, Picture, Vacate, Vacated,
        *NODE_MESSAGES, *PAIR_MESSAGES, *LINK_MESSAGES,
    }
)  # fmt: skip

UNIT_SHIFT: Final = 24
"""A unit's number is its partition above, its position below; of amounts, a unit is a machine."""
ATTEMPTS: Final = INCARNATION_ATTEMPTS
"""Attempts that one incarnation of a GM may make at a task: their numbers never collide with an earlier one's."""


def place_of(unit: int) -> tuple[int, int]:
    """Partition and position of a unit."""
    return unit >> UNIT_SHIFT, unit & (1 << UNIT_SHIFT) - 1
