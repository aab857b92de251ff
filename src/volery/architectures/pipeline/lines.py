"""A line of waiting tasks in the order of their keys, and the first in it that is short enough."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, Final

from volery.architectures.pipeline.policies import FAR, Waiting
from volery.core.model import Time

BLOCK: Final = 256
"""Entries per block: an insertion moves so many at most, a search for a short task looks at one block in full."""

Entry = tuple[Any, Any, int, Waiting]
"""Key by stage T2, key by stage J3, number; the numbers differ, so that no comparison comes to the task itself."""


class Line:
    """Sorted entries in blocks, each with the smallest estimate in it."""

    __slots__ = ("_blocks", "_lasts", "_shortest")

    def __init__(self) -> None:
        self._blocks: list[list[Entry]] = []
        self._lasts: list[Entry] = []
        self._shortest: list[Time] = []

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    @property
    def head(self) -> Entry:
        """The first; there has to be one."""
        return self._blocks[0][0]

    def push(self, entry: Entry) -> None:
        """Take its place."""
        blocks = self._blocks
        estimate = entry[3].task.estimate_us
        if not blocks or (entry > self._lasts[-1] and len(blocks[-1]) >= BLOCK):
            blocks.append([entry])
            self._lasts.append(entry)
            self._shortest.append(estimate)
            return
        at = len(blocks) - 1 if entry > self._lasts[-1] else bisect_left(self._lasts, entry)
        block = blocks[at]
        insort(block, entry)
        self._lasts[at] = block[-1]
        if estimate < self._shortest[at]:
            self._shortest[at] = estimate
        if len(block) > 2 * BLOCK:
            self._split(at)

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        low, high = block[:BLOCK], block[BLOCK:]
        self._blocks[at : at + 1] = [low, high]
        self._lasts[at : at + 1] = [low[-1], high[-1]]
        self._shortest[at : at + 1] = [_shortest(low), _shortest(high)]

    def remove(self, entry: Entry) -> bool:
        """Leave; returns whether others stay. It has to be in the line."""
        at = bisect_left(self._lasts, entry)
        block = self._blocks[at]
        place = bisect_left(block, entry)
        assert block[place] is entry
        del block[place]
        if not block:
            del self._blocks[at], self._lasts[at], self._shortest[at]
            return bool(self._blocks)
        self._lasts[at] = block[-1]
        if self._shortest[at] == entry[3].task.estimate_us:
            self._shortest[at] = -1  # counted anew when somebody asks
        return True

    def first_within(self, limit_us: Time) -> Entry | None:
        """The first entry whose estimate is at most this."""
        if limit_us < 0:
            return None
        for at, shortest in enumerate(self._shortest):
            if shortest < 0:
                shortest = self._shortest[at] = _shortest(self._blocks[at])
            if shortest <= limit_us:
                return next(entry for entry in self._blocks[at] if entry[3].task.estimate_us <= limit_us)
        return None


def _shortest(block: list[Entry]) -> Time:
    return min([entry[3].task.estimate_us for entry in block], default=FAR)
