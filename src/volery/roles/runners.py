"""Machines that run what one scheduler tells them, whenever it does: plain nodes under the only scheduler."""

from __future__ import annotations

from typing import Final

from volery.core.component import sent_to
from volery.core.model import Address, Message
from volery.roles import nodes
from volery.roles.nodes import PLAIN_NODE_MESSAGES, Completed, Kill, Launch

__all__ = ["MESSAGES", "SCHEDULER", "Completed", "Kill", "Launch", "Node"]

MESSAGES: Final[frozenset[type[Message]]] = PLAIN_NODE_MESSAGES
SCHEDULER: Final[Address] = "scheduler/0"


class Node(nodes.Node):
    """One worker machine."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(SCHEDULER)

    sends = sent_to("scheduler", Completed)
