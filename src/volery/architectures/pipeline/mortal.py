"""Stage T11: machines that die, and a scheduler that places what they ran again.

A node counts its lives, and a launch is for one of them: what was meant for an earlier life is refused, whenever it
arrives. A new life says so (`Risen`); from then on everything of earlier lives is known to be dead. That a node is lost
(PeerLost) is known to be its death: pipeline bears crashes of nodes or links that fail, not both (docs/decisions/0013).
"""

from __future__ import annotations

from volery.architectures.pipeline.messages import Launch, Risen
from volery.architectures.pipeline.node import Node
from volery.core.component import sent_to
from volery.core.events import PeerBack, PeerLost
from volery.core.model import Address, Time


class MortalNode(Node):
    """A machine that may die and come back.

    Args:
        manager: who launches here.
        life: 0 is the first.
    """

    __slots__ = ("_life",)

    def __init__(self, manager: Address, life: int) -> None:
        super().__init__(manager)
        self._life = life

    def start(self, now: Time) -> None:
        """Say that a new life has begun."""
        if self._life:
            self._port.send(self._manager, Risen(self._life))

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        """Only what was meant for this life."""
        if message.life == self._life:
            super().on_launch(message, source, now)

    def on_peer(self, event: PeerLost | PeerBack, source: Address, now: Time) -> None:
        """The manager does not die."""

    receives = {**Node.receives, Launch: on_launch, PeerLost: on_peer, PeerBack: on_peer}  # noqa: RUF012 - as in Node
    sends = Node.sends | sent_to("scheduler", Risen)
