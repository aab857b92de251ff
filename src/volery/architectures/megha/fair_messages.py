"""What Megha's masters say to each other where users have shares (arXiv 2103.08413, section IV-C).

A user is the number of its place in the tree of shares; users whom the tree does not name share the number after the
last. An attempt counts how often a task was preempted before.
"""

from __future__ import annotations

from volery.architectures.megha.vector_messages import StateUpdate
from volery.core.model import Amounts, Message, Task, TaskId
from volery.core.shares import ShareChange


class UserRequest(Message, frozen=True):
    """GM > LM: Request, or where `lent` is set Repartition, of tasks of these users and attempts."""

    number: int
    partition: int
    tasks: tuple[Task, ...]
    positions: tuple[int, ...]
    users: tuple[int, ...]
    attempts: tuple[int, ...]
    lent: bool


class Preempt(Message, frozen=True):
    """GM > LM: end these tasks of a user on a machine, and run this one there in their place.

    Args:
        number: of the GM's requests to this LM.
        partition, position: of the machine.
        task, user, attempt: that is to run there.
        loser, victims: whose tasks are to be ended, and which.
        weighed: the number of the last `Reweigh` that the GM has heard.
        gain, loss: what the two users have before and after it, in the GM's view.
    """

    number: int
    partition: int
    position: int
    task: Task
    user: int
    attempt: int
    loser: int
    victims: tuple[TaskId, ...]
    weighed: int = 0
    gain: ShareChange | None = None
    loss: ShareChange | None = None


class Yield(Message, frozen=True):
    """LM > GM of a user: give these running tasks of the user up, if it has its share without them.

    Args:
        number: of these messages from this LM to this GM, and of those to others.
        heard: the last of the GM's requests that this LM has heard.
        user: whose.
        tasks: that are to be ended.
    """

    number: int
    heard: int
    user: int
    tasks: tuple[TaskId, ...]


class Answer(Message, frozen=True):
    """GM > LM: whether the tasks that Yield of this number has named may be ended, and what their user has then."""

    number: int
    agreed: bool
    loss: ShareChange | None = None


class Taken(Message, frozen=True):
    """LM > GM: the task was launched in the place of those that were preempted for it."""

    task: TaskId


class Denied(Message, frozen=True):
    """LM > GM: nothing was preempted for this task; the state rides along.

    Args:
        task: that was to run.
        gone: victims that cannot be had: they have ended, which was told before, are being preempted for somebody
            else, or hold a place that the beneficiary's user has lost before.
        kept: whether the loser's GM has refused, because the user would have had less than its share.
    """

    task: TaskId
    gone: tuple[TaskId, ...]
    kept: bool
    update: StateUpdate


class Holding(Message, frozen=True):
    """A running task, whose it is and what it takes where."""

    task: TaskId
    user: int
    partition: int
    position: int
    request: Amounts


class Holdings(Message, frozen=True):
    """LM > GM, before a state: which tasks of other GMs have ended, then which have started, since it was last told.

    Args:
        number: of these messages from this LM to this GM.
    """

    number: int
    ended: tuple[TaskId, ...]
    started: tuple[Holding, ...]


class Ousted(Message, frozen=True):
    """LM > owning GM: this attempt was preempted; the task is yours again."""

    task: TaskId
    attempt: int


FAIR_MESSAGES: frozenset[type[Message]] = frozenset(
    {
        UserRequest, Preempt, Yield, Answer, Taken, Denied, Holding, Holdings, Ousted,
    }
)  # fmt: skip
