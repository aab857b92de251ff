"""Plans of faults: what they may say, what the kernel makes of them, and who is told when."""

from __future__ import annotations

import msgspec
import pytest

from volery.conformance.cases import trace_of
from volery.core.capabilities import CrashRecovery
from volery.core.component import Component, Deployment
from volery.core.errors import InputError
from volery.core.events import JobAccepted, JobDone, PeerBack, PeerLost, Submit, TaskFinished, TimerFired
from volery.core.model import SECOND, SUBMITTER, Address, Cluster, Message, Task, Time
from volery.core.records import Records
from volery.sim import Network, Options, simulate
from volery.sim.execution import BrokenRule
from volery.sim.faults import Crash, FaultPlan, MessageFaults, NotQuiet, Partition, crashes_of
from volery.sim.kernel import Kernel

DETECTION_US = SECOND


class Order(Message, frozen=True):
    """Head > hand: run it."""

    task: Task
    attempt: int


class Ended(Message, frozen=True):
    """Hand > head: it has ended."""

    task: int


class Head(Component):
    """Sends each task of a job to a hand; what it is told of lost peers it notes."""

    def __init__(self, hands: list[Address], again: bool = False) -> None:
        self.hands = hands
        self.again = again
        self.told: list[tuple[Time, str, Address]] = []
        self.heard: list[tuple[Time, int]] = []
        self.left: dict[int, Task] = {}
        self.job = -1

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        self.job = message.job.id
        self._port.send(source, JobAccepted(self.job))
        for task, hand in zip(message.job.tasks, self.hands, strict=False):
            self.left[task.id] = task
            self._port.send(hand, Order(task, 0))

    def on_ended(self, message: Ended, source: Address, now: Time) -> None:
        self.heard.append((now, message.task))
        self.left.pop(message.task, None)
        if not self.left:
            self._port.send(SUBMITTER, JobDone(self.job))

    def on_peer(self, event: PeerLost | PeerBack, source: Address, now: Time) -> None:
        self.told.append((now, type(event).__name__, event.peer))
        if self.again and isinstance(event, PeerLost):
            for task in self.left.values():
                self._port.send(self.hands[-1], Order(task, 1))

    receives = {Submit: on_submit, Ended: on_ended, PeerLost: on_peer, PeerBack: on_peer}  # noqa: RUF012 - the table


class Hand(Component):
    """Runs what it is told to; notes when it was started and what it is told of its head."""

    def __init__(self, incarnation: int = 0) -> None:
        self.incarnation = incarnation
        self.started: list[Time] = []
        self.rang: list[Time] = []
        self.told: list[tuple[Time, str, Address]] = []

    def start(self, now: Time) -> None:
        self.started.append(now)
        self._port.set_timer("alarm", now + 3 * SECOND)

    def on_order(self, message: Order, source: Address, now: Time) -> None:
        self._port.launch(message.task, message.attempt)

    def on_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        self._port.send("head/0", Ended(event.task.id))

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        self.rang.append(now)

    def on_peer(self, event: PeerLost | PeerBack, source: Address, now: Time) -> None:
        self.told.append((now, type(event).__name__, event.peer))

    receives = {  # noqa: RUF012 - the table
        Order: on_order,
        TaskFinished: on_finished,
        TimerFired: on_timer,
        PeerLost: on_peer,
        PeerBack: on_peer,
    }


def kernel_of(plan: FaultPlan, head: Head, durations: list[Time], **options: object) -> Kernel:
    hands = {f"node/{n}": Hand() for n in range(2)}
    deployment = Deployment(
        {"head/0": head, **hands},
        {"node/0": 0, "node/1": 1},
        lambda _: "head/0",
        capabilities=(
            CrashRecovery(
                lambda address, incarnation: Hand(incarnation) if address != "head/0" else Head(head.hands),
                (("head/0", "node/0"),),
                DETECTION_US,
            ),
        ),
    )
    trace = trace_of("faults", [0], [durations])
    return Kernel(deployment, trace, Cluster.uniform(2), Network(), 0, Options(plan=plan, **options))  # type: ignore[arg-type]  # passed on


def component(kernel: Kernel, address: Address) -> Component:
    return kernel.components[address]


def test_a_plan_is_written_and_read() -> None:
    plan = FaultPlan(
        (MessageFaults(start_us=0, end_us=5, drop=0.5),),
        (Partition(1, 2, ("gm/0",), ("lm/0",)),),
        (Crash(3, "lm/0", 9),),
        100,
    )
    assert msgspec.json.decode(msgspec.json.encode(plan), type=FaultPlan) == plan
    text = """
        deadline_us = 100
        messages = [{ start_us = 0, end_us = 5, drop = 0.5 }]
        partitions = [{ start_us = 1, end_us = 2, one = ["gm/0"], other = ["lm/0"] }]
        crashes = [{ at_us = 3, address = "lm/0", back_us = 9 }]
    """
    assert msgspec.toml.decode(text, type=FaultPlan) == plan


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"messages": (MessageFaults(start_us=5, end_us=4),)}, "before it starts"),
        ({"partitions": (Partition(5, 4, ("a",)),)}, "before it starts"),
        ({"crashes": (Crash(5, "a", 4),)}, "cannot crash"),
        ({"crashes": (Crash(1, "a", 9), Crash(9, "a", 12))}, "cannot crash"),
    ],
)
def test_plans_that_cannot_be_are_refused(parts: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        FaultPlan(**parts)  # type: ignore[arg-type]  # passed on


def test_only_what_can_be_rebuilt_may_crash() -> None:
    with pytest.raises(InputError, match="is not an address"):
        kernel_of(FaultPlan(crashes=(Crash(1, "node/7", 2),)), Head(["node/0"]), [5])


def test_a_plan_goes_with_neither_costs_nor_hosts() -> None:
    with pytest.raises(InputError, match="neither costs nor hosts"):
        kernel_of(FaultPlan(), Head(["node/0"]), [5], costs={"node": 3})


def test_partitions_cut_two_sets_or_one_from_all_others() -> None:
    two, one = Partition(0, 1, ("a", "b"), ("c",)), Partition(0, 1, ("a", "b"))
    assert two.cuts("a", "c")
    assert two.cuts("c", "b")
    assert not two.cuts("a", "d")
    assert not two.cuts("a", "b")
    assert one.cuts("a", "d")
    assert not one.cuts("a", "b")


def test_a_crashed_machines_task_ends_without_a_report_and_a_new_component_starts() -> None:
    head = Head(["node/0", "node/1"], again=True)
    kernel = kernel_of(FaultPlan(crashes=(Crash(SECOND, "node/0", 2 * SECOND),)), head, [5 * SECOND, SECOND])
    first = component(kernel, "node/0")
    records = kernel.run(None)
    hand = component(kernel, "node/0")
    assert isinstance(hand, Hand)
    assert hand is not first
    assert (hand.incarnation, hand.started) == (1, [2 * SECOND])
    assert isinstance(first, Hand)
    assert not first.rang, "the timer of a component that is gone rang"
    assert records.killed == {(0, 0): SECOND}
    assert records.attempt[0] == 1
    assert [task for _, task in head.heard] == [1, 0]


def test_a_task_that_may_still_run_is_not_started_again() -> None:
    """A head that believes every alarm: the hand was only cut off."""
    head = Head(["node/0", "node/1"], again=True)
    plan = FaultPlan(partitions=(Partition(SECOND, 4 * SECOND, ("node/0",)),))
    with pytest.raises(BrokenRule, match="already started as attempt 0"):
        kernel_of(plan, head, [9 * SECOND, SECOND]).run(None)


def test_both_ends_of_an_outage_are_told_within_the_detection_time_and_told_of_its_end() -> None:
    head = Head(["node/1"])
    kernel = kernel_of(FaultPlan(partitions=(Partition(SECOND, 6 * SECOND, ("node/0",)),)), head, [SECOND])
    kernel.run(None)
    hand = component(kernel, "node/0")
    assert isinstance(hand, Hand)
    for told, peer in ((head.told, "node/0"), (hand.told, "head/0")):
        assert [(name, who) for _, name, who in told] == [("PeerLost", peer), ("PeerBack", peer)]
        assert SECOND < told[0][0] <= SECOND + DETECTION_US
        assert 6 * SECOND < told[1][0] <= 6 * SECOND + 2 * DETECTION_US


def test_an_outage_shorter_than_detection_passes_unnoticed() -> None:
    head = Head(["node/1"])
    kernel = kernel_of(FaultPlan(partitions=(Partition(SECOND, SECOND + 100, ("node/0",)),)), head, [SECOND])
    kernel.run(None)
    assert not head.told


def test_an_entry_that_begins_anew_gets_its_unfinished_jobs_again() -> None:
    """It was gone when the job came."""
    head = Head(["node/1"])
    kernel = kernel_of(FaultPlan(crashes=(Crash(0, "head/0", 200),)), head, [SECOND])
    records = kernel.run(None)
    assert head.job == -1
    assert 200 < records.start_us[0] <= 200 + DETECTION_US + 500
    assert records.answered_us[0] > records.finish_us[0]


def run_with(faults: MessageFaults) -> Records:
    head = Head(["node/0"])
    return kernel_of(FaultPlan((faults,)), head, [SECOND]).run(None)


def test_faults_last_as_long_as_they_are_said_to() -> None:
    """The order is sent at 0: faults that begin later do not touch it, faults that end later than it do."""
    assert run_with(MessageFaults(start_us=2 * SECOND, end_us=3 * SECOND, drop=1.0)).finish_us[0] == SECOND + 500
    late = run_with(MessageFaults(start_us=0, end_us=SECOND // 2, delay=1.0, extra_us=50_000))
    assert late.start_us[0] > 500


def test_what_is_not_quiet_by_the_deadline_is_refused() -> None:
    with pytest.raises(NotQuiet, match="still busy"):
        kernel_of(FaultPlan(deadline_us=SECOND), Head(["node/0"]), [5 * SECOND]).run(None)


def test_a_plan_of_nothing_changes_nothing() -> None:
    trace = trace_of("calm", [0], [[SECOND, 2 * SECOND]])
    digests = set()
    for plan in (None, FaultPlan()):
        head = Head(["node/0", "node/1"])
        deployment = Deployment(
            {"head/0": head, "node/0": Hand(), "node/1": Hand()}, {"node/0": 0, "node/1": 1}, lambda _: "head/0"
        )
        digests.add(simulate(deployment, trace, Cluster.uniform(2), options=Options(plan=plan)).digest())
    assert len(digests) == 1


def test_crashes_are_named_by_address_time_and_duration() -> None:
    plan = crashes_of("lm/0/standby@1.5+2, node/8-9@30+60", "crashes")
    assert plan.crashes == (
        Crash(1_500_000, "lm/0/standby", 3_500_000),
        Crash(30 * SECOND, "node/8", 90 * SECOND),
        Crash(30 * SECOND, "node/9", 90 * SECOND),
    )


@pytest.mark.parametrize("text", ["gm/0", "gm/0@20", "gm@20+5", "node/5-3@1+1", "node/3@-1+2", "node/0@1+9,node/0@2+1"])
def test_crashes_that_cannot_be_are_refused_with_their_place(text: str) -> None:
    with pytest.raises(InputError, match="crashes"):
        crashes_of(text, "crashes")
