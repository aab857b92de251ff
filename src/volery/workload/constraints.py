"""The placement constraint model of Sharma et al. (SoCC 2011), as the public Megha and PigeonC simulators use it.

Where machines have profiles, neighbours form 10 clusters of equal size, and each cluster draws profile A, B or C. The
numbers of the three published clusters are not to be had. Profile A has the frequencies that are known; in B the odds
of constraints 0, 2, 4 .. are multiplied by the model's factor and those of 1, 3, 5 .. divided by it; C is the reverse.

A task is of one of 4 types, drawn evenly; the type's weights give one of 10 statistical clusters, and the task needs
each of 21 constraints independently with that cluster's frequency. A machine satisfies each constraint independently
with the frequency counted over the published machines; all of them satisfy the last.

Draws are made row by row from one stream, so that the first tasks of a trace, and the first machines of a cluster, get
the same constraints however many follow: every architecture, and every shorter run, sees the same tasks.
"""

from __future__ import annotations

from array import array
from functools import cache
from importlib import resources
from typing import Final

import msgspec
import numpy as np

from volery.core.errors import InputError, suggestion
from volery.core.trace import Trace
from volery.workload.arrays import Integers, Reals, column, generator

PROFILES: Final = {"sharma2011": 1.0, "sharma2011-profiles": 2.0, "sharma2011-profiles-8": 8.0}
"""Model -> the factor by which the odds of a constraint differ between profile A and profiles B and C."""
MODELS: Final = ("none", *PROFILES, "gpu-racks")
CLUSTERS: Final = 10
"""Clusters of machines, each with one of the profiles; the first Megha has a Local Master for each."""
RACK_COUNT: Final = 8
GPU_RACKS: Final = 2
GPU: Final = 1
"""The constraint that machines with GPUs satisfy, in the model `gpu-racks`."""
RACKS: Final = ((1 << RACK_COUNT) - 1) << 1
"""The constraints of which each machine satisfies one there, that of its rack."""
BATCH_ROWS: Final = 1 << 14
"""Draws are made in batches of this many rows to bound memory (3 MB each); results do not depend on it."""


class ConstraintModel(msgspec.Struct, frozen=True):
    """The numbers of data/sharma2011.json; that file states where they come from.

    Args:
        names: properties that constraints stand for, by the number of the constraint, where a source prints them.
        kinds: properties of machines that constraints of this model are about, with those who say so.
        task_frequency_percent: per statistical cluster and constraint, how many in 100 tasks need it.
        cluster_weight_by_task_type: per task type, how often each statistical cluster occurs.
        machine_frequency: per constraint, the share of machines that satisfy it.
    """

    provenance: dict[str, str]
    names: dict[int, str]
    kinds: dict[str, str]
    task_frequency_percent: tuple[tuple[float, ...], ...]
    cluster_weight_by_task_type: tuple[tuple[float, ...], ...]
    machine_frequency: tuple[float, ...]


@cache
def sharma2011() -> ConstraintModel:
    """The model that comes with the package."""
    text = resources.files("volery.workload").joinpath("data/sharma2011.json").read_bytes()
    return msgspec.json.decode(text, type=ConstraintModel)


def check_model(model: str) -> None:
    """Refuse an unknown constraint model.

    Raises:
        InputError: there is none of that name.
    """
    if model not in MODELS:
        raise InputError("constraints", f"{model!r} is not a constraint model{suggestion(model, MODELS)}")


def constrain(trace: Trace, model: str, seed: int) -> Trace:
    """The trace with constraints on its tasks, drawn from the stream `constraints/tasks` of the seed.

    Args:
        trace: the workload; constraints that it has are replaced.
        model: `sharma2011`, with or without profiles of machines; `none` and `gpu-racks`, where only machines have
            any, leave the trace as it is.

    Raises:
        InputError: the model is unknown.
    """
    check_model(model)
    if model not in PROFILES:
        return trace
    return msgspec.structs.replace(trace, constraints=task_constraints(trace.task_count, seed))


def task_constraints(task_count: int, seed: int) -> array[int]:
    """Constraint bit sets of `task_count` tasks, four bytes each: the model has 21 constraints."""
    model = sharma2011()
    frequency = np.array(model.task_frequency_percent) / 100
    weights = np.array(model.cluster_weight_by_task_type)
    # the occurrence weights of a type sum to one up to rounding; the last bound is opened so that none is lost
    bounds = np.cumsum(weights, axis=1)[:, :-1]

    stream = generator(seed, "constraints/tasks")
    bit_sets = array("i")
    # In batches, so that the memory for draws does not grow with the trace; the stream is the same.
    for low in range(0, task_count, BATCH_ROWS):
        u = stream.random((min(BATCH_ROWS, task_count - low), 2 + frequency.shape[1]))
        task_type = (u[:, 0] * len(weights)).astype(np.int64)
        cluster = (u[:, 1:2] >= bounds[task_type]).sum(axis=1)
        bit_sets.frombytes(_bit_sets(u[:, 2:], frequency[cluster]).astype(np.int32).tobytes())

    return bit_sets


def machine_constraints(machine_count: int, seed: int, factor: float = 1.0) -> array[int]:
    """Constraint bit sets of `machine_count` machines, from the stream `constraints/machines`.

    Args:
        factor: factor of the odds between profile A and the others, which clusters draw from the stream
            `constraints/profiles`; 1: all machines are alike.
    """
    frequencies = np.array(sharma2011().machine_frequency)
    frequency = frequencies

    if factor != 1:
        drawn = generator(seed, "constraints/profiles").integers(0, 3, CLUSTERS)
        of_machine = np.arange(machine_count) * CLUSTERS // machine_count
        frequency = profiles(frequencies, factor)[drawn[of_machine]]

    stream = generator(seed, "constraints/machines")
    return column(_bit_sets(stream.random((machine_count, len(frequencies))), frequency))


def profiles(frequencies: Reals, factor: float) -> Reals:
    """The frequencies of profiles A, B and C, one row each; what all machines satisfy stays so."""
    up = np.where(np.arange(len(frequencies)) % 2 == 0, factor, 1 / factor)
    return np.array(
        [frequencies * odds / (frequencies * odds + 1 - frequencies) for odds in (np.ones_like(up), up, 1 / up)]
    )


def gpu_racks(machine_count: int) -> list[int]:
    """Constraint bit sets of machines in 8 racks of equal size, the first 2 with GPUs; our choice of numbers."""
    racks = [machine * RACK_COUNT // machine_count for machine in range(machine_count)]
    return [2 << rack | (GPU if rack < GPU_RACKS else 0) for rack in racks]


def _bit_sets(u: Reals, frequency: Reals) -> Integers:
    """Bit k of a row is set with its frequency."""
    packed = np.packbits(u < frequency, axis=1, bitorder="little")
    wide = np.zeros((len(u), 8), dtype=np.uint8)
    wide[:, : packed.shape[1]] = packed
    return wide.view("<i8")[:, 0].astype(np.int64)
