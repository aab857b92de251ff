"""The input that all components of a build share: parameters, machines, and those of them for short tasks only."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from volery.core.bounds import (
    PROBES_MAX,
    ROUNDS_MAX,
    Components,
    Count,
    Parameters,
    Period,
    PositiveCount,
    PositiveRatio,
    Ratio,
    Seconds,
    param,
)
from volery.core.model import Address, Cluster
from volery.policies.match import Anchors, Matches, positions

Units = npt.NDArray[np.int64]
"""Numbers of worker slots."""

CENTRAL: Address = "central/0"
Sharing = Literal["none", "vector", "ideal"]
ShortPlacement = Literal["probes", "least-wait"]
Stealing = Literal["off", "behind-long", "random"]
Order = Literal["fifo", "srpt"]
EmptyWorkers = Literal["random", "first"]


class HybridConfig(Parameters, frozen=True):
    """Parameters of Hawk, Eagle and what they are compared with."""

    schedulers: Components = param(10, "distributed schedulers")
    cutoff_s: Seconds = param(1129.532, "jobs with at most this mean task duration are short, seconds")
    short_part: float = param(0.17, "share of the machines that run short tasks only", ge=0, le=0.9)
    probe_ratio: float = param(2.0, "probes per short task", ge=1, le=PROBES_MAX)
    probes_min: int = param(2, "probes per short job at least", ge=1, le=ROUNDS_MAX)
    replacement: bool = param(False, "a worker may be drawn twice, as in the authors' simulator")
    stealing: Stealing = param("behind-long", "what an idle worker takes: the first group behind a long task, or any")
    steal_attempts: int = param(10, "victims asked for each slot that falls idle", ge=1, le=ROUNDS_MAX)
    steal_after_vain: bool = param(
        True, "a slot that was kept for a reservation in vain falls idle too, as one whose task ended"
    )
    steal_max: PositiveCount = param(10_000, "reservations taken at once")
    steal_free: bool = param(False, "stealing takes no time, as in the authors' simulator")
    sharing: Sharing = param("none", "what is known of long tasks: nothing, vectors on rejection, or all (ideal)")
    rounds: int = param(2, "rejections of a probe before it goes to the short-only part", ge=1, le=ROUNDS_MAX)
    sticky: bool = param(False, "a reservation serves its job until nothing is left")
    cancellation: bool = param(True, "withdraw reservations of jobs with nothing left")
    order: Order = param("fifo", "queue of a worker: arrival, or least remaining work")
    bypass_max: Ratio = param(5.0, "a reservation is passed by at most this many times its estimate")
    empty_workers: EmptyWorkers = param(
        "random", "long tasks take idle workers at random, or the first: the authors' simulator packs them"
    )
    short_placement: ShortPlacement = param("probes", "short jobs: by probes, or centrally by least waiting time (LWL)")
    stale_s: Seconds = param(0.0, "least-wait placement sees the state of the last multiple of this (DLWL)")
    estimate_low: PositiveRatio = param(1.0, "estimates are off by a random factor from this ...")
    estimate_high: PositiveRatio = param(1.0, "... to this; both 1: exact means")
    reliable: bool = param(False, "bear faults: numbered and acknowledged messages; costs more of them")


class PhoenixConfig(HybridConfig, frozen=True, forbid_unknown_fields=True):
    """Parameters of Phoenix: Eagle's, and those of its monitor."""

    heartbeat_s: Period = param(9.0, "between reports to the monitor, seconds")
    crv_threshold: Ratio = param(1.0, "a constraint is scarce above so many waiting tasks per worker")
    wait_load: float = param(0.9, "a queue is crowded when its estimated wait exceeds that at this load", ge=0, lt=1)
    reorder_max: Count = param(5, "tasks with the scarcest constraint that may pass one in front of them")
    soft_constraints: tuple[int, ...] = param(
        (),
        "numbers of constraints that are dropped where no worker has all (the paper: clock, network); "
        "none unless you know what the numbers stand for",
    )


class Layout:
    """Lists machines and schedulers; pure input of the build, shared.

    Attributes:
        schedulers: Addresses of the schedulers; job j belongs to the one at j modulo their number; the last one is the
            central scheduler.
        general: Addresses of the workers outside the short-only part, which may be robbed.
    """

    def __init__(self, cluster: Cluster, config: HybridConfig) -> None:
        self.constraints = cluster.constraints
        self.slots = cluster.slots
        self.matches = Matches(cluster.constraints, Anchors(cluster.constraints))

        share = config.short_part
        machines = range(len(cluster.slots))
        # Spread evenly over the cluster, so that the part has machines of all kinds where kinds follow each other.
        self.short_only = [int((machine + 1) * share) > int(machine * share) for machine in machines]
        self.short_machines = [machine for machine in machines if self.short_only[machine]]
        self.nodes = [f"node/{machine}" for machine in machines]
        self.general = [node for node, only in zip(self.nodes, self.short_only, strict=True) if not only]

        self.schedulers = (*(f"scheduler/{number}" for number in range(config.schedulers)), CENTRAL)
        self.machine_of_unit = np.repeat(np.arange(len(cluster.slots)), cluster.slots)

    def without_long(self, vector: bytes) -> tuple[list[int], bytes]:
        """The machines that no bit is set for, and the short-only ones; as a list, and as a byte per machine."""
        # numpy pads what is too short with zeros, but an empty vector with whatever was in memory.
        octets = np.frombuffer(vector.ljust((len(self.nodes) + 7) // 8, b"\0"), dtype=np.uint8)
        bits = np.unpackbits(octets, bitorder="little", count=len(self.nodes))

        has_room = (bits == 0) | np.array(self.short_only, dtype=bool)
        roomy_machines: list[int] = np.flatnonzero(has_room).tolist()
        return roomy_machines, has_room.tobytes()

    def units(self, needs: int, short: bool) -> Units:
        """The units that may run a task: long ones outside the short-only part, unless they fit nowhere else."""
        is_suitable = np.zeros(len(self.slots), dtype=bool)
        is_suitable[positions(self.matches[needs])] = True

        is_general = is_suitable & ~np.array(self.short_only, dtype=bool)
        # Long tasks that no machine of the general part can run go to the short-only part: the job would never end.
        is_allowed = is_general if is_general.any() and not short else is_suitable
        return np.flatnonzero(is_allowed[self.machine_of_unit])
