"""Workflows in the lab: who sends tasks when, what is recorded and refused, and machines with speeds."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from tests.unit.sim.actors import Actor, play

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.capabilities import Resumption
from volery.core.component import Component, Deployment
from volery.core.events import Event, JobDone, JobRejected, MoreTasks, Submit, TaskFinished, TimerFired
from volery.core.model import CHUNK_TASKS, NEVER, SUBMITTER, Address, Cluster, Task, TaskId, Time
from volery.core.port import Port
from volery.core.records import LostAttempt
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.core.workflows import with_parents
from volery.sim import Network, Options, simulate
from volery.sim.execution import BrokenRule
from volery.sim.kernel import Kernel
from volery.sim.workflows import lacking

HOP = Network(delay_us=7)


def diamond(durations: tuple[int, ...] = (10, 20, 5, 1), needs: tuple[int, ...] = ()) -> Trace:
    """Task 0, then 1 and 2, then 3."""
    trace = trace_of("diamond", [100], [durations], [needs] if needs else ())
    return with_parents(trace, [(), (0,), (0,), (1, 2)])


class Runner(Component):
    """A machine with slots enough that runs what it is sent, once, and counts; tasks with constraints fit nowhere."""

    __slots__ = ("chunks", "counts", "left", "seen")

    def __init__(self) -> None:
        self.chunks: list[tuple[Time, int, list[TaskId]]] = []
        self.counts: list[int] = []
        self.left = 0
        self.seen: dict[TaskId, Task] = {}

    def handle(self, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            self.counts.append(event.job.task_count)
            self.left = self.left or event.job.task_count
            self._run(now, 0, event.job.tasks)
        elif isinstance(event, MoreTasks):
            self._run(now, event.first, event.tasks)
        elif isinstance(event, TaskFinished):
            self._count(event.task.job)

    def _run(self, now: Time, first: int, tasks: tuple[Task, ...]) -> None:
        self.chunks.append((now, first, [task.id for task in tasks]))
        for task in tasks:
            if task.id in self.seen:
                continue
            self.seen[task.id] = task
            if task.constraints:
                self._count(task.job)
            else:
                self._port.launch(task, 0)

    def _count(self, job: int) -> None:
        self.left -= 1
        if not self.left:
            self._port.send(SUBMITTER, JobDone(job, sum(bool(task.constraints) for task in self.seen.values())))


def test_tasks_are_sent_one_hop_after_the_last_of_their_parents_has_finished() -> None:
    node = Runner()
    records = play({"node/0": node}, diamond(), Cluster.uniform(1, 9), network=HOP)
    assert node.chunks == [(100, 0, [0]), (117, 1, [1, 2]), (144, 3, [3])]
    assert records.start_us.tolist() == [100, 117, 117, 144]
    assert records.ready_us.tolist() == [100, 110, 110, 137]
    assert records.path.tolist() == [0, 7, 7, 7], "the hop is on the way of the messages that led to the start"
    assert records.answered_us.tolist() == [145]


def test_without_delay_a_chain_of_nothing_ends_in_its_instant() -> None:
    node = Runner()
    records = play({"node/0": node}, diamond((0, 0, 0, 0)), Cluster.uniform(1, 9), network=Network(delay_us=0))
    assert records.answered_us.tolist() == [100]
    assert [task for _, _, tasks in node.chunks for task in tasks] == [0, 1, 2, 3]


def test_what_becomes_ready_at_once_and_is_too_much_for_a_message_comes_in_chunks() -> None:
    wide = CHUNK_TASKS + 3
    trace = with_parents(trace_of("wide", [0], [[5, *[1] * wide]]), [(), *[(0,)] * wide])
    node = Runner()
    play({"node/0": node}, trace, Cluster.uniform(1, wide), network=HOP)
    assert [(first, len(tasks)) for _, first, tasks in node.chunks] == [(0, 1), (1, CHUNK_TASKS), (1 + CHUNK_TASKS, 3)]


def test_jobs_without_parents_in_such_a_trace_are_submitted_whole() -> None:
    trace = with_parents(trace_of("t", [0, 50], [[5, 5], [1, 1, 1]]), [(), (0,), (), (), ()])
    node = Runner()
    play({"node/0": node}, trace, Cluster.uniform(1, 9), network=HOP)
    assert node.chunks == [(0, 0, [0]), (12, 1, [1]), (50, 0, [2, 3, 4])]


def test_tasks_below_one_that_fits_no_machine_are_never_sent_and_are_counted() -> None:
    node = Runner()
    records = play({"node/0": node}, diamond(needs=(0, 4, 0, 0)), Cluster.uniform(1, 9, 3), network=HOP)
    assert [task for _, _, tasks in node.chunks for task in tasks] == [0, 1, 2]
    assert node.counts == [3]
    assert records.unsatisfiable.tolist() == [2], "the design told of one"
    assert records.start_us[3] == records.ready_us[3] == NEVER


@pytest.mark.parametrize(
    ("name", "given", "lost"),
    [
        ("pigeon", {"groups": 1, "reserved": 1, "cutoff_s": 1e-6}, 2),
        ("pigeon", {"groups": 1, "reserved": 1, "cutoff_s": 9.0}, 0),
        ("omega", {"batch_limit": 0.3}, 4),
        ("omega", {"batch_limit": 0.4}, 0),
    ],
)
def test_tasks_below_one_that_the_design_refuses_are_never_sent(name: str, given: dict[str, float], lost: int) -> None:
    """Long tasks of Pigeon may not use its reserved worker, and batch tasks of Omega hold less than a slot."""
    design, cluster = lookup(name), Cluster((1, 0, 0), (1, 1, 1))
    deployment = design.build(cluster, configure(design, {**design.conformance.immediate, **given}), Streams(0))
    records = simulate(deployment, diamond(needs=(0, 1, 0, 0)), cluster)
    assert records.unsatisfiable.tolist() == [lost]
    assert records.start_us.tolist().count(NEVER) == lost


def test_what_fits_no_machine_is_told_by_constraints_and_by_requests() -> None:
    trace = trace_of("t", [0], [[1, 1, 1]], [[0, 5, 2]])
    assert lacking(trace, Cluster((1, 3), (1, 1))) == [False, True, False]
    asking = msgspec.structs.replace(
        trace, resources=("cpu_milli", "gpus"), requests=((4, 0), (2, 1)), request=array("H", [0, 0, 1])
    )
    offering = Cluster((7, 3), (1, 1), resources=("cpu_milli", "gpus"), capacities=((3, 1), (4, 0)))
    assert lacking(asking, offering) == [False, True, False]
    barred = msgspec.structs.replace(asking, constraints=array("q", [4, 4, 0]))
    assert lacking(barred, offering) == [True, True, False], "the machine that has the constraint is too small"


def test_a_job_is_submitted_again_with_all_that_was_sent_so_far() -> None:
    node = Runner()
    deployment = Deployment({"node/0": node}, {"node/0": 0}, lambda _: "node/0")
    kernel = Kernel(deployment, diamond(), Cluster.uniform(1, 9), HOP, 0, Options())
    kernel.lab.schedule(120, lambda *_: kernel.submitter.resubmit("node/0"), None, None)
    kernel.run(None)
    assert node.chunks == [(100, 0, [0]), (117, 1, [1, 2]), (120, 0, [0, 1, 2]), (144, 3, [3])]
    assert node.counts == [4, 4]


def test_a_rejected_workflow_comes_again_with_what_may_start() -> None:
    class Busy(Runner):
        def handle(self, event: Event, source: Address, now: Time) -> None:
            if isinstance(event, Submit) and now == 100:
                self._port.send(SUBMITTER, JobRejected(0, "busy", 50))
            else:
                super().handle(event, source, now)

    node = Busy()
    records = play({"node/0": node}, diamond(), Cluster.uniform(1, 9), network=HOP)
    assert node.chunks[0] == (150, 0, [0])
    assert records.start_us[3] == 194


def test_nothing_of_a_job_is_sent_once_it_is_said_to_be_done() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.launch(event.job.tasks[0], 0)
            port.send(SUBMITTER, JobDone(0))

    node = Actor(react)
    play({"node/0": node}, diamond(), network=HOP)
    assert node.times(MoreTasks) == []


@pytest.mark.parametrize("graphs", [True, False])
def test_a_task_that_is_started_before_its_parents_have_finished_is_refused(graphs: bool) -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.launch(event.job.tasks[0], 0)
            port.launch(Task(3, 0), 0)

    with pytest.raises(BrokenRule, match=r"task 3 \(job 0.*: 2 of its parents have not finished"):
        play({"node/0": Actor(react)}, diamond(), Cluster.uniform(1, 9), options=Options(graphs=graphs))


def test_a_design_that_takes_graphs_is_told_parents_and_sent_nothing_more() -> None:
    waiting: dict[TaskId, tuple[Task, set[TaskId]]] = {}

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        assert not isinstance(event, MoreTasks)
        if isinstance(event, Submit):
            for task, parents in zip(event.job.tasks, event.job.parents, strict=True):
                waiting[task.id] = (task, set(parents))
        elif isinstance(event, TaskFinished):
            for _, left in waiting.values():
                left.discard(event.task.id)
        for number in [number for number, (_, left) in waiting.items() if not left]:
            port.launch(waiting.pop(number)[0], 0)
        if isinstance(event, TaskFinished) and event.task.id == 3:
            port.send(SUBMITTER, JobDone(0))

    records = play({"node/0": Actor(react)}, diamond(), Cluster.uniform(1, 9), options=Options(graphs=True))
    assert records.start_us.tolist() == [100, 110, 110, 130]
    assert records.ready_us.tolist() == [100, 110, 110, 130]


def apart(trace: Trace, *submit_us: Time) -> Trace:
    """The trace whose tasks are submitted at these times."""
    return msgspec.structs.replace(trace, submit_us=array("q", submit_us))


def test_a_task_is_sent_when_it_was_submitted_and_its_parents_have_finished() -> None:
    """Task 1 comes after its parent's end, task 2 before it; task 3 waits for the end of task 2, as ever."""
    node = Runner()
    records = play({"node/0": node}, apart(diamond(), 100, 130, 105, 131), Cluster.uniform(1, 9), network=HOP)
    assert node.chunks == [(100, 0, [0]), (117, 1, [2]), (130, 2, [1]), (157, 3, [3])]
    assert records.ready_us.tolist() == [100, 130, 110, 150]
    assert records.path.tolist() == [0, 0, 7, 7], "a submission has no way behind it"
    assert node.counts == [4], "the number of all tasks is known from the first on"


def test_tasks_without_parents_are_sent_one_by_one_when_they_are_submitted() -> None:
    trace = apart(trace_of("t", [5], [[3, 3, 3, 3]]), 5, 9, 5, 9)
    node = Runner()
    records = play({"node/0": node}, trace, Cluster.uniform(1, 9), network=HOP)
    assert node.chunks == [(5, 0, [0, 2]), (9, 2, [1, 3])]
    assert records.ready_us.tolist() == records.start_us.tolist() == [5, 9, 5, 9]


def test_what_comes_while_a_job_is_refused_is_sent_with_it_later() -> None:
    class Busy(Runner):
        def handle(self, event: Event, source: Address, now: Time) -> None:
            if isinstance(event, Submit) and now == 100:
                self._port.send(SUBMITTER, JobRejected(0, "busy", 50))
            elif now >= 150:
                super().handle(event, source, now)

    node = Busy()
    records = play({"node/0": node}, apart(diamond((10, 20, 5, 1)), 100, 100, 100, 170), Cluster.uniform(1, 9))
    assert node.chunks[0] == (150, 0, [0])
    late = Busy()
    play({"node/0": late}, apart(trace_of("t", [100], [[3, 4]]), 100, 120), Cluster.uniform(1, 9))
    assert late.chunks == [(150, 0, [0, 1])]
    assert records.finish_us[3] > 170


def test_a_design_that_takes_graphs_hears_of_late_tasks_when_they_come_and_of_parents_that_have_not_ended() -> None:
    told: list[tuple[Time, int, list[TaskId], tuple[tuple[TaskId, ...], ...]]] = []

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            told.append((now, 0, [task.id for task in event.job.tasks], event.job.parents))
            port.launch(event.job.tasks[0], 0)
        elif isinstance(event, MoreTasks):
            told.append((now, event.first, [task.id for task in event.tasks], event.parents))
            for task in event.tasks:
                if task.id < 3:
                    port.launch(task, 0)
        elif isinstance(event, TaskFinished) and event.task.id == 2:
            port.launch(Task(3, 0), 0)
        elif isinstance(event, TaskFinished) and event.task.id == 3:
            port.send(SUBMITTER, JobDone(0))

    trace = apart(diamond((10, 20, 30, 1)), 100, 115, 115, 136)
    records = play({"node/0": Actor(react)}, trace, Cluster.uniform(1, 9), options=Options(graphs=True))
    assert told == [(100, 0, [0], ()), (115, 1, [1, 2], ()), (136, 3, [3], ((2,),))]
    assert records.ready_us.tolist() == [100, 115, 115, 145]


def test_a_task_that_is_started_before_it_was_submitted_is_refused() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        port.launch(Task(1, 0), 0)

    trace = apart(trace_of("t", [100], [[3, 4]]), 100, 120)
    with pytest.raises(BrokenRule, match=r"task 1 \(job 0.* at 100 us: .*or it has not been submitted"):
        play({"node/0": Actor(react)}, trace, Cluster.uniform(1, 9))


def test_children_wait_for_an_attempt_that_finishes() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.launch(event.job.tasks[0], 0)
            port.set_timer("kill", now + 4)
        elif isinstance(event, TimerFired):
            port.kill(0, 0)
        elif isinstance(event, TaskFinished) and event.outcome == "killed":
            port.launch(event.task, 1)
        elif isinstance(event, MoreTasks):
            port.launch(event.tasks[0], 0)
        elif isinstance(event, TaskFinished) and event.task.id == 1:
            port.send(SUBMITTER, JobDone(0))

    trace = with_parents(trace_of("t", [0], [[10, 1]]), [(), (0,)])
    records = play({"node/0": Actor(react)}, trace, network=HOP)
    assert (records.finish_us[0], records.ready_us[1], records.start_us[1]) == (14, 14, 21)


def test_machines_with_speeds_take_their_time_rounded_down() -> None:
    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.launch(event.job.tasks[0], 0)
        elif isinstance(event, TaskFinished):
            port.send(SUBMITTER, JobDone(event.task.job))

    trace = trace_of("t", [0], [[1000]])
    for speed, took in ((2000, 1000), (3500, 571), (1, 2_000_000), (4_000_000, 0)):
        cluster = Cluster((0,), (1,), speeds=(speed,), reference_speed=2000)
        assert play({"node/0": Actor(react)}, trace, cluster).finish_us[0] == took


def test_speeds_go_with_capacities_and_workflows() -> None:
    cluster = Cluster((0,), (1,), resources=("cpu_milli",), capacities=((2,),), speeds=(500,), reference_speed=1000)
    trace = msgspec.structs.replace(
        diamond(), resources=("cpu_milli",), requests=((1,),), request=array("H", [0, 0, 0, 0])
    )
    records = play({"node/0": Runner()}, trace, cluster, network=HOP)
    assert records.start_us.tolist() == [100, 127, 127, 174]
    assert records.finish_us.tolist() == [120, 167, 137, 176]


def test_a_preempted_task_goes_on_with_what_is_left_at_the_speed_of_its_next_machine() -> None:
    """Machine 1 is twice as fast as the reference, machine 0 half as fast."""

    def react(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, Submit):
            port.launch(event.job.tasks[0], 0)
            port.set_timer("kill", now + 40)
        elif isinstance(event, TimerFired):
            port.kill(0, 0)
        elif isinstance(event, TaskFinished) and event.outcome == "killed":
            port.send("node/1", MoreTasks(0, 0, (event.task,)))

    def go_on(port: Port, event: Event, source: Address, now: Time) -> None:
        if isinstance(event, MoreTasks):
            port.launch(event.tasks[0], 1)
        else:
            port.send(SUBMITTER, JobDone(0))

    cluster = Cluster((0, 0), (1, 1), speeds=(500, 2000), reference_speed=1000)
    machines = {"node/0": 0, "node/1": 1}
    components: dict[Address, Component] = {"node/0": Actor(react), "node/1": Actor(go_on)}
    deployment = Deployment(components, machines, lambda _: "node/0", capabilities=(Resumption(preempted=True),))
    records = Kernel(deployment, trace_of("t", [0], [[100]]), cluster, HOP, 0, Options()).run(None)
    assert records.lost == [LostAttempt(0, 0, 0, 0, NEVER, kept_us=40)]
    assert (records.start_us[0], records.finish_us[0]) == (47, 47 + 40), "20 of 100 were done, 80 take 40 there"
