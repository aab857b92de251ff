"""A machine of Quincy: it runs tasks and reports their ends."""

from __future__ import annotations

from typing import Final

from volery.core.component import sent_to
from volery.core.model import Address
from volery.roles import attempts
from volery.roles.attempts import AttemptEnded

SCHEDULER: Final[Address] = "scheduler/0"


class Node(attempts.Node):
    """One worker machine."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(SCHEDULER)

    sends = sent_to("scheduler", AttemptEnded)
