"""Rules of launches: durations on preferred machines, and machines that are switched on and off."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from tests.unit.sim.actors import Actor, Reaction, launch_all

from volery.architectures import lookup
from volery.conformance.cases import trace_of
from volery.core.capabilities import Replication
from volery.core.component import Deployment
from volery.core.events import Event, JobDone, Power, Submit, Switched, TaskFinished, TimerFired
from volery.core.model import NEVER, SECOND, SUBMITTER, Address, Cluster, Preference, Task, Time, Variability
from volery.core.port import Port
from volery.core.records import HOUR, Billing, Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.sim import Options, simulate
from volery.sim.execution import BrokenRule
from volery.sim.rules import VaryingSpeed

GPU, LEFT, RIGHT = 1, 2, 4
MACHINES = Cluster((LEFT, LEFT, RIGHT | GPU), (1, 1, 1))
VARYING = msgspec.structs.replace(MACHINES, variability=Variability(0, SECOND, 300))


def preferring(wish: Preference, tasks: int) -> Trace:
    trace = trace_of("wishes", [0], [[SECOND] * tasks])
    return msgspec.structs.replace(trace, preferences=(wish,), preference=array("H", [0]))


def runs_us(trace: Trace, cluster: Cluster = MACHINES) -> dict[int, int]:
    oracle = lookup("oracle")
    deployment = oracle.build(cluster, oracle.defaults, Streams(0))
    records = simulate(deployment, trace, cluster, options=Options(check=True))
    rows = zip(records.worker, records.start_us, records.finish_us, strict=True)
    return {worker: finish - start for worker, start, finish in rows}


def test_a_task_takes_longer_where_its_job_does_not_prefer_to_run() -> None:
    assert runs_us(preferring(Preference(GPU, 0, 250), 3)) == {0: 2_500_000, 1: 2_500_000, 2: SECOND}


def test_tasks_that_want_to_be_together_are_slow_away_from_the_first() -> None:
    assert runs_us(preferring(Preference(0, LEFT | RIGHT, 150), 3)) == {0: SECOND, 1: SECOND, 2: 1_500_000}


def test_speeds_and_preferences_multiply() -> None:
    cluster = msgspec.structs.replace(MACHINES, speeds=(100, 200, 200), reference_speed=200)
    assert runs_us(preferring(Preference(GPU, 0, 150), 3), cluster) == {0: 3 * SECOND, 1: 1_500_000, 2: SECOND}


def test_a_varying_machine_does_as_much_work_as_its_factors_say() -> None:
    """What 30 s of work take is what does 30 s of work, and the factors are those of seed and machine alone."""
    speeds, same = [VaryingSpeed(Variability(3, 10 * SECOND, 500)) for _ in range(2)]
    for machine, at_us in ((0, 0), (1, 0), (1, 7_654_321)):
        run_us = speeds.run_us(machine, at_us, 30 * SECOND)
        assert speeds.work_us(machine, at_us, run_us) in (30 * SECOND, 30 * SECOND + 1)
        assert 20 * SECOND <= run_us <= 60 * SECOND
    assert [same.permille(1, period) for period in range(4)] == [speeds.permille(1, period) for period in range(4)]
    assert len(set(runs_us(trace_of("job", [0], [[30 * SECOND] * 3]), VARYING).values())) == 3


def test_a_trace_without_preferences_keeps_its_digest_and_one_with_them_has_another() -> None:
    plain = trace_of("wishes", [0], [[SECOND]])
    digests = {plain.digest(), preferring(Preference(GPU, 0, 150), 1).digest()}
    digests |= {preferring(Preference(GPU, 0, 200), 1).digest()}
    assert len(digests) == 3


@pytest.mark.parametrize("jobs", [0, 1])
def test_schedulers_are_told_what_a_job_prefers(jobs: int) -> None:
    wish = Preference(GPU, 0, 250)
    trace = preferring(wish, 1) if jobs else trace_of("none", [0], [[SECOND]])
    (message,) = trace.submission(0)
    assert message.job.preference == (wish if jobs else Preference())  # type: ignore[attr-defined]  # it is a Submit


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
        {"node/0": Actor(react, start)},
        {"node/0": 0},
        lambda _: "node/0",
        capabilities=(Billing(frozenset(range(machines))),),
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
    with pytest.raises(BrokenRule, match="it is on machine 0"):
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


LONG, SHORT = 1000, 400
SLOW_FIRST = Cluster((0, 0, 0), (1, 1, 1), speeds=(400, 1000, 1000), reference_speed=1000)
"""Three machines, of which the first needs 2.5 times as long."""


def replicated(starts: dict[str, tuple[int, Time]], react: Reaction | None = None, copies: int = 2) -> Records:
    """One task with an attempt per node, each at its own time; `react` may kill attempts when one has finished."""

    def acted(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            tasks.extend(event.job.tasks)
        elif isinstance(event, TimerFired) and event.key == 0:
            port.launch(tasks[0], starts[port.address][0])
        elif isinstance(event, TaskFinished) and event.outcome == "finished" and not done:
            done.append(event.attempt)
            port.send(SUBMITTER, JobDone(0))
        if react is not None:
            react(port, event, source, now)

    def started(port: Port) -> None:
        if port.address in starts:
            port.set_timer(0, starts[port.address][1])

    tasks, done = list[Task](), list[int]()
    nodes = {f"node/{number}": Actor(acted, started) for number in range(3)}
    machines = {address: number for number, address in enumerate(nodes)}
    deployment = Deployment(nodes, machines, lambda _: "node/0", capabilities=(Replication(copies),))
    return simulate(deployment, trace_of("one", [0], [[SHORT]]), SLOW_FIRST)


def test_the_first_attempt_to_finish_is_the_tasks_and_the_other_is_beside_the_table() -> None:
    records = replicated({"node/0": (0, 10), "node/1": (1, 20)})
    assert (records.worker[0], records.attempt[0], records.finish_us[0]) == (1, 1, 20 + SHORT)
    assert [(one.worker, one.attempt, one.finish_us) for one in records.lost] == [(0, 0, 10 + LONG)]


def test_an_attempt_that_is_killed_beside_another_never_finishes() -> None:
    def kill(port: Port, event: Event, source: Address, now: Time) -> None:
        if port.address == "node/0" and isinstance(event, Submit):
            port.set_timer(1, 100)
        elif isinstance(event, TimerFired) and event.key == 1:
            port.kill(0, 0)

    records = replicated({"node/0": (0, 10), "node/1": (1, 20)}, kill)
    assert records.finish_us[0] == 20 + SHORT
    assert records.killed == {(0, 0): 100}
    assert [(one.attempt, one.finish_us) for one in records.lost] == [(0, NEVER)]


def test_more_attempts_at_once_than_the_design_declares_are_refused() -> None:
    with pytest.raises(BrokenRule, match="already started"):
        replicated({"node/0": (0, 10), "node/1": (1, 20), "node/2": (2, 30)})
    assert replicated({"node/0": (0, 10), "node/1": (1, 20), "node/2": (2, 30)}, copies=3).finish_us[0] == 20 + SHORT


def test_an_attempt_number_is_used_once() -> None:
    with pytest.raises(BrokenRule, match="already started as attempt 0"):
        replicated({"node/0": (0, 10), "node/1": (0, 20)})
