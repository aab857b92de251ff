"""Machines that the lab takes out of use for a while: the driver tells whoever is in charge, as a live one does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from volery.core.component import Deployment
from volery.core.errors import InputError
from volery.core.events import Drain
from volery.core.model import NEVER, SUBMITTER, Address, Time

if TYPE_CHECKING:
    from volery.sim.kernel import Kernel


class Drained(msgspec.Struct, frozen=True):
    """Nothing is to be placed on a machine; what runs there goes on.

    Args:
        machine: its number.
        at_us: from then on.
        until_us: until then; NEVER: for good.
    """

    machine: int
    at_us: Time = 0
    until_us: Time = NEVER


class Draining:
    """Tells of drained machines, and again to components that have begun anew.

    Args:
        kernel: of the run.
        deployment: the run's.
        drains: what is drained when.

    Raises:
        InputError: the design cannot drain nodes, or there is no such machine.
    """

    def __init__(self, kernel: Kernel, deployment: Deployment, drains: Sequence[Drained]) -> None:
        self._kernel = kernel
        self._now_drained: dict[Address, tuple[Address, ...]] = {}
        self._tellings: list[tuple[Drained, Address, tuple[Address, ...]]] = []
        node_on = {machine: address for address, machine in deployment.machines.items()} if drains else {}
        for drained in drains:
            if deployment.in_charge is None:
                raise InputError("drains", "this design cannot drain nodes; of those in the registry, Megha can")
            if drained.machine not in node_on:
                raise InputError("drains", f"there is no machine {drained.machine}; they count from 0")
            node = node_on[drained.machine]
            self._tellings.append((drained, node, deployment.in_charge(node)))

    def begin(self) -> None:
        """Put everything into the kernel's calendar."""
        for drained, node, masters in self._tellings:
            self._kernel.schedule(drained.at_us, self._tell, (node, masters), True)
            if drained.until_us != NEVER:
                self._kernel.schedule(drained.until_us, self._tell, (node, masters), False)

    def _tell(self, which: tuple[Address, tuple[Address, ...]], drained: bool, _now: Time) -> None:
        node, masters = which
        if drained:
            self._now_drained[node] = masters
        else:
            self._now_drained.pop(node, None)
        for master in masters:
            self._send(master, Drain(node, drained))

    def repeat(self, address: Address) -> None:
        """Tell a component that has begun anew what is drained."""
        for node, masters in self._now_drained.items():
            if address in masters:
                self._send(address, Drain(node, drained=True))

    def _send(self, to: Address, message: Drain) -> None:
        lane, receiver, handlers = self._kernel.routes_of(SUBMITTER).to(to)
        lane.sent.append((receiver, handlers, message, SUBMITTER))
        self._kernel.submitter.message_count += 1
