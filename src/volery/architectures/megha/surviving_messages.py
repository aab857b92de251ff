"""What Global and Local Masters say to each other where components may crash, beside what they always say."""

from __future__ import annotations

from typing import Final

from volery.architectures.megha.fair_messages import Holding, Preempt
from volery.architectures.megha.messages import Update
from volery.architectures.megha.vector_messages import StateUpdate
from volery.core.events import Moved
from volery.core.model import Message, Task, TaskId
from volery.core.records import INCARNATION_ATTEMPTS
from volery.roles.recovery.channel import LINK_MESSAGES
from volery.roles.recovery.election import PAIR_MESSAGES
from volery.roles.recovery.leases import NODE_MESSAGES, Active


class Place(Message, frozen=True):
    """GM > LM: a Request, or a Repartition, of an epoch; one of another epoch is void.

    Accounts: the users of the tasks, by number, where users have shares. Term: the epoch of the last move of which the
    GM was the origin; one of an earlier term than the LM knows of is void, too.
    """

    epoch: int
    number: int
    partition: int
    tasks: tuple[Task, ...]
    positions: tuple[int, ...]
    attempts: tuple[int, ...]
    accounts: tuple[int, ...] = ()
    term: int = 0


class Lost(Message, frozen=True):
    """LM > owning GM: these attempts are dead; place the tasks again."""

    attempts: tuple[Active, ...]


class Join(Message, frozen=True):
    """GM > LM: I have begun anew and know nothing; in this term, see `Place`."""

    term: int = 0


class Report(Message, frozen=True):
    """LM > GM: I lead in this epoch; what of yours runs here and what has finished.

    Whole: all that is known, else what has been learnt since. Settled: no other task of yours runs here. Before that,
    some nodes have not answered. Fenced: no master of the cluster launches for the origin of this move of jobs, or of
    an earlier one, what was placed before it.
    """

    epoch: int
    whole: bool
    settled: bool
    update: Update | StateUpdate
    running: tuple[Active, ...]
    finished: tuple[Active, ...]
    fenced: int = 0


class Contest(Message, frozen=True):
    """GM > LM: a Preempt of an epoch and a term; one of another epoch, or an earlier term, is void."""

    epoch: int
    preempt: Preempt
    term: int = 0


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
        Place, Lost, Join, Report, Contest, Picture, Vacate, Vacated, Moved,
        *NODE_MESSAGES, *PAIR_MESSAGES, *LINK_MESSAGES,
    }
)  # fmt: skip

UNIT_SHIFT: Final = 24
"""A unit's number is its partition above, its position below; of amounts, a unit is a machine."""
ATTEMPTS: Final = INCARNATION_ATTEMPTS
"""Attempts that one incarnation of a GM may make at a task: their numbers never collide with an earlier one's."""
MOVE_SHIFT: Final = 20
"""An attempt at a task of a job that was moved counts from the epoch of the move, shifted by this: higher than all
attempts of the GM that had the job before, in any of 65,536 incarnations."""


def place_of(unit: int) -> tuple[int, int]:
    """Partition and position of a unit."""
    return unit >> UNIT_SHIFT, unit & (1 << UNIT_SHIFT) - 1
