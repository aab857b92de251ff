"""A run that is played is the run that was kept: every task run in its cell, every share in its group."""

from __future__ import annotations

import numpy as np

from volery.report.explore.watch import played
from volery.report.folder import Timeline


def small() -> Timeline:
    runs = [(0, 0, 2, 0, 2, 20, 50, False), (1, 0, 2, 1, 2, 0, 30, False), (2, 1, 0, 0, 1, 10, 15, True)]
    names = ("task", "job", "machine", "lane", "lanes", "start_us", "finish_us", "killed")
    columns = {name: np.array(column) for name, column in zip(names, zip(*runs, strict=True), strict=True)}
    return Timeline("a", 0, 4, True, columns, np.array([0.0, 0.000005]), (np.zeros(0), np.zeros(0)))


def test_every_task_run_is_in_the_cell_of_its_lane_by_start() -> None:
    found = played(small())
    assert found.cells == [(0, 0), (1, 0), (2, 0), (2, 1), (3, 0)]
    assert found.tasks is not None
    rows = list(zip(found.tasks.cell, found.tasks.task, found.tasks.start_s, found.tasks.end_s, strict=True))
    assert rows == [(3, 1, 0.0, 0.00003), (0, 2, 0.00001, 0.000015), (2, 0, 0.00002, 0.00005)]
    assert found.tasks.killed == [False, True, False]
    assert (found.begin_s, found.end_s) == (0.0, 0.00005)


def test_a_large_run_keeps_its_groups_and_intervals() -> None:
    columns = {
        "machine": np.repeat([0, 60], 3),
        "machines": np.repeat([60, 40], 3),
        "begin_us": np.tile([5, 10, 15], 2),
        "end_us": np.tile([10, 15, 20], 2),
        "percent": np.array([1, 2, 3, 40, 50, 60]),
    }
    found = played(Timeline("a", 0, 100, False, columns, np.zeros(1), (np.zeros(0), np.zeros(0))))
    assert found.groups == [(0, 60), (60, 40)]
    assert found.edges_s == [0.000005, 0.00001, 0.000015, 0.00002]
    assert found.percent == [[1, 2, 3], [40, 50, 60]]
    assert (found.tasks, found.begin_s, found.end_s) == (None, 0.000005, 0.00002)
