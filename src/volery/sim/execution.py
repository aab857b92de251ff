"""Machines of the lab: the port through which a component acts, and what the driver enforces and writes down.

True durations are known here and nowhere else. A launch is checked against the machine's slots and constraints, and a
task is never run twice: the driver refuses what a correct design never asks for.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from volery.core.component import Component, UnknownMessageError, unknown
from volery.core.events import REFUSALS, Computed, Counted, Event, Fact, TaskFinished, TimerFired
from volery.core.model import NEVER, Address, Cluster, Key, Message, Task, TaskId, Time
from volery.core.moments import Moments
from volery.core.records import with_processing
from volery.core.why import Decision
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

    def handler(self, event_type: type) -> Callable[..., None]:
        """What takes an event of this type; where nothing does, what refuses it."""
        return _handler(self.handlers, event_type)

    def deliver(self, event: Event, source: Address, now: Time) -> None:
        """Hand one event over."""
        self.handler(type(event))(self.owner, event, source, now)

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

    def __contains__(self, key: object) -> bool:
        return True


class _Nothing(dict[type, Callable[..., None]]):
    """Handlers of a component that is gone."""

    def __missing__(self, key: type) -> Callable[..., None]:
        return _unheeded


def _handler(handlers: Handlers, event_type: type) -> Callable[..., None]:
    try:
        return handlers[event_type]
    except KeyError:
        return _unheard


def _unheeded(owner: object, event: Event, source: Address, now: Time) -> None:
    """Nobody is there."""


def _call(handle: Handle, event: Event, source: Address, now: Time) -> None:
    handle(event, source, now)


def _unheard(owner: object, event: Event, source: Address, now: Time) -> None:
    raise UnknownMessageError(unknown(owner, event, source, now))


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
    """The lab's port: effects apply at once. A port that stands on a machine may launch.

    `send` and `launch`, the hottest calls of a run, are added by `port_class`.
    """

    __slots__ = ("_timers", "address", "finished", "handlers", "idle", "lacks", "machine", "owner")
    kernel: Kernel
    sure = False  # faults may lose messages

    def __init__(self, address: Address, door: Door) -> None:
        self.address = address
        self.owner, self.handlers = door
        self.finished = door.handler(TaskFinished)
        self.machine = -1
        self.idle = 0
        self.lacks = 0
        self._timers: dict[Key, TimerFired] | None = None

    def stand_on(self, machine: int, cluster: Cluster) -> None:
        """Take the place of a machine, which makes launches possible."""
        self.machine = machine
        self.idle = cluster.slots[machine]

    def at_rest(self, slots: Sequence[int]) -> bool:
        """Whether nothing runs here.

        Args:
            slots: per machine.
        """
        return self.machine < 0 or self.idle == slots[self.machine]

    def send(self, to: Address, message: Message) -> None:
        """Put the message on the lane of its link."""
        raise NotImplementedError

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Occupy a slot, or the resources asked for, until the true duration has passed.

        Raises:
            BrokenRule: no idle slot, too little of a resource, an unmet constraint, or an attempt that has been started
                before.
        """
        raise NotImplementedError

    def kill(self, task: TaskId, attempt: int) -> None:
        """End a running attempt now; TaskFinished with outcome "killed" follows in this instant."""
        self.kernel.attempts.kill(self, task, attempt)

    def set_timer(self, key: Key, at: Time) -> None:
        """Replace the key's timer."""
        if self._timers is None:
            self._timers = {}
        event = self._timers[key] = TimerFired(key)
        self.kernel.schedule(at, self._fire, event, None)

    def cancel_timer(self, key: Key) -> None:
        """Forget the key's timer."""
        if self._timers is not None:
            self._timers.pop(key, None)

    def _fire(self, event: TimerFired, _: None, now: Time) -> None:
        timers = self._timers
        if timers is not None and timers.get(event.key) is event:  # else it was cancelled or replaced
            del timers[event.key]
            self.deliver(event, None, now)

    def deliver(self, event: Event, _: None, now: Time) -> None:
        """Hand one of the driver's own events to the component (an action of the kernel's)."""
        _handler(self.handlers, type(event))(self.owner, event, self.address, now)

    def silence(self) -> None:
        """The component is gone: nothing that it has set going reaches anybody."""
        self._timers = None
        self.handlers = _Nothing()
        self.finished = _unheeded

    def compute(self, key: Key, problem: Problem) -> None:
        """Solve inline; the answer arrives after the modelled decision time, which counts as processing."""
        began = time.thread_time_ns()
        answer = Computed(key, problem.solve(problem.argument))
        self.kernel.records.compute_us.append((time.thread_time_ns() - began) // 1000)
        path = with_processing(self.kernel.path, problem.decision_us)
        self.kernel.schedule(self.kernel.now + problem.decision_us, self._answer, answer, path)

    def _answer(self, event: Computed, path: int, now: Time) -> None:
        self.kernel.enter(path)
        self.deliver(event, None, now)

    def observe(self, fact: Fact) -> None:
        """Add the fact to the records."""
        if isinstance(fact, Decision):
            self.kernel.records.decisions.note(self.kernel.now, self.address, fact)
            return
        self.kernel.records.observe(fact)
        if isinstance(fact, Counted) and fact.name in REFUSALS:
            self.kernel.records.moments.setdefault(fact.name, Moments()).note(self.kernel.now, fact.amount)


class Durations(Protocol):
    """How long attempts take."""

    def __getitem__(self, task: TaskId, /) -> Time:
        """The next one of a task, microseconds."""


def port_class(kernel: Kernel, routes: Routes, duration_us: Durations) -> type[LabPort]:
    """The ports of one role in one run.

    Their hot methods reach the run's tables as closure variables: fewer look-ups per call, and fewer fields in each of
    tens of thousands of ports.
    """
    records, times, finishes = kernel.records, kernel.times, kernel.finishes
    start_us, finish_us, worker, paths = records.start_us, records.finish_us, records.worker, records.path
    waits_us = records.waited_us
    known, resolve, push = routes.known, routes.to, heapq.heappush

    class RolePort(LabPort):
        __slots__ = ()

        def send(self, to: Address, message: Message) -> None:
            try:
                lane, receiver, handlers = known[to]
            except KeyError:
                lane, receiver, handlers = resolve(to)
            lane.sent.append((receiver, handlers, message, self.address))

        def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:  # noqa: ARG002 - nothing outlives its component here
            number = task.id
            if self.idle <= 0 or task.constraints & self.lacks or start_us[number] != NEVER or attempt:
                kernel.attempts.relaunched(self, task, attempt)
            self.idle -= 1
            start_us[number] = now = kernel.now
            worker[number] = self.machine
            paths[number] = kernel.path
            if waited_us:
                waits_us[number] = waited_us
            at = finish_us[number] = now + duration_us[number]
            bucket = finishes.get(at)
            if bucket is None:
                finishes[at] = [(self, TaskFinished(task, attempt))]
                push(times, at)
            else:
                bucket.append((self, TaskFinished(task, attempt)))

    RolePort.kernel = kernel
    RolePort.send.__doc__, RolePort.launch.__doc__ = LabPort.send.__doc__, LabPort.launch.__doc__
    return RolePort
