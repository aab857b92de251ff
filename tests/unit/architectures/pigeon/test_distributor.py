"""Pigeon's distributor: events in, effects out (Wang et al., SoCC 2019, section 2.2; PigeonC, section 4.2)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.unit.architectures.parts import Alone, messages, submit, tasks

from volery.architectures.pigeon.messages import Completed, GroupTasks, QueueLengths
from volery.core.events import JobAccepted, JobDone, MoreTasks, Submit
from volery.core.model import CHUNK_TASKS, SECOND, Cluster, Job

CUTOFF_S = 10


def distributor(design: str = "pigeon", cluster: Cluster | None = None, **parameters: Any) -> Alone:
    given = {"groups": 4, "reserved": 0, "cutoff_s": CUTOFF_S, **parameters}
    return Alone(design, "distributor/0", cluster or Cluster.uniform(12), **given)


def dealt(effects: list[Any]) -> dict[str, list[int]]:
    """Master > tasks."""
    return {to: [task.id for task in sent.tasks] for to, sent in messages(effects, GroupTasks)}


def test_every_master_gets_as_many_and_the_remainder_goes_to_distinct_masters() -> None:
    counts = {master: len(got) for master, got in dealt(distributor().hear(submit(0, *[0] * 11))).items()}
    assert sorted(counts.values()) == [2, 3, 3, 3]
    assert sorted(task for got in dealt(distributor().hear(submit(0, *[0] * 11))).values() for task in got) == list(
        range(11)
    )


def test_tasks_are_dealt_in_turns_or_in_blocks() -> None:
    """The public program deals in turns; figure 6 draws blocks. The remainder goes to random masters either way."""
    in_turns = dealt(distributor().hear(submit(0, *[0] * 10)))
    in_blocks = dealt(distributor(deal="blocks").hear(submit(0, *[0] * 10)))
    assert [in_turns[f"master/{group}"][:2] for group in range(4)] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert [in_blocks[f"master/{group}"][:2] for group in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert sorted(task for got in in_blocks.values() for task in got[2:]) == [8, 9]


def test_the_remainder_is_random() -> None:
    chosen: Counter[str] = Counter()
    one = distributor()
    for job in range(400):
        chosen.update(dealt(one.hear(submit(job, 0))).keys())
    assert set(chosen) == {f"master/{group}" for group in range(4)}
    assert max(chosen.values()) < 400 / 4 + 5 * (400 * 0.25 * 0.75) ** 0.5


def test_jobs_up_to_the_cutoff_are_short() -> None:
    """`mean <= cutoff`, as the public code tests it."""
    for estimate_us, short in ((CUTOFF_S * 1_000_000, True), (CUTOFF_S * 1_000_000 + 1, False)):
        sent = messages(distributor().hear(submit(0, 0, 0, estimate_us=estimate_us)), GroupTasks)
        assert {message.short for _, message in sent} == {short}


def test_further_chunks_are_dealt_in_the_same_class() -> None:
    one = distributor()
    many = tasks(0, *[0] * (CHUNK_TASKS + 2), estimate_us=99_000_000)
    one.hear(Submit(Job(0, len(many), many[:CHUNK_TASKS], 99_000_000)))
    sent = messages(one.hear(MoreTasks(0, CHUNK_TASKS, many[CHUNK_TASKS:])), GroupTasks)
    assert sorted(task.id for _, message in sent for task in message.tasks) == [CHUNK_TASKS, CHUNK_TASKS + 1]
    assert not any(message.short for _, message in sent)


def counts(effects: list[Any]) -> dict[str, int]:
    return {master: len(got) for master, got in dealt(effects).items()}


def test_tasks_go_where_the_fewest_wait_while_any_are_reported_to_wait() -> None:
    """Section 6.2; four groups of three workers, of which two report 6 and 3 waiting tasks."""
    one = distributor(reports_s=1.0)
    one.hear(QueueLengths((0, 6)), "master/0")
    one.hear(QueueLengths((3, 0)), "master/1")
    estimate_us = 99_000_000
    assert counts(one.hear(submit(0, *[0] * 9, estimate_us=estimate_us))) == {
        "master/1": 1,
        "master/2": 4,
        "master/3": 4,
    }
    again = counts(one.hear(submit(1, *[0] * 6, estimate_us=estimate_us)))
    assert again == {"master/1": 2, "master/2": 2, "master/3": 2}, "what was sent within the period waits, too"


def test_long_tasks_that_wait_do_not_keep_short_ones_away() -> None:
    one = distributor(reports_s=1.0)
    one.hear(QueueLengths((0, 6)), "master/0")
    assert counts(one.hear(submit(0, *[0] * 4))) == {f"master/{group}": 1 for group in range(4)}


def test_tasks_are_dealt_evenly_when_no_task_waits_anywhere() -> None:
    one = distributor(reports_s=1.0)
    for lengths in ((0, 6), (0, 0)):
        one.hear(QueueLengths(lengths), "master/0")
    one.hear(submit(0, *[0] * 3))
    assert counts(one.hear(submit(1, *[0] * 4))) == {f"master/{group}": 1 for group in range(4)}


def test_a_job_is_done_when_the_last_result_has_come() -> None:
    one = distributor()
    assert ("submitter", JobAccepted(0)) in one.hear(submit(0, 0, 0))
    assert one.hear(Completed(0), "node/3") == []
    assert one.hear(Completed(0), "node/3") == [], "a repeated result"
    assert one.hear(Completed(1), "node/5") == [("submitter", JobDone(0))]


def test_messages_to_each_master_are_numbered() -> None:
    one = distributor(groups=1)
    numbers = [messages(one.hear(submit(job, 0)), GroupTasks)[0][1].number for job in range(3)]
    assert numbers == [1, 2, 3]


def test_a_constrained_task_goes_to_masters_that_can_run_it_by_their_supply() -> None:
    """Weights 0, 1, 2, 3 (PigeonC, section 4.2), within five standard errors."""
    constraints = (0, 0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 1)
    one = distributor("pigeonc", Cluster(constraints, (1,) * 12))
    draws = 3000
    chosen = Counter(to for job in range(draws) for to in dealt(one.hear(submit(job, 1))))
    assert chosen["master/0"] == 0
    for group in (1, 2, 3):
        share = group / 6
        assert abs(chosen[f"master/{group}"] - draws * share) < 5 * (draws * share * (1 - share)) ** 0.5


def test_tasks_that_fit_nowhere_are_reported_and_the_rest_runs() -> None:
    one = distributor("pigeonc")
    assert ("submitter", JobDone(0, 1)) in one.hear(submit(0, 4))
    one.hear(submit(1, 0, 4))
    assert one.hear(Completed(100), "node/1") == [("submitter", JobDone(1, 1))]


def test_a_long_task_that_only_a_reserved_worker_suits_is_reported_and_a_short_one_is_sent() -> None:
    """Long tasks may not use reserved workers (Pigeon, section 2.2), so it would wait for ever."""
    one = distributor(cluster=Cluster((1, *[0] * 11), (1,) * 12), reserved=1)
    effects = one.hear(submit(0, 1, 1, estimate_us=CUTOFF_S * SECOND + 1))
    assert ("submitter", JobDone(0, 2)) in effects
    assert dealt(effects) == {}
    assert dealt(one.hear(submit(1, 1, estimate_us=CUTOFF_S * SECOND))) == {"master/0": [100]}


def test_unequal_groups_are_drawn_in_proportion_to_their_power() -> None:
    """Pigeon, section 6.2."""
    one = distributor(group_sizes=(2, 10))
    chosen = Counter(to for job in range(1200) for to in dealt(one.hear(submit(job, 0))))
    assert abs(chosen["master/0"] - 200) < 5 * (1200 / 6 * 5 / 6) ** 0.5


def test_submitting_again_distributes_nothing() -> None:
    one = distributor()
    one.hear(submit(0, 0))
    assert one.hear(submit(0, 0)) == [("submitter", JobAccepted(0))]


def test_a_job_of_50_000_tasks_is_a_burst_of_250_for_each_of_200_masters() -> None:
    """Pigeon, section 4.1: each master sees a burst of task arrivals of size 250."""
    one = distributor(groups=200, cluster=Cluster.uniform(20_000))
    counts = {master: len(got) for master, got in dealt(one.hear(submit(0, *[0] * 50_000))).items()}
    assert set(counts.values()) == {250}
    assert len(counts) == 200


def test_groups_get_tasks_in_proportion_to_their_power() -> None:
    """Pigeon, section 6.2: groups of as many workers at speeds 1 and 3, within five standard errors."""
    cluster = Cluster((0,) * 12, (1,) * 12, speeds=(1,) * 6 + (3,) * 6, reference_speed=1)
    draws = 4000
    even = dealt(distributor(groups=2, cluster=cluster).hear(submit(0, *[0] * draws)))
    assert len(even["master/0"]) == draws // 2, "without power=speed"
    drawn = dealt(distributor(groups=2, cluster=cluster, power="speed").hear(submit(0, *[0] * draws)))
    assert abs(len(drawn["master/1"]) - 0.75 * draws) < 5 * (draws * 0.75 * 0.25) ** 0.5
