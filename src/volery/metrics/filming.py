"""A camera on a deployment's components: who said what to whom, where tasks wait, what schedulers believe.

It sees what components see and changes nothing: each becomes an instance of a subclass that tells the camera before and
after it handles an event. Nothing is slower where nobody films. Behind reliable links the components within are
filmed: what they say to each other, not the frames that carry it.
"""

from __future__ import annotations

import inspect
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from volery.core.component import Component, role_of
from volery.core.events import Adopted, Counted, Fact, JobDone, PeerBack, PeerLost, TaskFinished
from volery.core.film import Belief, Filmed, Flight, Role
from volery.core.model import SUBMITTER, Address, JobId, Message, Task, TaskId, Time
from volery.metrics.columns import Longs
from volery.metrics.queues import Queues
from volery.metrics.timeline import HEAT_ROWS_MAX, LANES_MAX, group_starts

BINS: Final = 400
FLIGHTS_PER_KIND: Final = 3
"""Messages of a kind that are shown on their way in an interval; counts are of all of them."""
BELIEFS_MAX: Final = 40_000_000
"""Comparisons of a scheduler's belief about a machine with the truth, at most: fewer moments where there are more."""
OVERTAKEN_MAX: Final = 64
"""How far behind the first message of a link that is on its way a message may be that is handled."""
ATTEMPT_COLUMNS: Final = ("task", "job", "machine", "start_us", "finish_us", "attempt", "killed")


class _Lens:
    """A port that tells the camera of what goes out."""

    __slots__ = ("_camera", "_port", "address", "cancel_timer", "compute", "kill", "set_timer")
    # components may ask what kind of port they were given
    __class__ = property(lambda self: type(self._port))

    def __init__(self, camera: Camera, address: Address, port: Any) -> None:
        self._camera, self._port, self.address = camera, port, address
        self.set_timer, self.cancel_timer = port.set_timer, port.cancel_timer
        self.kill, self.compute = port.kill, port.compute

    def send(self, to: Address, message: Message) -> None:
        self._camera.sent(self.address, to, message)
        self._port.send(to, message)

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        self._camera.launched(self.address, task, attempt)
        self._port.launch(task, attempt, waited_us, note)

    def observe(self, fact: Fact) -> None:
        self._camera.observed(self.address, fact)
        self._port.observe(fact)

    def __getattr__(self, name: str) -> Any:
        """What else the port offers."""
        return getattr(self._port, name)


class Camera:
    """Films components from `watch` on.

    Args:
        begin_us, end_us: of the film; what is later belongs to its last interval.
        slots: per machine.
        machines: per node address, the machine that it stands on.

    Attributes:
        cells: per machine, the first of its group: the groups of a heat map, one machine each where there are few.
    """

    def __init__(self, begin_us: Time, end_us: Time, slots: Sequence[int], machines: Mapping[Address, int]) -> None:
        self._begin_us = begin_us
        self._step_us = max(1, -(-(end_us - begin_us) // BINS))
        self._bins = max(1, -(-(end_us - begin_us) // self._step_us))
        self._slots, self._machines = slots, machines
        self._free = list(slots)
        self.cells = group_starts(len(slots), len(slots) if sum(slots) <= LANES_MAX else HEAT_ROWS_MAX)
        self._now, self._bin = begin_us, 0
        self._components: dict[Address, Component] = {}
        self._addresses: dict[Address, int] = {}
        self._kinds: dict[str, list[int]] = {}
        self._numbers: dict[str, int] = {}
        self._told: list[str] = []
        self._shown: Counter[tuple[int, str]] = Counter()
        self._flights: list[Flight] = []
        self._flying: dict[tuple[Address, Address], deque[tuple[Time, Message, bool]]] = {}
        self._queues = Queues(self._bins)
        self._received: dict[str, list[int]] = {}
        self._facts: dict[str, list[int]] = {}
        self._moments: list[tuple[Time, str]] = []
        self._running: dict[tuple[TaskId, int], tuple[int, Time, JobId]] = {}
        self._attempts: list[tuple[int, ...]] = []
        self._beliefs: dict[Address, _Beliefs] = {}
        self._stride = 1

    def watch(self, components: Mapping[Address, Component], offset_us: Time = 0) -> None:
        """Film these components, which are not bound yet; a later one takes the place of an earlier of its address.

        Args:
            components: by address.
            offset_us: what their clock shows less than the film's.
        """
        for address, component in components.items():
            inner = component
            while (within := getattr(inner, "inner", None)) is not None:
                inner = within
            inner.__class__ = _filmed(type(inner), self, address, offset_us)
            if address in self._components and address in self._machines:
                self._fall(self._machines[address])
            self._components[address] = inner
        believers = sum(one.believed_free() is not None for one in self._components.values())
        self._stride = max(1, -(-believers * len(self._slots) * self._bins // BELIEFS_MAX))

    def turn(self, now: Time) -> None:
        """The film's clock moves on; intervals that are over are closed."""
        if now <= self._now:
            return
        self._now = now
        at = self._at(now)
        while self._bin < at:
            self._close()
            self._bin += 1
            self._queues.begin(self._bin)

    def _at(self, now: Time) -> int:
        return min(self._bins - 1, max(0, (now - self._begin_us) // self._step_us))

    def _close(self) -> None:
        if self._bin % self._stride:
            return
        end_us = self._begin_us + (self._bin + 1) * self._step_us
        for address, component in self._components.items():
            found = component.believed_free()
            if found is not None:
                kept = self._beliefs.get(address)
                if kept is None:
                    kept = self._beliefs[address] = _Beliefs()
                kept.note(self._bin, end_us, found, self._free, self.cells)

    def sent(self, sender: Address, receiver: Address, message: Message) -> None:
        """A message goes out."""
        name = type(message).__name__
        counts = self._kinds.get(name)
        if counts is None:
            counts = self._kinds[name] = [0] * self._bins
            self._numbers[name] = len(self._numbers)
            self._told.append((inspect.getdoc(type(message)) or "").partition("\n")[0])
        counts[self._bin] += 1
        if receiver == SUBMITTER:
            if isinstance(message, JobDone):
                self._queues.forget(message.job)
            return
        shown = self._shown[self._bin, name] < FLIGHTS_PER_KIND
        self._shown[self._bin, name] += shown
        self._flying.setdefault((sender, receiver), deque()).append((self._now, message, shown))

    def handled(self, address: Address, source: Address, event: Any) -> None:
        """A component is about to handle an event."""
        if isinstance(event, Message):
            received = self._received.get(role := role_of(address))
            if received is None:
                received = self._received[role] = [0] * self._bins
            received[self._bin] += 1
            self._land(source, address, event)
            self._queues.told(address, event)
            beliefs = self._beliefs.setdefault(address, _Beliefs()) if role_of(source) != SUBMITTER else None
            if beliefs is not None:
                beliefs.heard_us[source] = self._now
        elif isinstance(event, TaskFinished):
            self._ended(event)
        elif isinstance(event, Adopted):
            self.launched(address, event.task, event.attempt)
        elif isinstance(event, PeerLost | PeerBack):
            self._moments.append((self._now, f"{event.peer} {'is lost' if isinstance(event, PeerLost) else 'is back'}"))

    def _land(self, sender: Address, receiver: Address, message: Message) -> None:
        flying = self._flying.get((sender, receiver))
        if not flying:
            return
        for place in range(min(len(flying), OVERTAKEN_MAX)):
            sent_us, one, shown = flying[place]
            if one is message or one == message:
                del flying[place]
                if shown:
                    begin = self._begin_us
                    numbers = (self._number(sender), self._number(receiver), self._numbers[type(message).__name__])
                    self._flights.append(Flight(sent_us - begin, self._now - begin, *numbers))
                return
        if len(flying) > OVERTAKEN_MAX:
            flying.popleft()  # it was lost

    def _number(self, address: Address) -> int:
        return self._addresses.setdefault(address, len(self._addresses))

    def launched(self, address: Address, task: Task, attempt: int) -> None:
        """A task starts."""
        machine = self._machines[address]
        if (task.id, attempt) not in self._running:
            self._running[task.id, attempt] = machine, self._now, task.job
            self._free[machine] -= 1
            self._queues.started(task.id)

    def _ended(self, event: TaskFinished) -> None:
        found = self._running.pop((event.task.id, event.attempt), None)
        if found is None:
            return
        machine, start_us, job = found
        self._free[machine] += 1
        lost = event.outcome != "finished"
        self._attempts.append((event.task.id, job, machine, start_us, self._now, event.attempt, int(lost)))
        if lost:
            self._queues.lost(event.task.id)

    def _fall(self, machine: int) -> None:
        """A node begins anew: what ran there has ended, unless it is adopted."""
        for (task, attempt), (at, start_us, job) in list(self._running.items()):
            if at == machine:
                del self._running[task, attempt]
                self._attempts.append((task, job, machine, start_us, self._now, attempt, 1))
                self._free[machine] += 1
                self._queues.lost(task)

    def observed(self, address: Address, fact: Fact) -> None:
        """A component reports a fact."""
        if isinstance(fact, Counted) and fact.amount and ("inconsisten" in fact.name or "conflict" in fact.name):
            counts = self._facts.get(fact.name)
            if counts is None:
                counts = self._facts[fact.name] = [0] * self._bins
                self._moments.append((self._now, f"first of the {fact.name.replace('_', ' ')}, at {address}"))
            counts[self._bin] += fact.amount

    def happened(self, now: Time, what: str) -> None:
        """Something that is no event of a component."""
        self._moments.append((now, what))

    def filmed(self) -> Filmed:
        """What it has seen."""
        self._close()
        running = [
            (task, job, machine, start_us, self._now, attempt, 0)
            for (task, attempt), (machine, start_us, job) in self._running.items()
        ]
        attempts = [*self._attempts, *running]
        columns = {name: [row[place] for row in attempts] for place, name in enumerate(ATTEMPT_COLUMNS)}
        roles = self._roles()
        for role in roles:
            most = max(role.waiting)
            if most > 1:
                at = self._begin_us + role.waiting.index(most) * self._step_us
                self._moments.append((at, f"longest queue of role {role.name}: {most:,} tasks"))
        return Filmed(
            self._begin_us,
            self._step_us,
            list(self._addresses),
            list(self._numbers),
            self._told,
            list(self._kinds.values()),
            self._flights,
            roles,
            [
                beliefs.kept(address, self._bins, {role_of(one) for one in self._machines})
                for address, beliefs in self._beliefs.items()
                if beliefs.moments
            ],
            self._facts,
            sorted(self._moments),
            columns,
        )

    def _roles(self) -> list[Role]:
        counts = Counter(map(role_of, self._components))
        nothing = [0] * self._bins
        return [
            Role(role, count, *self._queues.of(role), self._received.get(role, nothing))
            for role, count in sorted(counts.items(), key=lambda found: found[1])
        ]


class _Beliefs:
    """Of one component; what it has heard is kept of all, what it believes of those that believe anything."""

    def __init__(self) -> None:
        self.heard_us: dict[Address, Time] = {}
        self.moments: list[tuple[int, Time, dict[Address, Time], list[tuple[int, int, int]]]] = []

    def note(self, at: int, now: Time, believed: Mapping[int, int], free: Sequence[int], cells: Longs) -> None:
        """What it believes at the end of an interval, against what is."""
        differs = -np.array(free, dtype=np.int64)
        differs[np.fromiter(believed, np.int64, len(believed))] += np.fromiter(believed.values(), np.int64)
        over, under = (np.bincount(cells, weights=np.maximum(way * differs, 0)) for way in (1, -1))
        places = np.flatnonzero(over + under)
        columns = (places.tolist(), over[places].astype(int).tolist(), under[places].astype(int).tolist())
        self.moments.append((at, now, dict(self.heard_us), list(zip(*columns, strict=True))))

    def kept(self, by: Address, bins: int, nodes: set[str]) -> Belief:
        """Intervals at which nothing was noted repeat the one before."""
        found = [self.moments[0]] * bins
        for (at, now, heard, wrong), following in zip(self.moments, [*self.moments[1:], None], strict=True):
            for place in range(at, bins if following is None else following[0]):
                found[place] = (at, now, heard, wrong)
        of = sorted(one for one in self.heard_us if role_of(one) not in nodes)
        age_us = [[now - heard[one] if one in heard else -1 for _, now, heard, _ in found] for one in of]
        free, taken = ([sum(one[place] for one in wrong) for *_, wrong in found] for place in (1, 2))
        return Belief(by, of, age_us, free, taken, [wrong for *_, wrong in found])


def _filmed(plain: type[Component], camera: Camera, address: Address, offset_us: Time) -> type[Component]:
    """A class that does what the plain one does, and tells the camera."""

    def bind(self: Component, port: Any) -> None:
        plain.bind(self, _Lens(camera, address, port))

    def start(self: Component, now: Time) -> None:
        camera.turn(now + offset_us)
        plain.start(self, now)

    def handle(self: Component, event: Any, source: Address, now: Time) -> None:
        camera.turn(now + offset_us)
        camera.handled(address, source, event)
        plain.handle(self, event, source, now)

    return type(plain.__name__, (plain,), {"__slots__": (), "bind": bind, "start": start, "handle": handle})
