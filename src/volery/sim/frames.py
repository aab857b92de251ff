"""Frames between hosts of the lab: what a turn says to another host travels as one, through a broker, on shared cores.

Only runs whose network has measured delays of frames (`Network.frames_us`) have them. Messages between hosts then take
no lanes: a frame draws its delay, keeps the order of its link, and is read by the host that it is for. The broker
spends processor time on each; hosts and broker take a core for what they do, where a number of cores is given.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Optional

from volery.core.model import Address, Message, Time

if TYPE_CHECKING:
    from volery.sim.hosts import Entry, Host
    from volery.sim.kernel import Kernel

Letter = Optional[tuple["Entry", Message, Address, int]]  # noqa: UP045 - evaluated where the first name is a string
"""Receiver, message, sender, path; None is a report, of which only the cost counts."""
Link = deque[tuple["Host", list[Letter], Time]]
"""What is on its way from one host to another: to whom, what, since when."""


class Cores:
    """Processors that hosts share: whoever has something to do takes one that is free, or waits for one.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._free_at: list[Time] = [0] * count

    def free_at(self) -> Time:
        """When one of them is free."""
        return self._free_at[0]

    def take(self, until: Time) -> None:
        """Have that one."""
        heapq.heapreplace(self._free_at, until)


class Wire:
    """What lies between the hosts of a run.

    Args:
        kernel: of the run.
        delays_us: of which each frame draws one.
        broker_us: what the broker spends on a frame.
        cores: that hosts and broker share; None: each has its own.
    """

    def __init__(
        self, kernel: Kernel, delays_us: Sequence[Time], broker_us: float, cores: Cores | None, stream: Random
    ) -> None:
        self.cores = cores
        self.count = 0
        self._kernel = kernel
        self._delays_us = delays_us
        self._broker_us = round(broker_us)
        self._stream = stream
        self._links: dict[tuple[Host, Host], Link] = {}

    def carry(self, sender: Host, receiver: Host, letters: list[Letter]) -> None:
        """Send a frame, now; frames of a link arrive in the order of sending."""
        now = self._kernel.now
        delay_us = self._delays_us[int(self._stream.random() * len(self._delays_us))]
        half_us = max(0, delay_us - self._broker_us) // 2
        link = self._links.setdefault((sender, receiver), deque())
        link.append((receiver, letters, now))
        self._kernel.schedule(now + half_us, self._through, link, delay_us - half_us)

    def _through(self, link: Link, rest_us: Time, now: Time) -> None:
        """The broker has it as soon as there is a core for it."""
        if self.cores is not None:
            free = self.cores.free_at()
            if free > now:
                self._kernel.schedule(free, self._through, link, rest_us)
                return
            self.cores.take(now + self._broker_us)
        self._kernel.schedule(now + rest_us, self._arrive, link, None)

    def _arrive(self, link: Link, _: None, now: Time) -> None:
        receiver, letters, left_us = link.popleft()
        self.count += sum(letter is not None for letter in letters)
        receiver.read(letters, now - left_us)
