"""What ran where: task runs on lanes that never overlap, and a heat map that holds the same busy time."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from volery.core.model import Cluster
from volery.core.records import LostAttempt, Records
from volery.core.trace import Trace, longs
from volery.metrics import mean_utilisation, utilisation
from volery.metrics import timeline as module
from volery.metrics.timeline import HEAT, TASK_RUNS, timeline


def records_of(rows: list[tuple[int, int, int]], jobs: list[int], **amounts: Any) -> Records:
    """Tasks as (machine, start, finish), all submitted at 0; jobs by their number of tasks."""
    first = array("q", [0, *np.cumsum(jobs).tolist()])
    trace = Trace("made", longs(len(jobs)), first, longs(len(rows)), longs(len(jobs)), **amounts)
    records = Records(trace)
    for task, (machine, start, finish) in enumerate(rows):
        records.worker[task], records.start_us[task], records.finish_us[task] = machine, start, finish
    return records


def test_a_row_per_task_run_by_machine_and_start_on_the_lowest_free_lane() -> None:
    rows = [(1, 0, 50), (0, 10, 30), (0, 0, 20), (0, 20, 25), (1, -1, -1), (0, 30, 30)]
    columns = timeline(records_of(rows, [2, 4]), Cluster((0, 0), (2, 1)))[TASK_RUNS]
    found = list(zip(*(columns[name].tolist() for name in ("task", "job", "machine", "lane", "start_us")), strict=True))
    assert found == [(2, 1, 0, 0, 0), (1, 0, 0, 1, 10), (3, 1, 0, 0, 20), (5, 1, 0, 0, 30), (0, 0, 1, 0, 0)]
    assert columns["lanes"].tolist() == [2, 2, 2, 2, 1]
    assert columns["share"].tolist() == [0.5] * 4 + [1.0]


def test_attempts_that_were_killed_have_rows_of_their_own() -> None:
    records = records_of([(0, 40, 60), (0, 5, -1)], [2])
    records.attempt[0] = 1
    records.lost.append(LostAttempt(0, 0, 0, 0, -1))
    records.killed |= {(0, 0): 30, (1, 0): 9}
    columns = timeline(records, Cluster((0,), (2,)))[TASK_RUNS]
    names = ("task", "start_us", "finish_us", "attempt", "killed")
    assert list(zip(*(columns[name].tolist() for name in names), strict=True)) == [
        (0, 0, 30, 0, True),
        (1, 5, 9, 0, True),
        (0, 40, 60, 1, False),
    ]


def test_with_amounts_a_machine_has_as_many_lanes_as_ran_at_once_and_tasks_their_dominant_share() -> None:
    asked = {
        "resources": ("cpu_milli", "memory_mb"),
        "requests": ((500, 10), (100, 60)),
        "request": array("H", [0, 1, 0]),
    }
    cluster = Cluster((0, 0), (1, 1), "made", ("cpu_milli", "memory_mb"), ((1000, 100), (2000, 100)))
    columns = timeline(records_of([(0, 0, 9), (0, 3, 5), (1, 0, 4)], [3], **asked), cluster)[TASK_RUNS]
    assert columns["lanes"].tolist() == [2, 2, 1]
    assert columns["share"].tolist() == pytest.approx([0.5, 0.6, 0.25])


def test_a_run_is_small_up_to_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    records, two = records_of([(0, 0, 5), (1, 0, 5)], [2]), Cluster((0, 0), (1, 2))
    monkeypatch.setattr(module, "TASK_RUNS_MAX", 2)
    monkeypatch.setattr(module, "LANES_MAX", 3)
    assert set(timeline(records, two)) == {TASK_RUNS}
    monkeypatch.setattr(module, "LANES_MAX", 2)
    assert set(timeline(records, two)) == {HEAT}
    monkeypatch.setattr(module, "LANES_MAX", 3)
    monkeypatch.setattr(module, "TASK_RUNS_MAX", 1)
    assert set(timeline(records, two)) == {HEAT}
    assert timeline(records_of([(0, -1, -1)], [1]), two) == {}


def random_run(seed: int, machines: int, slots: int, tasks: int) -> tuple[Records, Cluster]:
    """Task runs that follow each other on each slot, with pauses."""
    random = np.random.default_rng(seed)
    rows, ends = [], np.zeros((machines, slots), dtype=np.int64)
    for _ in range(tasks):
        machine, slot = int(random.integers(machines)), int(random.integers(slots))
        start = int(ends[machine, slot] + random.integers(0, 300))
        ends[machine, slot] = start + int(random.integers(0, 2000))
        rows.append((machine, start, int(ends[machine, slot])))
    return records_of(rows, [tasks]), Cluster((0,) * machines, (slots,) * machines)


@pytest.mark.parametrize("seed", range(5))
def test_task_runs_on_one_lane_never_overlap_and_need_no_more_lanes_than_slots(seed: int) -> None:
    columns = timeline(*random_run(seed, 7, 3, 200))[TASK_RUNS]
    assert columns["lane"].max() < 3
    place = columns["machine"] * 10 + columns["lane"]
    for lane in np.unique(place):
        runs = list(zip(columns["start_us"][place == lane], columns["finish_us"][place == lane], strict=True))
        assert all(before[1] <= after[0] for before, after in pairwise(runs))


@pytest.mark.parametrize("machines", [3, 100, 251])
def test_a_heat_map_holds_the_busy_time_of_the_run(machines: int) -> None:
    records, cluster = random_run(machines, machines, 2, 3000)
    cells = timeline(records, cluster)[HEAT]
    assert set(np.unique(cells["machine"], return_counts=True)[1].tolist()) == {120}
    width, share = cells["end_us"] - cells["begin_us"], cells["percent"] / 100
    mean = float((share * cells["machines"] * width).sum() / (machines * width[:120].sum()))
    assert mean == pytest.approx(mean_utilisation(records, cluster), abs=0.003)
    whole = utilisation(records, cluster, 120)[1]
    by_time = (share * cells["machines"]).reshape(-1, 120).sum(axis=0) / machines
    assert np.abs(by_time - whole).max() < 0.006
