"""Drained machines: nothing is placed there, what runs there goes on, and afterwards they are used again."""

from __future__ import annotations

from typing import Any

import pytest

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.sim import Options, simulate
from volery.sim.faults import Crash, FaultPlan
from volery.sim.kernel import Kernel
from volery.sim.network import Network
from volery.sim.orders import Drained

SMALL = {"gms": 2, "lms": 2, "heartbeat_s": 0.5}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "slots": ("megha", SMALL),
    "slots, told twice": ("megha", SMALL | {"completion_notice": "twice", "updates": "snapshots"}),
    "slots that survive": ("megha", SMALL | {"reliable": True}),
    "amounts": ("megha-2021", SMALL),
    "amounts that survive": ("megha-2021", SMALL | {"reliable": True}),
    "shares": ("megha", SMALL | {"shares": "a:1+b:1"}),
    "shares that survive": ("megha", SMALL | {"shares": "a:1+b:1", "reliable": True}),
}
MACHINES = 8
SLOTS = 2
TASK_US = SECOND
FROM_US, UNTIL_US = 3 * SECOND + 100_000, 9 * SECOND
SETTLED_US = 10_000
"""What was under way when the drain was told has arrived."""


def run(name: str, drains: tuple[Drained, ...], plan: FaultPlan | None = None) -> Records:
    """A task per slot each second, of a second each: there is no room to spare."""
    design, parameters = KINDS[name]
    architecture, cluster = lookup(design), Cluster.uniform(MACHINES, SLOTS)
    deployment = architecture.build(cluster, configure(architecture, parameters), Streams(5))
    arrivals = [number * TASK_US // 2 for number in range(24)]
    trace = trace_of("steady", arrivals, [[TASK_US] * (MACHINES * SLOTS // 2)] * len(arrivals))
    return Kernel(deployment, trace, cluster, Network(), 5, Options(check=True, drains=drains, plan=plan)).run(None)


def starts(records: Records, machine: int) -> list[int]:
    return [at for at, worker in zip(records.start_us, records.worker, strict=True) if worker == machine]


@pytest.mark.parametrize("name", KINDS)
def test_a_drained_machine_gets_nothing_and_later_its_share(name: str) -> None:
    drains = tuple(Drained(machine, FROM_US, UNTIL_US) for machine in (1, 6))
    records = run(name, drains)
    assert all(at >= 0 for at in records.finish_us), "every task has run"
    for machine in (1, 6):
        at = starts(records, machine)
        assert [time for time in at if time < FROM_US], "it was used before"
        assert not [time for time in at if FROM_US + SETTLED_US < time < UNTIL_US], "it was used while it was drained"
        assert [time for time in at if time > UNTIL_US], "it is used again"
    lasting = [
        finish - start
        for start, finish, worker in zip(records.start_us, records.finish_us, records.worker, strict=True)
        if worker == 1 and start < FROM_US < finish
    ]
    assert lasting, "something ran there when it was drained"
    assert set(lasting) == {TASK_US}, "and was left alone"


@pytest.mark.parametrize("name", [name for name in KINDS if "survive" in name])
def test_a_master_that_begins_anew_is_told_again(name: str) -> None:
    crash = tuple(Crash(4 * SECOND, master, 5 * SECOND) for master in ("lm/0", "lm/0/standby"))
    records = run(name, (Drained(1, FROM_US, UNTIL_US),), FaultPlan(crashes=crash))
    assert not [time for time in starts(records, 1) if FROM_US + SETTLED_US < time < UNTIL_US and time < 5 * SECOND]
    assert not [time for time in starts(records, 1) if 7 * SECOND < time < UNTIL_US]


def test_without_drains_nothing_is_told() -> None:
    assert run("slots", ()).digest() == run("slots", ()).digest()


def test_a_design_that_cannot_drain_says_so() -> None:
    architecture, cluster = lookup("pigeon"), Cluster.uniform(4)
    deployment = architecture.build(cluster, configure(architecture, {"groups": 2, "reserved": 0}), Streams(0))
    with pytest.raises(InputError, match="this design cannot drain nodes"):
        simulate(deployment, trace_of("one", [0], [[1]]), cluster, options=Options(drains=(Drained(0),)))
    with pytest.raises(InputError, match="there is no machine 9"):
        run("slots", (Drained(9),))
