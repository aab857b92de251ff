"""Messages of masters that are rebuilt after a crash, and all that components of Megha exchange."""

from __future__ import annotations

from typing import Final

from volery.architectures.megha.gangs.messages import GANG_MESSAGES
from volery.architectures.megha.messages import BASE_MESSAGES, StateUpdate
from volery.architectures.megha.shares.messages import SHARE_MESSAGES
from volery.core.events import Moved
from volery.core.model import Message
from volery.roles import node
from volery.roles.recovery import leases
from volery.roles.recovery.channel import LINK_MESSAGES
from volery.roles.recovery.leases import RunningAttempt

MOVE_SHIFT: Final = 20
"""An attempt at a task of a job that was moved counts from the epoch of the move, shifted by this: higher than all
attempts of the GM that had the job before, in any of 65,536 incarnations."""


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


OWN_MESSAGES: Final[frozenset[type[Message]]] = (
    BASE_MESSAGES | SHARE_MESSAGES | GANG_MESSAGES | {ResyncRequest, ResyncReply}
)
MESSAGES: Final[frozenset[type[Message]]] = (
    OWN_MESSAGES | {Moved} | node.NODE_MESSAGES | leases.NODE_MESSAGES | LINK_MESSAGES
)
"""All that components of Megha exchange, whatever is attached."""
