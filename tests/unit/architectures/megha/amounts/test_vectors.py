"""The first Megha (arXiv 2103.08413, section IV): amounts, repartition, rescheduling, both inconsistency scenarios."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.unit.architectures.parts import Alone, messages
from tests.unit.effects import Observed, TimerSet

from volery.architectures.megha.messages import PartitionState, Refusal, Request, StateUpdate, TasksEnded
from volery.core.events import Counted, JobDone, Submit, TimerFired
from volery.core.model import Amounts, Cluster, Job, Task
from volery.core.resources import Packing
from volery.policies.match import vector_bytes
from volery.roles.node import Completed, Launch

NAMES = ("cpu_milli", "memory_mb")
WHOLE: Amounts = (4000, 8192)
CLUSTER = msgspec.structs.replace(Cluster.uniform(4), resources=NAMES, capacities=(WHOLE,) * 4)
PACKING = Packing(2)
WIDTH = (PACKING.guards.bit_length() + 7) // 8
BIG: Amounts = (3000, 1024)
SMALL: Amounts = (1000, 1024)


def gm(number: int = 0, **parameters: Any) -> Alone:
    """One of two GMs over one LM: node/0 and node/1 are gm/0's partition 0, node/2 and node/3 gm/1's partition 1."""
    return Alone("megha-2021", f"gm/{number}", CLUSTER, **{"gms": 2, "lms": 1, **parameters})


def lm(**parameters: Any) -> Alone:
    """Their LM."""
    return Alone("megha-2021", "lm/0", CLUSTER, **{"gms": 2, "lms": 1, **parameters})


def job(number: int, *requests: Amounts) -> Submit:
    """One task per request, numbered ten times the job's number and on."""
    tasks = tuple(Task(10 * number + k, number, request=request) for k, request in enumerate(requests))
    return Submit(Job(number, len(tasks), tasks))


def state(partition: int, *free: Amounts, positions: int = 0) -> PartitionState:
    """What machines of a partition have free: all of them, or those of a vector."""
    told = b"".join(PACKING.free(amounts).to_bytes(WIDTH, "little") for amounts in free)
    return PartitionState(partition, vector_bytes(positions), told)


def free_in(message: StateUpdate) -> dict[int, list[Amounts]]:
    """Partition > what its machines have free."""
    return {
        one.partition: [
            PACKING.amounts(int.from_bytes(one.free[at : at + WIDTH], "little"))
            for at in range(0, len(one.free), WIDTH)
        ]
        for one in message.states
    }


def asked(effects: list[Any]) -> list[tuple[str, int, list[int], tuple[int, ...]]]:
    """Kind, partition, tasks and positions of each request."""
    return [
        (type(message).__name__, message.partition, [task.id for task in message.tasks], message.positions)
        for _, message in [effect for effect in effects if isinstance(effect, tuple)]
        if isinstance(message, Request)
    ]


def task(number: int, request: Amounts) -> Task:
    return Task(number, 0, request=request)


def test_a_task_goes_to_the_first_internal_machine_that_has_enough_of_everything() -> None:
    effects = gm().hear(job(0, BIG, BIG, SMALL))
    assert asked(effects) == [("Request", 0, [0], (0,)), ("Request", 0, [1], (1,)), ("Request", 0, [2], (0,))]


def test_only_when_no_internal_machine_fits_is_an_external_one_asked_for_a_logical_node() -> None:
    """Section IV-B4."""
    effects = gm().hear(job(0, BIG, BIG, BIG))
    assert asked(effects)[2:] == [("Request", 1, [2], (0,))]
    assert [kind for kind, *_ in asked(gm(repartition=False).hear(job(0, BIG, BIG, BIG)))] == ["Request"] * 3


def test_a_logical_node_takes_what_is_asked_for_and_gives_it_back_when_its_task_ends() -> None:
    """The task runs on N' = (R, M); N keeps K - R until then."""
    master = lm()
    effects = master.hear(Request(1, 1, (task(0, BIG),), (0,)), "gm/0")
    assert messages(effects, Launch) == [("node/2", Launch(1, task(0, BIG)))]
    (refused,) = messages(master.hear(Request(1, 1, (task(5, BIG),), (0,)), "gm/1"), Refusal)
    assert free_in(refused[1].update) == {0: [WHOLE, WHOLE], 1: [(1000, 7168), WHOLE]}
    master.hear(Completed(0), "node/2", 40)
    assert messages(master.hear(TimerFired("notices"), "lm/0", 40), TasksEnded) == [("gm/0", TasksEnded((0,), 1))]
    effects = master.hear(Request(2, 1, (task(5, BIG),), (0,)), "gm/1", 50)
    assert messages(effects, Launch) == [("node/2", Launch(2, task(5, BIG)))]


def test_the_first_inconsistency_an_internal_machine_was_repartitioned_away() -> None:
    """Section IV-B6: the LM answers with the current state of all its partitions, and the GM looks elsewhere."""
    master, owner = lm(), gm()
    master.hear(Request(1, 0, (task(90, BIG),), (0,)), "gm/1")
    (mine,) = [message for _, message in owner.hear(job(0, BIG)) if isinstance(message, Request)]
    ((to, refused),) = messages(master.hear(mine, "gm/0"), Refusal)
    assert (to, refused.tasks, refused.entries) == ("gm/0", (0,), 4)
    assert asked(owner.hear(refused, "lm/0")) == [("Request", 0, [0], (1,))]


def test_the_second_inconsistency_an_external_machine_is_no_longer_free() -> None:
    master, stranger = lm(), gm()
    master.hear(Request(1, 1, (task(90, BIG),), (0,)), "gm/1")
    wishes = [message for _, message in stranger.hear(job(0, BIG, BIG, BIG)) if isinstance(message, Request)]
    answers = [answer for wish in wishes for answer in messages(master.hear(wish, "gm/0"), Refusal)]
    ((_, refused),) = answers
    assert asked(stranger.hear(refused, "lm/0")) == [("Request", 1, [2], (1,))]


def test_inconsistencies_are_counted_per_gm_and_lm_and_repartitions_where_they_succeed() -> None:
    master, wisher = lm(), gm()
    master.component.handle(Request(1, 0, (task(90, BIG),), (0,)), "gm/1", 0)
    facts = [effect.fact for effect in master.port.drain() if isinstance(effect, Observed)]
    assert facts == [Counted("repartitions", 1)]
    wisher.hear(job(0, BIG))
    wisher.component.handle(Refusal((0,), StateUpdate(1, 1, (), 0)), "lm/0", 0)
    told = [effect.fact for effect in wisher.port.drain() if isinstance(effect, Observed)]
    assert Counted("inconsistencies_gm0_lm0", 1) in told


def test_a_task_that_fits_nowhere_now_waits_at_the_tail() -> None:
    """Section IV-B5: refused, it waits behind the task that came later; the published code of 2023 puts it before."""
    full = (state(0, (0, 0), (0, 0)), state(1, (0, 0), (0, 0)))
    for rescheduling, first in (("tail", 10), ("head", 0)):
        master = gm(rescheduling=rescheduling)
        master.hear(job(0, BIG))
        master.hear(StateUpdate(1, 0, full, 4), "lm/0")
        assert asked(master.hear(job(1, BIG))) == []
        assert asked(master.hear(Refusal((0,), StateUpdate(2, 1, full, 4)), "lm/0")) == []
        effects = master.hear(StateUpdate(3, 1, (state(0, WHOLE, (0, 0)), full[1]), 4), "lm/0")
        assert [tasks for _, _, tasks, _ in asked(effects)] == [[first]]


def test_what_a_state_frees_goes_to_the_tasks_that_fit_there_in_their_order() -> None:
    full = (state(0, (0, 0), (0, 0)), state(1, (0, 0), (0, 0)))
    master = gm()
    master.hear(StateUpdate(1, 0, full, 4), "lm/0")
    assert asked(master.hear(job(0, (4000, 8000), SMALL, (2500, 1), SMALL))) == []
    effects = master.hear(StateUpdate(2, 0, (state(0, (4000, 1024), (1000, 5000)), full[1]), 4), "lm/0")
    assert asked(effects) == [("Request", 0, [1], (0,)), ("Request", 0, [3], (1,))], "after SMALL no memory is left"


def test_what_is_under_way_is_taken_off_a_state_that_does_not_contain_it() -> None:
    master = gm()
    master.hear(job(0, BIG))
    untouched = (state(0, WHOLE, WHOLE), state(1, WHOLE, WHOLE))
    master.hear(StateUpdate(1, 0, untouched, 4), "lm/0")
    assert asked(master.hear(job(1, BIG))) == [("Request", 0, [10], (1,))], "the first machine is promised to task 0"
    refused = Refusal((0,), StateUpdate(2, 1, (state(0, WHOLE, WHOLE), untouched[1]), 4))
    assert asked(master.hear(refused, "lm/0")) == [("Request", 0, [0], (0,))], "refused, it is free again"


def test_an_end_frees_what_the_task_took_and_the_job_is_told_done() -> None:
    master = gm()
    master.hear(job(0, BIG))
    assert (("submitter", JobDone(0))) in master.hear(TasksEnded((0,), 1), "lm/0")
    assert asked(master.hear(job(1, (4000, 8192)))) == [("Request", 0, [10], (0,))]


def test_a_request_that_no_machine_ever_holds_is_answered_at_once() -> None:
    effects = gm().hear(job(0, (4001, 1)))
    assert ("submitter", JobDone(0, 1)) in effects


def test_a_heartbeat_tells_every_gm_the_whole_state_when_others_have_changed_it() -> None:
    master = lm()
    (armed,) = [e for e in master.hear(Request(1, 0, (task(0, SMALL),), (1,)), "gm/0") if isinstance(e, TimerSet)]
    assert armed == TimerSet("heartbeat", 10_000_000)
    told = messages(master.hear(TimerFired("heartbeat"), "lm/0", armed.at), StateUpdate)
    assert [to for to, _ in told] == ["gm/1"], "gm/0 knows what it has done"
    assert free_in(told[0][1]) == {0: [WHOLE, (3000, 7168)], 1: [WHOLE, WHOLE]}


def test_deltas_tell_of_the_machines_that_changed_alone() -> None:
    master = lm(updates="deltas")
    master.hear(Request(1, 0, (task(0, SMALL),), (1,)), "gm/0")
    ((_, update),) = messages(master.hear(TimerFired("heartbeat"), "lm/0", 10_000_000), StateUpdate)
    assert update == StateUpdate(1, 0, (state(0, (3000, 7168), positions=0b10),), 1)
    other = gm(1, updates="deltas")
    other.hear(update, "lm/0")
    effects = other.hear(job(0, WHOLE, WHOLE, WHOLE, WHOLE))
    assert [tasks for _, _, tasks, _ in asked(effects)] == [[0], [1], [2]], "three machines are left whole"


def test_slots_are_one_resource() -> None:
    master = Alone("megha-2021", "gm/0", Cluster.uniform(2, slots=2), gms=1, lms=1)
    effects = master.hear(Submit(Job(0, 5, tuple(Task(k, 0) for k in range(5)))))
    assert [positions for _, _, _, positions in asked(effects)] == [(0,), (0,), (1,), (1,)]
