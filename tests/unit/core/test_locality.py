"""Replicas in traces and messages, distance, and what it costs."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from volery.core.errors import InputError
from volery.core.events import MoreTasks, Submit
from volery.core.locality import ANY, NODE, RACK, UNPLACED, Pace, check_locality, with_replicas
from volery.core.model import CHUNK_TASKS, Cluster
from volery.workload import load_trace

PLAIN = load_trace("syn:3x2")
HELD = [(0, 3), (), (2,), (1,), (1,), (0,)]
PLACED = with_replicas(PLAIN, HELD, (1500, 2000))
RACKS = Cluster((0,) * 4, (1,) * 4, racks=(0, 0, 1, 1))


def test_a_trace_without_replicas_keeps_its_digest() -> None:
    assert with_replicas(PLAIN, [()] * 6, (1500, 2000)).digest() == PLAIN.digest()
    digests = {PLAIN.digest(), PLACED.digest(), with_replicas(PLAIN, HELD, (1500, 2001)).digest()}
    assert len(digests | {with_replicas(PLAIN, [(0, 3), (), (2,), (1,), (), (0,)], (1500, 2000)).digest()}) == 4


def test_messages_carry_replicas_parallel_to_tasks() -> None:
    (submit,) = PLACED.submission(0)
    assert isinstance(submit, Submit)
    assert submit.job.replicas == ((0, 3), (), (2,))
    large = load_trace(f"syn:{CHUNK_TASKS + 1}x1")
    first, second = with_replicas(large, [()] * CHUNK_TASKS + [(2,)], (1, 1)).submission(0)
    assert isinstance(first, Submit)
    assert isinstance(second, MoreTasks)
    assert len(first.job.replicas) == len(first.job.tasks)
    assert second.replicas == ((2,),)
    (plain,) = PLAIN.submission(0)
    assert isinstance(plain, Submit)
    assert plain.job.replicas == ()


def test_distance_is_by_machine_then_by_rack() -> None:
    pace = Pace(PLACED, RACKS)
    assert [pace.level(2, machine) for machine in range(4)] == [ANY, ANY, NODE, RACK]
    assert pace.level(1, 0) == UNPLACED
    one_rack = Pace(PLACED, Cluster.uniform(4))
    assert [one_rack.level(2, machine) for machine in range(4)] == [RACK, RACK, NODE, RACK]


def test_attempts_last_longer_away_from_their_input_and_speeds_come_on_top() -> None:
    pace = Pace(PLACED, RACKS)
    assert [pace.attempt_us(2, 1001, machine) for machine in (2, 3, 0)] == [1001, 1501, 2002]
    assert pace.attempt_us(1, 1001, 0) == 1001
    assert [pace.done_us(2, 1000, machine) for machine in (2, 3, 0)] == [1000, 666, 500]
    fast = msgspec.structs.replace(RACKS, speeds=(2, 1, 1, 4), reference_speed=2)
    assert [Pace(PLACED, fast).attempt_us(2, 1001, machine) for machine in range(4)] == [2002, 4004, 2002, 750]


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"replicas": array("i", [0, 3, 2, 4, 1, 0])}, "machine 4 of a cluster of 4; give at least 5"),
        ({"replicas": array("i", [0, 3, 2, -1, 1, 0])}, "machine -1"),
        ({"replica_first": array("q", [0, 2])}, "2 places of first replicas for 6 tasks"),
        ({"far_permille": (0, 5)}, "give at least 1"),
    ],
)
def test_replicas_that_lie_nowhere_are_refused(columns: dict[str, object], match: str) -> None:
    check_locality(PLACED, RACKS)
    check_locality(PLAIN, RACKS)
    with pytest.raises(InputError, match=match):
        check_locality(msgspec.structs.replace(PLACED, **columns), RACKS)


def test_racks_are_as_many_as_machines() -> None:
    with pytest.raises(ValueError, match="but 1 racks"):
        Cluster((0, 0), (1, 1), racks=(0,))
