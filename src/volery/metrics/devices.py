"""Devices of a run that stand idle, and those of them that are in pieces: no task of the workload could have them.

The measure is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023, section 3.2), for tasks that ask for
devices: on a machine, the expected amount of idle devices that a task drawn from the workload cannot be given there.
Where the task does not fit, for want of any resource, that is all of them; where it fits, the devices of which less is
free than it asks for of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from volery.core.model import Amounts, Cluster, Time
from volery.core.records import Records
from volery.core.resources import DEVICE_MILLI, WHOLE, packing_of
from volery.metrics.arrays import Longs, asked
from volery.metrics.timeline import Columns, task_runs

DEVICES: Final = {DEVICE_MILLI: WHOLE, "gpus": 1}
"""Resources that count devices, and the units that make one."""
REQUESTS_MAX: Final = 64
"""Distinct requests for which the expectation is taken, the most common ones."""


class DeviceSummary(msgspec.Struct, frozen=True):
    """Devices of a cluster over a run, from the first submission to the last end.

    Args:
        devices: Count of the devices of all machines.
        idle_mean: Count that is not given to any task, mean over time; parts of devices count as such.
        in_pieces_mean: Expected count of these that a task drawn from the workload could not be given, mean over time.
    """

    devices: float
    idle_mean: float
    in_pieces_mean: float


def device_summary(records: Records, cluster: Cluster) -> DeviceSummary | None:
    """The idle devices of a run; None where no task asks for any, or where machines give more than they have."""
    place = next((place for place, name in enumerate(cluster.resources) if name in DEVICES), None)
    if place is None:
        return None

    trace = records.trace
    counts = Counter({k: count for k, count in Counter(trace.request).items() if trace.requests[k][place]})
    runs = task_runs(records) if counts else {}
    if not counts or not runs["task"].size:
        return None

    requests = [(trace.requests[k], count) for k, count in counts.most_common(REQUESTS_MAX)]
    idle = _IdleDevices(cluster, place, requests)
    begin_us, end_us = trace.arrival_us[0], int(runs["finish_us"].max())
    try:
        for at_us, run, is_start in _events(runs, asked(trace, place)):
            machine, task = int(runs["machine"][run]), int(runs["task"][run])
            idle.count(end_us - at_us, machine, run, trace.requests[trace.request[task]] if is_start else None)
    except ValueError:
        return None

    span_us = max(end_us - begin_us, 1)
    return DeviceSummary(
        idle.devices, idle.devices + idle.idle_us / span_us, idle.in_pieces + idle.in_pieces_us / span_us
    )


def _events(runs: Columns, asked_devices: Longs) -> Iterator[tuple[Time, int, bool]]:
    """Times at which runs begin and end, the row of each, and whether it begins.

    What ends gives its devices to what begins at the same time. Of starts at one time the largest comes first: whole
    devices are taken before shares, as both were given room.
    """
    rows = np.flatnonzero(runs["finish_us"] > runs["start_us"])
    at_us = np.concatenate([runs["finish_us"][rows], runs["start_us"][rows]])
    starts = np.repeat([False, True], rows.size)
    rows = np.tile(rows, 2)
    order = np.lexsort((-asked_devices[runs["task"][rows]], starts, at_us))
    yield from zip(at_us[order].tolist(), rows[order].tolist(), starts[order].tolist(), strict=True)


class _IdleDevices:
    """Free amounts of the machines of a run, and sums of their idle devices over time.

    Args:
        cluster: Machines with devices.
        place: Place of the resource that counts devices.
        requests: Requests of the workload, with their counts.

    Attributes:
        devices: Count of all devices.
        in_pieces: Expected count of idle devices in pieces while nothing runs.
        idle_us, in_pieces_us: Changes of both counts since, each times the time until the end of the run.
    """

    def __init__(self, cluster: Cluster, place: int, requests: Sequence[tuple[Amounts, int]]) -> None:
        self._packing = packing = packing_of(cluster)
        self._place = place
        self._unit = DEVICES[cluster.resources[place]]
        total = sum(count for _, count in requests)
        self._requests = [
            (packing[request], count / total, min(request[place], self._unit)) for request, count in requests
        ]
        self._states: dict[int, tuple[float, float]] = {}
        self._taken: dict[int, int] = {}
        self._free = [packing.free(capacity) for capacity in cluster.capacities]

        self.devices = sum([self._state(free)[0] for free in self._free])
        self.in_pieces = sum([self._state(free)[1] for free in self._free])
        self.idle_us = self.in_pieces_us = 0.0

    def count(self, until_end_us: Time, machine: int, run: int, request: Amounts | None) -> None:
        """Count a run that begins on a machine with a request, or that ends (None).

        Raises:
            ValueError: the machine has not enough.
        """
        packing, free = self._packing, self._free[machine]
        if request is None:
            free_after = packing.settled(free + self._taken.pop(run))
        else:
            taken = self._taken[run] = packing.named(free, packing[request])
            if (free - taken) & packing.guards != packing.guards:
                raise ValueError("machines give more than they have")
            free_after = packing.settled(free - taken)

        self._free[machine] = free_after
        idle, in_pieces = self._state(free)
        idle_after, in_pieces_after = self._state(free_after)
        self.idle_us += (idle_after - idle) * until_end_us
        self.in_pieces_us += (in_pieces_after - in_pieces) * until_end_us

    def _state(self, free: int) -> tuple[float, float]:
        """The idle devices of a machine with these free amounts, and the expected count of them in pieces."""
        state = self._states.get(free)
        if state is None:
            state = self._states[free] = self._state_of(free)
        return state

    def _state_of(self, free: int) -> tuple[float, float]:
        packing, guards = self._packing, self._packing.guards
        fields = packing.fields(free)
        # Devices that are only counted are all whole; where they are shared, each has a field of its own.
        parts = fields[len(fields) - packing.device_count :] if packing.device_count else (fields[self._place],)
        idle = sum(parts)

        in_pieces = 0.0
        for packed, share, least in self._requests:
            fits = (free - packed) & guards == guards
            in_pieces += share * (sum([part for part in parts if part < least]) if fits else idle)
        return idle / self._unit, in_pieces / self._unit
