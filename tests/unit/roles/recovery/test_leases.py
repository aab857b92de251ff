"""A guarded node: whom it obeys, what it remembers, and when it ends everything."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.effects import Killed, Launched, RecordingPort, TimerCancelled, TimerSet

from volery.core.events import Adopted, PeerBack, PeerLost, TaskFinished, TimerFired
from volery.core.model import SECOND, Address, Message, Task, Time
from volery.roles.node import NO_EPOCH
from volery.roles.recovery.channel import Linked, Renewed
from volery.roles.recovery.leases import (
    FENCE,
    Forget,
    GuardedNode,
    Lead,
    LeaderStatus,
    Lease,
    Result,
    Run,
    RunningAttempt,
    StaleEpoch,
    Status,
)

PAIR = ("lm/0", "lm/0/standby")
LEASE = Lease(SECOND)
TASK = Task(7, 3)
RAN = RunningAttempt(7, 3, 0, "gm/0", 1)


class Spy(Linked):
    """Keeps messages instead of putting them into frames."""

    def __init__(self, node: GuardedNode, incarnation: int, sent: list[tuple[Address, Message]]) -> None:
        super().__init__(node, incarnation, msgspec.msgpack.Decoder())
        self.sent = sent

    def send(self, peer: Address, message: Message) -> None:
        self.sent.append((peer, message))


class Bench:
    """A node whose messages are read before they are put into frames."""

    def __init__(self, incarnation: int = 0) -> None:
        self.node = GuardedNode(PAIR, LEASE, incarnation, sends_to_owner=False)
        self.sent: list[tuple[Address, Message]] = []
        linked = Spy(self.node, incarnation, self.sent)
        self.port = RecordingPort.under(linked, "node/0")
        linked.start(0)

    def take(self, event: object, source: Address = "lm/0", now: Time = 0) -> list[tuple[Address, Message]]:
        self.sent.clear()
        self.node.handle(event, source, now)  # type: ignore[arg-type]  # any event
        self.node.check()
        return list(self.sent)


def run(epoch: int = 0, attempt: int = 0) -> Run:
    return Run(epoch, TASK, attempt, "gm/0", 1)


def test_it_runs_what_its_master_says_once_and_tells_both_masters() -> None:
    bench = Bench()
    bench.take(run())
    bench.take(run())
    assert bench.port.drain() == [Launched(TASK, 0)]
    assert bench.take(TaskFinished(TASK, 0), "node/0") == [(master, Result(RAN)) for master in PAIR]


def test_a_result_is_kept_until_it_is_forgotten_and_stands_for_a_later_attempt() -> None:
    bench = Bench()
    bench.take(run())
    bench.take(TaskFinished(TASK, 0), "node/0")
    bench.port.drain()
    again = RunningAttempt(7, 3, 1, "gm/0", 1)
    assert bench.take(run(attempt=1)) == [(master, Result(again)) for master in PAIR]
    assert not bench.port.drain(), "it does not run again"
    assert bench.take(Lead(1), PAIR[1]) == [(PAIR[1], Status(1, (), (again,)))]
    bench.take(Forget((7,)), PAIR[1])
    assert bench.take(Lead(3), PAIR[1]) == [(PAIR[1], Status(3, (), ()))]


def test_it_obeys_the_highest_epoch_and_refuses_the_older_master() -> None:
    bench = Bench()
    bench.take(Lead(1), PAIR[1])
    assert bench.take(run(0), PAIR[0]) == [(PAIR[0], StaleEpoch(1))]
    assert bench.take(Lead(0), PAIR[0]) == [(PAIR[0], StaleEpoch(1))]
    assert Launched(TASK, 0) not in bench.port.drain()
    assert bench.take(LeaderStatus(-1, False), PAIR[0]) == [(PAIR[0], StaleEpoch(1))]


def test_an_epoch_of_a_masters_earlier_life_is_refused_but_a_repeated_one_is_not() -> None:
    bench = Bench()
    bench.take(Lead(2), PAIR[0])
    assert not bench.take(Lead(2), PAIR[0])
    bench.take(Renewed(PAIR[0]), PAIR[0])
    assert bench.take(Lead(2), PAIR[0]) == [(PAIR[0], StaleEpoch(2))]


def test_cut_off_from_its_master_it_ends_everything_after_its_grace() -> None:
    bench = Bench()
    bench.take(run())
    bench.port.drain()
    bench.take(PeerLost(PAIR[0]), "node/0", now=5)
    assert bench.port.drain() == [TimerSet(FENCE, 5 + LEASE.grace_us)]
    told = bench.take(TimerFired(FENCE), "node/0", now=5 + LEASE.grace_us)
    assert bench.port.drain() == [Killed(7, 0)]
    assert told == [(master, Status(0, (), ())) for master in PAIR]
    bench.take(TaskFinished(TASK, 0, "killed"), "node/0")
    assert not bench.sent, "what the fence ended is no result"


def test_a_master_that_is_back_or_another_one_lifts_the_fence() -> None:
    for event, source in ((PeerBack(PAIR[0]), "node/0"), (Lead(1), PAIR[1])):
        bench = Bench()
        bench.take(PeerLost(PAIR[0]))
        bench.port.drain()
        bench.take(event, source)
        assert bench.port.drain() == [TimerCancelled(FENCE)]


def test_the_loss_of_the_master_that_follows_changes_nothing() -> None:
    bench = Bench()
    bench.take(PeerLost(PAIR[1]))
    assert not bench.port.drain()


def test_a_node_that_begins_anew_says_so_and_obeys_nobody_yet() -> None:
    bench = Bench(incarnation=1)
    assert bench.sent == [(master, Status(NO_EPOCH, (), (), is_restarted=True)) for master in PAIR]
    assert not bench.take(run(4))
    assert not bench.port.drain()


def test_a_node_that_began_anew_says_so_until_its_master_is_confirmed() -> None:
    bench = Bench(incarnation=1)
    assert bench.take(Lead(2), PAIR[0]) == [(PAIR[0], Status(2, (), (), is_restarted=True))]
    assert bench.take(LeaderStatus(-1, False), PAIR[1]) == [(PAIR[1], StaleEpoch(-1))]
    bench.take(Lead(2, is_confirmed=True), PAIR[1])
    assert bench.take(Lead(3), PAIR[1]) == [(PAIR[1], Status(3, (), (), is_restarted=True))], "it obeyed another"
    assert not bench.take(Lead(3, is_confirmed=True), PAIR[1])
    assert bench.take(Lead(4), PAIR[0]) == [(PAIR[0], Status(4, (), ()))]


def test_the_lease_outlasts_grace_and_two_detections() -> None:
    assert LEASE.grace_us >= LEASE.detection_us
    assert LEASE.lease_us >= LEASE.grace_us + 2 * LEASE.detection_us


def adopting() -> Bench:
    """A node that has begun anew, and the attempt that ran there goes on."""
    bench = Bench(incarnation=1)
    bench.take(Adopted(TASK, 0, msgspec.msgpack.encode(RAN)), "node/0")
    bench.port.drain()
    return bench


@pytest.mark.parametrize("master", PAIR)
def test_what_was_adopted_ends_with_the_lease_when_either_master_cannot_be_reached(master: Address) -> None:
    """Which of them leads is not known, and that one gives the task to another node."""
    bench = adopting()
    bench.take(PeerLost(master), "node/0", now=5)
    assert bench.port.drain() == [TimerSet(FENCE, 5 + LEASE.grace_us)]
    bench.take(PeerBack(master), "node/0", now=6)
    assert bench.port.drain() == [TimerCancelled(FENCE)]
    bench.take(PeerLost(master), "node/0", now=7)
    bench.take(PeerLost(next(other for other in PAIR if other != master)), "node/0", now=8)
    assert bench.port.drain() == [TimerSet(FENCE, 7 + LEASE.grace_us)], "the loss of the other prolongs nothing"
    bench.take(TimerFired(FENCE), "node/0")
    assert bench.port.drain() == [Killed(TASK.id, 0)]


def test_what_was_adopted_goes_on_without_the_other_master_once_the_one_that_leads_is_confirmed() -> None:
    """Before, it may be a deposed one."""
    bench = adopting()
    bench.take(PeerLost(PAIR[1]), "node/0", now=5)
    bench.take(Lead(2), PAIR[0])
    assert bench.port.drain() == [TimerSet(FENCE, 5 + LEASE.grace_us)]
    bench.take(Lead(2, is_confirmed=True), PAIR[0])
    assert bench.port.drain() == [TimerCancelled(FENCE)]
    bench.take(PeerBack(PAIR[1]), "node/0")
    bench.take(PeerLost(PAIR[1]), "node/0")
    assert not bench.port.drain()
