"""Machines of the lab: the port through which a component acts, and what the driver enforces and writes down.

True durations are known here and nowhere else. A launch is checked against the machine's slots and constraints, and a
task is never run twice: the driver refuses what a correct design never asks for.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from volery.core.component import Component, UnknownMessageError, unknown
from volery.core.events import Computed, Event, Fact, TaskFinished, TimerFired
from volery.core.model import Address, Key, Message, Task, TaskId, Time
from volery.core.trace import NEVER
from volery.sim.network import Handlers, Lane

if TYPE_CHECKING:
    from volery.core.port import Problem
    from volery.sim.kernel import Kernel

Handle = Callable[[Event, Address, Time], None]


class BrokenRule(AssertionError):  # noqa: N818 - it states what a design did, like AssertionError itself
    """A design asked for what must never happen: a slot taken twice, a constraint ignored, a task run twice."""


class Door(NamedTuple):
    """Where events of one address go: what a component's `handle` does, without the call, unless it is overridden.

    Args:
        owner: first argument of the handlers.
        handlers: by type of event.
    """

    owner: object
    handlers: Handlers

    def deliver(self, event: Event, source: Address, now: Time) -> None:
        """Hand one event over."""
        try:
            handler = self.handlers[type(event)]
        except KeyError:
            raise UnknownMessageError(unknown(self.owner, event, source, now)) from None
        handler(self.owner, event, source, now)

    @staticmethod
    def of(component: Component) -> Door:
        """The door of a component."""
        if type(component).handle is Component.handle:
            return Door(component, component.receives)
        return Door.through(component.handle)

    @staticmethod
    def through(handle: Handle) -> Door:
        """A door that hands every event to one function."""
        return Door(handle, _Everything())


class _Everything(dict[type, Callable[..., None]]):
    """Handlers of a door that is a function."""

    def __missing__(self, key: type) -> Callable[..., None]:
        return _call


def _call(handle: Handle, event: Event, source: Address, now: Time) -> None:
    handle(event, source, now)


Route = tuple[Lane, object, Handlers]


class Routes:
    """Where a role's messages go: the lane and the receiver's door, resolved once per receiver."""

    __slots__ = ("_resolve", "known")

    def __init__(self, resolve: Callable[[Address], Route]) -> None:
        self.known: dict[Address, Route] = {}
        self._resolve = resolve

    def to(self, address: Address) -> Route:
        """The route to a receiver."""
        route = self.known.get(address)
        if route is None:
            route = self.known[address] = self._resolve(address)
        return route


class LabPort:
    """The lab's port: effects apply at once. A port that stands on a machine may launch."""

    __slots__ = (
        "_kernel",
        "_known_routes",
        "_routes",
        "_timers",
        "address",
        "door",
        "finished",
        "idle",
        "lacks",
        "machine",
        "owner",
    )

    def __init__(self, kernel: Kernel, address: Address, routes: Routes, door: Door) -> None:
        self._kernel = kernel
        self._routes = routes
        self._known_routes = routes.known
        self._timers: dict[Key, object] | None = None
        self.address = address
        self.door = door
        self.owner, self.finished = door.owner, door.handlers.get(TaskFinished, _call)
        self.machine = -1
        self.idle = 0
        self.lacks = 0

    def send(self, to: Address, message: Message) -> None:
        """Put the message on the lane of its link."""
        try:
            lane, receiver, handlers = self._known_routes[to]
        except KeyError:
            lane, receiver, handlers = self._routes.to(to)
        lane.sent.append((receiver, handlers, message, self.address, self._kernel.path))

    def launch(self, task: Task, attempt: int, waited_us: Time = 0) -> None:
        """Occupy a slot until the true duration has passed.

        Raises:
            BrokenRule: no idle slot, an unmet constraint, or an attempt that has been started before.
        """
        kernel = self._kernel
        number = task.id
        if self.idle <= 0 or task.constraints & self.lacks or kernel.start_us[number] != NEVER:
            kernel.account_relaunch(self, task, attempt)
        self.idle -= 1
        now = kernel.now
        kernel.start_us[number] = now
        kernel.worker[number] = self.machine
        kernel.paths[number] = kernel.path
        if waited_us:
            kernel.records.waited_us[number] = waited_us
        at = now + kernel.duration_us[number]
        bucket = kernel.finishes.get(at)
        if bucket is None:
            kernel.finishes[at] = [(self, TaskFinished(task, attempt))]
            heapq.heappush(kernel.times, at)
        else:
            bucket.append((self, TaskFinished(task, attempt)))

    def kill(self, task: TaskId, attempt: int) -> None:
        """End a running attempt now; TaskFinished with outcome "killed" follows in this instant."""
        self._kernel.kill(self, task, attempt)

    def set_timer(self, key: Key, at: Time) -> None:
        """Replace the key's timer."""
        if self._timers is None:
            self._timers = {}
        token = self._timers[key] = object()
        self._kernel.schedule(at, lambda now: self._fire(key, token, now))

    def cancel_timer(self, key: Key) -> None:
        """Forget the key's timer."""
        if self._timers is not None:
            self._timers.pop(key, None)

    def _fire(self, key: Key, token: object, now: Time) -> None:
        if self._timers is not None and self._timers.get(key) is token:
            del self._timers[key]
            self.door.deliver(TimerFired(key), self.address, now)

    def compute(self, key: Key, problem: Problem) -> None:
        """Solve inline; the answer arrives after the modelled decision time."""
        answer = Computed(key, problem.solve(problem.argument))
        kernel = self._kernel
        kernel.schedule(kernel.now + problem.decision_us, lambda now: self.door.deliver(answer, self.address, now))

    def observe(self, fact: Fact) -> None:
        """Add the fact to the records."""
        self._kernel.records.observe(fact)
