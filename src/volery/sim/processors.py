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
from volery.sim.execution import Extension
from volery.sim.lab import Door, Lab
from volery.sim.submitter import Submitter

Kind = tuple[str, str]
TURN: Kind = ("", "turn")
LAUNCH: Kind = ("", "launch")
MADE: Kind = ("", "made")
WRITTEN: Kind = ("", "written")
READ: Kind = ("", "read")
Letter = Optional[tuple["Inlet", Message, Address, int]]  # noqa: UP045 - evaluated where the first name is a string
"""Receiver, message, sender, path; None is a report: only its cost counts."""
Link = deque[tuple["Processor", list[Letter], Time]]
"""Frames on their way from one processor to another: receiver, contents, time of sending."""


class Cores:
    """Processor cores that are shared: a turn or a frame takes one that is free, or waits for one.

    Args:
        count: Count of the cores.
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
        lab: Shared state of the run.
        frames: Delays, of which each frame draws one, and what a frame costs the broker.

    Attributes:
        cores: Cores that processors and broker share; None: each has its own.
        count: Count of messages that were carried.
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
        # The measured delay contains the broker's work; the broker is in the middle of the rest.
        half_us = max(0, delay_us - self._broker_us) // 2
        link = self._links.setdefault((sender, receiver), deque())
        link.append((receiver, letters, now))
        self._lab.schedule(now + half_us, self._pass_broker, link, delay_us - half_us)

    def _pass_broker(self, link: Link, remaining_us: Time, now: Time) -> None:
        """The broker handles it as soon as there is a core for it."""
        if self.cores is not None:
            free = self.cores.free_at()
            if free > now:
                self._lab.schedule(free, self._pass_broker, link, remaining_us)
                return
            self.cores.take(now + self._broker_us)
        self._lab.schedule(now + remaining_us, self._arrive, link, None)

    def _arrive(self, link: Link, _: None, now: Time) -> None:
        receiver, letters, sent_at = link.popleft()
        self.count += sum(letter is not None for letter in letters)
        receiver.read(letters, now - sent_at)


class TurnPort:
    """Collects the effects of a turn; timers are the lab's own, and pass through the inbox when they are due."""

    def __init__(self, processor: Processor, port: Port) -> None:
        self.address = port.address
        self.is_reliable = port.is_reliable
        self.processor = processor
        self.port = port
        self.due_keys: set[Key] = set()
        self._routes = processor.lab.routes_of(role_of(port.address))

    def send(self, to: Address, message: Message) -> None:
        """Send to a component of this processor at once, to another when the turn has ended."""
        inlet = self.processor.inlets.get(to)
        if inlet is not None:
            # The lane counts the message that it does not carry: messages within a host are messages of the design.
            self._routes.to(to)[0].message_count += 1
            self.processor.take_in(inlet, message, self.address, self.processor.path)
            return

        self.processor.charge_send(message)
        wire = self.processor.wire
        peer = self.processor.peers.get(to) if wire is not None else None
        if peer is not None:
            letter = (peer.inlets[to], message, self.address, self.processor.path)
            self.processor.send_later(peer, letter, message.coalescable)
        else:
            self.processor.defer(self.port.send, (to, message))

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Launch when the turn has ended, after the launches before."""
        self.processor.launches.append((self.port, (task, attempt, waited_us, note), self.processor.path))
        self.processor.wake()

    def kill(self, task: TaskId, attempt: int) -> None:
        """Kill when the turn has ended."""
        self.processor.defer(self.port.kill, (task, attempt))

    def compute(self, key: Key, problem: Problem) -> None:
        """Compute when the turn has ended."""
        self.processor.defer(self.port.compute, (key, problem))

    def set_timer(self, key: Key, at: Time) -> None:
        """Replace the key's timer, also one that waits in the inbox."""
        self.due_keys.discard(key)
        self.port.set_timer(key, at)

    def cancel_timer(self, key: Key) -> None:
        """Forget the key's timer, also one that waits in the inbox."""
        self.due_keys.discard(key)
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
            self.port.due_keys.add(event.key)
        self.processor.take_in(self, event, source, self.processor.lab.path)


class SubmitterTurns:
    """The submitter on a processor of its own: it sends and receives in turns.

    Args:
        processor: Processor of the submitter.
        submitter: Submitter of the run.
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
            # A dummy event of the submitter's own: each submission costs its turn what handling an event costs.
            self.processor.take_in(self._inlet, message, SUBMITTER, 0)
        return True

    def _handle(self, event: Event, source: Address, now: Time) -> None:
        if source != SUBMITTER:
            self._submitter.handle(event, source, now)
            return

        peer, entry, message = self._sending.popleft()
        self.processor.send_later(peer, (entry, message, SUBMITTER, self.processor.path))


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
        lab: Shared state of the run.
        costs: Costs of this processor's work.
        peers: Processors by the addresses of their components.
        wire: Wire between processors; None: their messages take lanes.

    Attributes:
        inlets: Inlets of its components by address.
        path: Path of the event in hand.
        launches: Port, arguments and path of each launch that waits for the end of the turn.
        busy_us: Time that it has worked.
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
        self._deferred: list[tuple[Callable[..., None], tuple[Any, ...], int]] = []
        self._rest_times = Rests(costs.rest_half_us)
        self._kinds_handled: dict[Kind, None] = {}
        self._free_at: Time = 0
        self._has_turn = False
        self._sends_us = 0.0
        self._outgoing: dict[Processor, list[Letter]] = {}
        self._coalescing: dict[Processor, list[Letter]] = {}
        self._read_loads: list[int] = []

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

    def charge_send(self, message: Message) -> None:
        """Charge this turn, or the next one, for a message to another processor."""
        cost = self.costs.sends.get(type(message).__name__) if self.costs.sends else None
        if cost is not None:
            self._sends_us += cost.event_us + cost.task_us * tasks_in(message) + cost.entry_us * entries_in(message)
            if cost.change_us:
                self._sends_us += cost.change_us * changes_in(message)

    def send_later(self, peer: Processor, letter: Letter, is_coalescable: bool = False) -> None:
        """Send to another processor when the turn has ended, or a little later where the message is coalescable."""
        # A frame to this peer leaves with the turn anyhow: even a coalescable message takes it, since links keep
        # their order.
        letters = self._outgoing.get(peer)
        if letters is not None:
            letters.append(letter)
        elif is_coalescable:
            if not self._coalescing:
                self.lab.schedule(self.lab.now + COALESCE_US, self._release_waiting, None, None)
            self._coalescing.setdefault(peer, []).append(letter)
        else:
            self._outgoing[peer] = [*self._coalescing.pop(peer, ()), letter]
        self.wake()

    def _release_waiting(self, _first: None, _second: None, _now: Time) -> None:
        # Letters that have waited come before those of this turn: links keep their order.
        for peer, letters in self._coalescing.items():
            self._outgoing.setdefault(peer, [])[:0] = letters
        if self._coalescing:
            self._coalescing = {}
            self.wake()

    def read(self, letters: list[Letter], hop_us: Time) -> None:
        """Take a frame in."""
        self._read_loads.append(_load(letters))
        for letter in letters:
            if letter is not None:
                entry, message, source, path = letter
                self._inbox.append((entry, message, source, path + hop_us))
        self.wake()

    def report(self) -> None:
        """Report a start or an end to the submitter's processor, for which nothing in the lab waits."""
        peer = self.peers.get(SUBMITTER) if self.costs.reports and self.wire is not None else None
        if peer is not None:
            self.send_later(peer, None)

    def defer(self, call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Keep an effect until the turn has ended."""
        self._deferred.append((call, arguments, self.path))
        self.wake()

    def wake(self) -> None:
        """Have a turn as soon as the processor is free."""
        if not self._has_turn:
            self._has_turn = True
            self.lab.schedule(self._free_at, self._turn, None, None)

    def _turn(self, _first: None, _second: None, now: Time) -> None:
        cores = self.wire.cores if self.wire is not None else None
        if cores is not None and cores.free_at() > now:
            self.lab.schedule(cores.free_at(), self._turn, None, None)
            return

        inbox = self._inbox
        cost_us = self._cost_us
        used_us = cost_us(TURN, self.costs.turn, 0, now)
        for count in self._read_loads:
            used_us += cost_us(READ, self.costs.read, count, now)
        self._read_loads.clear()
        while inbox:
            entry, event, source, self.path = inbox.popleft()
            if type(event) is TimerFired:
                assert entry.port is not None
                # The timer was cancelled or replaced while it waited in the inbox.
                if event.key not in entry.port.due_keys:
                    continue
                entry.port.due_keys.discard(event.key)

            event_name, task_count = type(event).__name__, tasks_in(event)
            cost = self.costs.of(entry.role, event_name)
            used_us += cost_us((entry.role, event_name), cost, task_count, now)
            if cost.entry_us:
                used_us += cost.entry_us * entries_in(event)
            if cost.change_us:
                used_us += cost.change_us * changes_in(event)
            if source == SUBMITTER and entry.role != SUBMITTER and self._with_submitter:
                used_us += cost_us((SUBMITTER, event_name), self.costs.of(SUBMITTER, event_name), task_count, now)
            if type(event) is TaskFinished:
                self.report()
            entry.door.deliver(event, source, now)

        handled_at = now + round(used_us + self._sends_us)
        self._sends_us = 0.0

        # Effects leave when the handlers are through; launches follow one by one, and the frames last, as a live host
        # does it.
        if self._deferred:
            self.lab.schedule(handled_at, self._release, self._deferred, now)
            self._deferred = []

        end_us = float(handled_at)
        for launch in self.launches:
            self.lab.schedule(round(end_us), self._launch, launch, now)
            end_us += self._cost_us(LAUNCH, self.costs.launch, 0, now)
            self.report()
        self.launches = []

        if self._outgoing:
            end_us = self._post(end_us, now)

        if cores is not None:
            cores.take(round(end_us))
        self._end(now, round(end_us))

    def _post(self, end_us: float, now: Time) -> float:
        """Make the frames of the turn and write them; they leave together. Returns when."""
        frames, self._outgoing = self._outgoing, {}

        for letters in frames.values():
            end_us += self._cost_us(MADE, self.costs.made, _load(letters), now)

        end_us += self._cost_us(WRITTEN, self.costs.written, len(frames), now)
        for peer, letters in frames.items():
            self.lab.schedule(round(end_us), self._leave, (peer, letters), now)
        return end_us

    def _leave(self, frame: tuple[Processor, list[Letter]], began_at: Time, now: Time) -> None:
        assert self.wire is not None
        peer, letters = frame

        spent_path = (now - began_at) << PATH_SHIFT
        self.wire.carry(self, peer, [letter and (*letter[:3], letter[3] + spent_path) for letter in letters])

    def _cost_us(self, kind: Kind, cost: EventCost, tasks: int, now: Time) -> float:
        used_us = cost.event_us + cost.task_us * tasks
        if kind not in self._kinds_handled:
            self._kinds_handled[kind] = None
            used_us += cost.rested_us * self._rest_times.share(kind, now)
        return used_us

    def _end(self, began_at: Time, end_us: Time) -> None:
        self._rest_times.handled(self._kinds_handled, end_us)
        self._kinds_handled.clear()
        self.busy_us += end_us - began_at
        self._free_at = end_us
        self._has_turn = False

    def _release(
        self, effects: list[tuple[Callable[..., None], tuple[Any, ...], int]], began_at: Time, now: Time
    ) -> None:
        spent_path = (now - began_at) << PATH_SHIFT

        for call, arguments, path in effects:
            self.lab.enter(path + spent_path)
            call(*arguments)

    def _launch(self, launch: tuple[Port, tuple[Task, int, Time], int], began_at: Time, now: Time) -> None:
        port, arguments, path = launch
        self.lab.enter(path + ((now - began_at) << PATH_SHIFT))
        port.launch(*arguments)


def _load(letters: Iterable[Letter]) -> int:
    """The load of a frame; a report counts as one message."""
    return carried(letter and letter[1] for letter in letters)


class HostModel(Extension):
    """Puts the roles of a run on processors.

    Args:
        lab, submitter: Shared state and submitter of the run.
        hosts: Name -> roles that share one processor, and what it costs them.
        frames: Costs and delays of frames between processors; None: the network, message by message.
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

        # Roles on processors of their own are made at their component's door, since a crash gives a component another
        # processor.
        submitter_processor = self._shared.pop(SUBMITTER, None)
        if self._wire is not None and submitter_processor is not None:
            self._peers[SUBMITTER] = submitter_processor
            submitter.carrier = SubmitterTurns(submitter_processor, submitter)

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
