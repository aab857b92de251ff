"""Gangs in Pigeon: a distributor chooses a group that holds one, its master starts it whole, and after a loss again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.architectures.parts import Alone, messages, submit, tasks
from tests.unit.architectures.pigeon.test_master import Group
from tests.unit.architectures.pigeon.test_recovery import DEALER, FIRST, STANDBY, Bare, active

from volery.architectures import configure, lookup
from volery.architectures.pigeon.messages import (
    Completed,
    GangTasks,
    GroupTasks,
    Launch,
    Lost,
    Report,
    Withdraw,
    Withdrawn,
)
from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.events import Cancel, JobDone, MoreTasks, Submit
from volery.core.gangs import with_gangs
from volery.core.model import SECOND, Address, Cluster, Gang, Task
from volery.core.streams import Streams
from volery.roles.node import Kill
from volery.roles.recovery.leases import Result, Run
from volery.sim import simulate

ANYWHERE = Gang()
WHO = "distributor/0"


def gang(number: int, *constraints: int, shape: Gang = ANYWHERE, estimate_us: int = 0) -> Submit:
    message = submit(number, *constraints, estimate_us=estimate_us)
    return Submit(msgspec.structs.replace(message.job, gang=shape))


class GangGroup(Group):
    """A master alone, to which gangs are given."""

    def send(self, kind: int, *given: Task, shape: Gang = ANYWHERE) -> list[int]:
        """A gang arrives; the tasks that are launched."""
        self._number += 1
        return launches(self.hear(GangTasks(self._number, kind, shape, given), WHO))

    def deal(self, short: bool, *given: Task) -> list[int]:
        self._number += 1
        return launches(self.hear(GroupTasks(self._number, short, given), WHO))

    def ends(self, task: int) -> list[int]:
        """The tasks that are launched as another ends."""
        return launches(self.hear(Completed(task), "node/0"))


def launches(effects: list[Any]) -> list[int]:
    return sorted(message.task.id for _, message in messages(effects, Launch))


def test_a_gang_keeps_the_idle_workers_that_suit_it_until_they_are_enough() -> None:
    group = GangGroup(Cluster((1, 1, 1, 0), (1,) * 4))
    assert group.deal(True, *tasks(0, 1)) == [0]
    assert group.send(0, *tasks(1, 1, 1, 1)) == [], "two idle workers are kept"
    assert group.deal(True, *tasks(2, 0, 0)) == [200], "the worker that does not suit the gang goes on"
    assert group.ends(200) == [201]
    assert group.ends(0) == [100, 101, 102]
    assert [group.ends(task) for task in (201, 100, 101, 102)] == [[]] * 4
    group.component.check_rest()


def test_a_gang_waits_in_the_queue_of_its_type_for_its_turn() -> None:
    group = GangGroup(Cluster.uniform(2), weight=2)
    assert group.deal(True, *tasks(0, *[0] * 5)) == [0, 1]
    assert group.send(1, *tasks(1, 0, 0)) == []
    assert group.ends(0) == [2], "one short task passes the long gang"
    assert group.ends(1) == [], "then it is the gang's turn: the worker is kept"
    assert group.ends(2) == [100, 101]
    assert group.ends(100) == [3]


def test_gangs_keep_workers_in_the_order_of_their_turns() -> None:
    group = GangGroup(Cluster((0, 1, 1), (1,) * 3), match="min-constraints")
    assert group.deal(True, *tasks(0, 0, 1, 1)) == [0, 1, 2]
    assert group.send(0, *tasks(1, 1, 1)) == []
    assert group.send(0, *tasks(2, 0, 0)) == []
    assert group.ends(1) == [], "kept for the first gang"
    assert group.ends(0) == [], "kept for the second, which alone may use it"
    assert group.ends(2) == [100, 101]
    assert group.ends(100) == [200, 201]


def test_reserved_workers_run_members_of_short_gangs_alone_and_last() -> None:
    group = GangGroup(Cluster.uniform(4), reserved=2)
    effects = group.hear(GangTasks(1, 0, ANYWHERE, tasks(0, 0, 0, 0)), WHO)
    assert {to for to, _ in messages(effects, Launch)} >= {"node/2", "node/3"}
    group = GangGroup(Cluster.uniform(4), reserved=2)
    assert group.deal(True, *tasks(0, 0, 0, 0)) == [0, 1, 2]
    assert group.send(1, *tasks(1, 0, 0)) == [], "no low-priority worker is idle"
    assert group.deal(True, *tasks(2, 0)) == [200], "a reserved one is no use to a long gang"
    nodes = group.component.owned  # type: ignore[attr-defined]  # the test reads the units of its master
    low = [task for task, unit in nodes.items() if unit >= 2]
    assert [group.ends(task) for task in low] == [[], [100, 101]]


def test_unlike_members_and_shapes_find_workers() -> None:
    group = GangGroup(Cluster((0, 1), (1, 1)))
    assert group.send(0, *tasks(0, 0, 1)) == [0, 1]
    group = GangGroup(Cluster.uniform(2, slots=2))
    assert group.send(0, *tasks(0, 0, 0), shape=Gang(2, 1)) == [0, 1]
    assert group.send(0, *tasks(1, 0, 0), shape=Gang(1, 2)) == [], "one is idle on each machine"
    assert group.ends(0) == [100, 101]


def test_a_gang_that_waits_is_withdrawn_whole_and_its_workers_serve_the_queues() -> None:
    group = GangGroup(Cluster.uniform(2))
    group.deal(True, *tasks(0, 0))
    group.send(0, *tasks(1, 0, 0))
    group.send(0, *tasks(2, 0, 0))
    group.deal(True, *tasks(3, 0))
    effects = group.hear(Withdraw((200, 201)), WHO)
    assert messages(effects, Withdrawn) == [(WHO, Withdrawn((200, 201)))]
    effects = group.hear(Withdraw((100, 101)), WHO)
    assert messages(effects, Withdrawn) == [(WHO, Withdrawn((100, 101)))]
    assert launches(effects) == [300]


def sent_gangs(effects: list[Any]) -> list[tuple[Address, list[int]]]:
    return [(to, [task.id for task in message.tasks]) for to, message in messages(effects, GangTasks)]


def test_a_gang_goes_whole_to_one_group_that_holds_it() -> None:
    cluster = Cluster((0, 0, 1, 0, 1, 1), (1,) * 6)
    one = Alone("pigeon", WHO, cluster, groups=2, reserved=0)
    for number in range(5):
        assert sent_gangs(one.hear(gang(number, 1, 1))) == [("master/1", [100 * number, 100 * number + 1])]
    ((_, done),) = messages(one.hear(gang(5, 1, 1, 1)), JobDone)
    assert done == JobDone(5, 3), "there are three such workers, but in two groups"
    assert one.facts(gang(6, 1, 1, 1))["gang_tasks_refused"] == 3


def test_a_long_gang_needs_room_beside_reserved_workers() -> None:
    one = Alone("pigeon", WHO, Cluster.uniform(3), groups=1, reserved=1, cutoff_s=10)
    assert sent_gangs(one.hear(gang(0, 0, 0, 0))) == [("master/0", [0, 1, 2])]
    assert sent_gangs(one.hear(gang(1, 0, 0, 0, estimate_us=11 * SECOND))) == []


def test_a_gang_of_several_chunks_is_sent_when_all_have_come() -> None:
    one = Alone("pigeon", WHO, Cluster.uniform(3), groups=1, reserved=0)
    whole = gang(0, 0, 0, 0).job
    part = Submit(msgspec.structs.replace(whole, tasks=whole.tasks[:2]))
    assert sent_gangs(one.hear(part)) == []
    assert sent_gangs(one.hear(part)) == [], "a repeated submission"
    assert sent_gangs(one.hear(MoreTasks(0, 2, whole.tasks[2:]))) == [("master/0", [0, 1, 2])]
    one = Alone("pigeon", WHO, Cluster.uniform(3), groups=1, reserved=0)
    one.hear(part)
    assert [message for _, message in messages(one.hear(Cancel(0)), JobDone)] == [JobDone(0, 0)]


@pytest.mark.parametrize(("seconds", "largest"), [(1, 4), (100, 3)])
def test_a_gang_larger_than_every_group_is_refused_before_the_run(seconds: int, largest: int) -> None:
    """Long ones have no reserved workers."""
    architecture = lookup("pigeon")
    parameters = {"groups": "2", "reserved": "1", "cutoff_s": "10"}
    cluster = Cluster.uniform(8)
    for size in (largest, largest + 1):
        deployment = architecture.build(cluster, configure(architecture, parameters), Streams(0))
        trace = with_gangs(trace_of("one", [0], [[seconds * SECOND] * size]), [0])
        if size == largest:
            assert len(set(simulate(deployment, trace, cluster).start_us)) == 1
            continue
        with pytest.raises(InputError, match=rf"job 0 is a gang of {size} tasks.*holds {largest} of them; give fewer"):
            simulate(deployment, trace, cluster)


def again(effects: list[tuple[Address, Any]]) -> list[tuple[Address, int, int, list[int]]]:
    """Receiver, epoch, attempt and tasks of gangs."""
    return [
        (to, message.number, message.attempt, [task.id for task in message.tasks])
        for to, message in effects
        if isinstance(message, GangTasks)
    ]


def test_a_gang_of_which_a_member_is_lost_is_sent_again_when_all_are_back() -> None:
    one = Bare(DEALER, 3)
    assert again(one.hear(gang(0, 0, 0, 0), "submitter")) == [(FIRST, 0, 0, [0, 1, 2])]
    assert one.hear(Lost((active(0),)), FIRST) == [(FIRST, Withdraw((1, 2), is_recall=True))]
    assert not one.hear(Withdrawn((1,)), STANDBY), "it does not lead"
    assert not one.hear(Withdrawn((1,)), FIRST)
    assert again(one.hear(Result(active(2)), FIRST)) == [(FIRST, 0, 1, [0, 1])], "the others are the gang"
    assert not one.hear(Lost((active(0),)), FIRST), "of an earlier attempt"


def test_members_that_come_back_in_one_message_are_sent_again_once() -> None:
    one = Bare(DEALER, 3)
    one.hear(gang(0, 0, 0, 0), "submitter")
    one.hear(Lost((active(1),)), FIRST)
    one.hear(Lost((active(2),)), FIRST)
    assert again(one.hear(Withdrawn((0, 1, 2)), FIRST)) == [(FIRST, 0, 1, [0, 1, 2])]
    assert again(one.hear(Lost((active(0, 1), active(1, 1), active(2, 1))), FIRST)) == [(FIRST, 0, 2, [0, 1, 2])]


def test_what_waits_of_a_gang_is_dropped_when_late_results_end_it() -> None:
    one = Bare(DEALER, 3)
    one.hear(gang(0, 0, 0), "submitter")
    one.hear(Lost((active(0), active(1))), FIRST)
    one.hear(Result(active(0)), FIRST)
    rest = Withdraw((0, 1), is_recall=True)
    assert (FIRST, rest) in one.hear(Result(active(1)), FIRST)
    assert (STANDBY, rest) in one.hear(Report(1, whole=True, settled=True, running=(active(1, 1),)), STANDBY)
    assert not one.hear(Withdrawn((0, 1)), STANDBY)


def test_the_members_that_have_not_finished_are_the_gang() -> None:
    one = Bare(DEALER, 3)
    one.hear(gang(0, 0, 0, 0, shape=Gang(3, 1)), "submitter")
    one.hear(Result(active(2)), FIRST)
    one.hear(Lost((active(0),)), FIRST)
    effects = one.hear(Lost((active(1),)), FIRST)
    assert again(effects) == [(FIRST, 0, 1, [0, 1])]
    assert [message.gang.nodes for _, message in effects if isinstance(message, GangTasks)] == [2]


def test_a_new_leader_is_asked_again_to_end_what_waits_for_a_lost_member() -> None:
    one = Bare(DEALER, 3)
    one.hear(gang(0, 0, 0, 0), "submitter")
    assert not one.hear(Report(1, whole=True, settled=False, running=(active(0),)), STANDBY)
    effects = one.hear(Report(1, whole=False, settled=True, running=()), STANDBY)
    assert (STANDBY, Withdraw((0,), is_recall=True)) in effects
    assert again(one.hear(Lost((active(0),)), STANDBY)) == [(STANDBY, 1, 1, [0, 1, 2])]


def test_members_that_are_at_no_master_count_when_their_job_is_cancelled() -> None:
    one = Bare(DEALER, 2)
    one.hear(gang(0, 0, 0), "submitter")
    one.hear(Lost((active(0),)), FIRST)
    assert (FIRST, Withdraw((1,))) in one.hear(Cancel(0), "submitter")
    assert ("submitter", JobDone(0, 0)) in one.hear(Withdrawn((1,)), FIRST)


def test_a_master_ends_recalled_members_and_hands_back_those_that_have_ended_early() -> None:
    one = Bare(FIRST, 2)
    effects = one.hear(GangTasks(0, 0, ANYWHERE, tasks(0, 0, 0)), DEALER)
    units = {message.task.id: (to, message.unit) for to, message in effects if isinstance(message, Run)}
    assert sorted(units) == [0, 1]
    assert one.hear(Withdraw((1,), is_recall=True), DEALER) == [(units[1][0], Kill(1, 0, 0))]
    ended = active(1, 0, units[1][1])
    assert one.hear(Result(ended, is_evicted=True), units[1][0]) == [(DEALER, Lost((ended,)))]
