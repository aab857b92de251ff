"""The global policy generator: it looks at all loads now and then, and sets policies out of band; it places nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from volery.architectures.hydra.layout import STORE
from volery.architectures.hydra.messages import Guarantee, News, Policy, Read, Standing
from volery.architectures.hydra.policies import WHOLE, guarantees, load_weights
from volery.core.component import Component, sent_to
from volery.core.events import TimerFired
from volery.core.model import Address, Time

Generating = Literal["off", "weights", "queues", "both"]
LOOK: Final = "look"


class PolicyGenerator(Component):
    """Sets weights of sub-clusters by their waiting applications, and guaranteed capacities of queues by demand.

    Args:
        generating: which of the two.
        period_us: from one look to the next; none where nothing has changed.
        low, high: waiting applications between which a weight falls from 1 to 0.
        queues: weights of queues; None: there are none.
        incarnation: of this component.
    """

    def __init__(
        self,
        generating: Generating,
        period_us: Time,
        low: int,
        high: int,
        queues: Mapping[str, int] | None,
        incarnation: int,
    ) -> None:
        self._weighs = generating in ("weights", "both")
        self._guarantees = generating in ("queues", "both") and queues is not None
        self._period_us = period_us
        self._low, self._high = low, high
        self._queues = queues or {}
        self._incarnation = incarnation
        self._looking = False

    def start(self, now: Time) -> None:
        """After a restart: look at once; the policies of before hold meanwhile."""
        if self._incarnation:
            self._port.send(STORE, Read())

    def on_news(self, message: News, source: Address, now: Time) -> None:
        """Look when the period is over."""
        if not self._looking and (self._weighs or self._guarantees):
            self._looking = True
            self._port.set_timer(LOOK, (now // self._period_us + 1) * self._period_us)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        self._looking = False
        self._port.send(STORE, Read())

    def on_standing(self, message: Standing, source: Address, now: Time) -> None:
        loads = message.loads
        weights = [WHOLE] * len(loads)
        if self._weighs:
            weights = load_weights([load.applications for load in loads], self._low, self._high)
        found: tuple[Guarantee, ...] = ()
        if self._guarantees:
            demand: dict[str, list[int]] = {}
            for sub, load in enumerate(loads):
                if message.active[sub]:
                    for queue, used, wanted in zip(load.queues, load.used, load.wanted, strict=True):
                        demand.setdefault(queue, [0] * len(loads))[sub] = used + wanted
            slots = [load.slots if active else 0 for load, active in zip(loads, message.active, strict=True)]
            dealt = guarantees(dict(sorted(demand.items())), self._queues, slots)
            found = tuple([Guarantee(queue, laid) for queue, laid in dealt.items()])
        self._port.send(STORE, Policy(tuple(weights), found))

    receives = {News: on_news, Standing: on_standing, TimerFired: on_timer}  # noqa: RUF012 - replaced by the base
    sends = sent_to("store", Read, Policy)
