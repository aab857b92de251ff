"""Hawk and Eagle under placement constraints (Hawk-C, Eagle-C): whatever is chosen is chosen among machines that fit.

Every fifth machine is for short tasks only: numbers 4, 9, 14 and 19 of 20.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.unit.architectures.parts import Alone, messages, submit, tasks

from volery.architectures.hybrid.layout import HybridConfig, Layout
from volery.architectures.hybrid.messages import CentralTasks, LongProbe, Probe, Rejected
from volery.core.events import TimerFired
from volery.core.model import SECOND, Cluster
from volery.policies.match import vector_bytes

LONG_US = 2_000 * SECOND
SHORT_ONLY = {4, 9, 14, 19}
NEED = 0b1


def cluster(fitting: Collection[int]) -> Cluster:
    """Twenty machines, some of which satisfy the constraint."""
    return Cluster(tuple(NEED if machine in fitting else 0 for machine in range(20)), (1,) * 20)


def alone(design: str, address: str, fitting: Collection[int], **parameters: Any) -> Alone:
    return Alone(design, address, cluster(fitting), schedulers=1, short_part=0.2, **parameters)


def placed(fitting: Collection[int], count: int) -> set[int]:
    """The machines that the central scheduler gives a long job with the constraint."""
    job = CentralTasks(1, False, LONG_US, tasks(1, *[NEED] * count, estimate_us=LONG_US))
    said = messages(alone("hawk", "central/0", fitting).hear(job, "scheduler/0"), LongProbe)
    return {int(node.removeprefix("node/")) for node, _ in said}


def test_least_wait_places_long_tasks_on_general_machines_that_fit() -> None:
    assert placed({1, 3, 4, 9, 12}, 3) == {1, 3, 12}


def test_a_long_task_that_fits_short_only_machines_alone_runs_there() -> None:
    assert placed({4, 9}, 2) == {4, 9}


def test_probes_go_to_machines_that_fit() -> None:
    for design in ("hawk", "eagle"):
        said = messages(alone(design, "scheduler/0", {1, 9, 12}).hear(submit(0, NEED, NEED)), Probe)
        assert {node for node, _ in said} <= {"node/1", "node/9", "node/12"}, design


def rounds(fitting: Collection[int], long_on: Collection[int]) -> list[tuple[int, bool]]:
    """Where one probe goes that is rejected whenever it can be, and whether it was final there."""
    scheduler = alone("eagle", "scheduler/0", fitting, rounds=3)
    (node, probe), *_ = messages(scheduler.hear(submit(0, NEED)), Probe)
    vector = vector_bytes(sum(1 << machine for machine in long_on))
    went = [(int(node.removeprefix("node/")), probe.final)]
    while not went[-1][1]:
        scheduler.hear(Rejected(probe.batch, probe.number, 1, vector), node)
        ((node, probe),) = messages(scheduler.hear(TimerFired(probe.batch), "scheduler/0"), Probe)
        went.append((int(node.removeprefix("node/")), probe.final))
    return went


def test_rounds_go_to_fitting_machines_without_long_tasks_and_the_last_to_the_short_only_part() -> None:
    went = rounds({1, 2, 3, 9}, long_on={1, 2})
    assert len(went) == 4
    assert {machine for machine, _ in went[1:]} <= {3, 9}
    assert went[-1] == (9, True)


def test_where_no_short_only_machine_fits_the_probe_waits_behind_a_long_task_in_the_end() -> None:
    went = rounds({1, 2, 3}, long_on={1, 2, 3})
    assert [final for _, final in went] == [False, False, False, True]
    assert {machine for machine, _ in went} <= {1, 2, 3}


def test_the_one_fitting_machine_without_long_tasks_is_found_among_many() -> None:
    """However rare it is: draws that miss are followed by a count of what fits."""
    general = [machine for machine in range(20) if machine not in SHORT_ONLY]
    for roomy in (0, 18):
        second = rounds(general, long_on=[machine for machine in general if machine != roomy])[1]
        assert second == (roomy, False)


@pytest.mark.parametrize("machines", [20, 4_000])
def test_an_empty_vector_says_that_no_machine_has_a_long_task(machines: int) -> None:
    """numpy unpacks an empty vector to whatever was in memory; runs of IdealEagle differed by it."""
    layout = Layout(Cluster.uniform(machines), HybridConfig(short_part=0.0))
    for value in (255, 1, 255):
        garbage = np.full(machines, value, dtype=np.uint8)
        del garbage
        listed, has_room = layout.without_long(b"")
        assert listed == list(range(machines))
        assert has_room == b"\1" * machines
    some = sorted(Random(1).sample(range(machines), 5))
    listed, has_room = layout.without_long(vector_bytes(sum(1 << machine for machine in some)))
    assert set(range(machines)) - set(listed) == set(some)
    assert [has_room[machine] for machine in some] == [0] * 5
