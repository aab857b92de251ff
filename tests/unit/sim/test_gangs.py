"""Gangs in the lab: members hold machines until the last is launched, end together, and a deadlock ends the run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from volery.conformance.cases import trace_of
from volery.core.capabilities import GangPlacement, Resumption
from volery.core.component import Component, Deployment
from volery.core.errors import InputError
from volery.core.events import Event, JobDone, Submit
from volery.core.gangs import with_gangs
from volery.core.model import (
    NEVER,
    PREFERS_RACK,
    REQUIRES_RACK,
    SECOND,
    Address,
    Cluster,
    Task,
    Time,
    Variability,
)
from volery.core.records import Records
from volery.core.trace import NO_GANG, Trace
from volery.roles.node import Completed, Kill, Launch, with_nodes
from volery.sim import Deadlock, Network, Options, simulate
from volery.sim.execution import BrokenRule
from volery.sim.network import MessageFaultRates

MS = 1_000


def gangs(*rows: tuple[float, list[float]], nodes: int = 0) -> Trace:
    """Rows of arrival and durations of the members, in seconds."""
    durations = [[round(run * SECOND) for run in runs] for _, runs in rows]
    trace = trace_of("gangs", [round(at * SECOND) for at, _ in rows], durations)
    return with_gangs(trace, [nodes] * len(rows))


class OneByOne(Component):
    """A scheduler that launches the tasks of all jobs in order, each on its own machine, some time apart."""

    def __init__(self, gap_us: Time, places: dict[int, int] | None = None) -> None:
        self._gap_us = gap_us
        self._places = places or {}
        self.tasks: list[tuple[Task, int]] = []
        self.left: dict[int, int] = {}
        self._number = 0

    def handle(self, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            self.left[event.job.id] = event.job.task_count
            for task in event.job.tasks:
                self.tasks.append((task, 0))
                self._port.set_timer(f"{task.id}/0", now + self._gap_us * task.id)
        elif isinstance(event, Completed):
            self.ended(event, now)
        elif type(event).__name__ == "TimerFired":
            number, attempt = map(int, event.key.split("/"))  # type: ignore[union-attr]  # of timers
            task = next(task for task, _ in self.tasks if task.id == number)
            self._number += 1
            self._port.send(f"node/{self._places.get(number, number)}", Launch(self._number, task, attempt))

    def ended(self, event: Completed, now: Time) -> None:
        task = next(task for task, _ in self.tasks if task.id == event.task)
        if event.killed:
            self._port.set_timer(f"{event.task}/{event.attempt + 1}", now + SECOND)
            return
        self.left[task.job] -= 1
        if not self.left[task.job]:
            self._port.send("submitter", JobDone(task.job))


def built(scheduler: Component, machines: int, *capabilities: object) -> Deployment:
    """The deployment of a scheduler with a plain node per machine."""
    return msgspec.structs.replace(
        with_nodes(Cluster.uniform(machines), "scheduler/0", scheduler), capabilities=capabilities
    )


def played(trace: Trace, scheduler: Component, machines: int = 3, *capabilities: object, **options: Any) -> Records:
    return simulate(
        built(scheduler, machines, *capabilities),
        trace,
        Cluster.uniform(machines),
        network=Network(delay_us=0),
        options=Options(may_hold=True, **options),
    )


def test_members_hold_their_machines_until_the_last_is_launched() -> None:
    records = played(gangs((0, [5, 5, 5])), OneByOne(SECOND))
    assert list(records.start_us) == [2 * SECOND] * 3, "durations count from the last launch"
    assert list(records.finish_us) == [7 * SECOND] * 3
    assert records.held_us == {0: 2 * SECOND, 1: SECOND}


def test_a_member_that_has_reached_its_end_leaves_the_others() -> None:
    records = played(gangs((0, [1, 5, 3])), OneByOne(SECOND))
    assert list(records.finish_us) == [3 * SECOND, 7 * SECOND, 5 * SECOND]


def test_other_jobs_of_the_workload_do_not_wait() -> None:
    trace = with_gangs(trace_of("mixed", [0, 0], [[SECOND], [SECOND] * 2]), [NO_GANG, 0])
    records = played(trace, OneByOne(SECOND))
    assert list(records.start_us) == [0, 2 * SECOND, 2 * SECOND]


class Ending(OneByOne):
    """One that kills a member at a time."""

    def __init__(self, task: int, at_us: Time, gap_us: Time = 0) -> None:
        super().__init__(gap_us)
        self._killed_task = task
        self._at_us = at_us

    def handle(self, event: Event, source: Address, now: Time) -> None:
        if type(event).__name__ == "TimerFired" and event.key == "kill":  # type: ignore[union-attr]  # of timers
            self._port.send(f"node/{self._killed_task}", Kill(self._killed_task))
            return
        if isinstance(event, Submit):
            self._port.set_timer("kill", now + self._at_us)
        super().handle(event, source, now)


def test_a_member_that_is_killed_ends_the_attempt_of_all() -> None:
    records = played(gangs((0, [5, 5, 5])), Ending(1, 2 * SECOND))
    assert records.killed == dict.fromkeys([(0, 0), (1, 0), (2, 0)], 2 * SECOND)
    assert list(records.start_us) == [3 * SECOND] * 3, "the gang begins anew, whole"
    assert list(records.attempt) == [1, 1, 1]


def test_a_member_that_is_killed_while_it_waits_has_not_run() -> None:
    records = played(gangs((0, [5, 5, 5])), Ending(0, SECOND + SECOND // 2, gap_us=SECOND))
    assert [(lost.task, lost.start_us) for lost in records.lost] == [(0, 1_500_000), (1, 1_500_000)]
    # The third is launched at 2 s and holds until the other two are there again, at 2.5 s.
    assert list(records.start_us) == [2_500_000] * 3
    assert records.held_us == {0: 1_500_000, 1: 500_000, 2: 500_000}


def test_a_member_that_is_killed_while_it_waits_takes_nothing_from_its_duration() -> None:
    cluster = msgspec.structs.replace(Cluster.uniform(3), variability=Variability(0, SECOND, 300))
    for resumption in (Resumption(checkpoint_us=SECOND), Resumption(preempted=True)):
        records = simulate(
            built(Ending(0, SECOND + SECOND // 2, gap_us=SECOND), 3, resumption),
            gangs((0, [5, 5, 5])),
            cluster,
            network=Network(delay_us=0),
            options=Options(may_hold=True),
        )
        assert list(records.start_us) == [2_500_000] * 3
        assert min(records.finish_us) > 6 * SECOND


def test_only_members_that_have_not_finished_run_again() -> None:
    records = played(gangs((0, [1, 5, 5])), Ending(1, 2 * SECOND))
    assert list(records.start_us) == [0, 3 * SECOND, 3 * SECOND]
    assert list(records.attempt) == [0, 1, 1]


def test_durations_are_those_on_the_machines_of_the_members() -> None:
    cluster = msgspec.structs.replace(Cluster.uniform(3), speeds=(1, 2, 4), reference_speed=4)
    records = simulate(
        built(OneByOne(SECOND), 3),
        gangs((0, [1, 1, 1])),
        cluster,
        network=Network(delay_us=0),
        options=Options(may_hold=True),
    )
    assert list(records.finish_us) == [6 * SECOND, 4 * SECOND, 3 * SECOND]


def test_gangs_that_wait_for_each_other_are_a_deadlock_and_the_error_names_what_they_hold() -> None:
    trace = gangs((0, [1, 1]), (0, [1, 1]))
    places = {0: 0, 1: 2, 2: 1, 3: 3}
    with pytest.raises(Deadlock, match=r"2 gangs hold 2 machines and wait for more, since 0 us") as deadlock:
        played(trace, Half(0, places))
    assert "job 0 holds machines 0 for 1 of 2 tasks; job 1 holds machines 1 for 1 of 2 tasks" in str(deadlock.value)


def test_a_run_that_loses_messages_may_end_with_members_that_wait() -> None:
    records = played(gangs((0, [1, 1])), Half(0), faults=MessageFaultRates(repeat=0.001))
    assert list(records.answered_us) == [NEVER]


class Half(OneByOne):
    """One that launches only the first task of each job."""

    def handle(self, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            event = Submit(msgspec.structs.replace(event.job, tasks=event.job.tasks[:1]))
        super().handle(event, source, now)


def test_a_design_without_gangs_is_refused_unless_it_may_hold() -> None:
    with pytest.raises(InputError, match="--gangs hold"):
        simulate(built(OneByOne(0), 3), gangs((0, [1, 1])), Cluster.uniform(3))


@pytest.mark.parametrize(
    ("nodes", "places", "problem"),
    [
        (2, {0: 0, 1: 0, 2: 0, 3: 1}, "3 members there, on 1 machines; the gang has 2 at most on each of 2"),
        (2, {0: 0, 1: 1, 2: 2, 3: 2}, "on 3 machines; the gang has 2 at most on each of 2"),
        (3, {0: 0, 1: 0, 2: 1, 3: 1}, "begins on 2 machines, and its shape has 3"),
    ],
)
def test_a_design_that_starts_gangs_whole_keeps_their_shapes(nodes: int, places: dict[int, int], problem: str) -> None:
    cluster = Cluster.uniform(3, slots=4)
    deployment = built(OneByOne(0, places), 3, GangPlacement())
    with pytest.raises(BrokenRule, match=problem):
        simulate(deployment, gangs((0, [1] * 4), nodes=nodes), cluster, network=Network(delay_us=0))
    # A design that does not know gangs cannot know their shapes.
    simulate(
        built(OneByOne(0, places), 3),
        gangs((0, [1] * 4), nodes=nodes),
        cluster,
        network=Network(delay_us=0),
        options=Options(may_hold=True),
    )


def test_a_design_that_heeds_racks_keeps_a_gang_that_requires_one_in_it() -> None:
    cluster = msgspec.structs.replace(Cluster.uniform(3), racks=(0, 1, 0))
    for wish, nodes in ((REQUIRES_RACK, 0), (REQUIRES_RACK, 2), (PREFERS_RACK, 0)):
        trace = with_gangs(gangs((0, [1, 1])), [nodes], [wish])
        for second_machine in (2, 1):
            deployment = built(OneByOne(0, {1: second_machine}), 3, GangPlacement(racks=True))
            if wish == REQUIRES_RACK and second_machine == 1:
                with pytest.raises(BrokenRule, match="members in racks 0, 1; the gang requires one rack"):
                    simulate(deployment, trace, cluster, network=Network(delay_us=0))
            else:
                simulate(deployment, trace, cluster, network=Network(delay_us=0))


def test_a_gang_that_requires_one_rack_is_refused_by_a_design_that_does_not_heed_racks() -> None:
    cluster = msgspec.structs.replace(Cluster.uniform(3), racks=(0, 1, 0))
    with pytest.raises(InputError, match="job 0 is a gang that requires one rack, which this design does not heed"):
        played_on(cluster, with_gangs(gangs((0, [1, 1])), [0], [REQUIRES_RACK]))
    played_on(cluster, with_gangs(gangs((0, [1, 1])), [0], [PREFERS_RACK]))


@pytest.mark.parametrize(
    ("nodes", "wish", "problem"),
    [
        (0, REQUIRES_RACK, "a gang of 5 tasks in one rack, and no empty rack holds more than 4 of them at once; give"),
        (5, REQUIRES_RACK, "a gang of 5 tasks on 5 machines, 1 at most on each in one rack, and no empty rack holds"),
        (0, PREFERS_RACK, ""),
    ],
)
def test_a_gang_that_is_larger_than_any_rack_is_refused_if_it_requires_one(nodes: int, wish: int, problem: str) -> None:
    cluster = msgspec.structs.replace(Cluster.uniform(5, slots=2), racks=(0, 1, 0, 2, 1))
    trace = with_gangs(gangs((0, [1] * 5)), [nodes], [wish])
    deployment = built(OneByOne(0), 5, GangPlacement(racks=True))
    if problem:
        with pytest.raises(InputError, match=problem):
            simulate(deployment, trace, cluster)
    else:
        simulate(deployment, trace, cluster)


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        (0, r"job 0 \(from 0, by time of submission\) is a gang of 7 tasks, and the empty cluster holds 6"),
        (2, "on 2 machines, 4 at most on each, and the empty cluster holds 4"),
        (4, "on 4 machines, 2 at most on each, and the empty cluster holds 0"),
    ],
)
def test_a_gang_that_is_larger_than_the_cluster_is_refused(nodes: int, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        simulate(built(OneByOne(0), 3, GangPlacement()), gangs((0, [1] * 7), nodes=nodes), Cluster.uniform(3, slots=2))


def test_shapes_do_not_count_where_members_are_placed_one_by_one() -> None:
    workload = gangs((0, [1] * 4), nodes=4)
    assert list(played_on(Cluster.uniform(2, slots=2), workload, {2: 0, 3: 1}).start_us) == [0] * 4
    with pytest.raises(InputError, match=r"on 4 machines, 1 at most on each, .* as tasks \(--gangs task\)"):
        simulate(built(OneByOne(0), 2, GangPlacement()), workload, Cluster.uniform(2, slots=2))


def played_on(cluster: Cluster, trace: Trace, places: dict[int, int] | None = None) -> Records:
    deployment = built(OneByOne(0, places), len(cluster.slots))
    return simulate(deployment, trace, cluster, network=Network(delay_us=0), options=Options(may_hold=True))
