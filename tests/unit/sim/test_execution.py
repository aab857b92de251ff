"""Machines: slots, constraints, true durations, kill and relaunch, and what the driver refuses."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from tests.unit.sim.actors import Actor, Note, Reaction, answer, launch_all, play

from volery.conformance.cases import trace_of
from volery.core.events import Event, JobDone, Submit, TaskFinished, TimerFired
from volery.core.model import NEVER, Address, Amounts, Cluster, Task, Time
from volery.core.port import Port
from volery.core.records import LostAttempt
from volery.core.trace import Trace
from volery.sim.execution import BrokenRule, LabPort


def on_submit(*steps: tuple[int, int]) -> Reaction:
    """Launch (task, attempt) pairs when the first job comes."""

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            for task, attempt in steps:
                port.launch(event.job.tasks[task], attempt)

    return react


def test_a_task_runs_for_its_true_duration_and_the_records_say_where() -> None:
    records = play({"node/0": Actor(launch_all)}, trace_of("t", [100], [[250]]))
    assert (records.start_us[0], records.finish_us[0], records.worker[0], records.attempt[0]) == (100, 350, 0, 0)


def test_a_task_of_duration_0_is_legal_and_ends_in_its_instant() -> None:
    node = Actor(launch_all)
    records = play({"node/0": node}, trace_of("t", [100], [[0]]))
    assert node.times(TaskFinished) == [100]
    assert records.finish_us[0] == records.answered_us[0] == 100


def test_a_slot_is_free_again_in_the_instant_in_which_its_task_ends() -> None:
    waiting: list[Task] = []

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            waiting.extend(event.job.tasks)
        else:
            assert isinstance(event, TaskFinished)
        if waiting:
            port.launch(waiting.pop(0), 0)
        else:
            port.send("submitter", JobDone(0))

    records = play({"node/0": Actor(react)}, trace_of("t", [0], [[10, 0, 20]]))
    assert list(records.start_us) == [0, 10, 10]


@pytest.mark.parametrize(
    ("react", "cluster", "rule"),
    [
        (on_submit((0, 0), (1, 0)), Cluster.uniform(1, constraints=7), r"task 1 .*: no idle slot"),
        (on_submit((2, 0)), Cluster.uniform(1, constraints=3), r"task 2 .*: the machine lacks constraints 0x4"),
        (on_submit((0, 0), (0, 0)), Cluster.uniform(1, 2, 7), r"task 0 .*: already started as attempt 0 on machine 0"),
        (on_submit((0, 0), (0, 1)), Cluster.uniform(1, 2, 7), r"already started as attempt 0 on machine 0"),
    ],
)
def test_what_must_never_happen_is_refused(react: Reaction, cluster: Cluster, rule: str) -> None:
    trace = trace_of("t", [0], [[50, 50, 50]], [[0, 0, 4]])
    with pytest.raises(BrokenRule, match=rule):
        play({"node/0": Actor(react)}, trace, cluster)


def test_a_component_that_stands_on_no_machine_cannot_launch() -> None:
    with pytest.raises(BrokenRule, match="entry/0 is on no machine"):
        play({"entry/0": Actor(on_submit((0, 0)))}, trace_of("t", [0], [[5]]))


def test_a_finished_task_is_never_run_again() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.launch(event.job.tasks[0], 0)
        elif isinstance(event, TaskFinished):
            port.launch(event.task, 1)

    with pytest.raises(BrokenRule, match="already started as attempt 0"):
        play({"node/0": Actor(react)}, trace_of("t", [0], [[5]]))


def killing(port: Port, event: Event, source: Address, now: Time) -> None:
    """Run the task, kill it at 30, and have it run again elsewhere."""
    if isinstance(event, Submit):
        port.launch(event.job.tasks[0], 0)
        port.set_timer("kill", 30)
    elif isinstance(event, TimerFired):
        port.kill(0, 0)
    elif isinstance(event, TaskFinished) and event.outcome == "killed":
        port.send("node/1", Note(event.task.id))


def test_a_killed_attempt_frees_its_slot_and_the_next_one_is_recorded() -> None:
    task = Task(0, 0, 0, 100)

    def again(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Note):
            port.launch(task, 1)
        else:
            launch_all(port, event, source, now)

    first, second = Actor(killing), Actor(again)
    records = play({"node/0": first, "node/1": second}, trace_of("t", [0], [[100]]))
    assert [(now, e.outcome) for now, e, _ in first.seen if isinstance(e, TaskFinished)] == [(30, "killed")]
    assert [(now, e.attempt, e.outcome) for now, e, _ in second.seen if isinstance(e, TaskFinished)] == [
        (630, 1, "finished")
    ]
    assert (records.start_us[0], records.finish_us[0], records.worker[0], records.attempt[0]) == (530, 630, 1, 1)
    assert records.lost == [LostAttempt(0, 0, 0, 0, NEVER)]
    assert records.killed == {(0, 0): 30}


def test_a_killed_task_may_run_again_on_the_same_machine_in_the_same_instant() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, TaskFinished) and event.outcome == "killed":
            port.launch(event.task, 1)
        elif isinstance(event, TaskFinished):
            port.send("submitter", JobDone(0))
        elif not isinstance(event, Note):
            killing(port, event, source, now)

    records = play({"node/0": Actor(react)}, trace_of("t", [0], [[100]]))
    assert (records.start_us[0], records.finish_us[0], records.attempt[0]) == (30, 130, 1)


@pytest.mark.parametrize(("task", "attempt"), [(0, 1), (1, 0)])
def test_killing_what_does_not_run_here_does_nothing(task: int, attempt: int) -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, TimerFired):
            port.kill(task, attempt)
        elif isinstance(event, Submit):
            port.launch(event.job.tasks[0], 0)
            port.set_timer("kill", 30)
        elif isinstance(event, TaskFinished):
            assert event.outcome == "finished"
            port.send("submitter", JobDone(0))

    records = play({"node/0": Actor(react)}, trace_of("t", [0], [[100, 100]]))
    assert records.killed == {}
    assert records.finish_us[0] == 100


def test_killing_a_task_in_the_instant_in_which_it_has_ended_does_nothing() -> None:
    """Ends come before timers: the master that kills cannot know yet."""

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.launch(event.job.tasks[0], 0)
            port.set_timer("kill", 100)
        elif isinstance(event, TimerFired):
            port.kill(0, 0)
            port.send("submitter", JobDone(0))

    node = Actor(react)
    records = play({"node/0": node}, trace_of("t", [0], [[100]]))
    assert [event.outcome for _, event, _ in node.seen if isinstance(event, TaskFinished)] == ["finished"]
    assert (records.finish_us[0], records.killed) == (100, {})


def test_killing_twice_or_after_the_end_does_nothing_more() -> None:
    ends: list[str] = []

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.launch(event.job.tasks[0], 0)
            port.set_timer("kill", 30)
            port.set_timer("late", 500)
        elif isinstance(event, TimerFired):
            port.kill(0, 0)
            port.kill(0, 0)
        elif isinstance(event, TaskFinished):
            ends.append(event.outcome)
            port.send("submitter", JobDone(0))

    play({"node/0": Actor(react)}, trace_of("t", [0], [[100]]))
    assert ends == ["killed"]


def test_time_in_a_workers_own_queue_is_kept() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.launch(event.job.tasks[0], 0, 17)
        elif isinstance(event, TaskFinished):
            port.send("submitter", JobDone(0))

    assert play({"node/0": Actor(react)}, trace_of("t", [0], [[5]])).waited_us == {0: 17}


OFFERING = Cluster((0,), (1,), "c", ("cpu_milli", "memory_mb"), ((3000, 1000),))


def asking(durations: list[Time], requests: list[Amounts]) -> Trace:
    """One job whose k-th task asks for the k-th request."""
    trace = trace_of("t", [0], [durations])
    return msgspec.structs.replace(
        trace, resources=OFFERING.resources, requests=tuple(requests), request=array("H", range(len(requests)))
    )


def test_a_machine_with_capacities_runs_what_fits_together() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        on_submit((0, 0), (1, 0), (2, 0))(port, event, source, now)
        answer(port, event, source, now)

    trace = asking([50, 50, 50], [(1000, 500), (2000, 500), (0, 0)])
    records = play({"node/0": Actor(react)}, trace, OFFERING)
    assert list(records.start_us) == [0, 0, 0]


@pytest.mark.parametrize(
    ("requests", "rule"),
    [
        ([(1000, 500), (1000, 501)], r"task 1 .* at 0 us: asks for 1000 cpu_milli, 501 memory_mb where 2000 cpu_milli"),
        (
            [(3000, 1), (1, 1)],
            r"task 1 .*: asks for 1 cpu_milli, 1 memory_mb where 0 cpu_milli, 999 memory_mb are free",
        ),
    ],
)
def test_no_resource_is_given_twice(requests: list[Amounts], rule: str) -> None:
    with pytest.raises(BrokenRule, match=rule):
        play({"node/0": Actor(on_submit((0, 0), (1, 0)))}, asking([50, 50], requests), OFFERING)


def test_what_a_task_took_is_free_when_it_ends_and_when_it_is_killed() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            answer(port, event, source, now)
            port.launch(event.job.tasks[0], 0)
            tasks.extend(event.job.tasks[1:])
            port.set_timer("kill", 10)
        elif isinstance(event, TimerFired):
            port.kill(0, 0)
        elif tasks:
            port.launch(tasks.pop(0), 0)

    tasks: list[Task] = []
    whole = (3000, 1000)
    records = play({"node/0": Actor(react)}, asking([50, 20, 5], [whole] * 3), OFFERING)
    assert list(records.start_us) == [0, 10, 30]


def test_a_machine_with_capacities_is_at_rest_exactly_when_nothing_runs_on_it() -> None:
    seen: list[bool] = []

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        assert isinstance(port, LabPort)
        seen.append(port.is_idle())
        if isinstance(event, Submit):
            on_submit((0, 0), (1, 0))(port, event, source, now)
            answer(port, event, source, now)
            seen.append(port.is_idle())

    play({"node/0": Actor(react)}, asking([50, 70], [(1, 1), (1, 1)]), OFFERING)
    assert seen == [True, False, False, True]
