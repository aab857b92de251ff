"""A Global Master that explains itself: what it passed over, on a view how old."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.megha.words import news, refusal
from tests.unit.architectures.parts import Alone, submit, tasks

from volery.architectures import configure, lookup
from volery.architectures.megha.vector_messages import Refusal, StateUpdate
from volery.core.events import MoreTasks, Submit
from volery.core.model import Cluster, Job, Task
from volery.core.streams import Streams
from volery.core.why import KEPT_PER_TASK, Decision, DecisionLog
from volery.sim import simulate
from volery.sim.recording import Observed
from volery.workload import ask, constrain, load_cluster, load_trace

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
        "internal constraint": 2, "internal busy": 2, "external constraint": 2, "external busy": 2,
    }  # fmt: skip


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
        "refused", "lm/0", 0, {"internal inconsistency": 1},
    )  # fmt: skip
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
