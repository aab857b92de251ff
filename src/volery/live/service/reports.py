"""Reports of hosts, as the API keeps them in memory: tasks on nodes, decisions of schedulers, throughput, history.

Decisions are facts that schedulers report where their parameter `why` is set; each host sends them to the submitter
like reports of attempts. The machines that a waiting task could have are counted here, from machines and reports of
nodes, without a scheduler. Nothing here is kept over a restart of the API.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from volery.core.model import NEVER, Address, Amounts, Cluster, TaskId, Time
from volery.core.reasons import LoggedDecision
from volery.live.clock import ClockSteps, monotonic_now_us
from volery.live.config.constraints import Fleet
from volery.live.messages import ConfinementReport, DecisionReport, PeerReport, TaskReport
from volery.live.runtime.failure_detector import HostRegister
from volery.live.status import (
    DecisionStep,
    FunnelStep,
    HostStatus,
    NodeStatus,
    PairStatus,
    RejectionCount,
    UnixMicroseconds,
)

STEP_S: Final = 10.0
KEPT: Final = 2_160
"""Samples that are kept: those of six hours."""


class Sample(msgspec.Struct, frozen=True):
    """A federation at one moment."""

    at_us: UnixMicroseconds
    used: Annotated[int, Meta(description="tasks that run on usable slots; utilisation is used / usable")]
    usable: Annotated[int, Meta(description="slots of nodes that are neither drained nor lost")]
    waiting: Annotated[int, Meta(description="tasks that wait, of everybody")]
    failed: Annotated[int, Meta(description="attempts that have failed since the sample before")]


class History:
    """Samples of a federation, the oldest first; they are not kept over a restart of the API."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self._failed_count = 0
        self._timer: asyncio.TimerHandle | None = None

    def note(self, at_us: Time, used: int, usable: int, waiting: int, failed: int) -> None:
        """Keep a sample; `failed` counts attempts since the API's start."""
        self.samples.append(Sample(at_us, used, usable, waiting, failed - self._failed_count))
        self._failed_count = failed

    def start(self, take: Callable[[], None]) -> None:
        """Call `take`, which notes a sample, now and every `STEP_S` until `close`."""
        self._timer = asyncio.get_running_loop().call_later(STEP_S, self.start, take)  # a failure ends nothing
        take()

    def close(self) -> None:
        """Take no more samples."""
        if self._timer is not None:
            self._timer.cancel()


SPAN_S: Final = 60.0
PACE_STEP_S: Final = 1.0


class AttemptCounts:
    """Reports of attempts since the API's start.

    Args:
        observe: is called with each report; None: nobody is.

    Attributes:
        by_state: Count of reports by state.
        pace: counts ended attempts over time.
    """

    def __init__(self, observe: Callable[[TaskReport], None] | None = None) -> None:
        self.by_state: dict[str, int] = {}
        self.pace = ThroughputMeter()
        self._observe = observe

    def report(self, event: TaskReport) -> None:
        self.by_state[event.state] = self.by_state.get(event.state, 0) + 1
        if self._observe is not None:
            self._observe(event)

    def note(self) -> None:
        """Note how many attempts have ended so far."""
        self.pace.note(ended_of(self.by_state))


def ended_of(reports_by_state: Mapping[str, int]) -> int:
    """Attempts that have ended, of reports counted by state."""
    return sum(count for state, count in reports_by_state.items() if state not in ("running", "unknown"))


class ThroughputMeter:
    """Counts ended attempts over time."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._notes: deque[tuple[float, int]] = deque([(clock_s(), 0)])

    def note(self, ended: int) -> None:
        """Note how many have ended so far; at most one note per second is kept."""
        now_s = self._clock_s()
        if now_s - self._notes[-1][0] >= PACE_STEP_S:
            self._notes.append((now_s, ended))
            self._forget(now_s)

    def per_second(self, ended: int) -> float | None:
        """Per second over the last minute, or since the start, given how many have ended so far; None: too soon."""
        now_s = self._clock_s()
        self._forget(now_s)

        since_s, ended_before = self._notes[0]
        # Nothing has happened between a note and what was before the next one but for a second's worth.
        span_s = min(now_s - since_s, SPAN_S)
        return (ended - ended_before) / span_s if span_s >= PACE_STEP_S else None

    def _forget(self, now_s: float) -> None:
        while len(self._notes) > 1 and self._notes[1][0] <= now_s - SPAN_S:
            self._notes.popleft()


class NodeTable:
    """All nodes of a federation, by what their hosts report.

    Args:
        nodes: address of each node -> number of its machine.
        drained: the nodes that are drained at the start.
        owners_of: node -> the components that get an order when it is drained; see `Draining`.
        register: register of all hosts; None: hosts are not known.
        spread: true if nodes are on several hosts.

    Attributes:
        machines: address of each node -> number of its machine.
    """

    def __init__(
        self,
        nodes: Mapping[Address, int],
        fleet: Fleet,
        drained: set[Address],
        owners_of: Callable[[Address], tuple[Address, ...]] | None = None,
        register: HostRegister | None = None,
        spread: bool = False,
    ) -> None:
        self.machines = nodes
        self.drained = drained
        self._fleet = fleet
        self._owners_of = owners_of
        self.register = register
        self._spread = spread
        self._confinements: dict[Address, str] = {}
        self._shortages: dict[Address, str] = {}
        self._running_attempts: dict[tuple[TaskId, int], Address] = {}
        self._clock_steps = ClockSteps()
        self._latest: dict[TaskId, tuple[int, Time]] = {}
        """The last attempt of each task, and when it has begun by a clock that nobody sets."""
        self._lost_pairs: set[tuple[Address, Address]] = set()
        self._statuses: list[NodeStatus] = []

    def report(self, event: TaskReport) -> bool:
        """Take in a report of an attempt; true if it has ended."""
        state = event.state
        key = (event.task, event.attempt)
        if event.node not in self.machines:  # its host is faulty, or still has the nodes of an earlier layout
            return state != "running"

        if state == "running":
            self._running_attempts[key] = event.node
            last_attempt, _ = self._latest.get(event.task, (event.attempt, 0))
            if last_attempt < event.attempt:  # it ended with its host, which may never report it
                self._running_attempts.pop((event.task, last_attempt), None)

            if last_attempt != event.attempt or event.task not in self._latest:
                # A host whose clock is ahead would have the task run for a negative time.
                began_us = min(self._clock_steps.monotonic_us(event.at_unix_us), monotonic_now_us())
                self._latest[event.task] = event.attempt, began_us

            return False

        if self._latest.get(event.task, (NEVER, 0))[0] == event.attempt:
            del self._latest[event.task]

        self._running_attempts.pop(key, None)
        return True

    def elapsed_us(self, task: TaskId) -> Time | None:
        """The time for which a task has run, however the clock was set meanwhile; None: no start was reported here."""
        attempt_and_start = self._latest.get(task)
        return None if attempt_and_start is None else monotonic_now_us() - attempt_and_start[1]

    def confined(self, event: ConfinementReport) -> list[Address]:
        """Take in the state of a host's nodes; returns those that are open to tasks now, or not any more."""
        closed_before = self.closed()

        self._confinements.update(dict.fromkeys(event.nodes, event.words))
        for node in event.nodes:
            if event.shortage:
                self._shortages[node] = event.shortage
            else:
                self._shortages.pop(node, None)
        return sorted(closed_before ^ self.closed())

    def closed(self) -> set[Address]:
        """Nodes on which nothing is placed: drained ones, and those short of something while there are other hosts."""
        return self.drained | self._shortages.keys() if self._spread else set(self.drained)

    def peer(self, event: PeerReport) -> None:
        (self._lost_pairs.add if event.lost else self._lost_pairs.discard)((event.by, event.peer))

    def forget_lost(self, entries: Collection[Address]) -> None:
        """Forget which components are lost to these; they report it again."""
        self._lost_pairs = {pair for pair in self._lost_pairs if pair[0] not in entries}

    @property
    def can_drain(self) -> bool:
        return self._owners_of is not None

    def masters(self, node: Address) -> tuple[Address, ...]:
        return self._owners_of(node) if self._owners_of is not None else ()

    def partitions(self) -> dict[Address, tuple[Address, ...]]:
        return {} if self._owners_of is None else {node: self.masters(node) for node in self.machines}

    def running_on(self, node: Address, limit: int) -> list[TaskId]:
        return sorted(task for (task, _), running_node in self._running_attempts.items() if running_node == node)[
            :limit
        ]

    def lost(self) -> set[Address]:
        """Nodes that do not answer: a component that watches them reports it, or their host is lost."""
        lost = {peer for _, peer in self._lost_pairs if peer in self.machines}
        return lost if self.register is None else lost | self.register.lost_nodes

    def absent(self) -> tuple[str, ...]:
        """A sentence about each host that does not answer, and about each that lacks something."""
        lost = () if self.register is None else self.register.absent()
        short: dict[str, list[Address]] = {}
        for node, words in self._shortages.items():
            short.setdefault(words, []).append(node)
        return (*lost, *(f"{_named(nodes)} cannot start tasks, {words}" for words, nodes in short.items()))

    def hosts(self) -> list[HostStatus]:
        return [] if self.register is None else self.register.statuses()

    def taken(self) -> dict[int, int]:
        """Machine -> how many tasks run there."""
        counts: dict[int, int] = {}
        for node in self._running_attempts.values():
            counts[self.machines[node]] = counts.get(self.machines[node], 0) + 1
        return counts

    def drained_machines(self) -> set[int]:
        return {self.machines[node] for node in self.drained if node in self.machines}

    def short_machines(self) -> set[int]:
        return {self.machines[node] for node in self._shortages if node in self.machines}

    def lost_machines(self) -> set[int]:
        return {self.machines[node] for node in self.lost()}

    def statuses(self) -> list[NodeStatus]:
        """All nodes, in order of their addresses' machines."""
        running, lost = dict[Address, int](), self.lost()
        for node in self._running_attempts.values():
            running[node] = running.get(node, 0) + 1

        if len(self._statuses) != len(self.machines):
            self._statuses[:] = self._empty()

        place_of = self.register.place_of if self.register is not None else _no_place
        for place, status in enumerate(self._statuses):
            address = status.address
            state = (
                running.get(address, 0),
                address in self.drained,
                self._confinements.get(address, ""),
                address in lost,
                self._shortages.get(address, ""),
                *place_of(address),
            )

            # With ten thousand nodes, few of which change between two calls, structs are made anew only for those.
            if state != (
                status.running,
                status.drained,
                status.held,
                status.lost,
                status.shortage,
                status.host,
                status.hostname,
            ):
                self._statuses[place] = replace(
                    status,
                    running=state[0],
                    drained=state[1],
                    held=state[2],
                    lost=state[3],
                    shortage=state[4],
                    host=state[5],
                    hostname=state[6],
                )

        return self._statuses[:]

    def _empty(self) -> list[NodeStatus]:
        statuses, cluster = [], self._fleet.cluster
        capacities = cluster.capacities or [()] * len(cluster.slots)

        for address, number in sorted(self.machines.items(), key=lambda item: (item[1], item[0])):
            machine = self._fleet.machines[number]
            words = {name: getattr(machine, name) for name in machine.__struct_fields__ if name != "labels"}
            statuses.append(
                NodeStatus(
                    address=address,
                    slots=cluster.slots[number],
                    running=0,
                    labels=dict(machine.labels),
                    offers=dict(zip(cluster.resources, capacities[number], strict=True)),
                    **words,
                )
            )

        return statuses


def _no_place(_: Address) -> tuple[str, str]:
    return "", ""


def _named(nodes: Sequence[Address]) -> str:
    """The first of some nodes, and how many more there are."""
    return f"{nodes[0]} and {len(nodes) - 1} more" if len(nodes) > 1 else nodes[0]


TASKS_MAX: Final = 20_000
"""Tasks whose decisions are kept; those of the oldest tasks are dropped first."""
KEPT_PER_TASK: Final = 8
RECENT_STEPS: Final = 30
"""Steps of `STEP_S` in which recent decisions are counted: five minutes."""


class DecisionBook:
    """Decisions that schedulers report: of a task the first and the last ones, and counts per pair of components.

    Attributes:
        has_decisions: true if any was reported.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.has_decisions = False
        self._clock_s = clock_s
        self._pairs: dict[tuple[Address, Address], list[int]] = {}
        self._recent: dict[tuple[Address, Address], deque[list[int]]] = {}
        # A plain dict looks for its first key among all that were deleted before it.
        self._of_task: OrderedDict[TaskId, list[LoggedDecision]] = OrderedDict()
        self._dropped_counts: dict[TaskId, int] = {}

    def note(self, report: DecisionReport) -> None:
        """Keep a decision; where a task has too many, the second oldest is dropped."""
        self.has_decisions = True
        task, peer = report.decision.task, report.decision.asked
        if peer:
            counts = self._pairs.get((report.by, peer))
            if counts is None:
                counts = self._pairs[report.by, peer] = [0, 0, 0]
                self._recent[report.by, peer] = deque(maxlen=RECENT_STEPS)

            recent = self._recent[report.by, peer]
            step = int(self._clock_s() // STEP_S)
            if not recent or recent[-1][3] != step:
                recent.append([0, 0, 0, step])

            for count in (counts, recent[-1]):
                if report.decision.chosen == "refused":
                    count[1] += 1
                elif report.decision.chosen == "placed":
                    count[0], count[2] = count[0] + 1, count[2] + report.decision.view_age_us

        decisions = self._of_task.get(task)
        decision = LoggedDecision(report.at_unix_us, report.by, report.decision)
        if decisions is not None:
            decisions.append(decision)
            if len(decisions) > KEPT_PER_TASK:
                # The first one tells why the task waited, and the last ones where it went.
                del decisions[1]
                self._dropped_counts[task] = self._dropped_counts.get(task, 0) + 1
            return

        self._of_task[task] = [decision]
        if len(self._of_task) > TASKS_MAX:
            oldest, _ = self._of_task.popitem(last=False)
            self._dropped_counts.pop(oldest, None)

    def pairs(self) -> list[PairStatus]:
        """Counts of decisions per pair of components, in order of names."""
        first_step = int(self._clock_s() // STEP_S) - RECENT_STEPS
        pairs = []
        for (by, peer), (decisions, refused, age_us) in sorted(self._pairs.items()):
            recent = [counts for counts in self._recent[by, peer] if counts[3] > first_step]
            count, late, ages_us = (sum(counts[place] for counts in recent) for place in range(3))
            pairs.append(
                PairStatus(
                    by=by,
                    asked=peer,
                    decisions=decisions,
                    refused=refused,
                    view_age_us=age_us // max(1, decisions),
                    recent=count,
                    recent_refused=late,
                    recent_view_age_us=ages_us // count if count else None,
                )
            )

        return pairs

    def steps(self, task: TaskId, nodes: Mapping[int, Address]) -> tuple[DecisionStep, ...]:
        """The decisions about a task, in order; `nodes` has the address on each machine."""
        decisions = self._of_task.get(task, ())
        dropped_count = self._dropped_counts.get(task, 0)
        return tuple(
            DecisionStep(
                at_us=at_us,
                by=by,
                chosen=decision.chosen,
                node=nodes.get(decision.machine, ""),
                asked=decision.asked,
                view_age_us=decision.view_age_us,
                omitted=dropped_count if place == 1 else 0,
                passed=tuple(RejectionCount(passed.scope, passed.reason, passed.count) for passed in decision.rejected),
            )
            for place, (at_us, by, decision) in enumerate(decisions)
        )


class ReportMemory(NamedTuple):
    """All that hosts and schedulers have reported since the API's start."""

    nodes: NodeTable
    counts: AttemptCounts
    decisions: DecisionBook


def candidates(
    cluster: Cluster,
    mask: int,
    request: Amounts,
    drained: Collection[int],
    running: Mapping[int, int],
    lost: Collection[int] = (),
    short: Collection[int] = (),
) -> list[tuple[str, list[int]]]:
    """The machines that are left of all, demand by demand.

    Args:
        request: the amounts that it asks for; empty where machines have slots.
        drained: machines on which nothing is placed.
        running: machine -> tasks that run there.
        lost: machines that do not answer.
        short: machines that lack something to start a task.
    """
    machines = list(range(len(cluster.slots)))
    steps = [("machines", machines)]
    machines = [machine for machine in machines if not mask & ~cluster.constraints[machine]]
    steps.append(("meet its constraints", machines))

    if request:
        machines = [
            machine
            for machine in machines
            if all(has >= amount for has, amount in zip(cluster.capacities[machine], request, strict=True))
        ]
        steps.append(("are large enough when empty", machines))

    machines = [machine for machine in machines if machine not in drained]
    steps.append(("are not drained", machines))

    if lost:
        machines = [machine for machine in machines if machine not in lost]
        steps.append(("answer", machines))

    if short:
        machines = [machine for machine in machines if machine not in short]
        steps.append(("lack nothing to start a task", machines))

    if not request:
        machines = [machine for machine in machines if running.get(machine, 0) < cluster.slots[machine]]
        steps.append(("have a free slot now", machines))

    return steps


def counted(steps: Iterable[tuple[str, list[int]]]) -> tuple[FunnelStep, ...]:
    """Machines per demand as numbers."""
    return tuple(FunnelStep(demand, len(machines)) for demand, machines in steps)
