"""Processors of the lab: several roles share one and are served in turns, as live hosts serve them.

The model is that of `volery.core.costs`. Only a run that names hosts pays for it: their components get a port that
collects effects, as the live one does, and their events wait in their processor's inbox.

Where a run has measured delays of frames, the messages of a turn to another processor travel as one frame and take no
lanes. A frame draws its delay, keeps the order of its link, and costs the broker and its reader processor time;
processors and broker take a core for what they do, where a number of cores is given.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Optional

from volery.core.component import Component, role_of
from volery.core.costs import EventCost, Frames, HostCosts, carried, changes_in, entries_in, tasks_in
from volery.core.events import Event, Fact, TaskFinished, TimerFired
from volery.core.model import COALESCE_US, SUBMITTER, Address, Key, Message, Task, TaskId, Time
from volery.core.port import Port, Problem
from volery.core.records import PATH_SHIFT
from volery.sim.extension import Extension
from volery.sim.lab import Door, Lab
from volery.sim.submitter import Submitter

Kind = tuple[str, str]
TURN: Kind = ("", "turn")
LAUNCH: Kind = ("", "launch")
MADE: Kind = ("", "made")
WRITTEN: Kind = ("", "written")
READ: Kind = ("", "read")
Letter = Optional[tuple["Inlet", Message, Address, int]]  # noqa: UP045 - evaluated where the first name is a string
"""Receiver, message, sender, path; None is a report, of which only the cost counts."""
Link = deque[tuple["Processor", list[Letter], Time]]
"""Frames on their way from one processor to another: receiver, contents, since when."""


class Cores:
    """Processor cores that are shared: a turn or a frame takes one that is free, or waits for one.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._free_at: list[Time] = [0] * count

    def free_at(self) -> Time:
        """The time at which one of them is free."""
        return self._free_at[0]

    def take(self, until: Time) -> None:
        """Occupy a free core until a time."""
        heapq.heapreplace(self._free_at, until)


class Wire:
    """Carries frames between the processors of a run, through a broker.

    Args:
        lab: of the run.
        frames: delays, of which each frame draws one, and what a frame costs the broker.

    Attributes:
        cores: that processors and broker share; None: each has its own.
        count: messages that were carried.
    """

    def __init__(self, lab: Lab, frames: Frames) -> None:
        self.cores = Cores(frames.cores) if frames.cores else None
        self.count = 0
        self._lab = lab
        self._delays_us: Sequence[Time] = frames.delays_us
        self._broker_us = round(frames.broker_us)
        self._links: dict[tuple[Processor, Processor], Link] = {}

    def carry(self, sender: Processor, receiver: Processor, letters: list[Letter]) -> None:
        """Send a frame, now; frames of a link arrive in the order of sending."""
        now = self._lab.now
        delay_us = self._delays_us[int(self._lab.network_stream.random() * len(self._delays_us))]
        half_us = max(0, delay_us - self._broker_us) // 2
        link = self._links.setdefault((sender, receiver), deque())
        link.append((receiver, letters, now))
        self._lab.schedule(now + half_us, self._through, link, delay_us - half_us)

    def _through(self, link: Link, rest_us: Time, now: Time) -> None:
        """The broker handles it as soon as there is a core for it."""
        if self.cores is not None:
            free = self.cores.free_at()
            if free > now:
                self._lab.schedule(free, self._through, link, rest_us)
                return
            self.cores.take(now + self._broker_us)
        self._lab.schedule(now + rest_us, self._arrive, link, None)

    def _arrive(self, link: Link, _: None, now: Time) -> None:
        receiver, letters, left_us = link.popleft()
        self.count += sum(letter is not None for letter in letters)
        receiver.read(letters, now - left_us)


class TurnPort:
    """Collects the effects of a turn; timers are the lab's own, and pass through the inbox when they are due."""

    def __init__(self, processor: Processor, port: Port) -> None:
        self.address = port.address
        self.is_reliable = port.is_reliable
        self.processor = processor
        self.port = port
        self.due: set[Key] = set()
        self._routes = processor.lab.routes_of(role_of(port.address))

    def send(self, to: Address, message: Message) -> None:
        """Send to a component of this processor at once, to another when the turn has ended."""
        inlet = self.processor.inlets.get(to)
        if inlet is not None:
            self._routes.to(to)[0].message_count += 1
            self.processor.take_in(inlet, message, self.address, self.processor.path)
            return
        self.processor.made(message)
        wire = self.processor.wire
        peer = self.processor.peers.get(to) if wire is not None else None
        if peer is not None:
            self.processor.put(peer, (peer.inlets[to], message, self.address, self.processor.path), message.coalescable)
        else:
            self.processor.hold(self.port.send, (to, message))

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Launch when the turn has ended, after the launches before."""
        self.processor.launches.append((self.port, (task, attempt, waited_us, note), self.processor.path))
        self.processor.wake()

    def kill(self, task: TaskId, attempt: int) -> None:
        """Kill when the turn has ended."""
        self.processor.hold(self.port.kill, (task, attempt))

    def compute(self, key: Key, problem: Problem) -> None:
        """Compute when the turn has ended."""
        self.processor.hold(self.port.compute, (key, problem))

    def set_timer(self, key: Key, at: Time) -> None:
        """Replace the key's timer, also one that waits in the inbox."""
        self.due.discard(key)
        self.port.set_timer(key, at)

    def cancel_timer(self, key: Key) -> None:
        """Forget the key's timer, also one that waits in the inbox."""
        self.due.discard(key)
        self.port.cancel_timer(key)

    def observe(self, fact: Fact) -> None:
        self.port.observe(fact)


class Inlet:
    """The door of one component: it fills the processor's inbox, and leads to the component in a turn."""

    __slots__ = ("door", "port", "processor", "role")

    def __init__(self, processor: Processor, role: str, door: Door) -> None:
        self.processor = processor
        self.role = role
        self.door = door
        self.port: TurnPort | None = None

    def __call__(self, event: Event, source: Address, _now: Time) -> None:
        """Put an event into the inbox."""
        if type(event) is TimerFired:
            assert self.port is not None
            self.port.due.add(event.key)
        self.processor.take_in(self, event, source, self.processor.lab.path)


class SubmitterTurns:
    """The submitter on a processor of its own: it sends and receives in turns.

    Args:
        processor: of the submitter.
        submitter: of the run.
    """

    def __init__(self, processor: Processor, submitter: Submitter) -> None:
        self.processor = processor
        self._submitter = submitter
        self._sending: deque[tuple[Processor, Inlet, Message]] = deque()
        self._inlet = processor.inlet(SUBMITTER, Door.through(self._handle))

    def carry(self, to: Address, messages: Sequence[Message]) -> bool:
        """Send messages in the next turn; False where the receiver is on no processor."""
        peer = self.processor.peers.get(to)
        if peer is None:
            return False
        for message in messages:
            if peer is self.processor:
                self.processor.take_in(peer.inlets[to], message, SUBMITTER, 0)
                continue
            self._sending.append((peer, peer.inlets[to], message))
            self.processor.take_in(self._inlet, message, SUBMITTER, 0)
        return True

    def _handle(self, event: Event, source: Address, now: Time) -> None:
        if source != SUBMITTER:
            self._submitter.handle(event, source, now)
            return
        peer, entry, message = self._sending.popleft()
        self.processor.put(peer, (entry, message, SUBMITTER, self.processor.path))


class Rests:
    """The times at which a processor last handled events of each kind."""

    def __init__(self, half_us: float) -> None:
        self._half_us = half_us
        self._last: dict[Kind, Time] = {}

    def share(self, kind: Kind, now: Time) -> float:
        """The rest since the last event of a kind: near 0 just after it, 1 if there was none."""
        last = self._last.get(kind)
        if last is None:
            return 1.0
        rest_us = max(now - last, 0)
        return rest_us / (rest_us + self._half_us)

    def handled(self, kinds: Mapping[Kind, object], now: Time) -> None:
        """Note the kinds that were handled until now."""
        for kind in kinds:
            self._last[kind] = now


class Processor:
    """A processor that serves its components in turns.

    Args:
        lab: of the run.
        costs: of this processor.
        peers: by address, the processor of each component that is on one.
        wire: between them; None: their messages take lanes.

    Attributes:
        inlets: of its components.
        path: of the event that is being handled.
        launches: port, arguments and path of what starts when the turn has ended.
        busy_us: how long it has worked.
    """

    def __init__(
        self, lab: Lab, costs: HostCosts, peers: Mapping[Address, Processor], wire: Wire | None = None
    ) -> None:
        self.lab = lab
        self.peers = peers
        self.wire = wire
        self.costs = costs
        self.inlets: dict[Address, Inlet] = {}
        self.path = 0
        self.launches: list[tuple[Port, tuple[Task, int, Time, bytes], int]] = []
        self.busy_us = 0
        self._inbox: deque[tuple[Inlet, Event, Address, int]] = deque()
        self._held: list[tuple[Callable[..., None], tuple[Any, ...], int]] = []
        self._rests = Rests(costs.rest_half_us)
        self._touched: dict[Kind, None] = {}
        self._free_at: Time = 0
        self._awake = False
        self._made_us = 0.0
        self._going: dict[Processor, list[Letter]] = {}
        self._waiting: dict[Processor, list[Letter]] = {}
        self._read: list[int] = []

    @property
    def _with_submitter(self) -> bool:
        """True if submissions are made here; they are wherever they arrive, where the submitter has no processor."""
        return self.peers.get(SUBMITTER) in (None, self)

    def inlet(self, address: Address, door: Door) -> Inlet:
        """The inlet of one more component."""
        inlet = self.inlets[address] = Inlet(self, role_of(address), door)
        return inlet

    def take_in(self, entry: Inlet, event: Event, source: Address, path: int) -> None:
        """Have an event handled in this turn, or else in the next."""
        self._inbox.append((entry, event, source, path))
        self.wake()

    def made(self, message: Message) -> None:
        """Charge this turn, or the next one, for a message to another processor."""
        cost = self.costs.sends.get(type(message).__name__) if self.costs.sends else None
        if cost is not None:
            self._made_us += cost.event_us + cost.task_us * tasks_in(message) + cost.entry_us * entries_in(message)
            if cost.change_us:
                self._made_us += cost.change_us * changes_in(message)

    def put(self, peer: Processor, letter: Letter, coalescable: bool = False) -> None:
        """Send to another processor when the turn has ended, or a little later where the message is coalescable."""
        going = self._going.get(peer)
        if going is not None:
            going.append(letter)
        elif coalescable:
            if not self._waiting:
                self.lab.schedule(self.lab.now + COALESCE_US, self._release_waiting, None, None)
            self._waiting.setdefault(peer, []).append(letter)
        else:
            self._going[peer] = [*self._waiting.pop(peer, ()), letter]
        self.wake()

    def _release_waiting(self, _first: None, _second: None, _now: Time) -> None:
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
        """Report a start or an end to the submitter's processor, for which nothing in the lab waits."""
        peer = self.peers.get(SUBMITTER) if self.costs.reports and self.wire is not None else None
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
            self.lab.schedule(self._free_at, self._turn, None, None)

    def _turn(self, _first: None, _second: None, now: Time) -> None:
        cores = self.wire.cores if self.wire is not None else None
        if cores is not None and cores.free_at() > now:
            self.lab.schedule(cores.free_at(), self._turn, None, None)
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
            if cost.change_us:
                used_us += cost.change_us * changes_in(event)
            if source == SUBMITTER and entry.role != SUBMITTER and self._with_submitter:
                used_us += cost_us((SUBMITTER, name), self.costs.of(SUBMITTER, name), tasks, now)
            if type(event) is TaskFinished:
                self.report()
            entry.door.deliver(event, source, now)
        ended = now + round(used_us + self._made_us)
        self._made_us = 0.0
        if self._held:
            self.lab.schedule(ended, self._release, self._held, now)
            self._held = []
        at = float(ended)
        for launch in self.launches:
            self.lab.schedule(round(at), self._launch, launch, now)
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
            self.lab.schedule(round(at), self._leave, (peer, letters), now)
        return at

    def _leave(self, frame: tuple[Processor, list[Letter]], began: Time, now: Time) -> None:
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
            self.lab.enter(path + spent)
            call(*arguments)

    def _launch(self, launch: tuple[Port, tuple[Task, int, Time], int], began: Time, now: Time) -> None:
        port, arguments, path = launch
        self.lab.enter(path + ((now - began) << PATH_SHIFT))
        port.launch(*arguments)


def _load(letters: Iterable[Letter]) -> int:
    """The load of a frame; a report counts as one message."""
    return carried(letter and letter[1] for letter in letters)


class HostModel(Extension):
    """Puts the roles of a run on processors.

    Args:
        lab, submitter: of the run.
        hosts: name -> roles that share one processor, and what it costs them.
        frames: what lies between processors; None: the network, message by message.
    """

    def __init__(self, lab: Lab, submitter: Submitter, hosts: Mapping[str, HostCosts], frames: Frames | None) -> None:
        self._lab = lab
        self._wire = None if frames is None else Wire(lab, frames)
        self._peers: dict[Address, Processor] = {}
        self._costs_of = {role: costs for costs in hosts.values() for role in costs.roles}
        self._shared: dict[str, Processor] = {}
        for costs in hosts.values():
            if not costs.each:
                self._shared |= dict.fromkeys(costs.roles, Processor(lab, costs, self._peers, self._wire))
        counting = self._shared.pop(SUBMITTER, None)
        if self._wire is not None and counting is not None:
            self._peers[SUBMITTER] = counting
            submitter.carrier = SubmitterTurns(counting, submitter)

    def wrap_door(self, address: Address, component: Component, door: Door) -> Door:  # noqa: ARG002 - an extension's signature
        """Have the events of a component wait in its processor's inbox."""
        role = role_of(address)
        processor = self._shared.get(role)
        if processor is None:
            if role not in self._costs_of:
                return door
            processor = Processor(self._lab, self._costs_of[role], self._peers, self._wire)
        self._peers[address] = processor
        return Door.through(processor.inlet(address, door))

    def wrap_port(self, port: Port) -> Port:
        """Have the effects of a component wait for the end of its processor's turn."""
        processor = self._peers.get(port.address)
        if processor is None:
            return port
        turn_port = processor.inlets[port.address].port = TurnPort(processor, port)
        return turn_port

    def close(self) -> None:
        """Count the messages in frames."""
        if self._wire is not None:
            self._lab.records.counters["messages"] += self._wire.count
