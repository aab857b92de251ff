"""Extensions: optional features of a run, behind one interface."""

from __future__ import annotations

from collections.abc import Mapping

from volery.core.component import Component, role_of
from volery.core.events import Event
from volery.core.model import Address, Time
from volery.core.port import Port
from volery.core.records import PATH_SHIFT
from volery.sim.execution import LabPort
from volery.sim.lab import Door, Lab


class Extension:
    """A feature of one run: the kernel calls these methods, which do nothing unless the feature overrides them.

    A feature gets what it needs (`volery.sim.lab.Lab`, the submitter ..) by its constructor. Rules for launches are
    `volery.sim.execution.LaunchRule`.

    Attributes:
        may_lose_work: True if jobs need not end: then the kernel does not look for a stall.
    """

    may_lose_work = False

    def wrap_door(self, address: Address, component: Component, door: Door) -> Door:  # noqa: ARG002 - for overrides
        """The door of a component, for all its events; it is asked again when the component is replaced."""
        return door

    def wrap_inbox(self, address: Address, component: Component, inbox: Door, port: LabPort) -> Door:  # noqa: ARG002 - for overrides
        """The door for messages to an address, which the port's own events do not pass."""
        return inbox

    def wrap_port(self, port: Port) -> Port:
        """The port that a component gets."""
        return port

    def begin(self) -> None:
        """The components have started."""

    def close(self) -> None:
        """The run is quiet."""

    def check_rest(self) -> None:
        """Raise AssertionError if the run has left anything that it should not."""


class Checks(Extension):
    """Calls `check()` of a component after each of its events (tests)."""

    def wrap_door(self, address: Address, component: Component, door: Door) -> Door:  # noqa: ARG002 - an extension's signature
        """Pass events to `handle`, and check."""

        def checked(message: Event, source: Address, now: Time) -> None:
            component.handle(message, source, now)
            component.check()

        return Door.through(checked)


class MessageCosts(Extension):
    """Makes a role a server with a FIFO of its own, which takes some time per message.

    Args:
        lab: Shared state of the run.
        costs: Role -> processing cost per message in microseconds.
    """

    def __init__(self, lab: Lab, costs: Mapping[str, Time]) -> None:
        self._lab = lab
        self._costs = costs
        self._free_at: dict[Address, Time] = {}

    def wrap_inbox(self, address: Address, component: Component, inbox: Door, port: LabPort) -> Door:  # noqa: ARG002 - an extension's signature
        """Put the server before the component."""
        cost = self._costs.get(role_of(address), 0)
        if not cost:
            return inbox

        # Waiting in the queue counts as queueing, the service itself as processing on the message's path.
        service_path = cost << PATH_SHIFT

        def enqueue(message: Event, source: Address, now: Time) -> None:
            served_at = self._free_at[address] = max(now, self._free_at.get(address, 0)) + cost
            self._lab.schedule(served_at, self._serve, (inbox, message, source), self._lab.path + service_path)

        return Door.through(enqueue)

    def _serve(self, work: tuple[Door, Event, Address], path: int, now: Time) -> None:
        door, message, source = work
        self._lab.enter(path)
        door.deliver(message, source, now)
