"""Gangs, whose tasks run only together, placed at several Local Masters in two phases; attached to Megha."""

from __future__ import annotations

from functools import partial

from volery.architectures.megha.amounts.view import CapacityView
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.gangs.reservations import GangReservations
from volery.architectures.megha.gangs.rooms import AmountRooms, GangRooms, SlotRooms
from volery.architectures.megha.gangs.scheduler import GangHost, GangScheduler
from volery.architectures.megha.partitions import Layout
from volery.architectures.megha.view import SlotView


def heeds_gangs(config: MeghaConfig) -> bool:
    """True if jobs that are submitted as gangs start whole.

    Shares preempt tasks one by one; a Global Master that waits for each answer cannot ask several Local Masters at
    once; and as printed a Local Master launches a lost task again itself, without the others.
    """
    return not config.shares and config.launch == "asynchronous" and config.recovery != "paper"


class GangAttachment:
    """Attachment of gangs: scheduling at Global Masters, reservations at Local Masters.

    Args:
        layout: The whole cluster.
    """

    def __init__(self, layout: Layout, config: MeghaConfig) -> None:
        self._layout = layout
        self._config = config
        self.reservations = partial(GangReservations, layout=layout, config=config)

    def scheduler(self, master: GangHost, view: SlotView | CapacityView) -> GangScheduler:
        """Make the scheduler of gangs of a Global Master."""
        layout = self._layout
        rooms = SlotRooms(view, layout) if isinstance(view, SlotView) else AmountRooms(view, layout)
        return GangScheduler(master, GangRooms(rooms, layout), layout, self._config)
