"""Megha 2021 where components may crash, role by role: amounts, logical nodes, and preemptions under way."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.architectures.parts import SUBMITTER, messages
from tests.unit.effects import Killed, Launched, RecordingPort, Sent

from volery.architectures import configure, lookup
from volery.architectures.megha.messages import (
    UNIT_SHIFT,
    PartitionState,
    Refusal,
    Request,
    StateUpdate,
    TasksEnded,
    Withdraw,
)
from volery.architectures.megha.recovery.messages import ResyncReply, ResyncRequest
from volery.architectures.megha.shares.messages import (
    AttemptsLost,
    Holdings,
    Preempt,
    PreemptionRequest,
    PreemptionVote,
)
from volery.conformance.cases import trace_of
from volery.core.capabilities import CrashRecovery
from volery.core.component import Component
from volery.core.events import (
    Drain,
    Moved,
    PeerBack,
    PeerLost,
    Reassignment,
    ShareChange,
    Submit,
    TaskFinished,
    TimerFired,
)
from volery.core.model import Address, Amounts, Cluster, Job, Task
from volery.core.resources import Packing
from volery.core.streams import Streams
from volery.roles.node import Kill
from volery.roles.recovery.channel import Frame, Linked
from volery.roles.recovery.leases import Forget, Lead, LeaderStatus, Result, Run, RunningAttempt, Status, Unseat
from volery.sim import simulate

CLUSTER = Cluster.uniform(4)
"""node/0 and node/1 are gm/0's partition 0, node/2 and node/3 gm/1's partition 1; users a and b have a half each."""
ROOM = Cluster((0,) * 4, (1,) * 4, "room", ("cpu_milli",), ((1000,),) * 4)


class Inside:
    """A component without its links (a node: with them), in one of its lives."""

    def __init__(self, address: Address, cluster: Cluster = CLUSTER, incarnation: int = 0, **parameters: Any) -> None:
        megha = lookup("megha-2021")
        given = {"gms": 2, "lms": 1, "reliable": True, **parameters}
        recovery = megha.build(cluster, configure(megha, given), Streams(0)).capability(CrashRecovery)
        assert recovery is not None
        linked = recovery.rebuild(address, incarnation)
        assert isinstance(linked, Linked)
        self.linked = linked
        self.component: Component = linked.inner
        self.state: Any = linked.inner
        with_links = address.startswith("node")
        self.port = RecordingPort.under(linked if with_links else linked.inner, address)
        self.component.start(0)
        self.port.drain()

    def hear(self, event: Any, source: Address = "lm/0", now: int = 0) -> list[Any]:
        """Events in, messages (receiver, message) and other effects out."""
        self.component.handle(event, source, now)
        self.component.check()
        found: list[Any] = []
        for effect in self.port.drain():
            if isinstance(effect, Sent) and isinstance(effect.message, Frame):
                found.append((effect.to, self.linked._decode(effect.message.payload)))
            else:
                found.append((effect.to, effect.message) if isinstance(effect, Sent) else effect)
        return found


def place(number: int, partition: int, position: int, task: Task, user: int = 0) -> Request:
    return Request(number, partition, (task,), (position,), (0,), (user,))


def free_of(update: StateUpdate, partition: int, amounts: int = 1) -> list[Amounts]:
    packing = Packing(amounts)
    width = (packing.guards.bit_length() + 7) // 8
    (state,) = [one for one in update.states if one.partition == partition]
    return [
        packing.amounts(int.from_bytes(state.free[at : at + width], "little"))
        for at in range(0, len(state.free), width)
    ]


def test_a_logical_node_goes_back_once_however_often_its_end_is_told() -> None:
    lm, task = Inside("lm/0", ROOM), Task(5, 0, request=(600,))
    (run,) = messages(lm.hear(place(1, 1, 0, task), "gm/0"), Run)
    assert run[0] == "node/2"
    done = Result(RunningAttempt(5, 0, 0, "gm/0", 1 << UNIT_SHIFT, (600,)))
    for _ in range(2):
        lm.hear(done, "node/2")
        assert lm.state.allocations.free_amounts[1][0] == Packing(1).free((1000,))


def test_a_machine_that_is_away_has_nothing_free_and_what_asks_for_nothing_waits_for_it() -> None:
    lm, nothing = Inside("lm/0", ROOM), Task(6, 0, request=(0,))
    lm.hear(PeerLost("node/2"))
    assert lm.state.allocations.free_amounts[1][0] == Packing(1).free((0,))
    assert not lm.hear(place(1, 1, 0, nothing), "gm/1")
    ((to, run),) = messages(lm.hear(PeerBack("node/2")), Run)
    assert (to, run.task) == ("node/2", nothing)


def test_what_a_dead_machine_ran_goes_back_to_its_global_master_and_the_state_says_so() -> None:
    lm = Inside("lm/0", ROOM)
    lm.hear(place(1, 0, 1, Task(7, 0, request=(400,))), "gm/0")
    effects = lm.hear(Status(-1, (), ()), "node/1")
    assert messages(effects, AttemptsLost) == []
    effects = lm.hear(Status(0, (), ()), "node/1")
    assert [(to, lost.attempts[0].task) for to, lost in messages(effects, AttemptsLost)] == [("gm/0", 7)]
    told = dict(messages(effects, ResyncReply))
    assert free_of(told["gm/0"].update, 0) == free_of(told["gm/1"].update, 0) == [(1000,), (1000,)]


def test_a_node_ends_attempts_for_the_master_that_it_obeys_alone() -> None:
    node, task = Inside("node/0", shares="a:1+b:1"), Task(1, 0)
    assert [one for one in node.hear(Run(0, task, 3, "gm/0", 0, 1)) if isinstance(one, Launched)]
    node.hear(Lead(1), "lm/0/standby")
    assert not [one for one in node.hear(Kill(1, 3, 0)) if isinstance(one, Killed)]
    assert not [one for one in node.hear(Kill(1, 2, 1), "lm/0/standby") if isinstance(one, Killed)]
    assert [one for one in node.hear(Kill(1, 3, 1), "lm/0/standby") if isinstance(one, Killed)]
    effects = node.hear(TaskFinished(task, 3, "killed"), "node/0")
    ((to, ended),) = messages(effects, Result)
    assert (to, ended.is_evicted) == ("lm/0/standby", True), "it has no result, and may run here again"


def test_what_a_node_could_not_begin_goes_back_to_its_global_master_and_its_room_is_free() -> None:
    node, task = Inside("node/0", ROOM), Task(1, 0, request=(400,))
    node.hear(Run(0, task, 0, "gm/0", 0))
    ((to, ended),) = messages(node.hear(TaskFinished(task, 0, "unstarted"), "node/0"), Result)
    assert (to, ended.is_evicted) == ("lm/0", True), "it has no result, and may run here again"
    assert [one for one in node.hear(Run(0, task, 1, "gm/0", 0)) if isinstance(one, Launched)]

    lm = Inside("lm/0", ROOM)
    lm.hear(place(1, 0, 0, task), "gm/0")
    lost = messages(lm.hear(ended, "node/0"), AttemptsLost)
    assert [(to, lost.attempts[0].task, lost.is_preemption) for to, lost in lost] == [("gm/0", 1, False)]
    assert lm.state.allocations.free_amounts[0][0] == Packing(1).free((1000,))
    assert not messages(lm.hear(ended, "node/0"), AttemptsLost), "it is told twice, and goes back once"


def test_what_a_node_could_not_begin_is_no_end_of_what_was_to_stop_there() -> None:
    """Of an attempt that has no place any more, the node reports all that runs, as if it had been killed."""
    node, task = Inside("node/0"), Task(1, 0)
    node.hear(Run(0, task, 0, "gm/0", 0))
    node.hear(Unseat(0, (1,)))
    effects = node.hear(TaskFinished(task, 0, "unstarted"), "node/0")
    assert not messages(effects, Result)
    assert messages(effects, Status)


def preempt(number: int, victim: int) -> Preempt:
    return Preempt(number, 0, 0, Task(50, 5), 1, 0, 0, (victim,))


def test_preemptions_on_a_machine_that_is_away_are_refused_for_a_while() -> None:
    lm = Inside("lm/0", shares="a:1+b:1")
    lm.hear(place(1, 0, 0, Task(1, 0)), "gm/0")
    lm.hear(PeerLost("node/0"))
    ((to, denied),) = messages(lm.hear(preempt(1, 1), "gm/1"), Refusal)
    assert (to, denied.is_vetoed) == ("gm/1", True)


def test_a_new_leader_knows_of_no_preemption_and_an_old_claim_is_void() -> None:
    lm = Inside("lm/0", shares="a:1+b:1")
    lm.hear(place(1, 0, 0, Task(1, 0)), "gm/0")
    assert messages(lm.hear(preempt(1, 1), "gm/1"), PreemptionRequest)
    standby = Inside("lm/0/standby", shares="a:1+b:1")
    standby.hear(PeerLost("lm/0"))
    runs = RunningAttempt(1, 0, 0, "gm/0", 0, (), 0)
    for node in range(4):
        effects = standby.hear(Status(1, (runs,) if not node else (), ()), f"node/{node}")
    assert [others.started_tasks[0].task for to, others in messages(effects, Holdings) if to == "gm/1"] == [1]
    assert not standby.hear(preempt(2, 1), "gm/1"), "it names the epoch of before"


def test_a_restarted_master_launches_a_preempting_task_in_the_term_of_its_request() -> None:
    """In an earlier one it would be taken for a task of before the move, and handed to the heir when a node reports."""
    lm = Inside("lm/0", shares="a:1+b:1", incarnation=1)
    lm.hear(LeaderStatus(-1, False), "lm/0/standby")
    epoch = lm.state.pair.leadership.epoch
    for node in range(4):
        runs = (RunningAttempt(1, 0, 0, "gm/1", 0),) if not node else ()
        lm.hear(Status(epoch, runs, ()), f"node/{node}")
    lm.hear(Preempt(1, 0, 0, Task(50, 5), 1, 0, 0, (1,), epoch=epoch, term=3), "gm/1")
    ended = Result(RunningAttempt(1, 0, 0, "gm/1", 0), is_evicted=True)
    ((_, run),) = messages(lm.hear(ended, "node/0"), Run)
    assert (run.task.id, run.term) == (50, 3)


def report(*running: RunningAttempt, settled: bool = True) -> ResyncReply:
    width = (Packing(1).guards.bit_length() + 7) // 8
    busy = {active.unit for active in running}
    states = []
    for part in range(2):
        idle = [int((part << UNIT_SHIFT | place) not in busy) for place in range(2)]
        free = b"".join([Packing(1).free((count,)).to_bytes(width, "little") for count in idle])
        states.append(PartitionState(part, b"", free))
    return ResyncReply(0, True, settled, StateUpdate(1, 0, tuple(states), 4), running, ())


def submitted(count: int) -> Submit:
    return Submit(Job(0, count, tuple(Task(k, 0) for k in range(count)), 0, "a"))


def test_a_global_master_gives_nothing_up_before_it_knows_all_that_its_users_have() -> None:
    """User a runs three tasks on four machines; two are its due. The third may go, once the GM knows of it."""
    gm = Inside("gm/0", incarnation=1, shares="a:1+b:1")
    running = [RunningAttempt(k, 0, 0, "gm/0", (k // 2) << UNIT_SHIFT | k % 2, (), 0) for k in range(3)]
    gm.hear(submitted(3), SUBMITTER)
    gm.hear(Holdings(0, (), (), is_whole=True))
    gm.hear(report(*running, settled=False))
    assert messages(gm.hear(PreemptionRequest(1, 0, 0, (2,))), PreemptionVote) == [("lm/0", PreemptionVote(1, False))]
    gm.hear(ResyncReply(0, False, True, StateUpdate(2, 0, (), 0), (), ()))
    lost = ShareChange("a", 500_000, 750_000, 500_000)
    assert messages(gm.hear(PreemptionRequest(2, 0, 0, (2,))), PreemptionVote) == [
        ("lm/0", PreemptionVote(2, True, lost))
    ]
    assert messages(gm.hear(PreemptionRequest(3, 0, 0, (1,))), PreemptionVote) == [("lm/0", PreemptionVote(3, False))]


def test_what_an_earlier_incarnation_gave_up_does_not_count_for_its_user() -> None:
    gm = Inside("gm/0", incarnation=1, shares="a:1+b:1")
    running = [RunningAttempt(k, 0, 0, "gm/0", (k // 2) << UNIT_SHIFT | k % 2, (), 0) for k in range(3)]
    gm.hear(submitted(3), SUBMITTER)
    gm.hear(Holdings(0, (), (), is_whole=True, leaving_tasks=(2,)))
    gm.hear(report(*running))
    assert messages(gm.hear(PreemptionRequest(1, 0, 0, (1,))), PreemptionVote) == [("lm/0", PreemptionVote(1, False))]
    assert not messages(gm.hear(TasksEnded((0,), 0)), Request), "nothing waits"


def test_an_attempt_that_a_new_leader_reports_and_the_former_one_has_lost_is_not_the_one_in_doubt() -> None:
    """It wrote its report before the machine crashed; the former leader may have started the second attempt."""
    gm, standby = Inside("gm/0"), "lm/0/standby"
    first = RunningAttempt(0, 0, 0, "gm/0", 0)
    gm.hear(submitted(1), SUBMITTER)
    ((_, again),) = messages(gm.hear(AttemptsLost((first,))), Request)
    assert again.attempts == (1,)
    early, settled = (replace(report(first, settled=known), epoch=1, is_whole=not known) for known in (False, True))
    assert not messages(gm.hear(early, standby), Request)
    assert not messages(gm.hear(AttemptsLost((first,)), standby), Request)
    ((to, last),) = messages(gm.hear(replace(settled, running_attempts=()), standby), Request)
    assert (to, last.attempts) == (standby, (2,))


def test_a_global_master_that_lost_its_jobs_tells_of_the_move_before_it_asks_what_runs() -> None:
    """Otherwise a Local Master answers with attempts that are the heir's, and when the job comes back they count."""
    gm, lm = Inside("gm/1"), Inside("lm/0")
    task = Task(0, 0)
    running = RunningAttempt(0, 0, 0, "gm/1", 1 << UNIT_SHIFT, task.request)
    lm.hear(place(1, 1, 0, task), "gm/1")
    moved = Moved((Reassignment(1, "gm/1", "gm/0"),))
    asked = [message for to, message in gm.hear(moved, SUBMITTER) if to == "lm/0"]
    assert asked == [moved, ResyncRequest(1)]
    assert lm.state.attempts.find(running.task, "node/2")
    told = [message for one in asked for message in messages(lm.hear(one, "gm/1"), ResyncReply)]
    assert not [active for to, report in told if to == "gm/1" for active in report.running_attempts]


def test_before_its_first_report_a_new_leader_sends_whole_holdings_and_nothing_else_that_counts() -> None:
    """All else of a Local Master that does not lead is void, whatever the message also carries."""
    gm, standby = Inside("gm/0", shares="a:1+b:1"), "lm/0/standby"
    update, ousted = StateUpdate(1, 0, (), 0), (RunningAttempt(1, 0, 0, "gm/0", 0),)
    assert gm.state.accepts(Holdings(0, (), (), is_whole=True), standby)
    for message in (
        Holdings(1, (), ()),
        AttemptsLost(ousted, is_preemption=True),
        AttemptsLost(ousted),
        Refusal((1,), update, (2,), True),
    ):
        assert not gm.state.accepts(message, standby)
        assert gm.state.accepts(message, "lm/0")


@pytest.mark.parametrize(("order", "source"), [(Withdraw((1,)), "gm/0"), (Drain("node/0", True), "node/0")])
def test_a_task_that_waits_for_a_dead_machine_as_printed_goes_back_when_it_is_not_to_run_there(
    order: Any, source: Address
) -> None:
    local = Inside("lm/0", recovery="paper")
    local.hear(Request(1, 0, (Task(1, 1),), (0,), (0,), (0,)), "gm/0")
    local.hear(PeerLost("node/0"))
    assert not messages(local.hear(TimerFired(("lease", "node/0")), "lm/0", 9_000_000), AttemptsLost), "it waits"
    assert [to for to, _ in messages(local.hear(order, source), AttemptsLost)] == ["gm/0"]


@pytest.mark.parametrize("address", ["lm/0", "lm/0/standby"])
def test_a_task_that_was_refused_is_listed_until_its_job_is_done(address: Address) -> None:
    """As printed both masters list what is requested; the one that follows does not know what was refused."""
    lm = Inside(address, recovery="paper")
    for number in (1, 2):
        refused = messages(lm.hear(place(number, 0, 0, Task(number, number)), "gm/0"), Refusal)
    assert len(refused) == (address == "lm/0")
    assert set(lm.state.pair.listed_tasks) == {1, 2}
    lm.hear(Forget((2,)), "gm/0")
    assert set(lm.state.pair.listed_tasks) == {1}


def test_as_printed_a_global_master_has_a_task_forgotten_wherever_it_was_requested() -> None:
    gm = Inside("gm/0", lms=2, recovery="paper")
    assert {to for to, _ in messages(gm.hear(Submit(Job(0, 1, (Task(0, 0),)))), Request)} == {"lm/0", "lm/0/standby"}
    asked = messages(gm.hear(Refusal((0,), StateUpdate(1, 0, (), 0)), "lm/0"), Request)
    assert {to for to, _ in asked} == {"lm/1", "lm/1/standby"}
    forgotten = messages(gm.hear(TasksEnded((0,)), "lm/1"), Forget)
    assert {to for to, _ in forgotten} == {"lm/0", "lm/0/standby", "lm/1", "lm/1/standby"}
    assert {message.tasks for _, message in forgotten} == {(0,)}


def test_as_printed_no_task_is_listed_when_all_is_done() -> None:
    """Among three Global Masters with stale views much is refused."""
    megha = lookup("megha-2021")
    given = {"gms": 3, "lms": 2, "reliable": True, "recovery": "paper", "heartbeat_s": 0.5}
    trace = trace_of("three", [k * 1_000 for k in range(30)], [[50_000 * (1 + k % 3)] * (k % 4) for k in range(30)])
    cluster = Cluster.uniform(12)
    deployment = megha.build(cluster, configure(megha, given), Streams(0))
    records = simulate(deployment, trace, cluster)
    masters: list[Any] = [one for address, one in deployment.components.items() if address.startswith("lm/")]
    assert records.counters["inconsistencies"] > 3
    assert [master.inner.pair.listed_tasks for master in masters] == [{}] * 4
