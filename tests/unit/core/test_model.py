"""Jobs, clusters and how things are shared out."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.core.model import SECOND, Cluster, Message, Task, split_evenly


@given(count=st.integers(1, 500), parts=st.integers(1, 500))
def test_a_split_is_consecutive_complete_and_even(count: int, parts: int) -> None:
    if parts > count:
        with pytest.raises(ValueError, match=f"cannot split {count} workers into {parts} parts"):
            split_evenly(count, parts)
        return
    ranges = split_evenly(count, parts)
    assert [i for each in ranges for i in each] == list(range(count))
    sizes = {len(each) for each in ranges}
    assert len(ranges) == parts
    assert max(sizes) - min(sizes) <= 1


def test_no_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="into 0 parts"):
        split_evenly(5, 0)


@pytest.mark.parametrize(
    ("constraints", "slots", "problem"),
    [
        ((), (), "at least one worker"),
        ((0, 0), (1,), "2 machine constraint sets but 1 slot counts"),
        ((0, 0), (1, 0), "machine 1 has no slot"),
    ],
)
def test_a_cluster_that_nothing_could_run_on_is_refused(
    constraints: tuple[int, ...], slots: tuple[int, ...], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Cluster(constraints, slots)


def test_a_uniform_cluster_counts_its_slots() -> None:
    cluster = Cluster.uniform(3, slots=4, constraints=5)
    assert cluster.slot_count == 12
    assert cluster.constraints == (5, 5, 5)


def test_tasks_and_messages_cannot_be_changed_and_are_outside_the_garbage_collector() -> None:
    """DESIGN section 2: a message that was sent is never changed."""
    task = Task(1, 2, 3, 4)
    with pytest.raises(AttributeError):
        task.id = 5  # type: ignore[misc]  # the very thing that must fail
    for kind in (Task, Message):
        config = kind.__struct_config__
        assert (config.frozen, config.gc, config.array_like) == (True, False, True)


def test_a_task_travels_as_an_array() -> None:
    assert msgspec.json.encode(Task(1, 2, 3, 4)) == b'[1,2,3,4,"",[],null]'
    assert msgspec.json.decode(b'[1,2,3,4,"",[]]', type=Task) == Task(1, 2, 3, 4), "as sent before there were tags"
    assert msgspec.json.decode(b'[1,2,3,4,""]', type=Task) == Task(1, 2, 3, 4), "as sent by a host that knows slots"


def test_attempts_are_rounded_down_to_ticks_on_machines_with_speeds_alone() -> None:
    """Nine seconds of a 4.0 GHz machine take 10.29 s on one of 3.5 GHz: ten whole ticks."""
    paced = Cluster((0,), (1,), speeds=(3500,), reference_speed=4000)
    ticking = msgspec.structs.replace(paced, tick_us=SECOND)
    assert paced.attempt_us(9 * SECOND, 0) == 10_285_714
    assert ticking.attempt_us(9 * SECOND, 0) == 10 * SECOND
    assert Cluster((0,), (1,), tick_us=SECOND).attempt_us(1, 0) == 1
