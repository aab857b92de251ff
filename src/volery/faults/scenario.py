"""Scenarios: drawn by a seed within the fault classes that a design tolerates, and shrunk while they still fail.

A scenario is plain data: machines, jobs, delays, and a plan of faults that end by `HEAL_US`. Entries that are gone for
good return after every job is done.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from volery.core.capabilities import CrashRecovery, DueShares, GangPlacement
from volery.core.component import Architecture, Deployment, role_of
from volery.core.errors import InputError
from volery.core.gangs import check_gang_placement, check_gang_sizes, with_gangs
from volery.core.model import (
    PREFERS_RACK,
    REQUIRES_RACK,
    SECOND,
    UNLIMITED,
    Address,
    Amounts,
    Cluster,
    TagConstraint,
    TaskId,
    Time,
    split_evenly,
)
from volery.core.resources import SLOT
from volery.core.streams import Streams
from volery.core.tags import with_tags
from volery.core.trace import NO_GANG, Trace
from volery.core.workflows import with_parents
from volery.sim.faults import Crash, FaultPlan, MessageFaults, Partition
from volery.sim.orders import Reweighed

HEAL_US: Final[Time] = 15 * SECOND
"""Faults have ended by now: from here on progress is demanded."""
LATE_US: Final[Time] = 3_600 * SECOND
"""All must be quiet this long after healing and all work in sequence."""
MACHINES: Final = (12, 40)
MACHINES_ENOUGH: Final = 50
"""Enough for published defaults: 5 x 5 partitions, or 9 reserved workers in a group."""
MACHINES_SHARED: Final = (6, 8, 12, 20)
"""Numbers of machines where users have shares: few, for there to be contention."""
CONSTRAINTS: Final = 4
CRASHES_MAX: Final = 6
FLOWING: Final = (7, (2,))
"""Divisor and remainders of the seeds of storms with workflows; no seed that was kept before is one of them."""
REWEIGHED: Final = (5, (1, 2, 4))
"""Divisor and remainders of the seeds of storms in which weights of users change; none was kept before."""
LIVE: Final = (4, (3,))
"""Divisor and remainders of the seeds of storms in which designs have the parameters of federations."""
GONE: Final = (3, (1,))
"""Divisor and remainders of the seeds of storms in which entries that others can replace crash for good."""
TAGGED: Final = (13, (4, 9))
"""Divisor and remainders of the seeds of storms with tags, for designs that heed them; none was kept before."""
GANGED: Final = (9, (4, 7))
"""Divisor and remainders of the seeds of storms with gangs, for designs that start them whole."""
TOGETHER: Final = (11, (1, 9))
"""Divisor and remainders of the seeds of storms in which a group of machines crashes at once; none was kept before."""
REWEIGHS_MAX: Final = 5
WEIGHT_MAX: Final = 8
RESOURCES: Final = ("cpu_milli", "memory_mb")
LARGEST: Final[Amounts] = (8_000, 16_384)
"""Machines offer this, or a half or a quarter of it."""
KINDS_MAX: Final = 6
"""Distinct requests of one storm; one in twenty of its tasks asks for more than any machine has."""


class ScenarioJob(msgspec.Struct, frozen=True):
    """A job of a scenario.

    Args:
        arrival_us: arrival of the job.
        durations_us: durations of its tasks.
        needs: per task, the bit set of machine constraints that it needs.
        parents: per task, those of the job that it waits for; nothing: none waits.
        requests: units of each resource per task; empty: a slot.
        user: user of the job, where that matters.
        tags: tags of its tasks.
        gang_nodes: number of machines over which its tasks are spread, which run only together; 0: any; NO_GANG: each
            task for itself.
        gang_rack: rack of this gang, as `Gang.rack`.
    """

    arrival_us: Time
    durations_us: tuple[Time, ...]
    needs: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...] = ()
    requests: tuple[Amounts, ...] = ()
    user: str = ""
    tags: tuple[str, ...] = ()
    gang_nodes: int = NO_GANG
    gang_rack: int = 0


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything about one storm.

    Args:
        architecture: name of the design.
        seed: seed of the components' streams and of the network.
        parameters: parameters of the design.
        constraints, slots: per machine.
        capacities: amounts per machine; empty: slots.
        jobs: jobs in order of arrival.
        delay_us, jitter_us: delay and jitter of the network, faults apart.
        tie_shuffle: see `Options`.
        plan: plan of its faults.
        reweighs: changes of weights.
        racks: per machine; nothing: one for all.
        rules: tag constraints of the tasks.
    """

    architecture: str
    seed: int
    parameters: dict[str, Any]
    constraints: tuple[int, ...]
    slots: tuple[int, ...]
    jobs: tuple[ScenarioJob, ...]
    delay_us: Time
    jitter_us: Time
    tie_shuffle: int | None
    plan: FaultPlan
    capacities: tuple[Amounts, ...] = ()
    reweighs: tuple[Reweighed, ...] = ()
    racks: tuple[int, ...] = ()
    rules: tuple[TagConstraint, ...] = ()

    def cluster(self) -> Cluster:
        """The machines of the scenario."""
        resources = RESOURCES if self.capacities else ()
        return Cluster(self.constraints, self.slots, "storm", resources, self.capacities, racks=self.racks)

    def trace(self) -> Trace:
        """The jobs of the scenario."""
        first = [0]
        for job in self.jobs:
            first.append(first[-1] + len(job.durations_us))
        requests = [request for job in self.jobs for request in job.requests]
        kinds = {request: place for place, request in enumerate(dict.fromkeys(requests))}
        users = tuple([job.user for job in self.jobs])

        flat = Trace(
            "storm",
            array("q", [job.arrival_us for job in self.jobs]),
            array("q", first),
            array("q", [duration for job in self.jobs for duration in job.durations_us]),
            array("q", [sum(job.durations_us) // max(1, len(job.durations_us)) for job in self.jobs]),
            array("q", [needs for job in self.jobs for needs in job.needs]),
            users if any(users) else (),
            RESOURCES if self.capacities else (),
            tuple(kinds),
            array("H", [kinds[request] for request in requests]),
        )

        parents: list[tuple[int, ...]] = []
        for low, job in zip(first, self.jobs, strict=False):
            waits = job.parents or ((),) * len(job.durations_us)
            parents += [tuple(low + place for place in places) for places in waits]
        whole = with_parents(with_tags(flat, [job.tags for job in self.jobs], self.rules), parents)
        return with_gangs(whole, [job.gang_nodes for job in self.jobs], [job.gang_rack for job in self.jobs])

    def request_of(self, trace: Trace, task: TaskId) -> Amounts:
        """The amounts that a task takes, per resource or slots."""
        return trace.requests[trace.request[task]] if self.capacities else SLOT

    def config(self, architecture: Architecture) -> msgspec.Struct:
        """The configuration of the design."""
        defaults = msgspec.to_builtins(architecture.defaults)
        return msgspec.convert({**defaults, **self.parameters}, type(architecture.defaults))

    def build(self, architecture: Architecture) -> Deployment:
        """The components of the design, fresh; InputError: it cannot be built for this scenario."""
        return architecture.build(self.cluster(), self.config(architecture), Streams(self.seed))


def draw(architecture: Architecture, seed: int) -> Scenario:
    """The storm of a seed."""
    stream = Streams(seed).of(f"storm/{architecture.name}")
    parameters = dict(architecture.conformance.fault_parameters)
    if _is_among(seed, LIVE):
        parameters |= architecture.parameters_in_federation()

    machines = stream.randint(*MACHINES)
    constraints, slots = _machines(stream, MACHINES_ENOUGH)
    jobs = _flowing(_jobs(stream), seed)
    few_machines = (constraints[:machines], slots[:machines])

    scenario = Scenario(architecture.name, seed, parameters, *few_machines, jobs, 0, 0, None, FaultPlan())
    try:
        scenario.build(architecture)
    except InputError:  # a design that needs more machines than were drawn gets all of them
        scenario = replace(scenario, constraints=constraints, slots=slots)

    if architecture.conformance.fuzzed:
        scenario = _varied(architecture, scenario)

    if architecture.conformance.tags and _is_among(seed, TAGGED):
        tagged = _tagged(architecture, scenario)
        with suppress(InputError):  # other parameters may exclude tags
            tagged.build(architecture)
            scenario = tagged

    deployment = scenario.build(architecture)
    if _is_among(seed, GANGED) and deployment.capability(GangPlacement) is not None:
        scenario = _ganged(scenario, deployment)
    addresses = list(deployment.components)
    recovery = deployment.capability(CrashRecovery)
    mortal = addresses if recovery is not None else []

    scenario = replace(
        scenario,
        delay_us=stream.choice((0, 100, 500, 500, 5_000)),
        jitter_us=stream.choice((0, 0, 1_000)),
        tie_shuffle=stream.choice((None, seed)),
        plan=_plan(stream, architecture.conformance.tolerates, addresses, mortal, scenario),
    )

    if "crash:node" in architecture.conformance.tolerates and mortal and _is_among(seed, TOGETHER):
        scenario = _with_a_group(scenario, list(deployment.machines))

    standins = recovery.standins if recovery is not None else ()
    replaceable = [standin for standin in standins if f"gone:{role_of(standin)}" in architecture.conformance.tolerates]
    return _with_lost_entries(scenario, replaceable) if len(replaceable) > 1 and _is_among(seed, GONE) else scenario


def _is_among(seed: int, kind: tuple[int, tuple[int, ...]]) -> bool:
    """True if a seed has one of the remainders of a kind of storm."""
    divisor, remainders = kind
    return seed % divisor in remainders


def _tagged(architecture: Architecture, scenario: Scenario) -> Scenario:
    """With tags of tasks and constraints between them; a stream of its own leaves all else as it is.

    Services have machines of their own, or few of each rack; workers start near a cache that runs in all the storm.
    """
    stream = Streams(scenario.seed).of(f"storm/{scenario.architecture}/tags")
    machines = len(scenario.slots)
    clusters = int(scenario.parameters.get("lms", 1))

    halves = [half for piece in split_evenly(machines, clusters) for half in split_evenly(len(piece), 2)]
    racks = [rack for rack, half in enumerate(halves) for _ in half]

    rules = [
        TagConstraint(("apart",), ("apart",), 0, 0, "node"),
        TagConstraint(("few",), ("few",), 0, stream.choice((0, 2)), "rack"),
        TagConstraint(("noisy",), ("few",), 0, 0, "rack"),
        TagConstraint(("worker",), ("cache",), 1, UNLIMITED, stream.choice(("node", "rack"))),
    ]

    kinds = [(), ("apart",), ("apart", "few"), ("few",), ("noisy",), ("worker",)]
    jobs = [replace(job, tags=stream.choice(kinds)) for job in scenario.jobs]

    caches = stream.randint(1, 3)
    jobs.append(ScenarioJob(0, (HEAL_US,) * caches, (0,) * caches, tags=("cache",)))
    jobs.sort(key=lambda job: job.arrival_us)

    parameters = {**scenario.parameters, architecture.conformance.tags: True}
    return replace(scenario, parameters=parameters, racks=tuple(racks), rules=tuple(rules), jobs=tuple(jobs))


def _ganged(scenario: Scenario, deployment: Deployment) -> Scenario:
    """With jobs whose tasks run only together, alike and few enough for the empty cluster; all else stays as it is.

    Where a design heeds racks, machines lie in two, and a stream of its own lets gangs prefer or require one.
    """
    stream = Streams(scenario.seed).of(f"storm/{scenario.architecture}/gangs")
    rack_stream = Streams(scenario.seed).of(f"storm/{scenario.architecture}/racks of gangs")
    placement = deployment.capability(GangPlacement)
    heeds_racks = placement is not None and placement.racks
    if heeds_racks and not scenario.racks:
        scenario = replace(scenario, racks=tuple(machine % 2 for machine in range(len(scenario.slots))))
    cluster, jobs = scenario.cluster(), list[ScenarioJob]()

    for job in scenario.jobs:
        size = len(job.durations_us)
        nodes = stream.choice((0, 0, stream.randint(1, size))) if placement is not None and placement.shapes else 0
        is_gang = size > 1 and not any(job.parents) and not job.tags and stream.random() < 0.7
        wish = rack_stream.choice((0, 0, PREFERS_RACK, REQUIRES_RACK)) if heeds_racks and is_gang else 0
        gang = replace(job, needs=(0,) * size, requests=job.requests[:1] * size, gang_rack=wish)
        gang = replace(gang, gang_nodes=nodes if is_gang else NO_GANG)
        try:
            trace = replace(scenario, jobs=(gang,)).trace()
            check_gang_sizes(trace, cluster, has_shapes=True)
            check_gang_placement(trace, deployment, "storm", may_hold=False)
        except InputError:  # it is larger than the cluster, or than all parts of it
            is_gang = False
        jobs.append(gang if is_gang else job)
    return replace(scenario, jobs=tuple(jobs))


def _with_a_group(scenario: Scenario, nodes: Sequence[Address]) -> Scenario:
    """With neighbouring machines that crash together, and restart one by one or together.

    A stream of its own leaves all else as it is; a machine that crashes in the storm already is left out of the group.
    """
    stream = Streams(scenario.seed).of(f"storm/{scenario.architecture}/group")
    size = stream.randint(2, max(2, len(nodes) // 2))
    low = stream.randrange(len(nodes))

    start, end = _span(stream, 8 * SECOND)
    late_us = stream.choice((0, SECOND))

    busy = {crash.address for crash in scenario.plan.crashes}
    group = [node for node in nodes[low : low + size] if node not in busy]
    crashes = [Crash(start, node, min(HEAL_US, end + int(late_us * stream.random()))) for node in group]

    plan = replace(scenario.plan, crashes=(*scenario.plan.crashes, *crashes))
    return replace(scenario, plan=plan)


def _with_lost_entries(scenario: Scenario, entries: Sequence[Address]) -> Scenario:
    """With entries that crash for good, all but one at most: every job has to be done before they are restarted.

    They are restarted at last, to check that their old state does no harm. A stream of its own leaves the rest alone.
    """
    stream = Streams(scenario.seed).of(f"storm/{scenario.architecture}/gone")
    lost_entries = stream.sample(entries, stream.choice((1, 1, len(entries) - 1)))

    plan, back_us = scenario.plan, scenario.plan.deadline_us + SECOND
    crashes = [crash for crash in plan.crashes if crash.address not in lost_entries]
    crashes += [Crash(int(stream.random() * (HEAL_US - SECOND)), entry, back_us) for entry in lost_entries]
    plan = replace(plan, crashes=tuple(crashes), progress_us=plan.deadline_us, deadline_us=back_us + LATE_US)

    return replace(scenario, plan=plan)


def _varied(architecture: Architecture, scenario: Scenario) -> Scenario:
    """With parameters, amounts and users of a stream of their own: what else is drawn stays the same."""
    stream = Streams(scenario.seed).of(f"storm/{architecture.name}/varies")
    varied_parameters = {name: stream.choice(values) for name, values in architecture.conformance.fuzzed.items()}
    scenario = replace(scenario, parameters={**scenario.parameters, **varied_parameters})

    if architecture.vectors and stream.random() < 0.6:
        scenario = _with_amounts(stream, scenario)

    deployment = scenario.build(architecture)
    shares = deployment.capability(DueShares)
    if shares is None or not shares.guaranteed:
        return scenario

    scenario = _with_users(stream, scenario, tuple(shares.guaranteed))

    if shares.under is None or not _is_among(scenario.seed, REWEIGHED):
        return scenario
    return _reweighed(scenario, [share.name for share in shares.under({})])


def _with_amounts(stream: Random, scenario: Scenario) -> Scenario:
    kinds = [
        (stream.choice((0, 100, 250, 1_000, 2_000)), stream.choice((0, 64, 1_024, 4_096))) for _ in range(KINDS_MAX)
    ]
    too_large = (LARGEST[0] + 1, 1)
    jobs = []
    for job in scenario.jobs:
        requests = [too_large if stream.random() < 0.05 else stream.choice(kinds) for _ in job.needs]
        jobs.append(replace(job, requests=tuple(requests)))

    parts = [stream.choice((1, 2, 4)) for _ in scenario.slots]
    capacities = tuple([(LARGEST[0] // part, LARGEST[1] // part) for part in parts])
    return replace(scenario, capacities=capacities, jobs=tuple(jobs))


def _with_users(stream: Random, scenario: Scenario, users: tuple[str, ...]) -> Scenario:
    """The scenario with users, on few machines: a user exceeds its share when others arrive, again and again."""
    machines = stream.choice(MACHINES_SHARED)
    factor = stream.choice((1, 4, 10))

    jobs = []
    for job in scenario.jobs:
        user = stream.choice((*users, *users, ""))
        durations = tuple([factor * duration for duration in job.durations_us])
        jobs.append(replace(job, user=user, durations_us=durations))

    return replace(
        scenario,
        jobs=tuple(jobs),
        constraints=scenario.constraints[:machines],
        slots=scenario.slots[:machines],
        capacities=scenario.capacities[:machines],
    )


def _reweighed(scenario: Scenario, names: Sequence[str]) -> Scenario:
    """With other weights of users and organisations from time to time; a stream of its own leaves all else as it is."""
    stream = Streams(scenario.seed).of(f"storm/{scenario.architecture}/reweighs")
    changes = [
        Reweighed(stream.choice(names), stream.randint(1, WEIGHT_MAX), int(stream.random() * HEAL_US))
        for _ in range(stream.randint(1, REWEIGHS_MAX))
    ]
    return replace(scenario, reweighs=tuple(sorted(changes, key=lambda change: change.at_us)))


def _machines(stream: Random, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    constrained = stream.random() < 0.5
    slots_max = stream.choice((1, 1, 3))
    return (
        tuple(stream.getrandbits(CONSTRAINTS) if constrained else 0 for _ in range(count)),
        tuple(stream.randint(1, slots_max) for _ in range(count)),
    )


def _jobs(stream: Random) -> tuple[ScenarioJob, ...]:
    count = stream.randint(3, 30)
    constrained = stream.random() < 0.5
    mean_us, span_us = stream.choice((100_000, 500_000, 2 * SECOND)), stream.choice((0, SECOND, 10 * SECOND))

    jobs = []
    for _ in range(count):
        size = stream.choice((1, 1, 2, 5, 12, stream.randint(10, 40)))
        durations = [0 if stream.random() < 0.05 else 1 + int(stream.expovariate(1 / mean_us)) for _ in range(size)]
        needs = [
            1 << stream.randrange(CONSTRAINTS) if constrained and stream.random() < 0.4 else 0 for _ in range(size)
        ]
        jobs.append(ScenarioJob(int(stream.random() * span_us), tuple(durations), tuple(needs)))

    return tuple(sorted(jobs, key=lambda job: job.arrival_us))


def _flowing(jobs: tuple[ScenarioJob, ...], seed: int) -> tuple[ScenarioJob, ...]:
    """In some storms tasks wait for others; a stream of its own leaves all else of a seed as it is."""
    if not _is_among(seed, FLOWING):
        return jobs
    stream = Streams(seed).of("storm/workflows")
    flowing_jobs = []

    for job in jobs:
        width = stream.choice((1, 2, 5, 40))
        waits = [
            tuple(sorted({stream.randrange(max(0, k - width), k) for _ in range(stream.choice((0, 1, 1, 3)))}))
            if k
            else ()
            for k in range(len(job.durations_us))
        ]
        flowing_jobs.append(replace(job, parents=tuple(waits)))
    return tuple(flowing_jobs)


def _span(stream: Random, longest_us: Time) -> tuple[Time, Time]:
    start = int(stream.random() * (HEAL_US - SECOND))
    return start, min(HEAL_US, start + int(longest_us * stream.random() ** 2))


def _plan(
    stream: Random,
    tolerates: frozenset[str],
    addresses: list[Address],
    mortal: list[Address],
    scenario: Scenario,
) -> FaultPlan:
    messages, partitions = [], []

    for _ in range(stream.randint(0, 2)):
        start, end = _span(stream, HEAL_US)
        drop, repeat, delay = (
            stream.choice((0.0, 0.02, 0.3)) if fault in tolerates else 0.0 for fault in ("loss", "duplication", "delay")
        )
        extra_us = stream.choice((1_000, 30_000, 300_000))
        extra_us = extra_us if "delay" in tolerates else 0
        messages.append(MessageFaults(drop, repeat, delay, extra_us, start_us=start, end_us=end))

    for _ in range(stream.randint(0, 3) if "partition" in tolerates else 0):
        start, end = _span(stream, 8 * SECOND)
        sides = stream.sample(addresses, k=min(len(addresses) - 1, stream.choice((1, 2, len(addresses) // 2))))
        cut = stream.choice((len(sides), len(sides) // 2))
        partitions.append(Partition(start, end, tuple(sides[: max(1, cut)]), tuple(sides[max(1, cut) :])))

    mortal = [address for address in mortal if f"crash:{role_of(address)}" in tolerates]
    deadline_us = HEAL_US + LATE_US + sum(sum(job.durations_us) for job in scenario.jobs)
    return FaultPlan(tuple(messages), tuple(partitions), _crashes(stream, mortal), deadline_us)


def _crashes(stream: Random, mortal: list[Address]) -> tuple[Crash, ...]:
    """Of a role first, then of a component: there are many nodes and few masters."""
    crashes = []
    up_at = dict[Address, Time]()
    by_role: dict[str, list[Address]] = {}
    for address in mortal:
        by_role.setdefault(role_of(address), []).append(address)

    for _ in range(stream.randint(0, CRASHES_MAX) if mortal else 0):
        address = stream.choice(by_role[stream.choice(list(by_role))])
        start, end = _span(stream, 8 * SECOND)
        if start > up_at.get(address, -1):
            crashes.append(Crash(start, address, end))
            up_at[address] = end

    return tuple(crashes)


RUNS_MAX: Final = 400
"""Runs that one search for a smaller scenario may take."""

Item = TypeVar("Item")


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool], runs_max: int = RUNS_MAX) -> Scenario:
    """The smallest scenario found that still fails.

    Args:
        scenario: one that fails.
        fails: True if another fails in the same way.
        runs_max: number of runs that may be tried.
    """
    runs = 0
    # Greedy: after each success the candidates begin anew, the smallest first.
    progress = True

    while progress:
        progress = False
        for candidate in _smaller(scenario):
            if runs >= runs_max:
                return scenario
            runs += 1
            if fails(candidate):
                scenario = candidate
                progress = True
                break
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Smaller candidates, the smallest first."""
    plan = scenario.plan
    for jobs in _fewer(scenario.jobs):
        if jobs:
            yield replace(scenario, jobs=jobs)

    for kind in ("messages", "partitions", "crashes"):
        for faults in _fewer(getattr(plan, kind)):
            yield replace(scenario, plan=replace(plan, **{kind: faults}))

    for reweighs in _fewer(scenario.reweighs):
        yield replace(scenario, reweighs=reweighs)

    if scenario.jitter_us:
        yield replace(scenario, jitter_us=0)
    if scenario.tie_shuffle is not None:
        yield replace(scenario, tie_shuffle=None)

    for keep in (len(scenario.slots) // 2, len(scenario.slots) - 1):
        if keep:
            yield _on_fewer_machines(scenario, keep)

    for place, job in enumerate(scenario.jobs):
        for keep in (1, len(job.durations_us) // 2):
            if 0 < keep < len(job.durations_us):
                smaller = replace(
                    job,
                    durations_us=job.durations_us[:keep],
                    needs=job.needs[:keep],
                    parents=job.parents[:keep],
                    requests=job.requests[:keep],
                )
                yield replace(scenario, jobs=_with(scenario.jobs, place, smaller))
        if job.parents:
            yield replace(scenario, jobs=_with(scenario.jobs, place, replace(job, parents=())))

    for place, partition in enumerate(plan.partitions):
        for side in _fewer(partition.one):
            if side:
                partitions = _with(plan.partitions, place, replace(partition, one=side))
                yield replace(scenario, plan=replace(plan, partitions=partitions))


def _with(items: tuple[Item, ...], place: int, item: Item) -> tuple[Item, ...]:
    """The items with another one at a place."""
    return (*items[:place], item, *items[place + 1 :])


def _fewer(items: tuple[Item, ...]) -> Iterator[tuple[Item, ...]]:
    """The items without a half, then without a quarter, and so on to single items."""
    size = len(items)
    while size:
        size = size // 2 if size > 1 else 0
        for at in range(0, len(items), max(1, size)) if size or len(items) == 1 else ():
            yield (*items[:at], *items[at + max(1, size) :])


def _on_fewer_machines(scenario: Scenario, keep: int) -> Scenario:
    """The scenario on its first machines, without faults of the others' nodes."""
    removed_nodes = {f"node/{machine}" for machine in range(keep, len(scenario.slots))}

    plan = scenario.plan
    partitions = [
        replace(
            partition,
            one=tuple(address for address in partition.one if address not in removed_nodes),
            other=tuple(address for address in partition.other if address not in removed_nodes),
        )
        for partition in plan.partitions
        if not partition.other or set(partition.other) - removed_nodes
    ]

    plan = replace(
        plan,
        partitions=tuple(partition for partition in partitions if partition.one),
        crashes=tuple(crash for crash in plan.crashes if crash.address not in removed_nodes),
    )

    return replace(
        scenario,
        constraints=scenario.constraints[:keep],
        slots=scenario.slots[:keep],
        capacities=scenario.capacities[:keep],
        plan=plan,
    )
