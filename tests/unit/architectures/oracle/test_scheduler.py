"""The yardstick: events in, effects out; with patience, who needs several resources at once does not wait for ever."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.architectures.parts import Alone, launched, messages, submit, tasks

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.events import Cancel, JobAccepted, JobDone, Submit, TaskFinished
from volery.core.model import SECOND, Amounts, Cluster, Job, Task, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.roles.node import Completed, Launch
from volery.sim import Options, simulate
from volery.workload import ask, deal_to_users, load_cluster, load_trace

NAMES = ("cpu", "gpu")
ORDERS = ("drf", "hdrf")


def machines(*capacities: Amounts, masks: tuple[int, ...] | None = None) -> Cluster:
    count = len(capacities)
    return Cluster(masks or (0,) * count, (1,) * count, "amounts", NAMES[: len(capacities[0])], capacities)


def of(user: str, job: int, request: Amounts, count: int, mask: int = 0) -> Submit:
    """Task k of job j is number 100 j + k."""
    made = tuple(Task(100 * job + k, job, mask, request=request) for k in range(count))
    return Submit(Job(job, count, made, 0, user))


def sent_launches(effects: list[Any]) -> list[tuple[int, str]]:
    return [(message.task.id, node) for node, message in messages(effects, Launch)]


def started(effects: list[Any]) -> list[int]:
    return [task for task, _ in sent_launches(effects)]


def oracle(cluster: Cluster, order: str = "drf", patience_s: float = 1.0) -> Alone:
    return Alone("oracle", "oracle/0", cluster, order=order, patience_s=patience_s)


def crowded(order: str = "drf", patience_s: float = 1.0) -> Alone:
    """One machine of two CPUs and two GPUs, full of tasks of single ones; jobs 1 and 2 have more, job 3 needs both."""
    alone = oracle(machines((2, 2)), order, patience_s)
    alone.hear(of("cpu", 1, (1, 0), 9))
    alone.hear(of("gpu", 2, (0, 1), 9))
    alone.hear(of("both", 3, (1, 1), 2))
    return alone


def end(alone: Alone, task: int, at_s: float, node: str = "node/0") -> list[int]:
    return started(alone.hear(Completed(task), node, round(at_s * SECOND)))


@pytest.mark.parametrize("order", ORDERS)
def test_what_comes_free_is_set_aside_once_patience_is_over_and_others_have_the_rest(order: str) -> None:
    alone = crowded(order)
    assert end(alone, 100, 0.5) == [102], "not yet"
    assert end(alone, 102, 1.5) == [], "one CPU is kept"
    assert end(alone, 101, 1.6) == [103], "and no more than one"
    assert end(alone, 200, 1.7) == [300]
    assert end(alone, 201, 1.8) == [202]
    assert end(alone, 103, 1.9) == [104], "the second task of the job has its own patience"


@pytest.mark.parametrize("order", ORDERS)
def test_without_patience_it_is_passed_over_for_ever(order: str) -> None:
    alone = crowded(order, patience_s=0.0)
    for turn in range(5):
        assert end(alone, 100 + turn, 10.0 * turn) == [102 + turn]
        assert end(alone, 200 + turn, 10.0 * turn + 5) == [202 + turn]


def test_a_reservation_is_counted_and_made_once() -> None:
    alone = crowded()
    assert alone.facts(Completed(100), "node/0", 2 * SECOND) == {"reservations": 1}
    assert alone.facts(Completed(101), "node/0", 3 * SECOND) == {}


def test_what_was_kept_for_a_job_that_is_cancelled_goes_to_the_others() -> None:
    alone = crowded()
    assert end(alone, 100, 2) == []
    assert started(alone.hear(Cancel(3), now=3 * SECOND)) == [102]


def test_a_task_that_finds_room_elsewhere_leaves_what_was_kept_for_it() -> None:
    alone = oracle(machines((2, 2), (1, 1), masks=(0, 1)))
    assert sent_launches(alone.hear(of("all", 4, (1, 1), 1, mask=1))) == [(400, "node/1")]
    alone.hear(of("cpu", 1, (1, 0), 9))
    alone.hear(of("gpu", 2, (0, 1), 9))
    alone.hear(of("both", 3, (1, 1), 1))
    assert end(alone, 100, 2) == [], "kept on node/0"
    assert sent_launches(alone.hear(Completed(400), "node/1", 3 * SECOND)) == [(300, "node/1"), (102, "node/0")]


def test_only_machines_that_can_hold_the_task_are_reserved() -> None:
    """The first machine lacks a constraint, the second is too small; the third has less free than both."""
    alone = oracle(machines((4, 4), (1, 4), (2, 2), masks=(0, 1, 1)))
    small = of("cpu", 1, (1, 0), 30)
    for_gpu = of("gpu", 2, (0, 1), 30)
    at = dict(sent_launches(alone.hear(small)) + sent_launches(alone.hear(for_gpu)))
    assert len(at) == 7 + 10
    alone.hear(of("both", 3, (2, 1), 1, mask=1))
    mine = [task for task, node in at.items() if node == "node/2"]
    others = [task for task, node in at.items() if node != "node/2"]
    assert end(alone, others[0], 2, at[others[0]]), "nothing is kept there"
    ended = [end(alone, task, 3, "node/2") for task in mine]
    assert [task for tasks in ended for task in tasks if task == 300] == [300]


def amounts_of(trace: Trace, requests: tuple[Amounts, ...], of_task: list[int]) -> Trace:
    return msgspec.structs.replace(trace, resources=NAMES, requests=requests, request=array("H", of_task))


def played(trace: Trace, cluster: Cluster, **parameters: Any) -> Records:
    design = lookup("oracle")
    deployment = design.build(cluster, configure(design, parameters), Streams(0))
    return simulate(deployment, trace, cluster, options=Options(check=True))


FLOOD_S = 40
Big = tuple[Amounts, int]
"""What the tasks of a user ask for, and how many there are."""


def slots_for(kind: Amounts, cluster: Cluster) -> int:
    """How many tasks of a kind the machines run at once."""
    return sum(
        min(units // asked for units, asked in zip(offered, kind, strict=True) if asked)
        for offered in cluster.capacities
    )


def flooded(cluster: Cluster, kinds: list[Amounts], durations_ms: list[int], bigs: list[Big]) -> Trace:
    """Users who could each fill the machines with tasks of a kind until the end, and those who come at second 1."""
    requests = tuple(dict.fromkeys([*kinds, *(request for request, _ in bigs)]))
    mean_ms = sum(durations_ms) / len(durations_ms)
    counts = [round(FLOOD_S * 1000 / mean_ms * slots_for(kind, cluster)) for kind in kinds]
    durations = [
        [1000 * durations_ms[(user + k) % len(durations_ms)] + k for k in range(count)]
        for user, count in enumerate(counts)
    ]
    durations += [[SECOND] * count for _, count in bigs]
    jobs = [*zip(kinds, counts, strict=True), *bigs]
    trace = trace_of("flood", [user if user < len(kinds) else SECOND for user in range(len(jobs))], durations)
    of_task = [requests.index(request) for request, count in jobs for _ in range(count)]
    users = tuple(f"{'small' if user < len(kinds) else 'big'} {user}" for user in range(len(jobs)))
    return msgspec.structs.replace(trace, user=users, resources=NAMES, requests=requests, request=array("H", of_task))


def starts_of(records: Records, kind: str) -> list[Time]:
    jobs = records.trace.job_of_task()
    return sorted(records.start_us[task] for task, job in enumerate(jobs) if records.trace.user[job].startswith(kind))


@pytest.mark.parametrize("order", ORDERS)
def test_who_needs_both_resources_starves_without_patience_and_does_not_with_it(order: str) -> None:
    """The example of the fairness properties: without, its first task starts when the others run out of work."""
    cluster = machines((4, 4))
    trace = flooded(cluster, [(1, 0), (0, 1)], [900, 1100, 1000], [((1, 1), 3)])
    hungry = played(trace, cluster, order=order)
    assert starts_of(hungry, "big")[0] > (FLOOD_S - 2) * SECOND
    fed = played(trace, cluster, order=order, patience_s=2)
    assert starts_of(fed, "big")[-1] < 10 * SECOND
    assert starts_of(fed, "small")[-1] > (FLOOD_S - 2) * SECOND
    assert fed.counters["reservations"] == 1, "what its first task leaves the next one takes: it is its turn"


AMOUNT = st.integers(1, 4)
DURATIONS = st.lists(st.integers(500, 1000), min_size=1, max_size=5)
KINDS = st.lists(st.sampled_from([(1, 0), (0, 1), (1, 1), (2, 1)]), min_size=1, max_size=2)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(AMOUNT, AMOUNT), min_size=1, max_size=3), KINDS, DURATIONS, st.sampled_from(ORDERS), st.data()
)
def test_with_patience_every_task_of_bounded_duration_starts_while_others_could_take_everything(
    capacities: list[Amounts], kinds: list[Amounts], durations_ms: list[int], order: str, draw: st.DataObject
) -> None:
    """Tasks as large as a machine, for users who would not get them otherwise: before each of them no user's turn comes
    more than once, and each turn takes no more than the patience and the end of what runs there."""
    cluster = machines(*capacities)
    fitting = [kind for kind in kinds if slots_for(kind, cluster)]
    bigs: list[Big] = []
    for number in range(draw.draw(st.integers(1, 2))):
        largest = draw.draw(st.sampled_from(capacities))
        request = (draw.draw(st.integers(1, largest[0])), draw.draw(st.integers(1, largest[1])))
        bigs.append((request, draw.draw(st.integers(1, 2 - number))))
    records = played(flooded(cluster, fitting, durations_ms, bigs), cluster, order=order, patience_s=0.5)
    waiting, users, turn_us = sum(count for _, count in bigs), len(fitting) + len(bigs), 2 * SECOND
    assert starts_of(records, "big")[-1] <= SECOND + waiting * users * turn_us


@pytest.mark.parametrize("order", ORDERS)
def test_patience_that_never_ends_changes_nothing(order: str) -> None:
    trace = deal_to_users(ask(load_trace("syn:20x30"), "alibaba-like", 0), "a+b+c", seed=1)
    cluster = load_cluster(6, capacity="cpu_milli=6000,memory_mb=4096")
    assert played(trace, cluster, order=order).digest() == played(trace, cluster, order=order, patience_s=1e6).digest()


@pytest.mark.parametrize("order", ORDERS)
def test_on_slots_it_is_the_turn_of_users_who_lose_every_tie(order: str) -> None:
    """One slot: whoever's task has ended has nothing, like those who wait, and ties go to the first."""
    trace = trace_of("ties", [0, 1], [[SECOND] * 30, [SECOND] * 3])
    trace = msgspec.structs.replace(trace, user=("first", "second"))
    cluster = Cluster.uniform(1)
    assert played(trace, cluster, order=order).start_us[30] == 30 * SECOND
    starts = played(trace, cluster, order=order, patience_s=2).start_us[30:]
    assert max(starts) < 12 * SECOND


WEAK, STRONG = 0b01, 0b11


def scheduler() -> Alone:
    return Alone("oracle", "oracle/0", Cluster((STRONG, WEAK), (1, 1)))


def test_a_task_takes_the_suitable_machine_with_the_fewest_constraints() -> None:
    assert scheduler().hear(submit(0, WEAK)) == [
        ("submitter", JobAccepted(0)),
        ("node/1", Launch(1, tasks(0, WEAK)[0])),
    ]


def test_what_does_not_fit_now_waits_and_a_freed_slot_takes_the_first_that_fits() -> None:
    oracle = scheduler()
    oracle.hear(submit(0, STRONG, WEAK))
    assert messages(oracle.hear(submit(1, STRONG, WEAK)), Launch) == []
    assert messages(oracle.hear(Completed(1), "node/1"), Launch) == [("node/1", Launch(3, tasks(1, 0, WEAK)[1]))]
    assert messages(oracle.hear(Completed(0), "node/0"), Launch) == [("node/0", Launch(4, tasks(1, STRONG)[0]))]


def test_a_job_is_done_with_its_last_task_and_unsatisfiable_ones_are_counted() -> None:
    oracle = scheduler()
    oracle.hear(submit(0, 0b100, WEAK))
    assert oracle.hear(Completed(1), "node/1") == [("submitter", JobDone(0, 1))]
    assert oracle.hear(submit(1, 0b100)) == [("submitter", JobAccepted(1)), ("submitter", JobDone(1, 1))]


def test_a_repeated_completion_frees_nothing() -> None:
    oracle = scheduler()
    oracle.hear(submit(0, WEAK))
    oracle.hear(Completed(0), "node/1")
    assert oracle.hear(Completed(0), "node/1") == []


def test_a_node_launches_each_number_once_and_reports_the_end() -> None:
    node = Alone("oracle", "node/0", Cluster.uniform(1))
    task, later = tasks(0, 0, 0)
    assert launched(node.hear(Launch(1, task), "oracle/0")) == [0]
    assert node.hear(Launch(1, task), "oracle/0") == []
    assert launched(node.hear(Launch(3, later), "oracle/0")) == [1]
    assert node.hear(Launch(2, task), "oracle/0") == [], "overtaken"
    assert node.hear(TaskFinished(task, 0), "node/0") == [("oracle/0", Completed(0))]
