"""Orders of operators in the lab: machines taken out of use for a while, other weights of users.

The driver sends them to their receivers, as a live one does, and again to receivers that were restarted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from volery.core.capabilities import Draining, DueShares
from volery.core.component import Deployment
from volery.core.errors import InputError
from volery.core.events import Drain, Reweigh
from volery.core.model import NEVER, SUBMITTER, Address, Message, Time
from volery.sim.extension import Extension
from volery.sim.lab import Lab
from volery.sim.submitter import Submitter


class Drained(msgspec.Struct, frozen=True):
    """A drain of a machine: no task is placed there; running tasks go on.

    Args:
        machine: its number.
        at_us, until_us: of the drain; NEVER: for good.
    """

    machine: int
    at_us: Time = 0
    until_us: Time = NEVER


class Reweighed(msgspec.Struct, frozen=True):
    """A new weight of a user, or an organisation, in the tree of shares."""

    name: str
    weight: int
    at_us: Time = 0


class Orders(Extension):
    """Sends drains and weights.

    Args:
        lab, submitter, deployment: of the run.
        drains, reweighs: the orders.

    Raises:
        InputError: the design cannot do that, there is no such machine, or no user has that name.
    """

    def __init__(
        self,
        lab: Lab,
        submitter: Submitter,
        deployment: Deployment,
        drains: Sequence[Drained],
        reweighs: Sequence[Reweighed],
    ) -> None:
        self._lab = lab
        self._submitter = submitter
        self._in_force: dict[object, tuple[Message, tuple[Address, ...]]] = {}
        self._orders: list[tuple[Time, object, tuple[Message, tuple[Address, ...]], bool]] = []
        self._plan_drains(deployment, drains)
        self._plan_weights(deployment, reweighs)

    def _plan_drains(self, deployment: Deployment, drains: Sequence[Drained]) -> None:
        draining = deployment.capability(Draining)
        node_on = {machine: address for address, machine in deployment.machines.items()} if drains else {}
        for drained in drains:
            if draining is None:
                raise InputError("drains", "this design cannot drain nodes; of those in the registry, Megha can")
            if drained.machine not in node_on:
                raise InputError("drains", f"there is no machine {drained.machine}; they count from 0")
            node = node_on[drained.machine]
            masters = draining.owners_of(node)
            self._orders.append((drained.at_us, node, (Drain(node, True), masters), True))
            if drained.until_us != NEVER:
                self._orders.append((drained.until_us, node, (Drain(node, False), masters), False))

    def _plan_weights(self, deployment: Deployment, reweighs: Sequence[Reweighed]) -> None:
        weights: dict[str, int] = {}
        shares = deployment.capability(DueShares)
        for number, change in enumerate(sorted(reweighs, key=lambda change: change.at_us), 1):
            if shares is None or shares.under is None:
                problem = "this design has no weights that change while it runs; Megha has, with shares"
                raise InputError("reweighs", problem)
            weights[change.name] = change.weight
            shares.under(weights)
            message = Reweigh(number, tuple(weights.items()))
            self._orders.append((change.at_us, Reweigh, (message, shares.weight_subscribers), True))

    def begin(self) -> None:
        """Put all orders into the calendar."""
        for at_us, key, order, lasts in self._orders:
            self._lab.schedule(at_us, self._give, (key, order), lasts)

    def _give(self, what: tuple[object, tuple[Message, tuple[Address, ...]]], lasts: bool, _now: Time) -> None:
        key, (message, concerned) = what
        if lasts:
            self._in_force[key] = message, concerned
        else:
            self._in_force.pop(key, None)
        for address in concerned:
            self._send(address, message)

    def repeat(self, address: Address) -> None:
        """Send a component that was restarted the orders in force."""
        for message, concerned in self._in_force.values():
            if address in concerned:
                self._send(address, message)

    def _send(self, to: Address, message: Message) -> None:
        lane, receiver, handlers = self._lab.routes_of(SUBMITTER).to(to)
        lane.sent.append((receiver, handlers, message, SUBMITTER))
        self._submitter.message_count += 1
