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
from volery.sim.execution import Extension
from volery.sim.lab import Lab
from volery.sim.submitter import Submitter


class Drained(msgspec.Struct, frozen=True):
    """A drain of a machine: no task is placed there; running tasks go on.

    Args:
        machine: Number of the machine.
        at_us, until_us: Begin and end of the drain; NEVER: for good.
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
        lab, submitter, deployment: Shared state, submitter and deployment of the run.
        drains, reweighs: Orders to send.

    Raises:
        InputError: The design cannot do that, there is no such machine, or no user has that name.
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
            owners = draining.owners_of(node)
            self._orders.append((drained.at_us, node, (Drain(node, True), owners), True))
            if drained.until_us != NEVER:
                self._orders.append((drained.until_us, node, (Drain(node, False), owners), False))

    def _plan_weights(self, deployment: Deployment, reweighs: Sequence[Reweighed]) -> None:
        weights: dict[str, int] = {}
        shares = deployment.capability(DueShares)
        for number, change in enumerate(sorted(reweighs, key=lambda change: change.at_us), 1):
            if shares is None or shares.under is None:
                problem = "this design has no weights that change while it runs; Megha has, with shares"
                raise InputError("reweighs", problem)

            # Each order carries all weights set so far, so that a restarted receiver needs only the last one.
            weights[change.name] = change.weight
            shares.under(weights)
            message = Reweigh(number, tuple(weights.items()))
            self._orders.append((change.at_us, Reweigh, (message, shares.weight_subscribers), True))

    def begin(self) -> None:
        """Put all orders into the calendar."""
        for at_us, key, order, is_lasting in self._orders:
            self._lab.schedule(at_us, self._send_order, (key, order), is_lasting)

    def _send_order(
        self, keyed_order: tuple[object, tuple[Message, tuple[Address, ...]]], is_lasting: bool, _now: Time
    ) -> None:
        key, (message, receivers) = keyed_order

        if is_lasting:
            self._in_force[key] = message, receivers
        else:
            self._in_force.pop(key, None)

        for address in receivers:
            self._send(address, message)

    def repeat(self, address: Address) -> None:
        """Send a component that was restarted the orders in force."""
        for message, receivers in self._in_force.values():
            if address in receivers:
                self._send(address, message)

    def _send(self, to: Address, message: Message) -> None:
        lane, receiver, handlers = self._lab.routes_of(SUBMITTER).to(to)
        lane.sent.append((receiver, handlers, message, SUBMITTER))
        self._submitter.message_count += 1
