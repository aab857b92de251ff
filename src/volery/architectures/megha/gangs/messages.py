"""Messages by which the members of a gang are placed at several Local Masters, all or none, in two phases."""

from __future__ import annotations

from typing import Final

from volery.architectures.megha.messages import Refusal, Request
from volery.core.model import JobId, Message, TaskId, Time


class PrepareRequest(Request, frozen=True):
    """GM > LM: reserve these units for members of a gang, all of them or none, and launch nothing yet.

    A repeat renews the lease of what is reserved.

    Args:
        since_us: Time when the gang was submitted: what is older waits for what is younger, never the reverse.
        is_patient: Whether the machines are closed to all others until what runs there has ended.
    """

    since_us: Time = 0
    is_patient: bool = False


class PrepareVote(Message, frozen=True):
    """LM > GM: all units of this request are reserved for the gang.

    Args:
        number: Number of the request.
    """

    job: JobId
    number: int


class CommitRequest(Message, frozen=True):
    """GM > LM: all members have units, launch what is reserved for these requests; a repeat launches nothing."""

    numbers: tuple[int, ...]


class ReleaseRequest(Message, frozen=True):
    """GM > LM: give up what is reserved for these members of a gang, and end those that run, which is no result.

    Args:
        attempts: Number of each member's attempt.
    """

    tasks: tuple[TaskId, ...]
    attempts: tuple[int, ...]


class MembersReleased(Refusal, frozen=True):
    """LM > GM: nothing is reserved for these members (any more); what the GM has to know of the cluster rides along.

    Args:
        unusable_tasks: Members whose machines cannot be waited for, since they are away or drained.
    """

    unusable_tasks: tuple[TaskId, ...] = ()


GANG_MESSAGES: Final[frozenset[type[Message]]] = frozenset(
    {PrepareRequest, PrepareVote, CommitRequest, ReleaseRequest, MembersReleased}
)
