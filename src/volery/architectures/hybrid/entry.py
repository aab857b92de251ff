"""A reservation in a worker's queue."""

from __future__ import annotations

from volery.architectures.hybrid.messages import LongProbe, Probe
from volery.core.model import Time


class Entry:
    """A reservation in the queue; it replaces the probe, whose memory would be cold when it is served.

    Attributes:
        number, batch, needs, estimate_us: as in the probe.
        long: whether it is for a long task.
        came: when; for a sticky one, when it was last served.
        blocked_us: the worker's blocked time then.
        remaining_us: of the tasks of the batch that are not bound, as far as the worker knows.
        delayed_us: by how much later reservations have passed it.
        asking: whether a slot is kept for it at the moment.
    """

    __slots__ = (
        "asking", "batch", "blocked_us", "came", "delayed_us", "estimate_us", "long", "needs", "number", "remaining_us",
    )  # fmt: skip

    def __init__(self, probe: Probe | LongProbe, needs: int, long: bool, came: Time, blocked_us: Time) -> None:
        self.number = probe.number
        self.batch = probe.batch
        self.needs = needs
        self.estimate_us = probe.estimate_us
        self.long = long
        self.came = came
        self.blocked_us = blocked_us
        self.remaining_us = probe.remaining_us
        self.delayed_us = 0
        self.asking = False

    def probe(self) -> Probe:
        """The reservation of a short task as it is handed on."""
        return Probe(self.number, self.batch, self.estimate_us, self.remaining_us, self.needs)
