"""Shares and preemption (arXiv 2103.08413, section IV-C): algorithm 2 step by step, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.architectures.parts import Alone, messages
from tests.unit.effects import Observed, Sent, TimerSet

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
from volery.architectures.megha.shares.messages import (
    AttemptsLost,
    Holding,
    Holdings,
    Preempt,
    PreemptionDone,
    PreemptionRequest,
    PreemptionVote,
)
from volery.architectures.megha.shares.users import UserLines
from volery.conformance.cases import trace_of
from volery.core.capabilities import CrashRecovery, DueShares
from volery.core.errors import InputError
from volery.core.events import MILLIONTHS, JobDone, Preemption, ShareChange, Submit, TimerFired
from volery.core.model import SECOND, Cluster, Job, Message, Task
from volery.core.reasons import Reason
from volery.core.records import Records
from volery.core.resources import Packing
from volery.core.streams import Streams
from volery.live.config.plan import FederationPlan
from volery.policies.match import vector_bytes
from volery.roles.node import Completed, Kill, Launch
from volery.roles.recovery.leases import RunningAttempt
from volery.sim import Options, simulate

CLUSTER = Cluster.uniform(4)
"""node/0 and node/1 are gm/0's partition 0, node/2 and node/3 are gm/1's partition 1."""
PACKING = Packing(1)
A, B, OTHERS = 0, 1, 2
HALF = MILLIONTHS // 2
HEARD = 4


def part(address: str, **parameters: Any) -> Alone:
    """Users a and b have a half each; a's jobs go to gm/0, b's to gm/1."""
    return Alone("megha-2021", address, CLUSTER, **{"gms": 2, "lms": 1, "shares": "a:1+b:1", **parameters})


def job(number: int, count: int, user: str) -> Submit:
    tasks = tuple(Task(10 * number + k, number) for k in range(count))
    return Submit(Job(number, count, tasks, 0, user))


def task(number: int) -> Task:
    return Task(number, number // 10)


def update(number: int, heard: int, **free: int) -> StateUpdate:
    """What machines have free, as node0=1."""
    states = []
    for partition in (0, 1):
        listed = [k for k in (0, 1) if f"node{2 * partition + k}" in free]
        told = b"".join(
            PACKING.free((free[f"node{2 * partition + k}"],)).to_bytes((PACKING.guards.bit_length() + 7) // 8, "little")
            for k in listed
        )
        if listed:
            states.append(PartitionState(partition, vector_bytes(sum(1 << k for k in listed)), told))
    return StateUpdate(number, heard, tuple(states), len(free))


FULL = {"node0": 0, "node1": 0, "node2": 0, "node3": 0}


def running(number: int, user: int, node: int) -> Holding:
    return Holding(number, user, node // 2, node % 2, ())


def contended(*holdings: Holding, **parameters: Any) -> Alone:
    """b's GM, which has heard that all machines are busy, and with what."""
    master = part("gm/1", **parameters)
    master.hear(Holdings(1, (), holdings), "lm/0")
    master.hear(update(1, 0, **FULL), "lm/0")
    return master


FOUR_OF_A = [running(100 + node, A, node) for node in range(4)]


def sent(effects: list[Any], kind: type[Message]) -> list[Any]:
    return [message for _, message in messages(effects, kind)]


def test_a_task_that_fits_is_placed_whatever_its_user_has_already() -> None:
    """Fairness is enforced under contention alone."""
    asked = sent(part("gm/1").hear(job(1, 4, "b")), Request)
    assert [(one.partition, one.positions, one.users) for one in asked] == [
        (1, (0,), (B,)),
        (1, (1,), (B,)),
        (0, (0,), (B,)),
        (0, (1,), (B,)),
    ]


def test_a_task_that_fits_nowhere_takes_the_place_of_the_violators_youngest() -> None:
    (asked,) = sent(contended(*FOUR_OF_A).hear(job(1, 1, "b")), Preempt)
    gain, loss = ShareChange("b", HALF, 0, HALF // 2), ShareChange("a", HALF, 2 * HALF, 3 * HALF // 2)
    assert asked == Preempt(1, 1, 1, task(10), B, 0, A, (103,), 0, gain, loss)


def test_nobody_preempts_beyond_the_own_share() -> None:
    """b is due two of four machines; its third task is re-inserted into its queue."""
    master = contended(*FOUR_OF_A)
    assert [one.victims for one in sent(master.hear(job(1, 3, "b")), Preempt)] == [(103,), (102,)]
    assert not sent(master.hear(update(2, 2, **FULL), "lm/0"), Preempt)


@pytest.mark.parametrize(("preemption", "claims"), [("agreed", 0), ("paper", 1)])
@pytest.mark.parametrize("shares", ["a:5+b:3", "a:2+b:1+c:1"], ids=["loser below", "winner at its share"])
def test_as_printed_neither_share_is_kept(preemption: str, claims: int, shares: str) -> None:
    """Of 4 machines a, with 3, is due 2.5 and b, with 1, is due 1.5; or a is due 2 and b 1."""
    three_of_a = [running(100 + node, A, node) for node in range(3)]
    master = contended(*three_of_a, running(103, B, 3), preemption=preemption, shares=shares)
    assert [one.loser for one in sent(master.hear(job(1, 1, "b")), Preempt)] == [A] * claims


def test_users_who_are_not_in_the_tree_are_due_nothing_and_lose_first_of_equals() -> None:
    master = contended(running(100, A, 0), running(101, A, 1), running(102, OTHERS, 2), running(103, OTHERS, 3))
    assert [one.loser for one in sent(master.hear(job(1, 1, "b")), Preempt)] == [OTHERS]
    assert not sent(contended(*FOUR_OF_A).hear(job(1, 1, "stranger")), Preempt)


def test_a_user_within_its_share_is_no_victim_in_the_view() -> None:
    master = contended(running(100, A, 0), running(101, A, 1))
    assert not sent(master.hear(job(1, 1, "b")), Preempt)


def test_the_next_victim_is_tried_where_the_first_is_gone_and_the_queue_when_nobody_is_left() -> None:
    master = contended(*FOUR_OF_A)
    master.hear(job(1, 1, "b"))
    assert not master.hear(Holdings(2, (103,), ()), "lm/0")
    (again,) = sent(master.hear(Refusal((10,), update(2, 1, **FULL), (103,), False), "lm/0"), Preempt)
    assert again.victims == (102,), "a has three in the view, and may lose one of them"
    assert not master.hear(Holdings(3, (102,), ()), "lm/0")
    assert not master.hear(Refusal((10,), update(3, 2, **FULL), (102,), False), "lm/0"), "two are what a is due"
    asked = sent(master.hear(update(4, 2, node3=1), "lm/0"), Request)
    assert [one.tasks[0].id for one in asked] == [10], "it was in the queue"


def test_what_cannot_be_had_is_asked_for_once() -> None:
    """It runs on, and so it counts as its user's."""
    master = contended(*FOUR_OF_A)
    master.hear(job(1, 1, "b"))
    for number, victim in enumerate((103, 102, 101, 100), 1):
        again = sent(master.hear(Refusal((10,), update(1 + number, number, **FULL), (victim,), False), "lm/0"), Preempt)
        assert [one.victims for one in again] == ([(victim - 1,)] if victim > 100 else [])
    assert not sent(master.hear(job(2, 1, "b")), Preempt)


def test_users_of_one_gm_are_asked_for_the_same_task_once() -> None:
    master = part("gm/0", gms=1, shares="a:1+b:1", queues="0+0")
    master.hear(job(0, 4, "a"))
    master.hear(StateUpdate(1, 4, (), 0), "lm/0")
    master.hear(job(1, 1, "b"))
    (again,) = sent(master.hear(Refusal((10,), StateUpdate(2, 5, (), 0), (3,), False), "lm/0"), Preempt)
    assert again.victims == (2,)


def test_a_user_whose_gm_has_refused_is_spared_for_a_heartbeat() -> None:
    master = contended(*FOUR_OF_A)
    master.hear(job(1, 1, "b"))
    kept = master.hear(Refusal((10,), update(2, 1, **FULL), (), True), "lm/0", 7)
    assert kept == [TimerSet("spared", 10_000_007)]
    assert not sent(master.hear(update(3, 1, **FULL), "lm/0"), Preempt)
    assert len(sent(master.hear(TimerFired("spared")), Preempt)) == 1


def test_repeated_news_changes_nothing() -> None:
    master = contended(*FOUR_OF_A)
    master.hear(job(1, 1, "b"))
    assert not master.hear(Holdings(1, (103,), ()), "lm/0")
    denied = Refusal((10,), update(2, 1, **FULL), (103,), False)
    assert master.hear(denied, "lm/0")
    assert not master.hear(denied, "lm/0")


def owner() -> Alone:
    """a's GM; its four tasks run, and it has heard of it."""
    master = part("gm/0")
    master.hear(job(0, 4, "a"))
    master.hear(update(1, 4, **FULL), "lm/0")
    return master


def test_the_losers_gm_gives_up_what_is_beyond_the_share_and_keeps_the_rest() -> None:
    master = owner()
    lost = [ShareChange("a", HALF, had, had - HALF // 2) for had in (2 * HALF, 3 * HALF // 2)]
    assert master.hear(PreemptionRequest(1, HEARD, A, (0,)), "lm/0") == [("lm/0", PreemptionVote(1, True, lost[0]))]
    assert master.hear(PreemptionRequest(2, HEARD, A, (1,)), "lm/0") == [("lm/0", PreemptionVote(2, True, lost[1]))]
    assert master.hear(PreemptionRequest(3, HEARD, A, (2,)), "lm/0") == [("lm/0", PreemptionVote(3, False))]
    assert not master.hear(PreemptionRequest(3, HEARD, A, (2,)), "lm/0"), "a repeat"


def test_what_may_still_be_refused_does_not_count_when_tasks_are_given_up() -> None:
    master = part("gm/0")
    master.hear(job(0, 4, "a"))
    assert master.hear(PreemptionRequest(1, 2, A, (0,)), "lm/0") == [("lm/0", PreemptionVote(1, False))], (
        "two are known to run"
    )
    lost = ShareChange("a", HALF, 2 * HALF, 3 * HALF // 2)
    assert master.hear(PreemptionRequest(2, 3, A, (0,)), "lm/0") == [("lm/0", PreemptionVote(2, True, lost))]


def test_a_lost_task_waits_like_a_new_one_and_comes_as_the_next_attempt() -> None:
    master = owner()
    master.hear(PreemptionRequest(1, HEARD, A, (0,)), "lm/0")
    assert not master.hear(AttemptsLost((RunningAttempt(0, 0, 0, "gm/0", 0),), is_preemption=True), "lm/0")
    assert not master.hear(AttemptsLost((RunningAttempt(0, 0, 0, "gm/0", 0),), is_preemption=True), "lm/0"), "a repeat"
    (asked,) = sent(master.hear(TasksEnded((1,), 4), "lm/0"), Request)
    assert (asked.tasks[0].id, asked.attempts) == (0, (1,))


def test_a_task_that_ends_before_it_is_evicted_is_done_and_leaves_no_room() -> None:
    master = owner()
    master.hear(job(1, 1, "a"))
    master.hear(PreemptionRequest(1, HEARD, A, (0,)), "lm/0")
    assert not master.hear(TasksEnded((0,), 4), "lm/0"), "its place is the beneficiary's, not the waiting task's"
    assert sent(master.hear(TasksEnded((1,), 4), "lm/0"), Request)
    master.hear(TasksEnded((2,), 5), "lm/0")
    assert sent(master.hear(TasksEnded((3,), 5), "lm/0"), JobDone) == [JobDone(0)]


def test_a_gm_preempts_the_largest_violator_among_its_own_users() -> None:
    master = part("gm/0", gms=1, shares="a:1+b:1+c:2", queues="0+0+0")
    master.hear(job(0, 4, "a"))
    master.hear(StateUpdate(1, 4, (), 0), "lm/0")
    preempted = sent(master.hear(job(1, 3, "c")), Preempt)
    assert [(one.loser, one.victims) for one in preempted] == [(0, (3,)), (0, (2,))], "c is due two of four"
    preempted = sent(master.hear(job(2, 2, "b")), Preempt)
    assert [(one.loser, one.victims) for one in preempted] == [(0, (1,))], "all have what they are due"


def queued(*users: int, short: tuple[int, ...] = (), in_turn: bool = False) -> UserLines:
    """Task k is of the k-th user; slots."""
    lines = UserLines(PACKING, lambda one: users[one.id], None if in_turn else lambda user: user in short)
    for number in range(len(users)):
        lines.push(Task(number, 0))
    return lines


def order(lines: UserLines) -> list[int]:
    """As they are taken, one after the other."""
    found = []
    while (taken := lines.pop_fitting(0, PACKING.free((1,)))) is not None:
        found.append(taken.id)
    assert not lines.length
    return found


def test_the_queues_of_a_gm_are_served_round_robin() -> None:
    assert order(queued(A, A, A, B, B, OTHERS)) == [0, 3, 5, 1, 4, 2]


def test_users_below_their_share_come_first_while_others_wait() -> None:
    assert order(queued(A, A, B, OTHERS, OTHERS, short=(B, OTHERS))) == [2, 3, 4, 0, 1]


def test_users_below_their_share_wait_for_their_turn_where_turns_are_as_printed() -> None:
    assert order(queued(A, A, B, OTHERS, OTHERS, short=(B, OTHERS), in_turn=True)) == [0, 2, 3, 1, 4]


def test_queues_lose_the_tasks_of_a_cancelled_job_and_keep_their_order() -> None:
    lines = queued(A, B, A, B)
    assert [one.id for one in lines.remove(lambda one: one.id in (0, 1))] == [0, 1]
    assert lines.pop_kind(B, (0, ())).id == 3
    lines.push_front(Task(1, 0))
    assert lines.kinds() == lines.kinds_of(B) == [(0, ())]
    assert order(lines) == [2, 1]


def busy_lm() -> Alone:
    """a's tasks 0 to 3 run on node/0 to node/3."""
    local = part("lm/0")
    tasks = tuple(task(number) for number in range(4))
    local.hear(Request(1, 0, tasks[:2], (0, 1), (0, 0), (A, A)), "gm/0")
    local.hear(Request(2, 1, tasks[2:], (0, 1), (0, 0), (A, A)), "gm/0")
    return local


def preempt(number: int, *victims: int, node: int = 3, beneficiary: int = 10, loser: int = A) -> Preempt:
    return Preempt(number, node // 2, node % 2, task(beneficiary), B, 0, loser, victims)


def test_the_lm_asks_the_losers_gm_evicts_and_launches_when_the_node_says_so() -> None:
    local = busy_lm()
    assert messages(local.hear(preempt(1, 3), "gm/1", 50), Message) == [("gm/0", PreemptionRequest(1, 2, A, (3,)))]
    assert local.hear(PreemptionVote(1, True), "gm/0", 60) == [("node/3", Kill(3, 0))]
    local.component.handle(Completed(3, 0, killed=True), "node/3", 70)
    effects = local.port.drain()
    assert [one.fact for one in effects if isinstance(one, Observed)][1] == Preemption(70, 3, 0, 10)
    assert [one.message for one in effects if isinstance(one, Sent)] == [
        AttemptsLost((RunningAttempt(3, 0, 0, "gm/0", 1 << UNIT_SHIFT | 1, account=A),), is_preemption=True),
        Launch(5, task(10), 0),
        PreemptionDone(10),
    ]
    assert not local.hear(Completed(3, 0, killed=True), "node/3", 71), "a repeat"


def test_a_gm_that_keeps_its_tasks_lets_them_run_on() -> None:
    local = busy_lm()
    local.hear(preempt(1, 3), "gm/1")
    denied = sent(local.hear(PreemptionVote(1, False), "gm/0"), Refusal)
    assert [(one.tasks, one.unavailable_victims, one.is_vetoed) for one in denied] == [((10,), (), True)]
    assert not sent(local.hear(PreemptionVote(1, False), "gm/0"), Refusal), "a repeat"
    assert sent(local.hear(preempt(2, 3), "gm/1"), PreemptionRequest), "it can be asked for again"


@pytest.mark.parametrize(
    "stale",
    [preempt(1, 7), preempt(1, 2), preempt(1, 3, loser=B), preempt(1)],
    ids=["it has ended", "it runs elsewhere", "it is another user's", "nothing would be free"],
)
def test_the_lm_refuses_what_is_not_true_and_tells_the_state(stale: Preempt) -> None:
    (denied,) = sent(busy_lm().hear(stale, "gm/1"), Refusal)
    assert (denied.unavailable_victims, denied.is_vetoed) == (stale.victims, False)
    assert denied.update.number == 1


def test_one_task_is_preempted_for_one_other_only() -> None:
    local = busy_lm()
    local.hear(preempt(1, 3), "gm/1")
    (denied,) = sent(local.hear(preempt(2, 3, beneficiary=11), "gm/1"), Refusal)
    assert denied.unavailable_victims == (3,)


def test_who_has_lost_a_place_never_takes_it_back_from_those_who_got_it() -> None:
    local = busy_lm()
    local.hear(preempt(1, 3), "gm/1")
    local.hear(PreemptionVote(1, True), "gm/0")
    local.hear(Completed(3, 0, killed=True), "node/3")
    back = Preempt(3, 1, 1, task(5), A, 0, B, (10,))
    assert sent(local.hear(back, "gm/0"), Refusal)[0].unavailable_victims == (10,)
    stranger = Preempt(4, 1, 1, task(6), OTHERS, 0, B, (10,))
    assert sent(local.hear(stranger, "gm/0"), PreemptionRequest), "somebody else may"


def test_all_or_none_of_the_victims_are_preempted() -> None:
    """A GM that has given up a task of its own would otherwise never hear that it runs on."""
    local = busy_lm()
    local.hear(preempt(1, 3), "gm/1")
    local.hear(Completed(2), "node/2")
    on_two = Preempt(3, 1, 0, task(11), A, 0, A, (3,))
    assert sent(local.hear(on_two, "gm/0"), Refusal)[0].unavailable_victims == (3,), (
        "node/2 would be free, but 3 is not to be had"
    )


def test_a_gm_preempts_its_own_users_tasks_without_being_asked_again() -> None:
    local = busy_lm()
    effects = local.hear(Preempt(3, 1, 1, task(10), B, 0, A, (3,)), "gm/0")
    assert messages(effects, Message) == [("node/3", Kill(3, 0))]


def test_a_victim_that_ends_by_itself_leaves_its_place_to_the_beneficiary() -> None:
    local = busy_lm()
    local.hear(preempt(1, 3), "gm/1")
    assert not messages(local.hear(Completed(3), "node/3"), Launch), "its GM has not agreed yet"
    assert sent(local.hear(PreemptionVote(1, True), "gm/0"), Launch) == [Launch(5, task(10), 0)]


def test_a_job_that_is_cancelled_meanwhile_never_starts_and_its_place_is_free() -> None:
    local = busy_lm()
    local.hear(preempt(1, 3), "gm/1")
    local.hear(Withdraw((10,)), "gm/1")
    assert sent(local.hear(TimerFired("notices")), TasksEnded) == [TasksEnded((10,), 1)]
    local.hear(PreemptionVote(1, True), "gm/0")
    assert not sent(local.hear(Completed(3, 0, killed=True), "node/3"), Launch)
    request = Request(2, 1, (task(11),), (1,), (0,), (B,))
    assert sent(local.hear(request, "gm/1"), Launch) == [Launch(5, task(11), 0)]


def test_gms_are_told_of_others_tasks_before_the_state_that_comes_of_them() -> None:
    local = busy_lm()
    local.hear(Completed(0), "node/0")
    local.hear(Completed(1), "node/1", 1)
    told = messages(local.hear(TimerFired("heartbeat"), "lm/0", 10_000_000), Message)
    to_b = [message for to, message in told if to == "gm/1"]
    assert to_b[0] == Holdings(1, (), (running(2, A, 2), running(3, A, 3)))
    assert isinstance(to_b[1], StateUpdate)
    assert not [message for to, message in told if to == "gm/0" and isinstance(message, Holdings)], "its own it knows"


def test_a_heartbeat_tells_a_gm_which_of_its_requests_were_heard() -> None:
    """Else it could not count on what it has, and would give nothing up."""
    told = messages(busy_lm().hear(TimerFired("heartbeat"), "lm/0", 10_000_000), StateUpdate)
    assert ("gm/0", 2) in [(to, message.last_request) for to, message in told]


def built(**parameters: Any) -> Any:
    megha = lookup("megha-2021")
    return megha.build(CLUSTER, configure(megha, {"gms": 2, "lms": 1, **parameters}), Streams(0))


def test_jobs_enter_at_their_users_gm_and_those_of_strangers_by_number() -> None:
    deployment = built(shares="a:1+b:2+c:1", queues="1+0+1")
    assert [deployment.entry_for(5, user) for user in ("a", "b", "c", "stranger", "")] == [
        "gm/1",
        "gm/0",
        "gm/1",
        "gm/1",
        "gm/1",
    ]
    shares = deployment.capability(DueShares)
    assert shares is not None
    assert {name: float(due) for name, due in shares.guaranteed.items()} == {"a": 0.25, "b": 0.5, "c": 0.25}


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"shares": "a:x"}, "is not a weight"),
        ({"shares": "a+b", "queues": "0"}, "is not a GM for each of 2 users"),
        ({"shares": "a+b", "queues": "0+2"}, "names GM 2; there are GMs 0 to 1"),
        ({"queues": "0+1"}, "megha:queues: '0.1' is of users with shares, and shares is empty; give shares, or leave"),
        ({"turns": "round-robin"}, "megha:turns: 'round-robin' is of users with shares"),
        ({"preemption": "paper"}, "megha:preemption: 'paper' is of users with shares"),
        ({"preempted": "keep"}, "megha:preempted: 'keep' is of users with shares"),
    ],
)
def test_wrong_shares_are_told(parameters: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        built(**parameters)


def played(**parameters: Any) -> Records:
    """a's two tasks of 1 s have both machines when b's comes at 5 ms."""
    trace = trace_of("t", [0, 5_000], [[SECOND, SECOND], [SECOND]])
    trace = msgspec.structs.replace(trace, user=("a", "b"))
    megha = lookup("megha-2021")
    config = configure(megha, {"gms": 2, "lms": 1, "shares": "a:1+b:1", "heartbeat_s": 0.01, **parameters})
    cluster = Cluster.uniform(2)
    return simulate(megha.build(cluster, config, Streams(0)), trace, cluster, options=Options(check=True))


def test_a_preempted_task_begins_anew_or_goes_on_where_it_was() -> None:
    for preempted, lasts_us, kept_us in (("restart", SECOND, 0), ("keep", SECOND - 7_000, 7_000)):
        records = played(preempted=preempted)
        lost, won = ShareChange("a", HALF, 2 * HALF, HALF), ShareChange("b", HALF, 0, HALF)
        assert records.preemptions == [Preemption(8_000, 1, 0, 2, "share", lost, won)]
        assert records.finish_us[1] - records.start_us[1] == lasts_us
        assert [(lost.start_us, lost.kept_us) for lost in records.lost] == [(1_000, kept_us)]


def test_gms_that_explain_themselves_tell_of_preemptions_and_decide_as_silent_ones_do() -> None:
    told, silent = played(why=True), played()
    assert told.digest() == silent.digest()
    decided = [(noted.by, noted.decision.chosen) for noted in told.decisions.of_task[1]]
    assert ("gm/0", "preempted") in decided
    (lost,) = [noted.decision for noted in told.decisions.of_task[1] if noted.decision.chosen == "preempted"]
    assert [(one.reason, one.count) for one in lost.rejected] == [(Reason.SHARE, 1)]
    assert (lost.machine, lost.asked) == (1, "lm/0")
    assert [noted.decision.chosen for noted in told.decisions.of_task[2]][-1] == "placed"


def test_where_real_work_runs_progress_cannot_be_kept() -> None:
    megha = lookup("megha-2021")
    given = {"gms": 2, "lms": 1, "shares": "a:1+b:1"}
    assert FederationPlan(megha, configure(megha, given), CLUSTER).build().capability(DueShares)
    with pytest.raises(InputError, match="preempted=restart"):
        FederationPlan(megha, configure(megha, {**given, "preempted": "keep"}), CLUSTER).build()


def test_as_printed_no_share_is_guaranteed_and_only_what_may_crash_recovers() -> None:
    printed = built(shares="a:1+b:1", preemption="paper").capability(DueShares)
    assert printed is not None
    assert not printed.guaranteed
    with pytest.raises(InputError, match="set reliable=true"):
        built(recovery="paper")


def test_with_shares_every_component_may_crash_and_then_no_progress_is_kept() -> None:
    deployment = built(shares="a:1+b:1", reliable=True)
    assert deployment.capability(DueShares) is not None
    assert deployment.capability(CrashRecovery) is not None
    with pytest.raises(InputError, match="must be restart where reliable is set"):
        built(shares="a:1+b:1", reliable=True, preempted="keep")


def test_a_task_that_fits_no_machine_is_reported_although_a_view_holds_more_than_its_machine_has() -> None:
    """It was placed there, refused, and waited for ever: found by a storm of a federation with shares."""
    master = part("gm/0")
    master.hear(update(1, 0, node0=2), "lm/0")
    too_large = Task(10, 1, request=(2,))
    effects = master.hear(Submit(Job(1, 1, (too_large,), 0, "a")))
    assert not sent(effects, Request)
    assert [done.job for done in sent(effects, JobDone)] == [1]
