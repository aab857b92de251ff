"""Small clusters and workloads on which every design must behave, made from a seed.

They hold what is legal and easily forgotten: constraints, machines with several slots, tasks of duration 0, equal
arrivals, jobs without tasks, jobs that come in chunks, tasks that fit no machine, and more work than slots. For designs
that place vectors there are machines that offer several resources, tasks that use up one of them before the others, and
shares of GPUs.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from random import Random

import msgspec

from volery.core.capabilities import GangPlacement
from volery.core.component import Architecture
from volery.core.gangs import with_gangs
from volery.core.model import (
    CHUNK_TASKS,
    NEVER,
    PREFERS_RACK,
    REQUIRES_RACK,
    SECOND,
    UNLIMITED,
    Amounts,
    Cluster,
    Job,
    NodeGroup,
    TagConstraint,
    Time,
)
from volery.core.resources import DEVICE_MILLI, WHOLE
from volery.core.streams import Streams
from volery.core.tags import with_tags
from volery.core.trace import NO_GANG, Trace
from volery.core.workflows import below, refused, with_parents

MACHINES = 50
"""Enough for the published defaults: 5 x 5 partitions of 2, or 9 reserved workers in a group."""
CONSTRAINTS = 6
NOWHERE = 1 << CONSTRAINTS
"""A constraint that no machine meets."""
USERS = ("a", "b", "", "c", "a")
"""Users of jobs, in turn; some have no name."""
RESOURCES = ("cpu_milli", "memory_mb", "gpus")
GPU_RESOURCES = ("cpu_milli", "memory_mb", "gpu_milli")
"""The last in thousandths of devices, of which a share lies on one."""
GPU_SHARES = (0, 250, 300, 400, 500, 600, 700, 800, 1000, 1500)
TOO_LARGE: Amounts = (1, 1 << 20, 0)
"""A request that no machine holds."""
GANG_MACHINES = 12
KINDS = 12
"""Further requests in a workload."""
LONG_FACTOR = 20_000
"""Some jobs are long by any published cutoff."""


class Case(msgspec.Struct, frozen=True):
    """A workload on a cluster.

    Args:
        name, seed: name and seed that failures name.
        trace, cluster: these.
        gangs: the tasks of a job start together or never, but for workflows and jobs in parts; such cases have
            slots alone.
    """

    name: str
    seed: int
    trace: Trace
    cluster: Cluster
    gangs: bool = False

    def satisfiable(self, design: Architecture | None = None) -> list[bool]:
        """Per task, whether some machine meets its constraints and, empty, holds it, and all that it waits for.

        Args:
            design: a design whose machines may be reserved for some tasks.
        """
        slots: Sequence[Amounts] = ((),) * len(self.cluster.constraints)
        machines = set(zip(self.cluster.constraints, self.cluster.capacities or slots, strict=True))
        needs = self.trace.constraints or [0] * self.trace.task_count
        requests = [self.trace.requests[k] for k in self.trace.request] or [()] * self.trace.task_count

        fits = {
            (need, amounts): any(
                not need & ~bits and all(a <= b for a, b in zip(amounts, offered, strict=True))
                for bits, offered in machines
            )
            for need, amounts in set(zip(needs, requests, strict=True))
        }

        alone = [fits[kind] for kind in zip(needs, requests, strict=True)]
        placement = None
        if design is not None:
            deployment = design.build(self.cluster, design.defaults, Streams(0))
            placement = deployment.capability(GangPlacement)
            refused_tasks = refused(self.trace, deployment)
            alone = [fit and not is_refused for fit, is_refused in zip(alone, refused_tasks, strict=True)]

        # A task that waits for one that never runs never runs either.
        waits_in_vain = below(self.trace, [not fit for fit in alone])
        can_run = [fit and not late for fit, late in zip(alone, waits_in_vain, strict=True)]

        if not self.gangs and not self.trace.gang_nodes:
            return can_run

        first, late = self.trace.first, self.trace.submit_us
        jobs = [range(first[job], first[job + 1]) for job in range(self.trace.job_count)]
        # A job that is submitted in parts, or whose tasks wait for each other, cannot start at one instant: no gang.
        flows = [any(map(self.trace.parents_of, tasks)) or len({*late[tasks.start : tasks.stop]}) > 1 for tasks in jobs]
        return [
            fit
            for job, tasks in enumerate(jobs)
            for fit in (
                self._whole(job, placement)
                if self._is_gang(job) and not flows[job]
                else can_run[tasks.start : tasks.stop]
            )
        ]

    def _is_gang(self, job: int) -> bool:
        return self.gangs or self.trace.gang_of(job) is not None

    def _whole(self, job: int, placement: GangPlacement | None) -> list[bool]:
        """Per task of a gang, the same: whether the empty cluster, or a part of it, holds all of them.

        Members that ask for amounts are alike, and their sizes were checked.
        """
        low, high = self.trace.first[job : job + 2]
        if self.cluster.resources:
            return [True] * (high - low)
        needs = self.trace.constraints[low:high] or [0] * (high - low)
        parts: tuple[Cluster, ...] = (self.cluster,)
        if placement is not None and placement.parts is not None:
            parts = placement.parts(Job(job, high - low, (), self.trace.sent_estimate_us(job))).clusters
        return [any(_holds(part, needs) for part in parts)] * (high - low)


def _holds(cluster: Cluster, needs: Sequence[int]) -> bool:
    """True if the empty machines hold tasks with these constraints together, by augmenting paths."""
    units = [bits for bits, slots in zip(cluster.constraints, cluster.slots, strict=True) for _ in range(slots)]
    taken_by: dict[int, int] = {}

    def finds(task: int, units_seen: set[int]) -> bool:
        for unit, bits in enumerate(units):
            if unit not in units_seen and not needs[task] & ~bits:
                units_seen.add(unit)
                if unit not in taken_by or finds(taken_by[unit], units_seen):
                    taken_by[unit] = task
                    return True
        return False

    return len(needs) <= len(units) and all(finds(task, set()) for task in range(len(needs)))


def trace_of(
    name: str,
    arrivals: Sequence[Time],
    jobs: Sequence[Sequence[Time]],
    constraints: Sequence[Sequence[int]] = (),
) -> Trace:
    """A trace from the true durations of each job's tasks; schedulers receive each job's mean.

    Args:
        arrivals: time of arrival per job, microseconds.
        jobs: per job, the durations of its tasks, microseconds.
        constraints: per job, the constraint sets of its tasks; nothing when no task has any.
    """
    first, flat = [0], [duration for job in jobs for duration in job]

    for job in jobs:
        first.append(first[-1] + len(job))
    return Trace(
        name,
        array("q", arrivals),
        array("q", first),
        array("q", flat),
        array("q", [sum(job) // len(job) if job else 0 for job in jobs]),
        array("q", [mask for job in constraints for mask in job]),
    )


def lone_task(duration_us: Time = SECOND, arrival_us: Time = 3 * SECOND) -> Trace:
    """One job of one task."""
    return trace_of("lone task", [arrival_us], [[duration_us]])


def _cluster(stream: Random, slots_max: int, constrained: bool) -> Cluster:
    constraints = tuple(stream.getrandbits(CONSTRAINTS) if constrained else 0 for _ in range(MACHINES))
    return Cluster(constraints, tuple(stream.randint(1, slots_max) for _ in range(MACHINES)), "conformance")


def _durations(stream: Random, tasks: int) -> list[Time]:
    factor = LONG_FACTOR if stream.random() < 0.1 else 1
    return [0 if stream.random() < 0.1 else factor * (1 + int(stream.expovariate(5.0) * SECOND)) for _ in range(tasks)]


def _needs(stream: Random, tasks: int) -> list[int]:
    def need() -> int:
        mask = 0
        for _ in range(stream.choice((0, 0, 1, 1, 2, 3))):
            mask |= 1 << stream.randrange(CONSTRAINTS)
        return mask | (NOWHERE if stream.random() < 0.02 else 0)

    return [need() for _ in range(tasks)]


def _mixed(name: str, stream: Random, jobs: int, instants: Sequence[Time], constrained: bool) -> Trace:
    arrivals = sorted(stream.choice(instants) for _ in range(jobs))
    sizes = [stream.choice((0, 1, 1, 1, 3, 7, stream.randint(8, 90))) for _ in range(jobs)]
    needs = [_needs(stream, size) for size in sizes] if constrained else ()
    trace = trace_of(name, arrivals, [_durations(stream, size) for size in sizes], needs)
    return msgspec.structs.replace(trace, user=tuple(USERS[j % len(USERS)] for j in range(jobs)))


def _chunked(name: str, stream: Random) -> Trace:
    sizes = (3, CHUNK_TASKS + 1 + stream.randrange(200), 0, CHUNK_TASKS, 1)
    jobs = [[stream.choice((0, 1000, 2500, 40_000)) for _ in range(size)] for size in sizes]
    needs = [[stream.choice((0, 0, 0, 1, 2, 3, NOWHERE)) for _ in range(size)] for size in sizes]
    return trace_of(name, [0, 0, 500, SECOND, SECOND], jobs, needs)


def mixed_cases(seed: int = 0) -> list[Case]:
    """Cases of some hundred tasks of several users: with and without constraints, at leisure and in bursts."""
    cases = []
    for name, jobs, span, constrained, slots_max in (
        ("plain", 60, 8 * SECOND, False, 1),
        ("constrained", 60, 8 * SECOND, True, 3),
        ("burst", 40, 1500, True, 1),
    ):
        stream = Streams(seed).of(f"conformance/{name}")
        instants = [0] + [int(stream.random() * span) for _ in range(max(2, jobs // 2))]
        cluster = _cluster(stream, slots_max, constrained)
        cases.append(Case(name, seed, _mixed(name, stream, jobs, instants, constrained), cluster))
    return cases


def edge_cases(seed: int = 0) -> list[Case]:
    """Jobs in chunks; nothing but jobs that need no machine."""
    stream = Streams(seed).of("conformance/edges")
    cluster = _cluster(stream, 2, True)
    empty_jobs = trace_of("nothing to run", [0, 0, 7], [[], [5, 5], []], [[], [NOWHERE, NOWHERE | 1], []])
    return [
        Case("chunks", seed, _chunked("chunks", stream), cluster),
        Case("nothing to run", seed, empty_jobs, cluster),
    ]


def vector_cases(seed: int = 0) -> list[Case]:
    """Tasks that ask for several resources, at leisure and in a burst."""
    cases = []
    for name, jobs, span in (("vectors", 60, 8 * SECOND), ("vectors in a burst", 40, 1500)):
        stream = Streams(seed).of(f"conformance/{name}")
        instants = [0] + [int(stream.random() * span) for _ in range(max(2, jobs // 2))]

        slots = _cluster(stream, 1, True)
        capacities = tuple(
            (stream.choice((1000, 4000, 16000)), stream.choice((1024, 4096, 16384)), stream.choice((0, 0, 2)))
            for _ in range(MACHINES)
        )
        cluster = msgspec.structs.replace(slots, resources=RESOURCES, capacities=capacities)

        trace = _mixed(name, stream, jobs, instants, True)
        # The edges first: more than any machine has, nothing, and all of the largest machine.
        requests = [TOO_LARGE, (0, 0, 0), (16000, 16384, 0), (1000, 1, 1)]
        requests += [
            (stream.randint(1, 4000), stream.randint(1, 4096), stream.choice((0, 0, 0, 1))) for _ in range(KINDS)
        ]

        request_numbers = array("H", [stream.randrange(len(requests)) for _ in range(trace.task_count)])
        trace = msgspec.structs.replace(trace, resources=RESOURCES, requests=tuple(requests), request=request_numbers)
        cases.append(Case(name, seed, trace, cluster))
    return [*cases, device_case(seed)]


def device_case(seed: int = 0) -> Case:
    """Tasks that ask for shares of devices, on machines that have less of these than of anything else."""
    stream = Streams(seed).of("conformance/devices")
    instants = [int(stream.random() * SECOND) for _ in range(20)]
    capacities = tuple([(16000, 16384, stream.choice((0, 1000, 2000, 2000, 2500))) for _ in range(MACHINES)])
    cluster = msgspec.structs.replace(_cluster(stream, 1, True), resources=GPU_RESOURCES, capacities=capacities)
    trace = _mixed("devices", stream, 40, instants, True)
    requests = tuple([(stream.randint(1, 4000), stream.randint(1, 4096), milli) for milli in GPU_SHARES])
    drawn = array("H", [stream.randrange(len(requests)) for _ in range(trace.task_count)])
    trace = msgspec.structs.replace(trace, resources=GPU_RESOURCES, requests=requests, request=drawn)
    return Case("devices", seed, trace, cluster)


def gang_cases(seed: int = 0, machines: int = GANG_MACHINES) -> list[Case]:
    """Gangs of all sizes up to three times what the cluster holds, some of tasks that need constraints."""
    stream = Streams(seed).of("conformance/gangs")
    constraints = tuple([1 if machine % 3 == 0 else 0 for machine in range(machines)])
    cluster = Cluster(constraints, tuple([stream.randint(1, 2) for _ in constraints]), "conformance")

    slot_count = cluster.slot_count
    rare = sum(slots for bits, slots in zip(constraints, cluster.slots, strict=True) if bits)
    sizes = [
        (0, slot_count + 1),
        (0, slot_count),
        (rare + 1, 0),
        (rare, slot_count - rare),
        (0, 2 * slot_count),
        (0, 3 * slot_count),
        (1, 1),
    ]
    sizes += [(stream.randint(0, 3), stream.randint(1, 8)) for _ in range(20)]

    needs = [[1] * rare_tasks + [0] * other_tasks for rare_tasks, other_tasks in sizes]
    needs += [[0, 0, NOWHERE], []]

    jobs = [[stream.choice((0, 1000, 30_000)) for _ in job] for job in needs]
    arrivals = [stream.randrange(0, SECOND) for _ in jobs]
    return [Case("gangs", seed, trace_of("gangs", sorted(arrivals), jobs, needs), cluster, gangs=True)]


def rigid_cases(
    seed: int, *, has_shapes: bool, has_amounts: bool, has_racks: bool, machines: int = GANG_MACHINES
) -> list[Case]:
    """Gangs beside single tasks, by constraints, in shapes, and by amounts; none is larger than the cluster.

    Args:
        machines: count of machines.
        has_shapes: true for gangs spread over so many machines.
        has_amounts: true for gangs that ask for amounts, too, devices and shares of them among these.
        has_racks: true for gangs that prefer or require one rack.
    """
    stream = Streams(seed).of("conformance/rigid")
    (gangs,) = gang_cases(seed, machines)
    slots = gangs.cluster.slot_count
    sizes = [gangs.trace.first[job + 1] - gangs.trace.first[job] for job in range(gangs.trace.job_count)]
    nodes = [0 if 1 < size <= slots and stream.random() < 0.8 else NO_GANG for size in sizes]
    cases = [Case("rigid jobs", seed, with_gangs(gangs.trace, nodes), gangs.cluster)]

    if has_shapes:
        cases.append(_shaped_case(seed, machines))
    if has_amounts:
        cases += [_case_of_amounts(seed, machines), _case_of_devices(seed, machines)]
    if has_racks:
        cases.append(_case_of_racks(seed, machines, has_shapes=has_shapes))
    return cases


def _case_of_devices(seed: int, machines: int) -> Case:
    """Gangs whose members ask for whole devices, for a share of one, or for none."""
    stream = Streams(seed).of("conformance/devices of gangs")
    resources = "cpu_milli", DEVICE_MILLI
    cluster = Cluster((0,) * machines, (1,) * machines, "conformance", resources, ((8000, 2 * WHOLE),) * machines)
    kinds = ((1000, WHOLE), (1000, 600), (1000, 250), (2000, 2 * WHOLE), (1000, 0))
    places = [stream.randrange(len(kinds)) for _ in range(24)]
    sizes = [stream.randint(1, machines) for _ in places]
    arrivals = sorted(stream.randrange(SECOND) for _ in sizes)
    trace = trace_of("devices", arrivals, [[stream.choice((1000, 30_000))] * size for size in sizes])
    request = array("H", [place for place, size in zip(places, sizes, strict=True) for _ in range(size)])
    trace = msgspec.structs.replace(trace, resources=cluster.resources, requests=kinds, request=request)
    return Case("rigid jobs with devices", seed, with_gangs(trace, [0] * len(sizes)), cluster)


def _case_of_racks(seed: int, machines: int, *, has_shapes: bool) -> Case:
    """Gangs that require or prefer one of two racks, of machines that do not follow each other."""
    stream = Streams(seed).of("conformance/racks of gangs")
    racks = tuple(machine % 2 for machine in range(machines))
    cluster = msgspec.structs.replace(Cluster.uniform(machines, slots=2), racks=racks)
    wishes = [stream.choice((0, PREFERS_RACK, REQUIRES_RACK, REQUIRES_RACK)) for _ in range(24)]
    rack_size = machines // 2
    nodes = [stream.randint(1, rack_size) if has_shapes and stream.random() < 0.5 else 0 for _ in wishes]
    sizes = [stream.randint(max(1, count), 2 * (count or rack_size)) for count in nodes]
    arrivals = sorted(stream.randrange(SECOND) for _ in sizes)
    trace = trace_of("racks", arrivals, [[stream.choice((0, 1000, 30_000))] * size for size in sizes])
    return Case("rigid jobs in racks", seed, with_gangs(trace, nodes, wishes), cluster)


def _case_of_amounts(seed: int, machines: int) -> Case:
    """Gangs whose members are alike and ask for several resources."""
    stream = Streams(seed).of("conformance/amounts of gangs")
    cluster = Cluster((0,) * machines, (1,) * machines, "conformance", RESOURCES, ((4000, 400, 2),) * machines)
    kinds = ((1000, 50, 0), (2000, 300, 1), (4000, 10, 2))
    sizes = [stream.choice((1, 2, machines, machines)) for _ in range(24)]
    arrivals = sorted(stream.randrange(SECOND) for _ in sizes)
    trace = trace_of("amounts", arrivals, [[stream.choice((1000, 30_000))] * size for size in sizes])
    request = array("H", [kind for size in sizes for kind in [stream.randrange(len(kinds))] * size])
    trace = msgspec.structs.replace(trace, resources=RESOURCES, requests=kinds, request=request)
    return Case("rigid jobs with amounts", seed, with_gangs(trace, [0] * len(sizes)), cluster)


def _shaped_case(seed: int, machines: int) -> Case:
    """Gangs of all shapes that the cluster holds."""
    stream = Streams(seed).of("conformance/shapes")
    cluster = Cluster.uniform(machines, slots=3)
    nodes = [stream.randint(1, machines) for _ in range(24)]
    jobs = [[stream.choice((0, 1000, 30_000))] * stream.randint(count, 3 * count) for count in nodes]
    arrivals = sorted(stream.randrange(SECOND) for _ in jobs)
    return Case("rigid jobs in shapes", seed, with_gangs(trace_of("shapes", arrivals, jobs), nodes), cluster)


def tag_cases(seed: int = 0) -> list[Case]:
    """Services that keep apart, workers near their caches, groups that gather, and at most some in a rack.

    There are more tasks than slots, services with more tasks than machines, and caches that end before all workers.
    """
    stream = Streams(seed).of("conformance/tags")
    machines, racks = 12, 3

    slots = tuple([stream.randint(1, 3) for _ in range(machines)])
    cluster = Cluster(
        (0,) * machines, slots, "tags", racks=tuple([place * racks // machines for place in range(machines)])
    )

    jobs = list[list[Time]]()
    names = list[tuple[str, ...]]()
    rules = [
        TagConstraint(("worker",), ("worker",), 0, 1, "node"),
        TagConstraint(("noisy",), ("quiet",), 0, 0, "rack"),
        TagConstraint(("group",), ("group", "g"), 2, UNLIMITED, "rack"),
        TagConstraint(("spread",), ("spread",), 0, 2, "rack"),
    ]
    for number in range(30):
        application = f"app-{number}"
        kind = ("service", "cached", "noisy", "quiet", "group", "spread", "")[number % 7]
        short = [stream.choice((1000, 20_000, 30_000)) for _ in range(stream.randint(1, 6))]
        if kind == "cached":
            jobs.append([stream.choice((40_000, 400_000))])
            names.append(("cache", application))
            group: NodeGroup = stream.choice(("node", "rack"))
            rules.append(TagConstraint(("worker", application), ("cache", application), 1, UNLIMITED, group))
        elif kind == "service":
            # Up to 24 tasks for 12 machines: some services cannot have all their tasks apart at once.
            short = short * 4
            rules.append(TagConstraint((application,), (application,), 0, 0, "node"))
        jobs.append(short)
        tags_of_kind = {
            "cached": ("worker", application),
            "group": ("group", "g"),
            "": (),
            "service": ("service", application),
        }
        names.append(tags_of_kind.get(kind, (kind,)))

    arrivals = sorted([stream.randrange(5) * 40_000 for _ in jobs])
    return [Case("tags", seed, with_tags(trace_of("tags", arrivals, jobs), names, rules), cluster)]


def _waits(stream: Random, size: int) -> list[tuple[int, ...]]:
    """Per task of a job, places of its parents: none, a chain, fork and join, or layers."""
    shape = stream.choice(("none", "chain", "fork-join", "layers", "layers")) if size > 1 else "none"
    if shape == "chain":
        return [(), *[(place,) for place in range(size - 1)]]
    if shape == "fork-join":
        middle = tuple(range(1, size - 1))
        return [(), *[(0,) for _ in middle], middle or (0,)]
    if shape == "layers":
        return [tuple(sorted(stream.sample(range(k), min(k, stream.choice((0, 1, 1, 2, 3)))))) for k in range(size)]
    return [()] * size


def flowing(trace: Trace, stream: Random) -> Trace:
    """The trace with tasks that wait for others of their job."""
    parents: list[tuple[int, ...]] = []
    for job in range(trace.job_count):
        low = trace.first[job]
        waits = _waits(stream, trace.first[job + 1] - low)
        parents += [tuple(low + place for place in places) for places in waits]
    return with_parents(trace, parents)


def in_parts(trace: Trace, stream: Random) -> Trace:
    """The trace with some tasks submitted later than their jobs, though not before those that they wait for."""
    submit_us = array("q")
    for job in range(trace.job_count):
        for task in range(trace.first[job], trace.first[job + 1]):
            above = [submit_us[parent] for parent in trace.parents_of(task)]
            later = stream.choice((0, 0, 0, 700, SECOND)) if task > trace.first[job] else 0
            submit_us.append(max([trace.arrival_us[job], *above]) + later)
    return msgspec.structs.replace(trace, submit_us=submit_us)


def flow_cases(seed: int = 0, vectors: bool = False) -> list[Case]:
    """Workflows: some submitted in parts, with tasks below one that fits nowhere, in chunks, or with parents later."""
    cases = [case for case in busy_cases(seed, vectors) if case.name not in ("plain", "vectors in a burst", "devices")]
    stream = Streams(seed).of("conformance/flows")

    workflow_cases = [
        Case(f"workflows, {case.name}", seed, flowing(case.trace, stream), case.cluster) for case in cases
    ]
    workflow_cases[0] = msgspec.structs.replace(workflow_cases[0], trace=in_parts(workflow_cases[0].trace, stream))

    # More than one chunk, so that parents and children are submitted apart.
    wide = CHUNK_TASKS + 3
    trace = trace_of("wide", [0, 0], [[1000, *[stream.choice((0, 900)) for _ in range(wide)], 5], [7, 0, 0, 9]])
    parents = [(), *[(0,)] * wide, tuple(range(1, wide + 1))]
    second_parents = [tuple(wide + 2 + k for k in places) for places in ((), (0,), (1,), (0, 2))]

    wide_case = Case("workflows, wide", seed, with_parents(trace, [*parents, *second_parents]), cases[0].cluster)
    return [
        *workflow_cases,
        wide_case,
        Case("workflows, late parents", seed, _late_parents(), Cluster.uniform(MACHINES)),
    ]


def _late_parents() -> Trace:
    """A job whose first tasks wait for none; later ones wait for one that has finished, runs, or fits nowhere."""
    durations, nowhere = [100, 100, 3 * SECOND, 9, 9, 9, 9], [0, 1, 0, 0, 0, 0, 0]
    parents: list[tuple[int, ...]] = [(), (), (), (0,), (1,), (0, 2), (4,)]
    trace = with_parents(trace_of("late", [0], [durations], [nowhere]), parents)
    return msgspec.structs.replace(trace, submit_us=array("q", [0, 0, 0, *[SECOND] * 4]))


def limited_cases(seed: int = 0, vectors: bool = False) -> list[Case]:
    """Busy cases in which some jobs have limits that are shorter than their tasks, or as long, or longer."""
    cases = []
    for case in busy_cases(seed, vectors):
        trace, stream = case.trace, Streams(seed).of(f"conformance/limits/{case.name}")
        limit_us = array("q")
        for job in range(trace.job_count):
            longest_us = max(trace.duration_us[trace.first[job] : trace.first[job + 1]], default=0)
            limit_us.append(stream.choice((NEVER, max(1, longest_us // 2), max(1, longest_us), longest_us + SECOND)))
        limited = msgspec.structs.replace(trace, limit_us=limit_us)
        cases.append(msgspec.structs.replace(case, name=f"{case.name}, limits", trace=limited))
    return cases


def busy_cases(seed: int = 0, vectors: bool = False) -> list[Case]:
    """Cases of some hundred tasks, those with several resources where the design places such requests."""
    return mixed_cases(seed) + (vector_cases(seed) if vectors else [])


def all_cases(seed: int = 0, vectors: bool = False) -> list[Case]:
    """Busy cases and edge cases."""
    return busy_cases(seed, vectors) + edge_cases(seed)
