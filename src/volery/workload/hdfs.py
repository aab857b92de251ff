"""Synthetic jobs that read blocks of a distributed file system: each task's input has replicas on some machines.

Replicas are placed as the Hadoop Distributed File System does it: the first on any machine, the second in another rack,
the third in the rack of the second, further ones anywhere; no two on one machine. Some blocks may be hot: many tasks
read them, and they may have more replicas (the paper's suggestion for hotspots).
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from volery.core.errors import InputError, suggestion
from volery.core.locality import PER_MILLE, with_replicas
from volery.core.model import SECOND, split_evenly
from volery.core.trace import Trace
from volery.workload.arrays import Integers, arrivals, generator, made_trace, view
from volery.workload.distributions import exponential
from volery.workload.spec import Spec

BINS: Final = {
    "facebook": ((1, 38), (2, 16), (10, 14), (50, 8), (100, 6), (200, 6), (400, 4), (800, 4), (4800, 4)),
}
"""Maps of a job, and how many of a hundred jobs have so many: the macro-benchmark of Zaharia et al., EuroSys 2010."""
BLOCK_KEYS: Final = ("replicas", "rack", "any", "hot", "hot_blocks", "hot_replicas")
KEYS: Final = ("jobs", "gap", "duration", "spread", "workers", "racks", *BLOCK_KEYS)


def machine_racks(workers: int, racks: int) -> tuple[int, ...]:
    """Per machine its rack, of equal racks of neighbours.

    Raises:
        ValueError: more racks than machines.
    """
    return tuple([rack for rack, machines in enumerate(split_evenly(workers, racks)) for _ in machines])


def hdfs(text: str, seed: int) -> Trace:
    """`hdfs`: jobs of one size, or of the sizes of a preset, whose tasks read blocks with replicas."""
    spec = Spec(text, KEYS, word="TASKSxJOBS or facebook, for example hdfs:facebook,workers=100")

    sizes = _sizes(spec, seed)
    spec.check_size(int(sizes.sum()))
    gap_s = spec.at_least_zero("gap", 14.0)

    gaps = exponential(generator(seed, "workload/arrivals").random(len(sizes))) * gap_s
    spread = spec.at_least_zero("spread", 0.1, most=1.0)
    factors = 1 + spread * (2 * generator(seed, "workload/durations").random(int(sizes.sum())) - 1)
    duration_us = np.rint(spec.positive("duration", 60.0) * SECOND * factors).astype(np.int64)

    trace = made_trace(text, arrivals(gaps), sizes, np.maximum(duration_us, 1))
    return _placed(trace, spec, spec.count("workers", 100), spec.count("racks", 1), seed)


def with_blocks(trace: Trace, blocks: str, workers: int, racks: int, seed: int) -> Trace:
    """The trace with replicas of the block that each task reads; tasks that wait for others read none.

    Args:
        blocks: replicas, cost of distance and hot blocks as keys of `hdfs:`, as `replicas=3,rack=1.5,any=2`.
        workers: number of machines that hold blocks.
        racks: number of their racks.

    Raises:
        InputError: a key is wrong, or tasks have input on machines already.
    """
    if trace.replicas:
        raise InputError("blocks", f"the tasks of {trace.name} have input on machines already; leave it out")
    return _placed(trace, Spec(f"blocks:{blocks}", BLOCK_KEYS), workers, racks, seed)


def _placed(trace: Trace, spec: Spec, workers: int, racks: int, seed: int) -> Trace:
    """The trace with replicas on machines, by the keys of a spec."""
    far = [max(1, round(spec.positive(key, 1.0, most=1000) * PER_MILLE)) for key in ("rack", "any")]
    placements = _placements(spec, trace.task_count, workers, racks, seed)

    waits = np.diff(view(trace.parent_first)) if trace.parents else np.empty(0, np.int64)
    for task in np.flatnonzero(waits).tolist():
        placements[task] = ()

    return with_replicas(trace, placements, (far[0], far[1]))


def _sizes(spec: Spec, seed: int) -> Integers:
    shape = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", spec.word)
    if shape is not None:
        if not int(shape[1]) or not int(shape[2]):
            raise InputError(spec.text, f"{spec.word!r} has no tasks; for example hdfs:400x20")
        if spec.text_of("jobs", ""):
            raise spec.refusal("jobs", "stands in TASKSxJOBS already; leave it out")
        return np.full(int(shape[2]), int(shape[1]), dtype=np.int64)

    if spec.word not in BINS:
        raise InputError(spec.text, f"{spec.word!r} is neither TASKSxJOBS nor a preset{suggestion(spec.word, BINS)}")

    tasks, counts = zip(*BINS[spec.word], strict=True)
    jobs = spec.count("jobs", sum(counts))
    bounds = np.cumsum(counts) / sum(counts)
    sizes = np.array(tasks)[np.searchsorted(bounds, (np.arange(jobs) + 0.5) / jobs)]

    order = np.argsort(generator(seed, "workload/jobs").random(jobs), kind="stable")
    return np.asarray(sizes[order], dtype=np.int64)


def _placements(spec: Spec, tasks: int, workers: int, racks: int, seed: int) -> list[tuple[int, ...]]:
    count = spec.count("replicas", 3)
    hot_count = spec.count("hot_replicas", count)

    for key, replicas in (("replicas", count), ("hot_replicas", hot_count)):
        if replicas > workers:
            raise spec.refusal(key, f"{replicas} replicas need as many machines; there are {workers}")
    if racks > workers:
        raise spec.refusal("racks", f"{racks} racks need as many machines; there are {workers}")

    ranges = split_evenly(workers, racks)
    rack_of = machine_racks(workers, racks)
    draws = generator(seed, "workload/replicas").random((tasks, count)).tolist()
    placements = [_placement(draw, ranges, rack_of, workers) for draw in draws]

    # This share of the tasks reads one of few blocks, which have more replicas.
    if share := spec.at_least_zero("hot", 0.0, most=1.0):
        blocks = generator(seed, "workload/hot/replicas").random((spec.count("hot_blocks", 10), hot_count)).tolist()
        hot = [_placement(draw, ranges, rack_of, workers) for draw in blocks]
        reads = generator(seed, "workload/hot/reads").random((tasks, 2))
        for task in np.flatnonzero(reads[:, 0] < share).tolist():
            placements[task] = hot[int(reads[task, 1] * len(hot))]

    return placements


def _placement(draw: list[float], ranges: list[range], rack_of: tuple[int, ...], workers: int) -> tuple[int, ...]:
    """Machines of one block, from a uniform number each."""
    machines = [int(draw[0] * workers)]

    for place, u in enumerate(draw[1:], start=1):
        rack = ranges[rack_of[machines[-1]]]
        # The second replica lies in another rack, the third in the rack of the second, as HDFS places them.
        if place == 1 and len(rack) < workers:
            machine = int(u * (workers - len(rack)))
            machine += len(rack) * (machine >= rack.start)
        elif place == 2 and 1 < len(rack) < workers:
            machine = rack.start + int(u * (len(rack) - 1))
            machine += machine >= machines[-1]
        else:
            machine = int(u * (workers - len(machines)))
            for machine_taken in sorted(machines):
                machine += machine >= machine_taken
        machines.append(machine)

    return tuple(machines)
