"""GPUs are devices to every design that places amounts: a share lies on one of them."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import msgspec
import pytest

from volery.architectures import REGISTRY, configure, lookup
from volery.conformance.cases import trace_of
from volery.core.component import Architecture
from volery.core.model import SECOND, Cluster
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.sim import Options, simulate

ONE_OF_EACH = {"gms": 1, "lms": 1}
MASTERS: dict[str, Any] = {"gms": 2, "lms": 2, "heartbeat_s": 0.5}
SHARES = "a:2+b:1+c:1"
DESIGNS = [name for name, architecture in REGISTRY.items() if architecture.vectors]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *[(name, MASTERS if name in ("megha", "megha-2021") else {}) for name in DESIGNS],
    ("megha", {**MASTERS, "shares": SHARES, "why": True}),
    ("megha", {**MASTERS, "reliable": True}),
    ("megha-2021", {**MASTERS, "shares": SHARES}),
    ("megha-2021", {**MASTERS, "reliable": True, "shares": SHARES}),
    ("omega", {"batch_schedulers": 3}),
    ("omega", {"preemption": True}),
    ("omega", {"gang": True}),
    ("omega", {"width": 2, "elastic": "global-cap"}),
    ("mesos", {"gang": True}),
    ("mesos", {"batch_schedulers": 2}),
    ("oracle", {"order": "drf", "patience_s": 0.2}),
    ("oracle", {"order": "hdrf"}),
    ("pipeline", {"T3": "conservative"}),
    ("pipeline", {"T3": "easy"}),
    ("pipeline", {"T9": "fixed"}),
    ("pipeline", {"T10": "fairness", "T2": "drf"}),
    ("pipeline", {"T10": "priority", "T2": "priority"}),
    ("pipeline", {"T12": "consolidate/period_s:0.2/left_s:0/cost_s:0", "R5": "worst-fit"}),
    ("pipeline", {"T12": "rebalance/period_s:0.2/left_s:0/cost_s:0/gap:0.1"}),
    ("pipeline", {"lrms": 3}),
    ("pipeline", {"reliable": True}),
]


def design(name: str, given: dict[str, Any]) -> Architecture:
    architecture = lookup(name)
    return msgspec.structs.replace(architecture, defaults=configure(architecture, given))


def asking(trace: Trace, requests: tuple[tuple[int, ...], ...], drawn: list[int]) -> Trace:
    resources = ("cpu_milli", "gpu_milli")
    return msgspec.structs.replace(trace, resources=resources, requests=requests, request=array("H", drawn))


@pytest.mark.parametrize("name", DESIGNS)
def test_600_and_600_and_800_thousandths_do_not_run_together_on_two_gpus(name: str) -> None:
    architecture = design(name, ONE_OF_EACH if name in ("megha", "megha-2021") else {})
    trace = asking(trace_of("shares", [0, 1, 2], [[9 * SECOND]] * 3), ((1, 600), (1, 800)), [0, 0, 1])
    cluster = Cluster((0,), (1,), "one", resources=("cpu_milli", "gpu_milli"), capacities=((9, 2000),))
    records = simulate(architecture.build(cluster, architecture.defaults, Streams(0)), trace, cluster)
    early, together, late = sorted(records.start_us)
    assert together < early + 5 * SECOND, "two of them do"
    assert late >= min(records.finish_us), "the third waits for a device"


def crowd(seed: int) -> tuple[Trace, Cluster]:
    """Some hundred tasks, most of which ask for shares, on machines with up to four and a half devices."""
    stream = Random(seed)
    kinds = [(stream.randint(1, 3000), milli) for milli in (0, 300, 400, 500, 600, 700, 800, 999, 1000, 1700, 2000)]
    sizes = [stream.choice((1, 2, 5, 12)) for _ in range(40)]
    jobs = [[stream.randrange(1000, SECOND) for _ in range(size)] for size in sizes]
    arrivals = sorted(stream.randrange(2 * SECOND) for _ in sizes)
    trace = asking(
        trace_of("crowd", arrivals, jobs), tuple(kinds), [stream.randrange(len(kinds)) for job in jobs for _ in job]
    )
    trace = msgspec.structs.replace(
        trace,
        user=tuple(stream.choice("abc") for _ in sizes),
        priority=array("q", [stream.randrange(12) for _ in sizes]),
    )
    capacities = tuple((9000, milli) for milli in (1000, 2000, 2000, 2500, 4000, 4500, 0, 2000))
    return trace, Cluster((0,) * 8, (1,) * 8, "crowd", resources=("cpu_milli", "gpu_milli"), capacities=capacities)


@pytest.mark.parametrize(("name", "given"), VARIANTS, ids=[f"{name} {given}" for name, given in VARIANTS])
def test_no_task_starts_on_a_device_without_room(name: str, given: dict[str, Any]) -> None:
    """The lab refuses such a start; the components' own checks pass after each event."""
    architecture = design(name, given)
    for seed in range(2):
        trace, cluster = crowd(seed)
        deployment = architecture.build(cluster, architecture.defaults, Streams(seed))
        records = simulate(deployment, trace, cluster, options=Options(check=True))
        if not given.get("gang"):
            assert min(records.finish_us) >= 0, "all of them fit some machine, and have run"
