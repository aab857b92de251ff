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
ON_ONE_MACHINE: dict[str, dict[str, Any]] = {
    "megha": ONE_OF_EACH,
    "megha-2021": ONE_OF_EACH,
    "megha-2021-printed": ONE_OF_EACH,
    "apollo": {"lrms": 1},
}
MASTERS: dict[str, Any] = {"gms": 2, "lms": 2, "heartbeat_s": 0.5}
SHARES = "a:2+b:1+c:1"
DESIGNS = [name for name, architecture in REGISTRY.items() if architecture.vectors]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *[(name, MASTERS if name in ("megha", "megha-2021", "megha-2021-printed") else {}) for name in DESIGNS],
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
    architecture = design(name, ON_ONE_MACHINE.get(name, {}))
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


def few(requests: tuple[tuple[int, ...], ...], durations_s: list[list[int]], arrivals_s: list[float]) -> Trace:
    """A task of each request, in this order; the jobs are of user a, but for the last one, which is urgent and of b."""
    trace = trace_of(
        "few",
        [round(at * SECOND) for at in arrivals_s],
        [[seconds * SECOND for seconds in job] for job in durations_s],
    )
    users = ("a",) * (len(arrivals_s) - 1) + ("b",)
    urgent = array("q", [0] * (len(arrivals_s) - 1) + [10])
    return msgspec.structs.replace(asking(trace, requests, list(range(len(requests)))), user=users, priority=urgent)


def one_machine(milli: int, cpu: int = 99) -> Cluster:
    return Cluster((0,), (1,), "one", resources=("cpu_milli", "gpu_milli"), capacities=((cpu, milli),))


def test_who_preempts_for_one_gpu_ends_what_runs_on_that_gpu_alone() -> None:
    """With Omega's preemption by priority all eight were ended, the youngest first, until the first GPU was free."""
    architecture = design("omega", {"preemption": True})
    trace, cluster = few(((1, 1000),) * 9, [[20] * 8, [20]], [0, 2]), one_machine(8000)
    records = simulate(architecture.build(cluster, architecture.defaults, Streams(0)), trace, cluster)
    assert len(records.lost) == 1
    assert records.start_us[8] < 3 * SECOND


def test_a_share_is_taken_from_one_gpu_although_the_youngest_tasks_lie_on_two() -> None:
    """User a has 600 + 400 on each of two GPUs; b is due one of them, and a keeps the other."""
    architecture = design("megha-2021", {**ONE_OF_EACH, "shares": "a:1+b:1", "heartbeat_s": 0.5})
    requests = ((0, 600), (0, 600), (0, 400), (0, 400), (0, 1000))
    trace, cluster = few(requests, [[20], [20], [20], [20], [5]], [0, 0.1, 0.2, 0.3, 2]), one_machine(2000)
    deployment = architecture.build(cluster, architecture.defaults, Streams(0))
    records = simulate(deployment, trace, cluster, options=Options(check=True))
    assert len(records.lost) == 2
    assert records.start_us[4] < 10 * SECOND, "long before a task of a has ended"


@pytest.mark.parametrize("order", ["drf", "hdrf"])
def test_patience_takes_a_gpu_that_is_free_sooner_than_the_one_it_waits_for(order: str) -> None:
    """Of two GPUs it waits for the first; the tasks on the second end earlier."""
    architecture = design("oracle", {"order": order, "patience_s": 1.0})
    trace = few(((1, 500),) * 4 + ((2, 1000),), [[30], [30], [4], [6], [1]], [0, 0.1, 0.2, 0.3, 0.4])
    cluster = one_machine(2000, cpu=4)
    deployment = architecture.build(cluster, architecture.defaults, Streams(0))
    records = simulate(deployment, trace, cluster, options=Options(check=True))
    assert records.counters["reservations"] == 1
    assert records.start_us[4] < 8 * SECOND


def test_resource_managers_may_have_more_gpus_together_than_a_machine() -> None:
    """They were refused as machines of more than 64 devices."""
    architecture = design("pipeline", {"lrms": 2})
    trace = asking(trace_of("many", [0], [[SECOND] * 40]), ((1, 600),), [0] * 40)
    capacities = ((99, 8000),) * 20
    cluster = Cluster((0,) * 20, (1,) * 20, "many", resources=("cpu_milli", "gpu_milli"), capacities=capacities)
    records = simulate(architecture.build(cluster, architecture.defaults, Streams(0)), trace, cluster)
    assert max(records.start_us) < SECOND
