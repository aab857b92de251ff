"""Data locality: where the input of tasks lies, how far from it machines are, what that costs (docs/decisions/0014)."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.core.model import Cluster, TaskId, Time
from volery.core.trace import Trace, longs

NODE, RACK, ANY = 0, 1, 2
"""Distances of a task from its input: on a machine that holds it, in a rack that does, elsewhere."""
LEVELS: Final = ("node", "rack", "any")
UNPLACED: Final = -1
"""The level of a task whose input lies nowhere: it runs equally well on every machine."""
PER_MILLE: Final = 1000


def racks_of(cluster: Cluster) -> tuple[int, ...]:
    """The rack of each machine; one for all where the cluster names none."""
    return cluster.racks or (0,) * len(cluster.constraints)


def with_replicas(trace: Trace, replicas: Sequence[Sequence[int]], far_permille: tuple[int, int]) -> Trace:
    """The trace with these machines per task; without the columns where no task has any.

    Args:
        replicas: Machines that hold the input of each task.
        far_permille: Factors in thousandths, as `Trace.far_permille`.
    """
    flat = array("i", [machine for group in replicas for machine in group])
    first = array("q", itertools.accumulate(map(len, replicas), initial=0))
    return msgspec.structs.replace(
        trace, replica_first=first if flat else longs(), replicas=flat, far_permille=far_permille
    )


def check_locality(trace: Trace, cluster: Cluster) -> None:
    """Refuse replicas that lie on no machine of the cluster.

    Raises:
        InputError: naming the task, or offsets that do not fit the tasks.
    """
    first, replicas = trace.replica_first, trace.replicas
    if not first and not replicas:
        return
    if len(first) != trace.task_count + 1 or first[0] or first[-1] != len(replicas):
        raise InputError(
            trace.name, f"{len(first)} places of first replicas for {trace.task_count} tasks; give one more"
        )

    if min(trace.far_permille) < 1:
        raise InputError(trace.name, f"tasks far from their input last {trace.far_permille} / 1000; give at least 1")

    machines = len(cluster.constraints)
    if min(replicas) < 0 or max(replicas) >= machines:
        unknown_machine = next(machine for machine in replicas if not 0 <= machine < machines)
        problem = (
            f"has input on machine {unknown_machine} of a cluster of {machines}; "
            f"give at least {unknown_machine + 1} workers"
        )
        raise InputError(trace.name, problem)


class Pace:
    """Durations of attempts on machines: by speed, and by distance from the task's input.

    Args:
        trace: Workload whose replicas are those of the tasks.
        cluster: Machines on which the tasks run.
    """

    __slots__ = ("_cluster", "_far_permille", "_first", "_racks", "_replicas")

    def __init__(self, trace: Trace, cluster: Cluster) -> None:
        self._cluster = cluster
        self._first, self._replicas = trace.replica_first, trace.replicas
        self._far_permille = (PER_MILLE, *trace.far_permille)
        self._racks = racks_of(cluster) if trace.replicas else ()

    def level(self, task: TaskId, machine: int) -> int:
        """The distance of a machine from a task's input; `UNPLACED` where it has none."""
        if not self._first:
            return UNPLACED

        holders = self._replicas[self._first[task] : self._first[task + 1]]
        if not holders:
            return UNPLACED

        if machine in holders:
            return NODE

        racks = self._racks
        rack = racks[machine]
        return RACK if any(racks[holder] == rack for holder in holders) else ANY

    def attempt_us(self, task: TaskId, duration_us: Time, machine: int) -> Time:
        """The duration of an attempt, of which so much is left, on a machine; rounded down to microseconds."""
        if self._first and (level := self.level(task, machine)) > NODE:
            duration_us = duration_us * self._far_permille[level] // PER_MILLE
        return self._cluster.attempt_us(duration_us, machine)

    def done_us(self, task: TaskId, run_us: Time, machine: int) -> Time:
        """The part of a task's duration that is done after it has run so long on a machine, rounded down."""
        done_us = self._cluster.done_us(run_us, machine)
        if self._first and (level := self.level(task, machine)) > NODE:
            done_us = done_us * PER_MILLE // self._far_permille[level]
        return done_us
