"""Devices: a share of a GPU lies on one device, and whole numbers take whole devices (docs/decisions/0045)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.core.model import TaskId

DEVICE_MILLI: Final = "gpu_milli"
"""The resource that counts devices in thousandths."""
WHOLE: Final = 1000
DEVICE_SPLITS: Final = "device_splits"
"""Counter: starts for which their machine had enough thousandths free, and not on devices that they may use."""


def device_place(resources: Sequence[str]) -> int:
    """The place, among these resources, of the one that counts devices; -1 where none does."""
    return resources.index(DEVICE_MILLI) if DEVICE_MILLI in resources else -1


class Devices:
    """The devices of one machine.

    Args:
        milli: thousandths that the machine offers; what is left beyond whole devices is one more, smaller device.
    """

    __slots__ = ("_free", "_held", "_sizes")

    def __init__(self, milli: int) -> None:
        rest = milli % WHOLE
        self._sizes = [WHOLE] * (milli // WHOLE) + ([rest] if rest else [])
        self._free = self._sizes[:]
        self._held: dict[TaskId, list[tuple[int, int]]] = {}

    def take(self, task: TaskId, milli: int) -> bool:
        """Give a task whole devices, and what is left of its request on the fullest device that has room.

        Returns:
            Whether there was room; otherwise nothing is taken.
        """
        count, share = divmod(milli, WHOLE)
        whole = [device for device, free in enumerate(self._free) if free == WHOLE][:count]
        if len(whole) < count:
            return False
        parts = [(device, WHOLE) for device in whole]
        if share:
            rooms = [(free, device) for device, free in enumerate(self._free) if free >= share and device not in whole]
            if not rooms:
                return False
            parts.append((min(rooms)[1], share))
        for device, amount in parts:
            self._free[device] -= amount
        self._held[task] = parts
        return True

    def give_back(self, task: TaskId) -> None:
        """Take back what a task holds, if anything."""
        for device, amount in self._held.pop(task, ()):
            self._free[device] += amount
