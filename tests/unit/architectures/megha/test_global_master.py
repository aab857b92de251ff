"""Megha's Global Master: events in, effects out (Thiyyakat et al., IoT 2023, sections 2.1, 4.3 and 4.4)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.megha.words import news, notice, refusal, requests
from tests.unit.architectures.parts import Alone, messages, submit

from volery.architectures.megha.messages import Request
from volery.core.events import JobAccepted, JobDone, JobRejected
from volery.core.model import Cluster

FREE = Cluster.uniform(8)
"""With two GMs and two LMs: partitions 0 and 1 under lm/0, 2 and 3 under lm/1; gm/0 owns 0 and 2."""


def gm(cluster: Cluster = FREE, **parameters: Any) -> Alone:
    return Alone("megha", "gm/0", cluster, **{"gms": 2, "lms": 2, **parameters})


def placed(effects: list[Any]) -> list[int]:
    """The partitions that were asked for, once per task."""
    return sorted(partition for _, partition, places in requests(effects) for _ in places)


def test_internal_partitions_come_first_and_round_robin() -> None:
    effects = gm().hear(submit(0, 0, 0))
    assert placed(effects) == [0, 2]
    assert {to for to, _, _ in requests(effects)} == {"lm/0", "lm/1"}


def test_external_partitions_are_used_when_internal_ones_are_full() -> None:
    master = gm()
    assert placed(master.hear(submit(0, *[0] * 6))) == [0, 0, 1, 2, 2, 3]
    assert gm().facts(submit(0, *[0] * 6)) == {"queued_tasks": 0, "external_placements": 2}


def test_a_unit_is_asked_for_once() -> None:
    master = gm()
    taken = [
        (partition, place)
        for effects in (master.hear(submit(0, *[0] * 5)), master.hear(submit(1, *[0] * 5)))
        for _, partition, places in requests(effects)
        for place in places.values()
    ]
    assert len(taken) == len(set(taken)) == 8, "two of ten tasks wait"


def test_requests_hold_at_most_a_batch_and_are_numbered_per_local_master() -> None:
    master = gm(gms=1, lms=1, batch_max=3)
    asked = [message for _, message in messages(master.hear(submit(0, *[0] * 8)), Request)]
    assert [len(message.tasks) for message in asked] == [3, 3, 2]
    assert [message.number for message in asked] == [1, 2, 3]


def test_what_fits_nowhere_waits_for_a_completion_of_its_own() -> None:
    master = gm(Cluster.uniform(4))
    first = requests(master.hear(submit(0, *[0] * 4)))
    assert placed(master.hear(submit(1, 0))) == []
    (lm, partition, places) = first[0]
    (task, place) = next(iter(places.items()))
    assert requests(master.hear(notice(task), lm)) == [(lm, partition, {100: place})]


def test_a_finished_job_is_answered_and_a_repeated_notice_is_ignored() -> None:
    master = gm()
    assert master.hear(submit(0, 0))[0] == ("submitter", JobAccepted(0))
    assert master.hear(notice(0), "lm/0") == [("submitter", JobDone(0))]
    assert master.hear(notice(0), "lm/0") == []


def test_tasks_that_fit_no_machine_are_reported() -> None:
    master = gm()
    assert ("submitter", JobDone(0, 2)) in master.hear(submit(0, 4, 4))
    master.hear(submit(1, 4, 0))
    assert master.hear(notice(101), "lm/0") == [("submitter", JobDone(1, 1))]


def test_what_an_update_says_is_taken_is_not_asked_for() -> None:
    master = gm()
    master.hear(news(1, {0: (0, 0b11)}), "lm/0")
    assert placed(master.hear(submit(0, 0, 0))) == [2, 2]


def test_what_an_update_frees_is_given_to_the_first_waiting_task_that_fits() -> None:
    strong, weak = 0b11, 0b01
    master = gm(Cluster((weak, weak, strong, strong), (1, 1, 1, 1)))
    master.hear(news(1, {0: (0, 1), 1: (0, 1)}), "lm/0")
    master.hear(news(1, {2: (0, 1), 3: (0, 1)}), "lm/1")
    assert placed(master.hear(submit(0, strong, weak))) == []
    assert requests(master.hear(news(2, {0: (1, 0)}), "lm/0")) == [("lm/0", 0, {1: 0})], "the weak one fits"
    assert requests(master.hear(news(2, {2: (1, 0)}), "lm/1")) == [("lm/1", 2, {0: 0})]


def test_an_update_that_was_overtaken_is_stale() -> None:
    master = gm()
    master.hear(news(2, {0: (0, 0b11), 1: (0, 0b11)}), "lm/0")
    master.hear(news(1, {0: (0b11, 0)}), "lm/0")
    assert placed(master.hear(submit(0, *[0] * 4))) == [2, 2, 3, 3]


def test_a_snapshot_replaces_the_view() -> None:
    master = gm(updates="snapshots")
    master.hear(submit(0, 0, 0))
    master.hear(news(1, {0: (0b01, 0), 1: (0, 0)}, snapshot=True), "lm/0")
    assert placed(master.hear(submit(1, *[0] * 4))) == [0, 2, 3, 3]


def test_a_refused_task_is_placed_at_once_where_the_view_allows() -> None:
    master = gm()
    ((lm, partition, _),) = requests(master.hear(submit(0, 0)))
    effects = master.hear(refusal((0,), news(1, {partition: (0, 0b11)})), lm)
    ((_, elsewhere, again),) = requests(effects)
    assert elsewhere != partition
    assert set(again) == {0}


def test_a_repeated_refusal_does_not_move_a_task_that_was_placed_again() -> None:
    """Found by conformance: the repeat would have the task started twice."""
    master = gm()
    ((lm, partition, _),) = requests(master.hear(submit(0, 0)))
    refused = refusal((0,), news(1, {partition: (0, 0b11)}))
    assert len(requests(master.hear(refused, lm))) == 1
    assert master.hear(refused, lm) == []


def test_the_published_code_lets_a_refused_task_wait_at_the_head_for_the_next_free_unit() -> None:
    master = gm(Cluster.uniform(4), eager_retry=False)
    asked = requests(master.hear(submit(0, *[0] * 4)))
    where = {task: (lm, partition, place) for lm, partition, places in asked for task, place in places.items()}
    master.hear(submit(1, 0))
    lm = where[0][0]
    assert requests(master.hear(refusal((0,), news(1, {})), lm)) == []
    other_lm, other, there = where[1]
    assert requests(master.hear(notice(1), other_lm)) == [(other_lm, other, {0: there})], "before the waiting job 1"


def test_minimum_constraints_takes_the_unit_with_the_fewest() -> None:
    """Section 4.3.2's workers A (1,2,3,4) and B (1,2)."""
    a, b = 0b11110, 0b00110
    master = gm(Cluster((a, b), (1, 1)), gms=1, lms=1, match="min-constraints")
    lowest = requests(master.hear(submit(0, b)))
    assert lowest == [("lm/0", 0, {0: 0})], "position 0 is the machine with the fewest constraints"
    assert requests(master.hear(submit(1, 0b01000))) == [("lm/0", 0, {100: 1})]


def test_a_random_match_uses_all_suitable_units() -> None:
    seen = set()
    for seed in range(30):
        master = Alone("megha", "gm/0", Cluster.uniform(4), seed=seed, gms=1, lms=1)
        seen |= {place for _, _, places in requests(master.hear(submit(0, 0))) for place in places.values()}
    assert seen == {0, 1, 2, 3}


def test_a_full_queue_rejects_and_a_rejected_job_leaves_no_trace() -> None:
    master = gm(Cluster.uniform(4), queue_max=3)
    master.hear(submit(0, 0, 0, 0))
    master.hear(submit(1, 0, 0, 0))
    (answer,) = master.hear(submit(2, 0, 0))
    assert isinstance(answer[1], JobRejected)
    assert placed(master.hear(notice(0), "lm/0")) != []


@pytest.mark.parametrize("again", [0, 1])
def test_submitting_again_asks_for_nothing(again: int) -> None:
    master = gm()
    master.hear(submit(0, 0))
    if again:
        master.hear(notice(0), "lm/0")
    assert requests(master.hear(submit(0, 0))) == []
