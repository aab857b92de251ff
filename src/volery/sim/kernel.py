"""The instants kernel: a virtual clock that calls the components' one door, in a total order.

Order within an instant: task finishes, timers (and served or jittered messages), delayed messages, then zero-delay
messages, submissions among them, until quiet. Finishes and timers are in dicts from time to list with one heap of
*distinct* times; messages travel in batches, one per instant and delay (see network.py). The features of a run are
extensions.
"""

from __future__ import annotations

import gc
import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random

import msgspec

from volery.core.assignment import Assignments
from volery.core.capabilities import CrashRecovery, GangPlacement, Overcommitment, Replication, Resumption
from volery.core.component import Component, Deployment, role_of
from volery.core.costs import Frames, HostCosts
from volery.core.errors import InputError
from volery.core.gangs import check_gang_placement, check_gang_racks, check_gang_sizes, check_gangs, has_gangs
from volery.core.limits import check_limits
from volery.core.locality import check_locality
from volery.core.model import NEVER, Address, Cluster, Time
from volery.core.port import Port
from volery.core.records import Billing, Records
from volery.core.resources import check_resources
from volery.core.tags import check_heeded, check_tags
from volery.core.trace import Trace, check_times
from volery.core.workflows import check_workflows, comes_in_parts, refused
from volery.sim.execution import Attempts, Checks, Durations, Extension, LabPort, LaunchRule, MessageCosts, port_class
from volery.sim.faults import FaultInjector, FaultPlan
from volery.sim.gangs import GangPort, GangRule
from volery.sim.lab import FAR, Dispersal, Door, Lab
from volery.sim.limits import LimitRule
from volery.sim.network import Lane, MessageFaultRates, Network, Sent
from volery.sim.orders import Drained, Orders, Reweighed
from volery.sim.processors import HostModel
from volery.sim.rules import Copies, CopyRule, PaceRule, machine_rules
from volery.sim.submitter import STEPS_MAX, Stalls, Submitter
from volery.sim.tags import TagRule, TagWaits
from volery.sim.workflows import Workflows


class Enough(Exception):  # noqa: N818 - nothing is wrong
    """Raised by a receiver of progress: the run ends there, and its records hold what has happened so far."""


class Progress(msgspec.Struct, frozen=True):
    """The progress of a run."""

    now_us: Time
    jobs_done: int
    tasks_finished: int


class Options(msgspec.Struct, frozen=True):
    """Options of a run; none of the first three changes what a correct design does on a reliable network.

    What is not asked for costs a run nothing: the kernel makes an extension of what is.

    Args:
        check: Call `check()` of every component after each of its events (tests).
        copy_messages: Copy every message through the codec; the digest must not change.
        tie_shuffle: Seed that shuffles what arrives in the same instant (each link stays FIFO): shows how much of a
            result is ties.
        costs: Role -> processing cost per message in microseconds; such a role is a server with a FIFO of its own.
        faults: Faults of messages between components, during the whole run.
        plan: Faults of messages, partitions, crashes; excludes costs and hosts.
        hosts: Name -> roles that share one processor, and what it costs them; see `volery.core.costs`.
        frames: Frames between these hosts; None: the network, message by message.
        graphs: True if the design takes workflows whole, see `Architecture.graphs`.
        drains: Machines that are taken out of use.
        reweighs: Changes of users' shares.
        may_hold: True if launched members of gangs may wait on their machines for others, of a design that does not
            start gangs whole.
    """

    check: bool = False
    copy_messages: bool = False
    tie_shuffle: int | None = None
    costs: Mapping[str, Time] = {}
    faults: MessageFaultRates = MessageFaultRates()
    plan: FaultPlan | None = None
    hosts: Mapping[str, HostCosts] = {}
    frames: Frames | None = None
    graphs: bool = False
    drains: tuple[Drained, ...] = ()
    reweighs: tuple[Reweighed, ...] = ()
    may_hold: bool = False

    def __post_init__(self) -> None:
        """Refuse combinations that no run has."""
        if self.plan is not None and (self.costs or self.hosts):
            raise InputError("faults", "a plan of faults goes with neither costs nor hosts; leave them out")


PROGRESS_S = 0.2
PROGRESS_INSTANTS = 2048


class Kernel:
    """The loop of one run; `simulate` is the way in.

    Attributes:
        lab, submitter: Shared state and submitter of the run.
        components: Installed components by address.
    """

    def __init__(
        self, deployment: Deployment, trace: Trace, cluster: Cluster, network: Network, seed: int, options: Options
    ) -> None:
        recovery = deployment.capability(CrashRecovery)
        resumption = deployment.capability(Resumption) or Resumption()
        keeps_progress = resumption.preempted or resumption.checkpoint_us > 0

        self.lab = lab = Lab(
            trace,
            cluster,
            network,
            seed,
            delays=deployment.delays,
            keeps_progress=keeps_progress,
            copy_messages=options.copy_messages,
        )
        lab.records.billing = deployment.capability(Billing)
        self.components: dict[Address, Component] = {}
        self._machines = deployment.machines
        self._lacks: dict[int, int] = {}  # one integer for all machines alike: memory traffic is what ports cost
        self._tie_stream = None if options.tie_shuffle is None else Random(options.tie_shuffle)

        standins, detection_us = (recovery.standins, recovery.detection_us) if recovery is not None else ((), 0)
        assignments = Assignments(deployment.entry_for, standins, detection_us)
        self.submitter = Submitter(lab, assignments)

        self._stalls = Stalls(lab, self.submitter, starts_count=keeps_progress)
        self._port_classes: dict[str, type[LabPort]] = {}
        self._pace = PaceRule(lab)
        # Ports are classes made with the rules, and doors are wrapped by extensions, so both exist before the first
        # component is installed.
        self._attempts, self._rules = self._launching(deployment, takes_whole_graphs=options.graphs)
        self._extensions = self._extended(deployment, options)
        if trace.tag_set:
            self._extensions.append(self._tagged(deployment, options))
        self._launchers: tuple[type[LabPort], ...] = ()
        if has_gangs(trace):
            self._extensions.append(self._ganged(deployment))
        self._may_stall = not (options.faults.drop or any(extension.may_lose_work for extension in self._extensions))
        self._may_forget = options.faults != MessageFaultRates()

        for address, component in deployment.components.items():
            self.install(address, component)

    def _launching(self, deployment: Deployment, *, takes_whole_graphs: bool) -> tuple[Attempts, list[LaunchRule]]:
        """Attempts, and the rules of launches that trace, cluster and deployment need."""
        lab = self.lab
        rules = list[LaunchRule]()
        if comes_in_parts(lab.trace):
            refused_tasks = refused(lab.trace, deployment)
            rules.append(Workflows(lab, self.submitter, refused_tasks, takes_whole_graphs=takes_whole_graphs))

        resumption = deployment.capability(Resumption) or Resumption()
        replication = deployment.capability(Replication)
        attempts = Attempts(lab, resumption, self._pace.done_us)
        if replication is not None:
            attempts = copies = Copies(lab, resumption, replication, self._pace.done_us)
            rules.append(CopyRule(copies))
        rules += machine_rules(lab, self._pace, lab.records.billing, deployment.capability(Overcommitment))

        # A pace that changes nothing is left out of the rules: then the table of durations is read without a call.
        pace = self._pace if self._pace in rules else None
        limits = LimitRule(lab, pace) if lab.trace.limit_us else None
        rules += [limits] if limits is not None else []
        clock = limits or pace
        self._clocks: list[LaunchRule] = [] if clock is None else [clock]
        self._durations: Durations = lab.left_us if clock is None else clock
        return attempts, rules

    def _tagged(self, deployment: Deployment, options: Options) -> TagWaits:
        """The rules of a run whose tasks have tags: launches are refused, and jobs whose tags are gone given up."""
        network = self.lab.network
        waits = TagWaits(self.lab, self.submitter)

        # Where messages overtake each other, an order to start may arrive before that of the task on which it relies:
        # then only `most` is enforced.
        late = network.jitter_us or options.costs or options.hosts or options.frames is not None
        late = late or options.tie_shuffle is not None
        overtaking = late or options.plan is not None or options.faults != MessageFaultRates()
        hop_us = max([network.delay_us, *network.overrides.values(), *deployment.delays.values()])
        self._rules += [TagRule(self.lab, NEVER if overtaking else hop_us), waits]
        return waits

    def _ganged(self, deployment: Deployment) -> GangRule:
        """The rule of a run with gangs, by which members are launched and end."""
        has_shapes = deployment.capability(GangPlacement) is not None
        gangs = GangRule(self.lab, self.submitter, self._attempts, self._durations, self._clocks, has_shapes=has_shapes)
        self._stalls.deadlock = gangs.deadlock
        self._launchers = (type("RunGangPort", (GangPort,), {"__slots__": (), "gangs": gangs}),)
        self._rules.append(gangs)
        return gangs

    def _extended(self, deployment: Deployment, options: Options) -> list[Extension]:
        """The extensions that the options ask for, the innermost first."""
        lab, submitter = self.lab, self.submitter
        extensions = list[Extension]()
        if lab.network.jitter_us or options.faults != MessageFaultRates():

            def copies_of_message(_sender: Address, _receiver: object) -> Sequence[Time]:
                return options.faults.copies(lab.network_stream)

            lab.disperse = Dispersal(lab, submitter.door.owner, copies_of_message)

        if options.check:
            extensions.append(Checks())
        if options.hosts or options.frames is not None:
            extensions.append(HostModel(lab, submitter, options.hosts, options.frames))
        if options.costs:
            extensions.append(MessageCosts(lab, options.costs))

        orders, restarted = list[Extension](), list[Callable[[Address], None]]([submitter.resubmit])
        if options.drains or options.reweighs:
            orders = [drains_and_weights := Orders(lab, submitter, deployment, options.drains, options.reweighs)]
            restarted.append(drains_and_weights.repeat)

        if options.plan is not None:
            extensions.append(
                FaultInjector(lab, deployment, submitter, self._attempts, options.plan, self.install, restarted)
            )
        return [*extensions, *orders]

    def install(self, address: Address, component: Component) -> None:
        """Put a component, which may replace another, at its address."""
        door, role = Door.of(component), role_of(address)
        for extension in self._extensions:
            door = extension.wrap_door(address, component, door)

        if role not in self._port_classes:
            routes = self.lab.routes_of(role)
            rules = tuple(self._rules)
            self._port_classes[role] = port_class(
                self.lab, self._attempts, routes, self._durations, rules, self._launchers
            )
        port = self._port_classes[role](address, door)

        machine = self._machines.get(address)
        if machine is not None:
            lacks = ~self.lab.cluster.constraints[machine]
            port.take_machine(machine, self._lacks.setdefault(lacks, lacks))

        bound: Port = port
        for extension in self._extensions:
            door = extension.wrap_inbox(address, component, door, port)
            bound = extension.wrap_port(bound)
        # Routes keep the first door of an address: a component that replaces another is reached through the gate behind
        # that door.
        self.lab.doors.setdefault(address, door)
        self.components[address] = component
        component.bind(bound)

    def run(self, progress: Callable[[Progress], None] | None) -> Records:
        """Run until nothing is left to happen."""
        for component in self.components.values():
            component.start(0)
        for extension in self._extensions:
            extension.begin()
        self._drain(0)
        for lane in self.lab.delayed:
            if lane.sent:
                self.lab.flush(lane)

        report_at = time.monotonic() + PROGRESS_S
        while self._some_instants(PROGRESS_INSTANTS):
            if self._may_stall:
                self._stalls.passed(PROGRESS_INSTANTS)
            if progress is not None and time.monotonic() >= report_at:
                report_at = time.monotonic() + PROGRESS_S
                progress(self._progress())

        if progress is not None:
            progress(self._progress())
        return self._close()

    def _some_instants(self, count: int) -> bool:
        """Play so many instants; False when nothing is left to happen.

        Sparse traces spend most of their time here, with three or four instants per task, so it makes no call without
        need.
        """
        lab, submitter = self.lab, self.submitter
        times, finishes, actions, free, deliver = lab.times, lab.finishes, lab.actions, lab.free, lab.deliver
        shuffle = self._tie_stream
        has_plain_lanes = lab.disperse is None
        pop = heapq.heappop

        for _ in range(count):
            now = submitter.due_us
            if times and times[0] < now:
                now = times[0]
            for lane in lab.delayed:
                batches = lane.batches
                if batches and batches[0][0] < now:
                    now = batches[0][0]
            if now == FAR:
                return False

            lab.now = now
            # The heap has a time twice where an attempt was launched after an action was scheduled for the time at
            # which it ends.
            while times and times[0] == now:
                pop(times)

            if now in finishes:
                self._finish(now)
            if now in actions:
                self._act(now)

            if shuffle is not None:
                self._deliver_shuffled(lab.delayed, now, shuffle)
            for lane in lab.delayed:
                batches = lane.batches
                while batches and batches[0][0] == now:
                    _, path, batch = batches.popleft()
                    deliver(batch, path + lane.delay_us, now)

            if submitter.due_us == now:
                submitter.submit_due(now)

            # Messages without delay, and ends and actions that this instant's own handlers have scheduled for it.
            if free.sent or free.batches or now in finishes or now in actions:
                self._drain(now)

            for lane in lab.delayed:
                if lane.sent:
                    if has_plain_lanes:
                        lane.flush(now, lab.path)
                    else:
                        lab.flush(lane)
        return True

    def _finish(self, now: Time) -> None:
        lab = self.lab
        killed = lab.killed
        lab.enter(0)
        ended = lab.finishes.pop(now)
        lab.finished_count += len(ended)

        for port, event in ended:
            if killed and (port.address, event.task.id, event.attempt) in killed:
                # A killed attempt keeps its entry in the calendar, where removal would be a search; its end was
                # delivered by the kill.
                killed.discard((port.address, event.task.id, event.attempt))
                lab.finished_count -= 1
                continue
            port.idle += 1
            port.finished(port.owner, event, port.address, now)

    def _act(self, now: Time) -> None:
        lab = self.lab
        for _ in range(STEPS_MAX):
            if now not in lab.actions:
                return
            for call, first, second in lab.actions.pop(now):
                lab.enter(0)
                call(first, second, now)

        # Only a result since the last such count makes another round; else this raises.
        self._stalls.in_one_instant()
        self._act(now)

    def _deliver_shuffled(self, lanes: Sequence[Lane], now: Time, stream: Random) -> None:
        """Deliver all that is due on some lanes in another order that keeps each link's own order."""
        due: list[tuple[int, Sent]] = []
        for lane in lanes:
            while lane.batches and lane.batches[0][0] == now:
                _, path, batch = lane.batches.popleft()
                due += [(path + lane.delay_us, item) for item in batch]

        # One random key per link, and the sort is stable: links swap places, messages of one link do not.
        keys: dict[tuple[Address, object], float] = {}
        for path, item in sorted(due, key=lambda entry: keys.setdefault((entry[1][3], entry[1][0]), stream.random())):
            self.lab.deliver([item], path, now)

    def _drain(self, now: Time) -> None:
        """Deliver what costs no time until nothing is left."""
        lab, free = self.lab, self.lab.free
        must_batch = lab.disperse is not None or self._tie_stream is not None
        for _ in range(STEPS_MAX):
            if free.batches:
                if self._tie_stream is not None:
                    self._deliver_shuffled([free], now, self._tie_stream)
                else:
                    _, path, batch = free.batches.popleft()
                    lab.deliver(batch, path, now)
            elif free.sent and must_batch:
                lab.flush(free)
            elif free.sent:
                batch, free.sent = free.sent, []
                free.message_count += len(batch)
                lab.deliver(batch, lab.path, now)
            elif now in lab.finishes:
                self._finish(now)
            elif now in lab.actions:
                self._act(now)
            else:
                return

        self._stalls.in_one_instant()
        self._drain(now)

    def _progress(self) -> Progress:
        return Progress(self.lab.now, self.submitter.jobs_done, self.lab.finished_count)

    def _close(self) -> Records:
        lab, records = self.lab, self.lab.records
        sent_count = sum(lane.message_count for lane in [lab.free, *lab.delayed])
        records.counters["messages"] = sent_count - self.submitter.message_count

        for extension in self._extensions:
            extension.close()

        # Faults may lose a job's submission or answer, or the launch of a member, so only runs without them must answer
        # every job.
        if not self._may_forget:
            self._stalls.demand_answers()
        return records

    def check_rest(self) -> None:
        """Raise AssertionError if a run that is over has left anything that it should not."""
        for extension in self._extensions:
            extension.check_rest()


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
        deployment: Components that have never been started.
        trace: Workload; the driver alone reads true durations.
        cluster: Machines of the deployment's nodes.
        network: Delays per hop.
        seed: Seed of the network's own randomness (jitter, faults); components have their streams already.
        options: Checks, faults and models of the run.
        progress: Called a few times a second of real time; it may raise `Enough`.

    Raises:
        BrokenRule: the design took a slot twice, ignored a constraint or ran a task twice.
        InputError: tasks ask for other resources than machines offer, a limit is not above 0, parents are no earlier
            tasks of their job, replicas are on no machine, or tags cannot be met by any order of starts, or are not
            supported by the design; a gang is larger than the cluster, or the design does not start gangs whole.
        Deadlock: gangs hold machines and wait for each other.
        Stalled: the design forgot a job.
    """
    check_resources(trace, cluster)
    check_times(trace)
    check_limits(trace)
    check_workflows(trace)
    check_locality(trace, cluster)
    check_tags(trace)
    check_heeded(trace, deployment, trace.name)
    check_gangs(trace)
    may_hold = options is not None and options.may_hold
    check_gang_placement(trace, deployment, trace.name, may_hold=may_hold)
    check_gang_sizes(trace, cluster, has_shapes=deployment.capability(GangPlacement) is not None)
    check_gang_racks(trace, deployment, cluster, trace.name)

    kernel = Kernel(deployment, trace, cluster, network or Network(), seed, options or Options())

    collecting = gc.isenabled()
    gc.disable()  # events and messages are never part of a cycle; a collection would only walk the cluster
    try:
        return kernel.run(progress)
    except Enough:
        return kernel.lab.records
    finally:
        if collecting:
            gc.enable()
