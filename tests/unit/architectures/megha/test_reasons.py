"""A Global Master that explains itself: what it passed over, on a view how old."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.megha.words import news, refusal
from tests.unit.architectures.parts import Alone, submit, tasks
from tests.unit.effects import Observed

from volery.architectures import configure, lookup
from volery.architectures.megha.messages import Refusal, StateUpdate, TasksEnded
from volery.core.events import MoreTasks, Submit
from volery.core.model import Cluster, Job, Task
from volery.core.reasons import KEPT_PER_TASK, Decision, DecisionLog, Reason
from volery.core.streams import Streams
from volery.sim import simulate
from volery.workload import ask, constrain, deal_to_users, load_cluster, load_trace

HALF = Cluster((1, 0) * 4, (1,) * 8)
"""Partitions 0 and 1 under lm/0, 2 and 3 under lm/1; in each the second of two units satisfies constraint 1."""


def gm(cluster: Cluster = HALF) -> Alone:
    return Alone("megha", "gm/0", cluster, gms=2, lms=2, why=True)


def told(master: Alone, event: Any, source: str = "submitter", now: int = 0) -> list[Decision]:
    master.component.handle(event, source, now)
    facts = [effect.fact for effect in master.port.drain() if isinstance(effect, Observed)]
    return [fact for fact in facts if isinstance(fact, Decision)]


def passed(decision: Decision) -> dict[str, int]:
    return {f"{rejected.scope} {rejected.reason}": rejected.count for rejected in decision.rejected}


def test_what_is_passed_over_is_counted_on_the_view_that_each_task_met() -> None:
    found = told(gm(), submit(0, *[1] * 5))
    assert [decision.chosen for decision in found] == ["placed"] * 4 + ["queued"]
    assert [decision.partition for decision in found] == [0, 2, 1, 3, -1]
    assert passed(found[0]) == {}
    assert passed(found[2]) == {"internal constraint": 2, "internal busy": 2}
    assert passed(found[4]) == {
        "internal constraint": 2,
        "internal busy": 2,
        "external constraint": 2,
        "external busy": 2,
    }


def test_the_age_of_the_view_is_that_of_the_part_that_was_chosen() -> None:
    master = gm()
    told(master, news(1, {}), "lm/0", 700)
    first, second = told(master, submit(0, 0, 0), now=1000)
    assert (first.asked, first.view_age_us, second.asked, second.view_age_us) == ("lm/0", 300, "lm/1", 1000)
    assert told(master, submit(1, *[1] * 5), now=2000)[-1].view_age_us == 2000, (
        "the least known part, if none is chosen"
    )


def test_a_refusal_is_told_once_and_the_task_tried_again() -> None:
    master = gm()
    told(master, submit(0, 1))
    no = refusal((0,), news(1, {0: (0, 0b11)}))
    refused, again = told(master, no, "lm/0", 1000)
    assert (refused.chosen, refused.asked, refused.machine, passed(refused)) == (
        "refused",
        "lm/0",
        0,
        {"internal inconsistency": 1},
    )
    assert (again.chosen, again.asked) == ("placed", "lm/1")
    assert told(master, no, "lm/0", 1001) == [], "a repeated answer is stale"


def test_what_no_machine_satisfies_is_told_apart_from_what_waits() -> None:
    assert [decision.chosen for decision in told(gm(), submit(0, 2))] == ["unsatisfiable"]


def test_what_waited_is_told_when_a_unit_is_found() -> None:
    master = gm()
    told(master, submit(0, *[1] * 5))
    (late,) = told(master, news(1, {0: (0b10, 0)}), "lm/0", 5000)
    assert (late.chosen, late.task, late.machine, late.rejected) == ("placed", 4, 0, ())


def test_a_chunk_is_explained_like_a_job() -> None:
    master = gm()
    job = submit(0, 1).job
    told(master, type(submit(0))(type(job)(0, 2, job.tasks)))
    assert [decision.task for decision in told(master, MoreTasks(0, 1, tasks(0, 1, 1)[1:]))] == [1]


def test_explaining_changes_nothing() -> None:
    """Same digest and counters on a crowded cluster where views are wrong; every refusal is told."""
    trace = constrain(load_trace("syn:40x60"), "sharma2011", 0)
    cluster = load_cluster(100, constraints="sharma2011", machines=None, seed=0)
    megha = lookup("megha")
    silent, open_ = (
        simulate(megha.build(cluster, configure(megha, {"why": why}), Streams(0)), trace, cluster)
        for why in (False, True)
    )
    assert silent.digest() == open_.digest()
    assert silent.counters == open_.counters
    assert open_.decisions.counts["refused"] == silent.counters["inconsistencies"] > 0
    assert not silent.decisions.of_task


def test_ages_and_refusals_are_counted_of_all_decisions() -> None:
    log = DecisionLog()
    for now in range(KEPT_PER_TASK + 3):
        log.note(now, "gm/0", Decision(7, 0, "placed", asked="lm/1", view_age_us=now // 2))
        log.note(now, "gm/0", Decision(7, 0, "refused", asked="lm/1"))
    assert log.pairs == {("gm/0", "lm/1"): [KEPT_PER_TASK + 3, KEPT_PER_TASK + 3]}
    assert log.ages == {0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 1}


def test_of_many_decisions_the_first_and_the_last_are_kept() -> None:
    log = DecisionLog()
    for now in range(KEPT_PER_TASK + 3):
        log.note(now, "gm/0", Decision(7, 0, "queued"))
    assert [noted.time_us for noted in log.of_task[7]] == [0, *range(4, KEPT_PER_TASK + 3)]
    assert (log.dropped[7], log.counts["queued"]) == (3, KEPT_PER_TASK + 3)


def test_a_machine_that_is_too_small_is_told_apart_from_one_that_is_full() -> None:
    """Two machines of 4 units and two of 16 under each Local Master; the second task of 10 fills the large ones."""
    cluster = Cluster((0,) * 4, (1,) * 4, "mixed", ("memory_mb",), ((4,), (16,), (4,), (16,)))
    master = Alone("megha", "gm/0", cluster, gms=1, lms=2, why=True)
    work = tuple(Task(number, 0, request=(10,)) for number in range(3))
    found = told(master, Submit(Job(0, 3, work)))
    assert [decision.chosen for decision in found] == ["placed", "placed", "queued"]
    assert [decision.machine for decision in found] == [1, 3, -1]
    assert passed(found[2]) == {"internal resource": 2, "internal busy": 2}
    refused, again = told(master, Refusal((0,), StateUpdate(1, 1, (), 0)), "lm/0", 9)
    assert (refused.chosen, refused.asked, again.chosen) == ("refused", "lm/0", "queued")


def test_explaining_amounts_changes_nothing() -> None:
    trace = ask(load_trace("syn:40x60"), "alibaba-like", 0)
    cluster = load_cluster(6, capacity="cpu_milli=6000,memory_mb=4096")
    megha = lookup("megha-2021")
    silent, open_ = (
        simulate(megha.build(cluster, configure(megha, {"why": why, "gms": 3, "lms": 2}), Streams(0)), trace, cluster)
        for why in (False, True)
    )
    assert silent.digest() == open_.digest()
    assert silent.counters == open_.counters
    assert open_.decisions.counts["refused"] == silent.counters["inconsistencies"] > 0


def of(user: str, job: int, count: int) -> Submit:
    work = tuple(Task(10 * job + k, job) for k in range(count))
    return Submit(Job(job, count, work, 0, user))


def shared(shares: str = "a:1+b:1", **parameters: Any) -> Alone:
    """Four machines of one slot each; users have shares of them."""
    given = {"gms": 1, "lms": 1, "shares": shares, "why": True, **parameters}
    return Alone("megha-2021", "gm/0", Cluster.uniform(4), **given)


def placed(decisions: list[Decision]) -> list[int]:
    return [one.task for one in decisions if one.chosen == "placed"]


def last(master: Alone, event: Any) -> dict[str, int]:
    """What the last task that an event brings is told to wait for."""
    decision = told(master, event)[-1]
    assert decision.chosen == "queued"
    return passed(decision)


def test_what_would_go_to_a_user_with_less_than_its_share_is_not_just_busy() -> None:
    """Both have their two machines, and wait: what a's tasks leave is a's again, what b's leave is b's."""
    master = shared()
    told(master, of("a", 0, 2))
    told(master, of("b", 1, 3))
    assert last(master, of("a", 2, 1)) == {"internal busy": 2, "internal share": 2}
    assert last(master, of("b", 3, 1)) == {"internal busy": 2, "internal share": 2}
    assert placed(told(master, TasksEnded((10,), 4), "lm/0")) == [12]
    assert placed(told(master, TasksEnded((0,), 4), "lm/0")) == [20]


def test_machines_are_busy_where_nobody_else_waits_for_a_share() -> None:
    master = shared()
    told(master, of("a", 0, 2))
    told(master, of("b", 1, 2))
    assert last(master, of("a", 2, 1)) == {"internal busy": 4}, "b has its share, and waits for nothing"
    assert last(master, of("a", 3, 1)) == {"internal busy": 4}, "a waits for its own"


def test_who_is_short_of_its_share_waits_for_busy_machines() -> None:
    """Others may wait, too: it comes before them, and here it preempts."""
    master = shared()
    told(master, of("b", 1, 2))
    told(master, of("stranger", 2, 3))
    met, claimed = told(master, of("a", 3, 1))
    assert (met.chosen, passed(met), claimed.chosen) == ("queued", {"internal busy": 4}, "placed")


def test_a_machine_whose_tasks_the_share_is_made_of_is_busy_and_others_are_not() -> None:
    """b has one unit of the four that it is due and waits for four, which is too much to preempt for. What ends on the
    machine where a has three of its seven goes to b; without the other one, a is short itself."""
    amounts = Cluster((0, 0), (1, 1), "amounts", ("memory_mb",), ((4,), (4,)))
    master = Alone("megha-2021", "gm/0", amounts, gms=1, lms=1, shares="a:1+b:1", why=True)
    for job, user, count, mb in ((0, "b", 1, 1), (1, "a", 7, 1), (2, "b", 1, 4)):
        work = tuple(Task(10 * job + k, job, request=(mb,)) for k in range(count))
        found = told(master, Submit(Job(job, count, work, 0, user)))
    assert (found[-1].chosen, passed(found[-1])) == ("queued", {"internal busy": 2})
    (held_back,) = told(master, Submit(Job(3, 1, (Task(30, 3, request=(1,)),), 0, "a")))
    assert passed(held_back) == {"internal busy": 1, "internal share": 1}


def test_who_is_due_nothing_comes_after_those_who_are() -> None:
    master = shared()
    told(master, of("stranger", 0, 2))
    told(master, of("a", 1, 2))
    told(master, of("a", 2, 1))
    assert last(master, of("stranger", 3, 1)) == {"internal busy": 2, "internal share": 2}


def test_a_task_that_waited_before_the_others_is_told_once_that_they_came_first() -> None:
    """b comes when a has all and waits; it gets its two by preemption, and then what its own tasks leave."""
    master = shared()
    told(master, of("a", 0, 2))
    told(master, of("b", 1, 2))
    assert last(master, of("a", 2, 2)) == {"internal busy": 4}
    told(master, of("b", 3, 4))
    first = told(master, TasksEnded((10,), 4), "lm/0")
    assert [(one.task, one.chosen, passed(one)) for one in first] == [
        (20, "queued", {"internal share": 1}),
        (30, "placed", {}),
    ]
    assert [one.task for one in told(master, TasksEnded((11,), 4), "lm/0")] == [31], "told once"
    assert [one.task for one in told(master, TasksEnded((0,), 4), "lm/0")] == [20]
    again = told(master, TasksEnded((30,), 4), "lm/0")
    assert [(one.task, one.chosen) for one in again] == [(21, "queued"), (32, "placed")]


def test_explaining_shares_changes_nothing() -> None:
    trace = deal_to_users(load_trace("poisson:load=2,workers=20,jobs=300,fanout=5,mean=1"), "a:1+b:3+c:1", seed=1)
    cluster = Cluster.uniform(20)
    megha = lookup("megha-2021")
    given = {"gms": 2, "lms": 2, "shares": "a:1+b:2+c:1", "queues": "0+0+1", "heartbeat_s": 0.5}
    silent, open_ = (
        simulate(megha.build(cluster, configure(megha, {**given, "why": why}), Streams(0)), trace, cluster)
        for why in (False, True)
    )
    assert silent.digest() == open_.digest()
    assert silent.counters == open_.counters
    decided = [noted.decision for kept in open_.decisions.of_task.values() for noted in kept]
    held_back = [one for one in decided if one.chosen == "queued" and f"internal {Reason.SHARE}" in passed(one)]
    assert (
        0
        < len({one.task for one in held_back})
        <= len(held_back)
        < len([one for one in decided if one.chosen == "queued"])
    )
