"""The shared state of one run in the lab: clock, calendar, lanes and records.

Ports, the submitter and the features of a run hold a `Lab` and never the kernel, which plays what the calendar and the
lanes contain.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

import msgspec

from volery.core.component import Component, role_of
from volery.core.events import Event, TaskFinished
from volery.core.model import SUBMITTER, Address, Cluster, Message, TaskId, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.sim.network import Handlers, Lane, Network, Sent

FAR: Time = 1 << 62
"""Later than anything."""
UNCOUNTED = 1 << 62
"""Idle slots of a machine that offers amounts of resources instead of slots."""

Action = tuple[Callable[..., None], Any, Any]
"""A call with two arguments of its own and the time."""
Handle = Callable[[Event, Address, Time], None]
Copies = Callable[[Address, object], Sequence[Time]]
"""(sender, receiver) -> the extra delays of the copies of a message that arrive: () when it is lost."""


class Door(NamedTuple):
    """The receiver of one address's events: it spares the call of `handle`, unless a component overrides that.

    Args:
        owner: First argument of the handlers.
        handlers: Handlers by type of event.
    """

    owner: object
    handlers: Handlers

    def handler(self, event_type: type) -> Callable[..., None]:
        """The handler of an event of this type; one that raises where the component has none."""
        return self.handlers[event_type]

    def deliver(self, event: Event, source: Address, now: Time) -> None:
        """Pass one event to its handler."""
        self.handler(type(event))(self.owner, event, source, now)

    @staticmethod
    def of(component: Component) -> Door:
        """The door of a component."""
        if type(component).handle is Component.handle:
            return Door(component, component.receives)
        return Door.through(component.handle)

    @staticmethod
    def through(handle: Handle) -> Door:
        """A door that passes every event to one function."""
        return Door(handle, _Everything())


class _Everything(dict[type, Callable[..., None]]):
    """Handlers of a door that is a function."""

    def __missing__(self, key: type) -> Callable[..., None]:
        return _call


def _call(handle: Handle, event: Event, source: Address, now: Time) -> None:
    handle(event, source, now)


Route = tuple[Lane, object, Handlers]


class Routes:
    """The routes of a role's messages: lane and receiver's door, resolved once per receiver."""

    __slots__ = ("_resolve", "resolved")

    def __init__(self, resolve: Callable[[Address], Route]) -> None:
        self.resolved: dict[Address, Route] = {}
        self._resolve = resolve

    def to(self, address: Address) -> Route:
        """The route to a receiver."""
        route = self.resolved.get(address)
        if route is None:
            route = self.resolved[address] = self._resolve(address)
        return route


class Launcher(Protocol):
    """The interface of ports to the calendar: they take the ends of the attempts that they have launched.

    Attributes:
        idle: Count of idle slots of the machine.
        owner, finished: Component, and its handler of `TaskFinished`.
    """

    address: Address
    idle: int
    owner: object
    finished: Callable[..., None]


class Lab:
    """The shared state of one run.

    Args:
        trace, cluster, network: Workload, machines and delays of the run.
        seed: Seed of the run's own randomness.
        delays: Delays that the deployment declares, by roles of sender and receiver.
        keeps_progress: True if a task goes on where its last attempt has ended.
        copy_messages: True if each message is encoded and decoded.

    Attributes:
        now, path: Time and path of the event in hand; for the path see `volery.core.records.PATH_SHIFT`.
        left_us: Duration of each task's next attempt at the reference speed.
        slots: Slots of each machine; `UNCOUNTED` where machines offer amounts.
        times: Heap of the distinct times at which tasks finish or actions are due.
        finishes: Attempts by the time of their end.
        killed: Attempts in `finishes` that were killed before their end.
        actions: Calls by the time at which they are due.
        finished_count: Count of ends of attempts that were delivered.
        doors: Receivers of messages by address.
        free: Lane of the links without delay.
        delayed: Lanes of all other links, longest delay first.
        disperse: Gives each message of a lane its own delay; None: all have the lane's delay.
        network_stream: Random numbers of jitter, network faults and frames.
    """

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        network: Network,
        seed: int,
        *,
        delays: Mapping[tuple[str, str], Time],
        keeps_progress: bool,
        copy_messages: bool,
    ) -> None:
        self.trace = trace
        self.cluster = cluster
        self.network = network
        self.records = Records(trace)
        self.left_us = trace.duration_us[:] if keeps_progress else trace.duration_us
        self.slots: Sequence[int] = [UNCOUNTED] * len(cluster.slots) if cluster.resources else cluster.slots
        self.now: Time = 0
        self.path = 0

        self.times: list[Time] = []
        self.finishes: dict[Time, list[tuple[Launcher, TaskFinished]]] = {}
        self.killed: set[tuple[Address, TaskId, int]] = set()
        self.actions: dict[Time, list[Action]] = {}

        self.finished_count = 0
        self.streams = Streams(seed)
        self.network_stream = self.streams.of("network")

        self.doors: dict[Address, Door] = {}
        self.free = Lane(0)
        self.delayed: list[Lane] = []
        self.disperse: Callable[[Lane, list[Sent]], None] | None = None

        self._delays = delays
        self._copy_messages = copy_messages
        self._lane_of: dict[tuple[str, str], Lane] = {}
        self._routes: dict[str, Routes] = {}

    def schedule(self, at: Time, call: Callable[..., None], first: object, second: object) -> None:
        """Call `call(first, second, time)` at a time, not before the running handler has ended."""
        if at < self.now:
            at = self.now

        bucket = self.actions.get(at)
        if bucket is not None:
            bucket.append((call, first, second))
            return

        self.actions[at] = [(call, first, second)]
        # Nothing is pushed for the instant in play: the kernel looks for its actions itself.
        if at > self.now and at not in self.finishes:
            heapq.heappush(self.times, at)

    def enter(self, path: int) -> None:
        """Begin a phase whose events have this path; messages sent before keep the path of their phase."""
        if path != self.path:
            if self.free.sent:
                self.flush(self.free)
            for lane in self.delayed:
                if lane.sent:
                    self.flush(lane)
            self.path = path

    def flush(self, lane: Lane) -> None:
        """Send the messages of this phase on their way."""
        if self.disperse is None:
            lane.flush(self.now, self.path)
        else:
            lane.message_count += len(lane.sent)
            messages, lane.sent = lane.sent, []
            self.disperse(lane, messages)

    def deliver(self, batch: list[Sent], path: int, now: Time) -> None:
        """Call the receivers' handlers: the loop that all messages pass, so it makes no call of its own."""
        self.enter(path)
        if self._copy_messages:
            batch = [(receiver, table, copied(message), source) for receiver, table, message, source in batch]

        for receiver, handlers, message, source in batch:
            handlers[type(message)](receiver, message, source, now)

    def routes_of(self, role: str) -> Routes:
        """The routes of a role, shared by all its components."""
        if role not in self._routes:
            self._routes[role] = Routes(functools.partial(self._route, role))
        return self._routes[role]

    def _route(self, role: str, to: Address) -> Route:
        door = self.doors.get(to)
        if door is None:
            raise KeyError(f"a {role} sent to {to!r}, which is not an address of this deployment")

        link = (role, role_of(to))
        lane = self._lane_of.get(link)
        if lane is None:
            delay = 0 if SUBMITTER in link else self.network.delay(*link, self._delays)
            lanes = [self.free, *self.delayed]
            lane = next((candidate for candidate in lanes if candidate.delay_us == delay), None) or Lane(delay)
            self._lane_of[link] = lane
            if lane not in lanes:
                # A new list: the run may be iterating over the old one.
                self.delayed = sorted([*self.delayed, lane], key=_longest_delay_first)

        return lane, door.owner, door.handlers

    def is_busy(self) -> bool:
        """True if anything is left to happen but submissions."""
        return any(lane.batches or lane.sent for lane in [self.free, *self.delayed]) or bool(
            self.times or self.finishes
        )

    def pending_until(self) -> Time:
        """The time of the last of all that is pending now but submissions."""
        return max([self.now, *self.times, *(lane.batches[-1][0] for lane in self.delayed if lane.batches)])


def _longest_delay_first(lane: Lane) -> Time:
    return -lane.delay_us


class Dispersal:
    """Gives each message between components its own delay; jitter keeps a link FIFO, faults do not.

    Args:
        lab: Shared state of the run.
        submitter: Receiver of the messages to the submitter, which are neither lost nor late.
        copies: Extra delays of the copies of a message between components.
    """

    def __init__(self, lab: Lab, submitter: object, copies: Copies) -> None:
        self._lab = lab
        self._submitter = submitter
        self._copies = copies
        self._stream: Random = lab.network_stream
        self._last_due: dict[tuple[Address, object], Time] = {}

    def __call__(self, lane: Lane, messages: list[Sent]) -> None:
        """Schedule these messages of a lane, or deliver them with this instant's."""
        lab, stream = self._lab, self._stream
        now, path, jitter = lab.now, lab.path, lab.network.jitter_us
        immediate_messages = []

        for item in messages:
            if item[3] == SUBMITTER or item[0] == self._submitter:
                immediate_messages.append(item)
                continue

            link = (item[3], item[0])
            due = now + lane.delay_us
            due += int(stream.expovariate(1.0) * jitter) if jitter and lane.delay_us else 0

            # Jitter keeps the order of a link: no message is due before the last one sent on it. Delays by faults come
            # on top, and may overtake.
            due = self._last_due[link] = max(due, self._last_due.get(link, 0))
            for extra in self._copies(item[3], item[0]):
                if due + extra == now:
                    immediate_messages.append(item)
                else:
                    lab.schedule(due + extra, self._arrive, item, path + due + extra - now)

        if immediate_messages:
            lane.batches.append((now, path, immediate_messages))

    def _arrive(self, item: Sent, path: int, now: Time) -> None:
        self._lab.deliver([item], path, now)


def copied(message: Message) -> Message:
    """The message as it comes out of the codec at the other end."""
    copy: Message = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))
    return copy
