"""Phoenix's monitor: it finds the scarcest constraint, and orders crowded workers to let its tasks go first.

Thinakaran, Gunasekaran, Sharma, Kandemir, Das: Phoenix, ICDCS 2017, sections III and IV.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from volery.architectures.hybrid.messages import Crowded, Demanded, Reorder, Scarcity
from volery.architectures.hybrid.scarcity import ConstraintDemand, scarcity
from volery.core.component import Component, sent_to
from volery.core.events import Counted, Measured, TimerFired
from volery.core.model import Address, Time
from volery.core.port import Port

NONE = -1
"""No constraint is scarce."""
BEAT = "beat"
RECEIVED = "received"


class WatchSetting(msgspec.Struct, frozen=True):
    """The parameters of the monitor and of those who report to it.

    Args:
        monitor: address.
        heartbeat_us: reports are made at multiples of this time.
        supply: per constraint, how many workers satisfy it.
        threshold: reordering begins when the largest CRV is above it.
        wait_load: a queue is crowded when its estimated wait is above what it would be at this load.
        reorder_max: how many tasks of the scarcest constraint may pass one that has come before them.
        soft: the constraints that may be negotiated away.
    """

    monitor: Address
    heartbeat_us: Time
    supply: tuple[int, ...]
    threshold: float
    wait_load: float
    reorder_max: int
    soft: int


class DemandReport:
    """Reports the waiting tasks of one scheduler to the monitor, at a heartbeat and where they have changed.

    Args:
        setting: the parameters.

    Attributes:
        waiting: tasks, per constraint.
    """

    __slots__ = ("_armed", "_sent", "_setting", "waiting")

    def __init__(self, setting: WatchSetting) -> None:
        self._setting = setting
        self._sent = (0,) * len(setting.supply)
        self._armed = False
        self.waiting = ConstraintDemand(len(setting.supply))

    def arm(self, port: Port, now: Time) -> None:
        """Report at the next heartbeat."""
        if not self._armed:
            self._armed = True
            port.set_timer(BEAT, next_beat(now, self._setting.heartbeat_us))

    def send(self, port: Port) -> None:
        """Report a change at the heartbeat."""
        self._armed = False
        counts = tuple(self.waiting.counts)
        if counts != self._sent:
            self._sent = counts
            port.send(self._setting.monitor, Demanded(counts))


def next_beat(now: Time, heartbeat_us: Time) -> Time:
    """The next multiple of the period."""
    return (now // heartbeat_us + 1) * heartbeat_us


class Monitor(Component):
    """Compares demand and supply of constraints, and orders crowded workers to let the scarcest go first.

    Args:
        setting: shared with those who report.
        schedulers: addresses of those who negotiate by scarcity.
    """

    __slots__ = ("_crowded", "_demands", "_messages", "_schedulers", "_sent", "_setting")

    def __init__(self, setting: WatchSetting, schedulers: Sequence[Address]) -> None:
        self._setting = setting
        self._schedulers = schedulers if setting.soft else ()
        self._demands: dict[Address, tuple[int, ...]] = {}
        self._crowded: dict[Address, int] = {}
        self._sent: tuple[int, ...] = (0,) * len(setting.supply)
        self._messages = 0

    def on_demanded(self, message: Demanded, source: Address, now: Time) -> None:
        """Keep what waits there."""
        self._messages += 1
        self._demands[source] = message.counts
        self._port.set_timer(RECEIVED, now)

    def on_crowded(self, message: Crowded, source: Address, now: Time) -> None:
        """Keep whether tasks wait for long there."""
        self._messages += 1
        self._port.observe(Measured("estimated_wait_us", message.wait_us))
        if message.crowded:
            self._crowded.setdefault(source, NONE)
        elif self._crowded.pop(source, NONE) != NONE:
            self._send(source, Reorder(NONE))
        self._port.set_timer(RECEIVED, now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Order crowded workers by the scarcest constraint, after all reports of this instant."""
        ratios = scarcity(list(self._demands.values()), self._setting.supply)
        most = max(ratios, default=0.0)
        scarcest = ratios.index(most) if most > self._setting.threshold else NONE
        for worker, told in self._crowded.items():
            if told != scarcest:
                self._crowded[worker] = scarcest
                self._send(worker, Reorder(scarcest))
        thousandths = tuple([round(ratio * 1000) for ratio in ratios])
        if thousandths != self._sent:
            self._sent = thousandths
            for scheduler in self._schedulers:
                self._send(scheduler, Scarcity(thousandths))
        self._port.observe(Counted("monitor_messages", self._messages))
        self._port.observe(Measured("crowded_workers", len(self._crowded)))
        self._messages = 0

    def _send(self, to: Address, message: Reorder | Scarcity) -> None:
        self._messages += 1
        self._port.send(to, message)

    def check(self) -> None:
        """No worker is ordered to reorder by a constraint that does not exist."""
        width = len(self._setting.supply)
        assert all(NONE <= told < width for told in self._crowded.values()), "an order by an unknown constraint"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Demanded: on_demanded,
        Crowded: on_crowded,
        TimerFired: on_timer,
    }
    sends = sent_to("node", Reorder) | sent_to("scheduler", Scarcity)
