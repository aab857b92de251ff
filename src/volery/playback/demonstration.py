"""The film that explains Megha in a minute: a small cluster, a little work, and a machine that crashes.

Nothing in it is staged but the work and the crash: what is told at its moments is read from what the components do.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

from volery import architectures, sim
from volery.core.model import SECOND, Cluster, Time
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.playback.camera import Camera
from volery.playback.filming import FilmedRun
from volery.sim.faults import Crash, FaultPlan

NAME: Final = "megha"
WORKERS: Final = 18
"""Three clusters, each with a partition of two machines per Global Master."""
PARAMETERS: Final[dict[str, Any]] = {
    "gms": 3, "lms": 3, "heartbeat_s": 2.0, "reliable": True, "detection_s": 0.3, "why": True,
}  # fmt: skip
WORK: Final = (
    (0.4, "ada", 3, 2.0), (1.6, "bob", 4, 5.0), (2.4, "eve", 9, 5.0), (2.9, "ada", 5, 5.0), (3.5, "bob", 9, 2.5),
    (6.0, "eve", 4, 2.0), (9.0, "ada", 3, 2.0),
)  # fmt: skip
"""When a job comes (seconds), whose it is, how many tasks it has, and how long each of them takes (seconds)."""
CRASH: Final = Crash(round(6.5 * SECOND), "node/4", round(9.5 * SECOND))
LENGTH_US: Final[Time] = round(13.5 * SECOND)
DELAY_US: Final[Time] = 40_000
"""Of every message between components: as slow as on a bad day between continents, so that one can see it travel."""


def work() -> Trace:
    """The work."""
    first, durations = [0], array("q")
    for _, _, tasks, takes_s in WORK:
        durations.extend([round(takes_s * SECOND)] * tasks)
        first.append(len(durations))
    arrivals = array("q", [round(at_s * SECOND) for at_s, *_ in WORK])
    estimates = array("q", [round(takes_s * SECOND) for *_, takes_s in WORK])
    return Trace("demonstration", arrivals, array("q", first), durations, estimates, user=tuple(w[1] for w in WORK))


def demonstration(begin_us: Time = 0, end_us: Time = LENGTH_US, *, part: bool = False) -> FilmedRun:
    """Run it under a camera.

    Args:
        begin_us, end_us: of the film.
        part: whether it ends before all is over.
    """
    architecture, cluster = architectures.lookup(NAME), Cluster.uniform(WORKERS)
    deployment = architecture.build(cluster, architectures.configure(architecture, PARAMETERS), Streams(0))
    crashes = ((CRASH.at_us, CRASH.address),)
    camera = Camera(
        begin_us, end_us, cluster.slots, deployment.machines, architecture.captions, crashes, part
    )  # fmt: skip
    deployment = camera.on(deployment)
    plan = FaultPlan(crashes=(CRASH,))
    sim.simulate(deployment, work(), cluster, network=sim.Network(DELAY_US), options=sim.Options(plan=plan))
    return FilmedRun(architecture, cluster, deployment, camera.filmed())
