"""Hosts of the lab: several roles that share one processor and are served in turns, as live hosts serve them.

The model is that of `volery.core.costs`. Only a run that names hosts pays for it: their components get a port that
collects effects, as the live one does, and whatever is for them waits in their host's inbox.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from volery.core.component import Component, role_of
from volery.core.costs import EventCost, HostCosts, carried, entries_in, tasks_in
from volery.core.events import Event, Fact, TaskFinished, TimerFired
from volery.core.model import PATIENCE_US, SUBMITTER, Address, Key, Message, Task, TaskId, Time
from volery.core.records import PATH_SHIFT
from volery.sim.execution import Door, LabPort

if TYPE_CHECKING:
    from volery.core.port import Problem
    from volery.sim.frames import Letter, Wire
    from volery.sim.kernel import Kernel

Kind = tuple[str, str]
TURN: Kind = ("", "turn")
LAUNCH: Kind = ("", "launch")
MADE: Kind = ("", "made")
WRITTEN: Kind = ("", "written")
READ: Kind = ("", "read")


class HostedPort:
    """Collects what a component asks for; timers are the lab's own, and pass through the inbox when they are due."""

    def __init__(self, host: Host, port: LabPort) -> None:
        self.address = port.address
        self.sure = port.sure
        self.host = host
        self.port = port
        self.due: set[Key] = set()
        self._routes = host.kernel.routes_of(role_of(port.address))

    def send(self, to: Address, message: Message) -> None:
        """To a component of this host at once, to another when the turn has ended."""
        entry = self.host.entries.get(to)
        if entry is not None:
            self._routes.to(to)[0].message_count += 1
            self.host.take_in(entry, message, self.address, self.host.path)
            return
        self.host.made(message)
        wire = self.host.wire
        peer = self.host.kernel.host_at(to) if wire is not None else None
        if peer is not None:
            self.host.put(peer, (peer.entries[to], message, self.address, self.host.path), message.patient)
        else:
            self.host.hold(self.port.send, (to, message))

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """When the turn has ended, after the launches before it."""
        self.host.launches.append((self.port, (task, attempt, waited_us, note), self.host.path))
        self.host.wake()

    def kill(self, task: TaskId, attempt: int) -> None:
        """When the turn has ended."""
        self.host.hold(self.port.kill, (task, attempt))

    def compute(self, key: Key, problem: Problem) -> None:
        """When the turn has ended."""
        self.host.hold(self.port.compute, (key, problem))

    def set_timer(self, key: Key, at: Time) -> None:
        """Replace the key's timer, also one that waits in the inbox."""
        self.due.discard(key)
        self.port.set_timer(key, at)

    def cancel_timer(self, key: Key) -> None:
        """Forget the key's timer, also one that waits in the inbox."""
        self.due.discard(key)
        self.port.cancel_timer(key)

    def observe(self, fact: Fact) -> None:
        """Add the fact to the records."""
        self.port.observe(fact)


class Entry:
    """The way into one component of a host: what the lab calls, and what the host calls in a turn."""

    __slots__ = ("door", "host", "port", "role")

    def __init__(self, host: Host, role: str, door: Door) -> None:
        self.host = host
        self.role = role
        self.door = door
        self.port: HostedPort | None = None

    def __call__(self, event: Event, source: Address, _now: Time) -> None:
        """Put an event into the inbox."""
        if type(event) is TimerFired:
            assert self.port is not None
            self.port.due.add(event.key)
        self.host.take_in(self, event, source, self.host.kernel.path)


class Counter:
    """The submitter on a host of its own: what it sends is a turn there, and so is what it hears.

    Args:
        host: of the submitter.
        hear: takes what it hears.
    """

    def __init__(self, host: Host, hear: Callable[[Event, Address, Time], None]) -> None:
        self.host = host
        self._hear = hear
        self._sending: deque[tuple[Host, Entry, Message]] = deque()
        self.entry = host.entry(SUBMITTER, Door.through(self._handle))

    def send(self, to: Address, message: Message) -> None:
        """Have the host send a message to a component in its next turn."""
        peer = self.host.kernel.host_at(to)
        assert peer is not None, "who stands on no host is sent to without one"
        if peer is self.host:
            self.host.take_in(peer.entries[to], message, SUBMITTER, 0)
            return
        self._sending.append((peer, peer.entries[to], message))
        self.host.take_in(self.entry, message, SUBMITTER, 0)

    def _handle(self, event: Event, source: Address, now: Time) -> None:
        if source != SUBMITTER:
            self._hear(event, source, now)
            return
        peer, entry, message = self._sending.popleft()
        self.host.put(peer, (entry, message, SUBMITTER, self.host.path))


class Rests:
    """When a host last handled events of each kind."""

    def __init__(self, half_us: float) -> None:
        self._half_us = half_us
        self._last: dict[Kind, Time] = {}

    def share(self, kind: Kind, now: Time) -> float:
        """Between 0, it was a moment ago, and 1, it was never."""
        last = self._last.get(kind)
        if last is None:
            return 1.0
        rest_us = max(now - last, 0)
        return rest_us / (rest_us + self._half_us)

    def handled(self, kinds: Mapping[Kind, object], now: Time) -> None:
        """These were handled until now."""
        for kind in kinds:
            self._last[kind] = now


class Host:
    """One processor.

    Args:
        kernel: of the run.
        costs: of this host.

    Attributes:
        entries: of its components.
        path: of the event that is being handled.
        launches: port, arguments and path of what starts when the turn has ended.
        busy_us: how long it has worked.
    """

    def __init__(self, kernel: Kernel, costs: HostCosts, wire: Wire | None = None) -> None:
        self.kernel = kernel
        self.wire = wire
        self.costs = costs
        self.entries: dict[Address, Entry] = {}
        self.path = 0
        self.launches: list[tuple[LabPort, tuple[Task, int, Time, bytes], int]] = []
        self.busy_us = 0
        self._inbox: deque[tuple[Entry, Event, Address, int]] = deque()
        self._held: list[tuple[Callable[..., None], tuple[Any, ...], int]] = []
        self._rests = Rests(costs.rest_half_us)
        self._touched: dict[Kind, None] = {}
        self._free_at: Time = 0
        self._awake = False
        self._made_us = 0.0
        self._going: dict[Host, list[Letter]] = {}
        self._waiting: dict[Host, list[Letter]] = {}
        self._read: list[int] = []

    @property
    def _with_submitter(self) -> bool:
        """Whether submissions are made here; where the submitter stands on no host, wherever they come to."""
        return self.kernel.host_at(SUBMITTER) in (None, self)

    def entry(self, address: Address, door: Door) -> Entry:
        """A way in for one more component."""
        entry = self.entries[address] = Entry(self, role_of(address), door)
        return entry

    def bind(self, component: Component, port: LabPort) -> None:
        """Give a component a port that collects."""
        hosted = self.entries[port.address].port = HostedPort(self, port)
        component.bind(hosted)

    def take_in(self, entry: Entry, event: Event, source: Address, path: int) -> None:
        """Have an event handled in this turn, or else in the next."""
        self._inbox.append((entry, event, source, path))
        self.wake()

    def made(self, message: Message) -> None:
        """Charge this turn, or the next one, for a message to another host."""
        cost = self.costs.sends.get(type(message).__name__) if self.costs.sends else None
        if cost is not None:
            self._made_us += cost.event_us + cost.task_us * tasks_in(message) + cost.entry_us * entries_in(message)

    def put(self, peer: Host, letter: Letter, patient: bool = False) -> None:
        """Have something said to another host when the turn has ended, or a little later if nobody waits for it."""
        going = self._going.get(peer)
        if going is not None:
            going.append(letter)
        elif patient:
            if not self._waiting:
                self.kernel.schedule(self.kernel.now + PATIENCE_US, self._impatient, None, None)
            self._waiting.setdefault(peer, []).append(letter)
        else:
            self._going[peer] = [*self._waiting.pop(peer, ()), letter]
        self.wake()

    def _impatient(self, _first: None, _second: None, _now: Time) -> None:
        for peer, letters in self._waiting.items():
            self._going.setdefault(peer, [])[:0] = letters
        if self._waiting:
            self._waiting = {}
            self.wake()

    def read(self, letters: list[Letter], hop_us: Time) -> None:
        """Take a frame in."""
        self._read.append(_load(letters))
        for letter in letters:
            if letter is not None:
                entry, message, source, path = letter
                self._inbox.append((entry, message, source, path + hop_us))
        self.wake()

    def report(self) -> None:
        """Tell the submitter's host of a start or an end, which nothing in the lab waits for."""
        peer = self.kernel.host_at(SUBMITTER) if self.costs.reports and self.wire is not None else None
        if peer is not None:
            self.put(peer, None)

    def hold(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Keep an effect until the turn has ended."""
        self._held.append((call, arguments, self.path))
        self.wake()

    def wake(self) -> None:
        """Have a turn as soon as the processor is free."""
        if not self._awake:
            self._awake = True
            self.kernel.schedule(self._free_at, self._turn, None, None)

    def _turn(self, _first: None, _second: None, now: Time) -> None:
        cores = self.wire.cores if self.wire is not None else None
        if cores is not None and cores.free_at() > now:
            self.kernel.schedule(cores.free_at(), self._turn, None, None)
            return
        inbox, cost_us = self._inbox, self._cost_us
        used_us = cost_us(TURN, self.costs.turn, 0, now)
        for count in self._read:
            used_us += cost_us(READ, self.costs.read, count, now)
        self._read.clear()
        while inbox:
            entry, event, source, self.path = inbox.popleft()
            if type(event) is TimerFired:
                assert entry.port is not None
                if event.key not in entry.port.due:
                    continue
                entry.port.due.discard(event.key)
            name, tasks = type(event).__name__, tasks_in(event)
            cost = self.costs.of(entry.role, name)
            used_us += cost_us((entry.role, name), cost, tasks, now)
            if cost.entry_us:
                used_us += cost.entry_us * entries_in(event)
            if source == SUBMITTER and entry.role != SUBMITTER and self._with_submitter:
                used_us += cost_us((SUBMITTER, name), self.costs.of(SUBMITTER, name), tasks, now)
            if type(event) is TaskFinished:
                self.report()
            entry.door.deliver(event, source, now)
        ended = now + round(used_us + self._made_us)
        self._made_us = 0.0
        if self._held:
            self.kernel.schedule(ended, self._release, self._held, now)
            self._held = []
        at = float(ended)
        for launch in self.launches:
            self.kernel.schedule(round(at), self._launch, launch, now)
            at += self._cost_us(LAUNCH, self.costs.launch, 0, now)
            self.report()
        self.launches = []
        if self._going:
            at = self._post(at, now)
        if cores is not None:
            cores.take(round(at))
        self._end(now, round(at))

    def _post(self, at: float, now: Time) -> float:
        """Make the frames of the turn and write them; they leave together. Returns when."""
        going, self._going = self._going, {}
        for letters in going.values():
            at += self._cost_us(MADE, self.costs.made, _load(letters), now)
        at += self._cost_us(WRITTEN, self.costs.written, len(going), now)
        for peer, letters in going.items():
            self.kernel.schedule(round(at), self._leave, (peer, letters), now)
        return at

    def _leave(self, frame: tuple[Host, list[Letter]], began: Time, now: Time) -> None:
        assert self.wire is not None
        peer, letters = frame
        spent = (now - began) << PATH_SHIFT
        self.wire.carry(self, peer, [letter and (*letter[:3], letter[3] + spent) for letter in letters])

    def _cost_us(self, kind: Kind, cost: EventCost, tasks: int, now: Time) -> float:
        used_us = cost.event_us + cost.task_us * tasks
        if kind not in self._touched:
            self._touched[kind] = None
            used_us += cost.rested_us * self._rests.share(kind, now)
        return used_us

    def _end(self, began: Time, ended: Time) -> None:
        self._rests.handled(self._touched, ended)
        self._touched.clear()
        self.busy_us += ended - began
        self._free_at = ended
        self._awake = False

    def _release(self, held: list[tuple[Callable[..., None], tuple[Any, ...], int]], began: Time, now: Time) -> None:
        spent = (now - began) << PATH_SHIFT
        for call, arguments, path in held:
            self.kernel.enter(path + spent)
            call(*arguments)

    def _launch(self, launch: tuple[LabPort, tuple[Task, int, Time], int], began: Time, now: Time) -> None:
        port, arguments, path = launch
        self.kernel.enter(path + ((now - began) << PATH_SHIFT))
        port.launch(*arguments)


def _load(letters: Iterable[Letter]) -> int:
    """What a frame carries; a report counts as one message."""
    return carried(letter and letter[1] for letter in letters)
