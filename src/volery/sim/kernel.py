"""The instants kernel: a virtual clock that calls the components' one door, in a total order.

Order within an instant: task finishes, timers (and served or jittered messages), delayed messages, then zero-delay
messages, submissions among them, until quiet. Finishes and timers live in dicts from time to list with one heap of
*distinct* times; messages travel in batches, one per instant and delay (see network.py).
"""

from __future__ import annotations

import gc
import heapq
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from volery.core.assignment import Assignments
from volery.core.component import Component, Deployment, UnknownMessageError, role_of, unknown
from volery.core.costs import Frames
from volery.core.events import Event, TaskFinished
from volery.core.locality import Pace, check_locality
from volery.core.model import NEVER, SUBMITTER, Address, Cluster, Message, TaskId, Time
from volery.core.records import PATH_SHIFT, Records
from volery.core.resources import check_resources
from volery.core.streams import Streams
from volery.core.trace import Trace, check_times
from volery.core.workflows import check_workflows, comes_in_parts
from volery.sim.attempts import Attempts
from volery.sim.copies import Copies
from volery.sim.execution import Door, Handle, LabPort, Route, Routes
from volery.sim.faults import Gate, Unreliable
from volery.sim.flows import Flow
from volery.sim.frames import Cores, Wire
from volery.sim.hosts import Counter, Host
from volery.sim.network import Faults, Lane, Network, Sent
from volery.sim.options import Enough, Options, Progress
from volery.sim.orders import Orders
from volery.sim.ports import Preferred, role_port_class
from volery.sim.stalls import STEPS_MAX, Stalled, Stalls
from volery.sim.submitter import FAR, Submitter

PROGRESS_S = 0.2
PROGRESS_INSTANTS = 2048


Action = tuple[Callable[..., None], Any, Any]
"""What to call with two arguments of its own and the time."""


class Kernel:
    """State of one run; `simulate` is the way in."""

    def __init__(
        self, deployment: Deployment, trace: Trace, cluster: Cluster, network: Network, seed: int, options: Options
    ) -> None:
        self.trace = trace
        self.network = network
        self.options = options
        self.records = Records(trace)
        self.records.billing = deployment.billing
        if options.plan is not None and deployment.standins:
            self.records.number_widely()
        keeps = deployment.keeps_progress or deployment.checkpoint_us > 0
        self.left_us = trace.duration_us[:] if keeps else trace.duration_us
        self.now: Time = 0
        self.path = 0
        self.times: list[Time] = []
        self.finishes: dict[Time, list[tuple[LabPort, TaskFinished]]] = {}
        self.actions: dict[Time, list[Action]] = {}
        self._deployment = deployment
        self.streams = Streams(seed)
        self._free = Lane(0)
        self._delayed: list[Lane] = []
        self._lane_of: dict[tuple[str, str], Lane] = {}
        self._routes: dict[str, Routes] = {}
        self._doors: dict[Address, Door] = {}
        self._port_classes: dict[str, type[LabPort]] = {}
        self.killed: set[tuple[Address, TaskId, int]] = set()
        self._last_due: dict[tuple[Address, object], Time] = {}
        self._free_at: dict[Address, Time] = {}
        self._lacks: dict[int, int] = {}  # one integer for all machines alike: memory traffic is what ports cost
        self._network_stream = self.streams.of("network")
        self._tie_stream = None if options.tie_shuffle is None else Random(options.tie_shuffle)
        self.finished_count = 0
        self._slow_network = bool(network.jitter_us) or options.faults != Faults() or options.plan is not None
        self._cluster = cluster
        self.pace = Pace(trace, cluster)
        self.preferred = Preferred(trace, cluster.constraints) if trace.preference else None
        self.flow = Flow(self, cluster, whole=options.graphs) if comes_in_parts(trace) else None
        self.unreliable: Unreliable | None = None
        self.copies = Copies(self, deployment) if deployment.copies > 1 else None
        self.attempts = self.copies or Attempts(self, deployment)
        assignments = Assignments(deployment.entry_for, deployment.standins, deployment.detection_us)
        self.submitter = Submitter(self, assignments)
        self._stalls = Stalls(self, starts_count=self.left_us is not trace.duration_us)
        self.orders = Orders(self, deployment, options.drains, options.reweighs)
        if options.plan is not None:
            self.unreliable = Unreliable(self, options.plan, deployment)
        self._doors[SUBMITTER] = Door.through(self.submitter.handle)
        self._host_costs = {role: costs for costs in options.hosts.values() for role in costs.roles}
        self._wire = self._wire_of(options.frames)
        shared = [(costs.roles, Host(self, costs, self._wire)) for costs in options.hosts.values() if not costs.each]
        self._host_of = {role: host for roles, host in shared for role in roles}
        self._hosts: dict[Address, Host] = {}
        counting = self._host_of.pop(SUBMITTER, None)
        if self._wire is not None and counting is not None:
            self._hosts[SUBMITTER] = counting
            self.submitter.stand_on(Counter(counting, self.submitter.handle))
        for address, component in deployment.components.items():
            door, port = self.install(address, component)
            if self.unreliable is not None:
                gate = self.unreliable.gates[address] = Gate(self.unreliable, address, component, door, port)
                self._doors[address] = Door.through(gate.take)

    def install(self, address: Address, component: Component) -> tuple[Door, LabPort]:
        """Give a component its door and its port."""
        door = Door.through(_checked(component)) if self.options.check else Door.of(component)
        role = role_of(address)
        if role not in self._port_classes:
            self._port_classes[role] = role_port_class(self, self.routes_of(role), self._cluster)
        host = self._host_of.get(role)
        if host is None and role in self._host_costs:
            host = Host(self, self._host_costs[role], self._wire)
        if host is not None:
            self._hosts[address] = host
            door = Door.through(host.entry(address, door))
        port = self._port_classes[role](address, door)
        machine = self._deployment.machines.get(address)
        if machine is not None:
            port.stand_on(machine, self._cluster)
            lacks = ~self._cluster.constraints[machine]
            port.lacks = self._lacks.setdefault(lacks, lacks)
        cost = self.options.costs.get(role, 0)
        if address not in self._doors:
            self._doors[address] = Door.through(self._server(address, door, cost)) if cost else door
        if host is None:
            component.bind(port)
        else:
            host.bind(component, port)
        return door, port

    def _wire_of(self, frames: Frames | None) -> Wire | None:
        if frames is None:
            return None
        cores = Cores(frames.cores) if frames.cores else None
        return Wire(self, frames.delays_us, frames.broker_us, cores, self._network_stream)

    def host_at(self, address: Address) -> Host | None:
        """The host on which a component stands, or the submitter; None where it stands on none."""
        return self._hosts.get(address)

    def routes_of(self, role: str) -> Routes:
        """The routes of a role, shared by all its components."""
        if role not in self._routes:
            self._routes[role] = Routes(lambda to: self._route(role, to))
        return self._routes[role]

    def _route(self, role: str, to: Address) -> Route:
        door = self._doors.get(to)
        if door is None:
            raise KeyError(f"a {role} sent to {to!r}, which is not an address of this deployment")
        link = (role, role_of(to))
        lane = self._lane_of.get(link)
        if lane is None:
            delay = 0 if SUBMITTER in link else self.network.delay(*link, self._deployment.delays)
            lanes = [self._free, *self._delayed]
            lane = next((known for known in lanes if known.delay_us == delay), None) or Lane(delay)
            self._lane_of[link] = lane
            if lane not in lanes:
                # a new list, longest delay first: the run may be iterating over the old one
                self._delayed = sorted([*self._delayed, lane], key=lambda known: -known.delay_us)
        return lane, door.owner, door.handlers

    def _server(self, address: Address, door: Door, cost: Time) -> Handle:
        """A door behind a FIFO that serves one message per `cost` microseconds."""
        service = cost << PATH_SHIFT

        def enqueue(message: Event, source: Address, now: Time) -> None:
            done = self._free_at[address] = max(now, self._free_at.get(address, 0)) + cost
            self.schedule(done, self._serve, (door, message, source), self.path + service)

        return enqueue

    def _serve(self, work: tuple[Door, Event, Address], path: int, now: Time) -> None:
        door, message, source = work
        self.enter(path)
        door.deliver(message, source, now)

    def schedule(self, at: Time, call: Callable[..., None], first: object, second: object) -> None:
        """Call `call(first, second, time)` at a time, not before the running handler has ended."""
        if at < self.now:
            at = self.now
        bucket = self.actions.get(at)
        if bucket is not None:
            bucket.append((call, first, second))
            return
        self.actions[at] = [(call, first, second)]
        if at > self.now and at not in self.finishes:
            heapq.heappush(self.times, at)

    def run(self, progress: Callable[[Progress], None] | None) -> Records:
        """Run to quiet."""
        for component in self._deployment.components.values():
            component.start(0)
        if self.unreliable is not None:
            self.unreliable.begin()
        self.orders.begin()
        self._quiet(0)
        for lane in self._delayed:
            if lane.sent:
                self._cut(lane)
        report_at = time.monotonic() + PROGRESS_S
        while self._some_instants(PROGRESS_INSTANTS):
            if self.unreliable is None and not self.options.faults.drop:
                self._stalls.passed(PROGRESS_INSTANTS)
            if progress is not None and time.monotonic() >= report_at:
                report_at = time.monotonic() + PROGRESS_S
                progress(self._progress())
        if progress is not None:
            progress(self._progress())
        return self._close()

    def _some_instants(self, count: int) -> bool:
        """Play so many instants; False when nothing is left to happen.

        What sparse traces spend most of their time in: three or four instants per task, so it makes no call without
        need.
        """
        submitter, times, finishes, actions, free = self.submitter, self.times, self.finishes, self.actions, self._free
        shuffle, slow, pop = self._tie_stream, self._slow_network, heapq.heappop
        for _ in range(count):
            now = submitter.due_us
            if times and times[0] < now:
                now = times[0]
            for lane in self._delayed:
                batches = lane.batches
                if batches and batches[0][0] < now:
                    now = batches[0][0]
            if now == FAR:
                return False
            self.now = now
            while times and times[0] == now:
                pop(times)
            if now in finishes:
                self._finish(now)
            if now in actions:
                self._act(now)
            if shuffle is not None:
                self._deliver_shuffled(self._delayed, now, shuffle)
            for lane in self._delayed:
                batches = lane.batches
                while batches and batches[0][0] == now:
                    _, path, batch = batches.popleft()
                    self._deliver(batch, path + lane.delay_us, now)
            if submitter.due_us == now:
                submitter.submit_due(now)
            if free.sent or free.batches or now in finishes or now in actions:
                self._quiet(now)
            for lane in self._delayed:
                if lane.sent:
                    if slow:
                        self._cut(lane)
                    else:
                        lane.cut(now, self.path)
        return True

    def _finish(self, now: Time) -> None:
        killed = self.killed
        self.enter(0)
        ended = self.finishes.pop(now)
        self.finished_count += len(ended)
        for port, event in ended:
            if killed and (port.address, event.task.id, event.attempt) in killed:
                killed.discard((port.address, event.task.id, event.attempt))
                self.finished_count -= 1
                continue
            port.idle += 1
            port.finished(port.owner, event, port.address, now)

    def _act(self, now: Time) -> None:
        for _ in range(STEPS_MAX):
            if now not in self.actions:
                return
            for call, first, second in self.actions.pop(now):
                self.enter(0)
                call(first, second, now)
        self._stalls.in_one_instant()
        self._act(now)

    def enter(self, path: int) -> None:
        """Begin a phase whose events have this path; what the phase before has sent keeps the path of that phase."""
        if path != self.path:
            if self._free.sent:
                self._cut(self._free)
            for lane in self._delayed:
                if lane.sent:
                    self._cut(lane)
            self.path = path

    def _cut(self, lane: Lane) -> None:
        if self._slow_network:
            lane.message_count += len(lane.sent)
            sent, lane.sent = lane.sent, []
            self._disperse(lane, sent)
        else:
            lane.cut(self.now, self.path)

    def _deliver(self, batch: list[Sent], path: int, now: Time) -> None:
        """Call the receivers' handlers: the loop that all messages pass, so it makes no call of its own."""
        self.enter(path)
        if self.options.copy_messages:
            batch = [(receiver, table, copied(message), source) for receiver, table, message, source in batch]
        try:
            for receiver, handlers, message, source in batch:
                handlers[type(message)](receiver, message, source, now)
        except KeyError:
            if type(message) in handlers:
                raise
            raise UnknownMessageError(unknown(receiver, message, source, now)) from None

    def _deliver_shuffled(self, lanes: Sequence[Lane], now: Time, stream: Random) -> None:
        """Deliver all that is due on some lanes in another order that keeps each link's own order."""
        due: list[tuple[int, Sent]] = []
        for lane in lanes:
            while lane.batches and lane.batches[0][0] == now:
                _, path, batch = lane.batches.popleft()
                due += [(path + lane.delay_us, item) for item in batch]
        keys: dict[tuple[Address, object], float] = {}
        for path, item in sorted(due, key=lambda entry: keys.setdefault((entry[1][3], entry[1][0]), stream.random())):
            self._deliver([item], path, now)

    def _quiet(self, now: Time) -> None:
        """Deliver what costs no time until nothing is left."""
        free, careful = self._free, self._slow_network or self._tie_stream is not None
        for _ in range(STEPS_MAX):
            if free.batches:
                if self._tie_stream is not None:
                    self._deliver_shuffled([free], now, self._tie_stream)
                else:
                    _, path, batch = free.batches.popleft()
                    self._deliver(batch, path, now)
            elif free.sent and careful:
                self._cut(free)
            elif free.sent:
                batch, free.sent = free.sent, []
                free.message_count += len(batch)
                self._deliver(batch, self.path, now)
            elif now in self.finishes:
                self._finish(now)
            elif now in self.actions:
                self._act(now)
            else:
                return
        self._stalls.in_one_instant()
        self._quiet(now)

    def _disperse(self, lane: Lane, sent: list[Sent]) -> None:
        """Give each message its own delay; jitter keeps a link FIFO, faults do not."""
        now, stream, faults, jitter = self.now, self._network_stream, self.options.faults, self.network.jitter_us
        at_once = []
        for item in sent:
            if item[3] == SUBMITTER or item[0] == self.submitter.handle:
                at_once.append(item)
                continue
            link = (item[3], item[0])
            due = now + lane.delay_us
            due += int(stream.expovariate(1.0) * jitter) if jitter and lane.delay_us else 0
            due = self._last_due[link] = max(due, self._last_due.get(link, 0))
            if self.unreliable is None:
                extras: Sequence[Time] = faults.copies(stream)
            else:
                extras = self.unreliable.copies(item[3], item[0])
            for extra in extras:
                if due + extra == now:
                    at_once.append(item)
                else:
                    self.schedule(due + extra, self._arrive, item, self.path + due + extra - now)
        if at_once:
            lane.batches.append((now, self.path, at_once))

    def _arrive(self, item: Sent, path: int, now: Time) -> None:
        self._deliver([item], path, now)

    def is_busy(self) -> bool:
        """Whether anything is left to happen."""
        under_way = any(lane.batches or lane.sent for lane in [self._free, *self._delayed])
        return under_way or bool(self.times) or bool(self.finishes) or self.submitter.due_us != FAR

    def pending_until(self) -> Time:
        """When the last of all that is pending now comes."""
        due = [self.submitter.due_us] if self.submitter.due_us != FAR else []
        return max([self.now, *due, *self.times, *(lane.batches[-1][0] for lane in self._delayed if lane.batches)])

    def _progress(self) -> Progress:
        return Progress(self.now, self.submitter.jobs_done, self.finished_count)

    def _close(self) -> Records:
        records = self.records
        records.counters["messages"] = (
            sum(lane.message_count for lane in [self._free, *self._delayed]) - self.submitter.message_count
        ) + (self._wire.count if self._wire is not None else 0)
        if NEVER in records.answered_us and self.options.faults == Faults():
            raise Stalled(f"all is quiet, {self._stalls.state()}")
        return records


def copied(message: Message) -> Message:
    """The message as it comes out of the codec at the other end."""
    copy: Message = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))
    return copy


def _checked(component: Component) -> Handle:
    def door(message: Event, source: Address, now: Time) -> None:
        component.handle(message, source, now)
        component.check()

    return door


def simulate(
    deployment: Deployment,
    trace: Trace,
    cluster: Cluster,
    *,
    network: Network | None = None,
    seed: int = 0,
    options: Options | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Records:
    """Run a trace through a deployment until everything is quiet.

    Args:
        deployment: components that have never been started.
        trace: the workload; true durations are read by the driver alone.
        cluster: the machines on which the deployment's nodes stand.
        network: delays per hop.
        seed: of the network's own randomness (jitter, faults); components have their streams already.
        options: how the run is driven.
        progress: called a few times a second of real time; it may raise `Enough`.

    Raises:
        BrokenRule: the design took a slot twice, ignored a constraint or ran a task twice.
        InputError: tasks ask for other resources than machines offer, workflows are none, or replicas lie nowhere.
        Stalled: the design forgot a job.
    """
    check_resources(trace, cluster)
    check_times(trace)
    check_workflows(trace)
    check_locality(trace, cluster)
    kernel = Kernel(deployment, trace, cluster, network or Network(), seed, options or Options())
    collecting = gc.isenabled()
    gc.disable()  # events and messages are never part of a cycle; a collection would only walk the cluster
    try:
        return kernel.run(progress)
    except Enough:
        return kernel.records
    finally:
        if collecting:
            gc.enable()
