"""Messages of preemptions, of the tasks of others, and of lost attempts, which recovery sends, too."""

from __future__ import annotations

from typing import Final

import msgspec

from volery.core.events import ShareChange
from volery.core.model import Amounts, Message, Task, TaskId
from volery.core.records import INCARNATION_ATTEMPTS
from volery.roles.recovery.leases import RunningAttempt

ATTEMPTS: Final = INCARNATION_ATTEMPTS
"""Attempts that one incarnation of a GM may make at a task: their numbers never collide with an earlier one's."""


class Preempt(Message, frozen=True):
    """GM > LM: end these tasks of a user on a machine, and run this one there in their place.

    Args:
        number: Number of the request among those of this GM to this LM.
        partition, position: Place of the machine.
        task, user, attempt: Task that is to run there, its user, and its attempt.
        loser, victims: User who is to lose tasks, and these tasks.
        weights_number: Number of the last `Reweigh` that the GM has received.
        gain, loss: Holdings of the two users before and after it, in the GM's view.
        epoch, term: See `Request`.
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
        last_request: Number of the last of the GM's requests that this LM has received.
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
        is_whole: Whether it goes before a whole report, and shows all that runs here.
        leaving_tasks: Tasks of the GM in such a message that it, or an earlier incarnation, has given up and that have
            not ended yet.
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


SHARE_MESSAGES: Final[frozenset[type[Message]]] = frozenset(
    {Preempt, PreemptionRequest, PreemptionVote, PreemptionDone, Holdings, AttemptsLost}
)
