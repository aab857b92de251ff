"""What Global and Local Masters say to each other where components may crash, beside what they always say."""

from __future__ import annotations

from typing import Final

from volery.architectures.megha.messages import Update
from volery.architectures.megha.vector_messages import StateUpdate
from volery.core.model import Message, Task
from volery.policies.guarded import NODE_MESSAGES, Active
from volery.policies.leading import PAIR_MESSAGES
from volery.policies.links import LINK_MESSAGES


class Place(Message, frozen=True):
    """GM > LM: a Request, or a Repartition, of an epoch; one of another epoch is void."""

    epoch: int
    number: int
    partition: int
    tasks: tuple[Task, ...]
    positions: tuple[int, ...]
    attempts: tuple[int, ...]


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


SURVIVING_MESSAGES: Final[frozenset[type[Message]]] = frozenset(
    {Place, Lost, Join, Report, *NODE_MESSAGES, *PAIR_MESSAGES, *LINK_MESSAGES}
)

UNIT_SHIFT: Final = 24
"""A unit's number is its partition above, its position below; of amounts, a unit is a machine."""
ATTEMPTS: Final = 16
"""Attempts that one incarnation of a GM may make at a task: their numbers never collide with an earlier one's."""


def place_of(unit: int) -> tuple[int, int]:
    """Partition and position of a unit."""
    return unit >> UNIT_SHIFT, unit & (1 << UNIT_SHIFT) - 1
