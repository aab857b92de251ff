"""The tracer of a deployment's components: messages, tasks that wait, attempts, and errors of schedulers' views.

It changes nothing: each component becomes an instance of a subclass that reports its events to the tracer. Runs without
a tracer cost nothing. Behind reliable channels the inner components are traced, with their messages and not the frames.
"""

from __future__ import annotations

import inspect
import itertools
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from volery.core.capabilities import CrashRecovery
from volery.core.component import Component, Deployment, role_of
from volery.core.events import Adopted, Counted, Fact, JobDone, PeerBack, PeerLost, TaskFinished
from volery.core.model import SUBMITTER, Address, JobId, Message, Task, TaskId, Time
from volery.core.port import ForwardingPort
from volery.metrics.arrays import Longs
from volery.metrics.timeline import HEAT_ROWS_MAX, LANES_MAX, group_starts
from volery.playback.captions import Captions
from volery.playback.run_log import (
    FAILED,
    FINISHED,
    KILLED,
    RUNNING,
    Flight,
    Queues,
    RoleCounts,
    RunLog,
    ViewErrors,
    WorkLog,
)

BINS: Final = 400
FLIGHTS_PER_KIND: Final = 3
"""Messages of a kind that are shown on their way in an interval; counts are of all of them."""
COMPARISONS_MAX: Final = 40_000_000
"""Comparisons of a scheduler's view of a machine with the truth, at most: fewer moments where there are more."""
OVERTAKEN_MAX: Final = 64
"""The largest number of messages of a link that a message may overtake on its way."""


class _TracedPort(ForwardingPort):
    """A port that reports messages, launches and facts to the tracer."""

    __slots__ = ("_tracer",)

    def __init__(self, tracer: Tracer, port: Any) -> None:
        super().__init__(port)
        self._tracer = tracer

    def send(self, to: Address, message: Message) -> None:
        self._tracer.sent(self.address, to, message)
        self.inner.send(to, message)

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        self._tracer.launched(self.address, task, attempt)
        self.inner.launch(task, attempt, waited_us, note)

    def observe(self, fact: Fact) -> None:
        self._tracer.observed(self.address, fact)
        self.inner.observe(fact)

    def __getattr__(self, name: str) -> Any:
        """Further attributes of the port."""
        return getattr(self.inner, name)


class ViewErrorLog:
    """Collects the errors of a component's view."""

    def __init__(self) -> None:
        self.moments: list[tuple[int, list[tuple[int, int, int]]]] = []

    def note(self, at: int, view: Mapping[int, int], free: Sequence[int], cells: Longs) -> None:
        """Compare the view with the free slots, at the end of an interval."""
        differs = -np.array(free, dtype=np.int64)
        differs[np.fromiter(view, np.int64, len(view))] += np.fromiter(view.values(), np.int64)
        over, under = (np.bincount(cells, weights=np.maximum(way * differs, 0)) for way in (1, -1))
        places = np.flatnonzero(over + under)
        columns = (places.tolist(), over[places].astype(int).tolist(), under[places].astype(int).tolist())
        self.moments.append((at, list(zip(*columns, strict=True))))

    def errors(self, by: Address, bins: int) -> ViewErrors:
        """The errors per interval; an interval without a comparison repeats the one before."""
        errors = [self.moments[0][1]] * bins
        for (at, wrong), (following, _) in itertools.pairwise([*self.moments, (bins, [])]):
            errors[at:following] = [wrong] * (following - at)
        free, taken = ([sum(group[place] for group in wrong) for wrong in errors] for place in (1, 2))
        return ViewErrors(by, free, taken, errors)


class Tracer:
    """Records the events and effects of components, from `watch` on.

    Args:
        begin_us, end_us: bounds of the recording. Earlier events are followed and not shown; later ones are at its end.
        machines: node address -> machine.
        captions: see `Architecture.captions`.
        crashes: time and component of each crash, where they are known beforehand.
        part: the recording ends before the run does; later events are not followed.

    Attributes:
        cells: per machine, the first of its group: the groups of a heat map, one machine each where there are few.
    """

    def __init__(
        self,
        begin_us: Time,
        end_us: Time,
        slots: Sequence[int],
        machines: Mapping[Address, int],
        captions: Mapping[str, str] = {},
        crashes: Sequence[tuple[Time, Address]] = (),
        part: bool = False,
    ) -> None:
        self._begin_us, self._end_us = begin_us, end_us
        self._step_us = max(1, -(-(end_us - begin_us) // BINS))
        self._bins = max(1, -(-(end_us - begin_us) // self._step_us))
        self._slots, self._machines = slots, machines
        self._free = list(slots)
        self.cells = group_starts(len(slots), len(slots) if sum(slots) <= LANES_MAX else HEAT_ROWS_MAX)

        self._now, self._bin = 0, 0
        self._components: dict[Address, Component] = {}
        self._addresses: dict[Address, int] = {}
        self._kinds: dict[str, list[int]] = {}
        self._numbers: dict[str, int] = {}
        self._meanings: list[str] = []
        self._flight_counts: Counter[tuple[int, str]] = Counter()
        self._flights: list[Flight] = []
        self._in_flight: dict[tuple[Address, Address], deque[tuple[Time, Message, bool]]] = {}

        self._queues = Queues(self._bins)
        self._facts: dict[str, list[int]] = {}
        self._work = WorkLog()
        self._captions = Captions(captions, self._work.where)
        self._crashes = sorted(crashes, reverse=True)

        self._crashed_addresses: set[Address] = set()
        self._is_part = part
        self._is_recording = begin_us <= 0
        self._is_over = False
        self._running: dict[tuple[TaskId, int], tuple[int, Time, JobId]] = {}
        self._views: dict[Address, ViewErrorLog] = {}
        self._stride = 1

    def watch(self, components: Mapping[Address, Component], offset_us: Time = 0) -> None:
        """Trace these components, which are not bound yet; a later one replaces an earlier one of its address.

        Args:
            offset_us: time of the recording minus time of their clock.
        """
        for address, component in components.items():
            inner = component
            while (inner_component := getattr(inner, "inner", None)) is not None:
                inner = inner_component
            # The class changes, not the object: its port, its parts and its snapshots keep the component itself.
            inner.__class__ = _traced_class(type(inner), self, address, offset_us)

            # A node that is rebuilt without a crash that was seen has lost its tasks all the same.
            if address in self._components and address in self._machines and address not in self._crashed_addresses:
                self._end_all(self._machines[address])
            self._components[address] = inner

        views = sum(component_watched.believed_free() is not None for component_watched in self._components.values())
        self._stride = max(1, -(-views * len(self._slots) * self._bins // COMPARISONS_MAX))

    def on(self, deployment: Deployment) -> Deployment:
        """A deployment whose components are traced, in all their incarnations."""
        self.watch(deployment.components)
        recovery = deployment.capability(CrashRecovery)
        if recovery is None:
            return deployment

        rebuild = recovery.rebuild

        def rebuilt(address: Address, incarnation: int) -> Component:
            component = rebuild(address, incarnation)
            self.watch({address: component})
            return component

        return deployment.replaced(msgspec.structs.replace(recovery, rebuild=rebuilt))

    def turn(self, now: Time) -> None:
        """Advance the clock of the recording, and close the intervals that are over."""
        if now <= self._now:
            return
        while self._crashes and self._crashes[-1][0] <= now:
            at, address = self._crashes.pop()
            self._advance(at)
            self._crash(address)
        self._advance(now)

    def _advance(self, now: Time) -> None:
        if self._is_over:
            return

        if self._is_part and now > self._end_us:
            # The components go on, for the digest of the run; nothing is recorded any more.
            self._is_over = True
            self._is_recording = False
            now = self._end_us
        elif now >= self._begin_us and not self._is_recording:
            self._is_recording = True
            self._queues.begin(0)

        self._now = now

        at = self._at(now)
        while self._bin < at:
            self._close()
            self._bin += 1
            self._queues.begin(self._bin)

    def _crash(self, address: Address) -> None:
        if self._is_over:
            return

        running = 0
        if address in self._machines:
            running = sum(machine == self._machines[address] for machine, *_ in self._running.values())
            self._end_all(self._machines[address])

        self._crashed_addresses.add(address)
        self._work.crashed.append((self._now, address, True))

        lost_tasks = f", and {running:,} task{'s' if running != 1 else ''} that ran there with it" if running else ""
        self.happened(self._now, f"{address} crashes{lost_tasks}.")

    def begins(self, address: Address) -> None:
        if address in self._crashed_addresses:
            self._crashed_addresses.discard(address)
            self._work.crashed.append((self._now, address, False))
            self.happened(self._now, f"{address} is restarted with an empty state.")

    def _at(self, now: Time) -> int:
        return min(self._bins - 1, max(0, (now - self._begin_us) // self._step_us))

    def _close(self) -> None:
        # Comparisons cost time per machine: where there are many, intervals are left out.
        if self._bin % self._stride:
            return

        for address, component in self._components.items():
            believed_free = component.believed_free()
            if believed_free is not None:
                view = self._views.setdefault(address, ViewErrorLog())
                view.note(self._bin, believed_free, self._free, self.cells)

    def sent(self, sender: Address, receiver: Address, message: Message) -> None:
        if self._is_over:
            return

        if receiver == SUBMITTER and isinstance(message, JobDone):
            self._queues.forget(message.job)
            self._work.answered(message, self._now)

        if not self._is_recording:
            return

        self._captions.sent(self._now, sender, receiver, message)
        name = type(message).__name__
        counts = self._kinds.get(name)
        if counts is None:
            counts = self._kinds[name] = [0] * self._bins
            self._numbers[name] = len(self._numbers)
            self._meanings.append((inspect.getdoc(type(message)) or "").partition("\n")[0])
        counts[self._bin] += 1

        if receiver == SUBMITTER:
            return

        is_shown = self._flight_counts[self._bin, name] < FLIGHTS_PER_KIND
        self._flight_counts[self._bin, name] += is_shown
        # Messages that are not shown are followed, too: a later message must not be taken for them.
        self._in_flight.setdefault((sender, receiver), deque()).append((self._now, message, is_shown))

    def handled(self, address: Address, source: Address, event: Any) -> None:
        if self._is_over:
            return

        if isinstance(event, Message):
            if role_of(source) == SUBMITTER:
                self._work.received(event, self._now)
                if self._is_recording:
                    self._captions.sent(self._now, source, address, event)
            if self._is_recording:
                self._land(source, address, event)
            self._queues.received(address, event)
        elif isinstance(event, TaskFinished):
            self._ended(event)
        elif isinstance(event, Adopted):
            self.launched(address, event.task, event.attempt)
        elif isinstance(event, PeerLost | PeerBack):
            self._on_peer(address, event)

    def _on_peer(self, address: Address, event: PeerLost | PeerBack) -> None:
        if self._is_recording:
            lost, back = f"{event.peer} does not answer any more", f"{event.peer} answers again"
            change, earlier_change = (lost, back) if isinstance(event, PeerLost) else (back, lost)
            # A peer may be lost and come back many times: each change permits a caption of the other.
            self._captions.again(earlier_change)
            self._captions.once(self._now, change, f"{address} detects that {change}.")

    def _land(self, sender: Address, receiver: Address, message: Message) -> None:
        flying = self._in_flight.get((sender, receiver))
        if not flying:
            return

        # Links are mostly FIFO, so that the message is near the front; those before it were overtaken, or lost.
        for place in range(min(len(flying), OVERTAKEN_MAX)):
            sent_us, message_sent, is_shown = flying[place]
            if message_sent is message or message_sent == message:
                del flying[place]
                if is_shown:
                    begin = self._begin_us
                    numbers = (self._number(sender), self._number(receiver), self._numbers[type(message).__name__])
                    self._flights.append(Flight(sent_us - begin, self._now - begin, *numbers))
                return

        if len(flying) > OVERTAKEN_MAX:
            flying.popleft()  # it was lost

    def _number(self, address: Address) -> int:
        return self._addresses.setdefault(address, len(self._addresses))

    def launched(self, address: Address, task: Task, attempt: int) -> None:
        if self._is_over:
            return
        machine = self._machines[address]
        # An adopted attempt may run already in the tracer's account.
        if (task.id, attempt) not in self._running:
            self._running[task.id, attempt] = machine, self._now, task.job
            self._free[machine] -= 1
            self._queues.started(task.id)

    def _ended(self, event: TaskFinished) -> None:
        attempt = self._running.pop((event.task.id, event.attempt), None)
        if attempt is None:
            return
        machine, start_us, job = attempt

        self._free[machine] += 1
        outcome = {"finished": FINISHED, "failed": FAILED, "limit": FAILED}.get(event.outcome, KILLED)
        self._work.attempt(event.task.id, job, machine, start_us, self._now, event.attempt, outcome)

        if outcome != FINISHED:
            self._queues.lost(event.task.id)

    def _end_all(self, machine: int) -> None:
        """End all attempts on a machine whose node was restarted; adopted ones start again."""
        for (task, attempt), (at, start_us, job) in list(self._running.items()):
            if at == machine:
                del self._running[task, attempt]
                self._work.attempt(task, job, machine, start_us, self._now, attempt, KILLED)
                self._free[machine] += 1
                self._queues.lost(task)

    def observed(self, address: Address, fact: Fact) -> None:
        if self._is_over:
            return

        self._work.observed(address, fact, self._now)
        if not self._is_recording:
            return

        has_caption = self._captions.observed(self._now, address, fact)
        if isinstance(fact, Counted) and fact.amount and ("inconsisten" in fact.name or "conflict" in fact.name):
            counts = self._facts.get(fact.name)
            if counts is None:
                counts = self._facts[fact.name] = [0] * self._bins
                if not has_caption:
                    self.happened(self._now, f"First of the {fact.name.replace('_', ' ')}, at {address}.")
            counts[self._bin] += fact.amount

    def happened(self, now: Time, text: str) -> None:
        """Record a moment that is no event of a component."""
        if self._begin_us <= now and not self._is_over:
            self._captions.moments.append((now, text))

    def log(self) -> RunLog:
        self._close()

        for (task, attempt), (machine, start_us, job) in self._running.items():
            self._work.attempt(task, job, machine, start_us, self._now, attempt, RUNNING)

        role_sizes = Counter(map(role_of, self._components))
        roles = [RoleCounts(role, self._queues.of(role)) for role in sorted(role_sizes, key=role_sizes.__getitem__)]
        longest = max(roles, key=lambda role: max(role.waiting), default=None)
        if longest is not None and (queue_max := max(longest.waiting)) > 1:
            at = self._begin_us + longest.waiting.index(queue_max) * self._step_us
            self._captions.moments.append((at, f"The longest queue: {queue_max:,} tasks wait at {longest.name}."))

        return RunLog(
            self._begin_us,
            self._step_us,
            list(self._addresses),
            list(self._numbers),
            self._meanings,
            list(self._kinds.values()),
            self._flights,
            roles,
            [view.errors(address, self._bins) for address, view in self._views.items()],
            self._facts,
            sorted(self._captions.moments, key=lambda moment: moment[0]),
            end_us=self._end_us if self._is_part else max(self._now, self._end_us),
            **self._work.parts(),
        )


def _traced_class(
    component_class: type[Component], tracer: Tracer, address: Address, offset_us: Time
) -> type[Component]:
    """A subclass that reports its events and effects to the tracer."""

    def bind(self: Component, port: Any) -> None:
        component_class.bind(self, _TracedPort(tracer, port))

    def start(self: Component, now: Time) -> None:
        tracer.turn(now + offset_us)
        tracer.begins(address)
        component_class.start(self, now)

    def handle(self: Component, event: Any, source: Address, now: Time) -> None:
        tracer.turn(now + offset_us)
        tracer.handled(address, source, event)
        component_class.handle(self, event, source, now)

    return type(
        component_class.__name__, (component_class,), {"__slots__": (), "bind": bind, "start": start, "handle": handle}
    )
