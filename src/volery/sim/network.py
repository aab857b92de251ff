"""The network model: what a hop costs, and the lanes on which messages travel.

All messages of one delay that are sent during one phase of an instant form one batch: one entry of the lane of that
delay, so that neither a time nor a sequence number is kept per message. A constant delay keeps every link FIFO by
itself; jitter and faults go through the calendar and keep each link FIFO by its last due time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Annotated

import msgspec

from volery.core.errors import InputError
from volery.core.model import Address, Message, Time

HOP_US = 500
"""The published simulators' one-way delay: 0.5 ms (Pigeon, Eagle, Phoenix, Megha)."""

Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]
Moment = Annotated[int, msgspec.Meta(ge=0)]

Handlers = Mapping[type, Callable[..., None]]
Sent = tuple[object, Handlers, Message, Address]
"""Receiver, its table of handlers, message, sender."""


class Network(msgspec.Struct, frozen=True):
    """Delays of hops.

    Args:
        delay_us: One-way delay of links without another one.
        overrides: (Sender's role, receiver's role) -> delay; stronger than what the design itself declares.
        jitter_us: Mean of an exponential extra delay per message; links stay FIFO. 0 = constant delays.
    """

    delay_us: Time = HOP_US
    overrides: Mapping[tuple[str, str], Time] = {}
    jitter_us: Time = 0

    def __post_init__(self) -> None:
        for place, value in (("network.delay_us", self.delay_us), ("network.jitter_us", self.jitter_us)):
            if value < 0:
                raise InputError(place, f"a delay cannot be negative, got {value}")
        for (sender, receiver), value in self.overrides.items():
            if value < 0:
                raise InputError(f"network.overrides.{sender}:{receiver}", f"a delay cannot be negative, got {value}")

    def delay(self, sender: str, receiver: str, declared: Mapping[tuple[str, str], Time]) -> Time:
        """The delay of a link class: the user's override, else what the design declares, else the default."""
        link = (sender, receiver)
        return self.overrides.get(link, declared.get(link, self.delay_us))


class MessageFaultRates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Faults of messages between components, each with its own probability.

    Args:
        drop: Probability that a message never arrives.
        repeat: Probability that it arrives twice, the second time after an extra delay.
        delay: Probability that it arrives late and may be overtaken.
        extra_us: Mean of the (exponential) extra delay.
    """

    drop: Probability = 0.0
    repeat: Probability = 0.0
    delay: Probability = 0.0
    extra_us: Moment = 20_000

    def copies(self, stream: Random, extras_us: Sequence[Time] = (0,)) -> Sequence[Time]:
        """The extra delays of the copies that arrive, on top of those of other faults: () when it is dropped."""
        if stream.random() < self.drop:
            return ()

        late_us = int(stream.expovariate(1.0) * self.extra_us) if stream.random() < self.delay else 0
        delays_us = [extra + late_us for extra in extras_us]

        # At least one microsecond after the first copy, so that the second is a message of its own in the calendar.
        if stream.random() < self.repeat:
            delays_us.append(delays_us[0] + 1 + int(stream.expovariate(1.0) * self.extra_us))
        return delays_us


class Lane:
    """All links of one delay: what this phase has sent, and earlier batches in order of their due time.

    A batch is (due time, path of its phase, messages); for the path see `volery.core.records.PATH_SHIFT`.
    """

    __slots__ = ("batches", "delay_us", "message_count", "sent")

    def __init__(self, delay_us: Time) -> None:
        self.delay_us = delay_us
        self.sent: list[Sent] = []
        self.batches: deque[tuple[Time, int, list[Sent]]] = deque()
        self.message_count = 0

    def flush(self, now: Time, path: int) -> None:
        """End a phase: its messages become a batch, due after this lane's delay."""
        self.message_count += len(self.sent)
        self.batches.append((now + self.delay_us, path, self.sent))
        self.sent = []
