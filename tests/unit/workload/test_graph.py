"""Dependencies of rows: order, columns, submissions, and defects of ids and graphs."""

from __future__ import annotations

import pytest

from volery.core.errors import InputError
from volery.workload import graph
from volery.workload.graph import Arranged, CycleError, Edges, Submissions, TaskGraph
from volery.workload.table import TaskRow, batches


def test_parents_come_first_and_other_rows_keep_their_order() -> None:
    found = Arranged(["c", "a", "b", "d"], [["b"], [], ["a"], []], {})
    assert found.order == [1, 2, 0, 3]
    assert found.parents == [[], [0], [1], []]
    assert found.unknown == 0


def test_a_row_that_was_passed_over_hands_its_parents_on() -> None:
    """c waits for gone, which waits for a and for itself."""
    found = Arranged(["a", "c"], [[], ["gone"]], {"gone": ["a", "gone"]})
    assert found.parents == [[], [0]]


def test_ids_without_a_row_are_counted_and_not_waited_for() -> None:
    found = Arranged(["a", None], [["x", "y"], ["a"]], {})
    assert (found.unknown, found.parents) == (2, [[], [0]])


def test_a_circle_has_no_order() -> None:
    with pytest.raises(CycleError, match="3 tasks wait for each other"):
        Arranged(["a", "b", "c", "free"], [["b"], ["a"], ["b"], []], {})


def test_each_instance_waits_for_each_instance() -> None:
    edges = Edges()
    edges.add(0, [2, 1], [[], [0]])
    edges.add(3, [1, 2], [[], [0]])
    first, parents = edges.columns()
    assert first.tolist() == [0, 0, 0, 2, 2, 3, 4]
    assert parents.tolist() == [0, 1, 3, 3]


def test_a_trace_without_edges_has_no_columns() -> None:
    edges = Edges()
    edges.add(0, [3], [[]])
    assert [len(column) for column in edges.columns()] == [0, 0]


def test_too_many_edges_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "EDGES_MAX", 3)
    with pytest.raises(InputError, match="more than 3 tasks wait"):
        Edges().add(0, [2, 2], [[], [0]])


def test_no_task_is_submitted_before_its_parents() -> None:
    found = Submissions(apart=True)
    found.add(5, [9, 7, None], [1, 1, 2], [[], [0], []])
    arrival_us, submit_us = found.columns()
    assert arrival_us.tolist() == [0]
    assert submit_us.tolist() == [4, 4, 0, 0]


def test_tasks_that_come_with_their_jobs_need_no_column() -> None:
    found = Submissions(apart=True)
    found.add(5, [None, 5], [1, 1], [[], []])
    found.add(8, [8], [1], [[]])
    assert [column.tolist() for column in found.columns()] == [[0, 3], []]


def test_defects_of_ids_and_graphs_are_found_over_all_batches() -> None:
    rows = [
        TaskRow(job="1", task="a", parents=[], line=10),
        TaskRow(job="1", task="b", parents=["a", "c"], line=11),
        TaskRow(job="1", task="c", parents=["b"], line=12),
        TaskRow(job="1", task="d", parents=["missing"], line=13),
        TaskRow(job="2", task="a", parents=["a"], line=14),
        TaskRow(job="1", task="a", parents=[], line=15),
        TaskRow(job=None, task="a", parents=["x"], line=16),
    ]
    found = TaskGraph()
    for at in range(0, len(rows), 3):
        for batch in batches(rows[at : at + 3]):
            found.add(batch, at)
    broken = found.broken()
    found.close()
    assert {rule: rows.tolist() for rule, rows in broken.rows.items()} == {
        "duplicate": [5],
        "unknown-parent": [3],
        "cycle": [1, 2, 4],
    }
    assert broken.lines == {"duplicate": [15], "unknown-parent": [13], "cycle": [11, 12, 14]}
