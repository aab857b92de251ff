"""Machines that are switched on and off: what the driver refuses."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.sim.actors import Actor, launch_all

from volery.conformance.cases import trace_of
from volery.core.component import Deployment
from volery.core.events import Event, Power, Switched, TimerFired
from volery.core.model import Address, Cluster, Time
from volery.core.port import Port
from volery.core.provisioning import HOUR, Billing
from volery.core.records import Records
from volery.sim import simulate
from volery.sim.execution import BrokenRule

JOB = trace_of("job", [100], [[250]])


def switched(*steps: tuple[Time, Power], machine: int = 0, machines: int = 1) -> Records:
    """One node that switches its machine at such times, and launches what is submitted to it."""

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, TimerFired):
            port.observe(Switched(now, machine, dict(steps)[now]))
        launch_all(port, event, source, now)

    def start(port: Port) -> None:
        for number, (at, _) in enumerate(steps):
            port.set_timer(number, at)

    deployment = Deployment(
        {"node/0": Actor(react, start)}, {"node/0": 0}, lambda _: "node/0", billing=Billing(frozenset(range(machines)))
    )
    return simulate(deployment, JOB, Cluster.uniform(1))


def test_a_machine_that_is_on_runs_tasks() -> None:
    records = switched((50, "booting"), (90, "on"), (350, "off"))
    assert (records.start_us[0], records.finish_us[0]) == (100, 350)
    assert [(fact.at_us, fact.power) for fact in records.switches] == [(50, "booting"), (90, "on"), (350, "off")]


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        ((), "the machine is off"),
        (((50, "booting"),), "the machine is booting"),
        (((50, "on"), (60, "off")), "the machine is off"),
        (((50, "on"), (200, "off")), "tasks run there"),
        (((50, "on"), (60, "on")), "the machine is on"),
        (((50, "off"),), "the machine is off"),
    ],
)
def test_what_must_not_be_is_refused(steps: tuple[tuple[Time, Power], ...], problem: str) -> None:
    with pytest.raises(BrokenRule, match=problem):
        switched(*steps)


def test_nobody_switches_the_machine_of_another() -> None:
    with pytest.raises(BrokenRule, match="it stands on machine 0"):
        switched((50, "on"), machine=1, machines=2)


def test_a_machine_that_is_always_on_is_not_switched() -> None:
    with pytest.raises(BrokenRule, match="always on"):
        switched((50, "on"), machines=0)


def test_other_deployments_have_no_bill() -> None:
    deployment = Deployment({"node/0": Actor(launch_all)}, {"node/0": 0}, lambda _: "node/0")
    assert simulate(deployment, JOB, Cluster.uniform(1)).billing is None


def test_every_interval_that_has_begun_is_paid_for() -> None:
    hourly = Billing(frozenset(), HOUR, 0.5, 0.1)
    assert [hourly.paid_us(span) // HOUR for span in (1, HOUR, HOUR + 1, 3 * HOUR)] == [1, 1, 2, 3]
    assert [hourly.paid_until_us(7, now) for now in (7, HOUR + 6, HOUR + 7)] == [HOUR + 7, HOUR + 7, 2 * HOUR + 7]
    assert hourly.price(4) == pytest.approx(0.9)
    exact = msgspec.structs.replace(hourly, interval_us=0)
    assert (exact.paid_us(123), exact.paid_until_us(7, 99)) == (123, 99)
