"""Google's alloc sets and attempts: what held a machine is replayed, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from volery.core.omissions import CHANGED, Omissions
from volery.core.trace import Trace
from volery.workload import load_workload
from volery.workload.doctor import examine
from volery.workload.formats.google import KINDS_2019, NEW_REQUEST, RESERVATION
from volery.workload.omissions import UNSUBMITTED

S = 1_000_000
Event = tuple[float, str, int, int, dict[str, Any]]
SET: dict[str, Any] = {"collection_type": 1}
IN_7: dict[str, Any] = {"alloc_collection_id": "7", "alloc_instance_index": 0}


def read(folder: Path, *events: Event) -> tuple[Trace, Omissions]:
    """Events of (second, kind, collection, instance), each with a request of half a machine."""
    path = folder / "events.json"
    lines = [
        {
            "time": str(round(at * S)),
            "type": list(KINDS_2019.values()).index(kind),
            "collection_id": str(job),
            "instance_index": task,
            "resource_request": {"cpus": 0.5, "memory": 0.25},
            **more,
        }
        for at, kind, job, task, more in events
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return loaded(path)


def loaded(path: Path) -> tuple[Trace, Omissions]:
    trace, reading = load_workload(path)
    assert reading is not None
    assert reading.left_out is not None
    return trace, reading.left_out


def life(job: int, task: int, begin: float, end: float, **more: Any) -> list[Event]:
    return [(begin, "submit", job, task, more), (begin, "schedule", job, task, more), (end, "finish", job, task, more)]


def in_order(*lives: list[Event]) -> list[Event]:
    return sorted((event for one in lives for event in one), key=lambda event: event[0])


def reasons(found: Omissions) -> dict[str, tuple[str, int]]:
    return {one.reason: (one.effect, one.tasks) for one in found.reasons}


def passed_over(folder: Path) -> int:
    """Rows of alloc sets that the reader does not give."""
    return examine(folder / "events.json").noticed.get(RESERVATION, 0)


RESERVED = life(7, 0, 1, 101, **SET)
CONTENT = [*life(8, 0, 2, 52, **IN_7), *life(8, 1, 2, 92, **IN_7)]


def test_a_reservation_and_what_runs_in_it_are_replayed_once(tmp_path: Path) -> None:
    trace, found = read(tmp_path, *in_order(RESERVED, CONTENT, life(9, 0, 3, 13)))
    assert sorted(trace.duration_us) == [10 * S, 50 * S, 90 * S]
    assert found.tasks == 3
    assert passed_over(tmp_path) == 1
    assert not found.is_large, "what ran in it is its work, so that nothing is omitted"


@pytest.mark.parametrize("ends", [60, 2.5, 1000])
def test_it_does_not_matter_which_of_both_ends_first(tmp_path: Path, ends: float) -> None:
    trace, found = read(tmp_path, *in_order(life(7, 0, 1, ends, **SET), CONTENT))
    assert sorted(trace.duration_us) == [50 * S, 90 * S]
    assert (reasons(found), passed_over(tmp_path)) == ({}, 1)


def test_a_reservation_in_which_nothing_ran_is_replayed(tmp_path: Path) -> None:
    """A task that waits for a place in it holds nothing."""
    waiting: list[Event] = [(2, "submit", 8, 0, IN_7)]
    trace, _ = read(tmp_path, *in_order(RESERVED, waiting, life(9, 0, 3, 13)))
    assert sorted(trace.duration_us) == [10 * S, 100 * S]
    assert passed_over(tmp_path) == 0


def test_types_of_collections_may_be_names_and_tasks_may_name_no_alloc_set(tmp_path: Path) -> None:
    named = life(7, 0, 1, 101, collection_type="ALLOC_SET")
    alone = life(9, 0, 3, 13, alloc_collection_id="0", alloc_instance_index=-1, collection_type="JOB")
    trace, found = read(tmp_path, *in_order(named, CONTENT, alone))
    assert sorted(trace.duration_us) == [10 * S, 50 * S, 90 * S]
    assert (reasons(found), passed_over(tmp_path)) == ({}, 1)


def test_windows_of_usage_of_an_alloc_set_and_of_its_tasks_are_replayed_once(tmp_path: Path) -> None:
    path = tmp_path / "usage.csv"
    head = "collection_id,collection_type,alloc_collection_id,resource_request,start_time,end_time\n"
    request = "\"{'cpus': 0.5, 'memory': 0.25}\""
    rows = ("7,1,0,{},0,300000000", "8,0,7,{},0,200000000", "6,1,0,{},0,100000000")
    path.write_text(head + "".join(row.format(request) + "\n" for row in rows))
    trace, found = loaded(path)
    assert sorted(trace.duration_us) == [100 * S, 200 * S], "nothing of the file ran in alloc set 6"
    assert not found.reasons
    assert examine(path).noticed[RESERVATION] == 1


@pytest.mark.parametrize("end", ["evict", "fail", "lost"])
def test_an_attempt_without_a_submission_of_its_own_comes_when_the_one_before_ended(tmp_path: Path, end: str) -> None:
    """Its events may state no request: it is the same task."""
    bare: dict[str, Any] = {"resource_request": None}
    trace, found = read(
        tmp_path,
        (1, "submit", 5, 0, {}),
        (2, "schedule", 5, 0, {}),
        (12, end, 5, 0, bare),
        (20, "schedule", 5, 0, bare),
        (50, "finish", 5, 0, bare),
    )
    assert list(trace.duration_us) == [10 * S, 30 * S]
    assert list(trace.submit_us) == [0, 11 * S], "from the arrival of the job at 1 s"
    assert [trace.requests[k] for k in trace.request] == [(32_000, 4096)] * 2
    assert not found.reasons


def test_a_task_whose_submission_is_not_in_the_file_comes_when_it_started(tmp_path: Path) -> None:
    begun: list[Event] = [(30, "schedule", 5, 0, {}), (50, "finish", 5, 0, {})]
    trace, found = read(tmp_path, *in_order(life(4, 0, 10, 20), begun))
    assert (list(trace.arrival_us), list(trace.duration_us)) == ([0, 20 * S], [10 * S, 20 * S])
    assert reasons(found) == {UNSUBMITTED: (CHANGED, 1)}


def test_attempts_of_2011_are_replayed_as_those_of_2019(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    request = "u,3,9,0.5,0.25,0,0"
    rows = ("1000000,,1,0,,0", "2000000,,1,0,7,1", "12000000,,1,0,7,2", "20000000,,1,0,7,1", "50000000,,1,0,7,4")
    path.write_text("".join(f"{row},{request}\n" for row in rows))
    trace, found = loaded(path)
    assert (list(trace.duration_us), list(trace.submit_us)) == ([10 * S, 30 * S], [0, 11 * S])
    assert not found.reasons


def test_a_request_that_changes_while_a_task_waits_counts_and_one_that_changes_later_is_told(tmp_path: Path) -> None:
    less: dict[str, Any] = {"resource_request": {"cpus": 0.25, "memory": 0.25}}
    waiting: list[Event] = [
        (1, "submit", 5, 0, {}),
        (2, "update", 5, 0, less),
        (3, "schedule", 5, 0, less),
        (9, "finish", 5, 0, less),
    ]
    running: list[Event] = [
        (1, "submit", 6, 0, {}),
        (3, "schedule", 6, 0, {}),
        (4, "update", 6, 0, less),
        (9, "finish", 6, 0, less),
    ]
    trace, found = read(tmp_path, *in_order(waiting, running))
    assert [trace.requests[k] for k in trace.request] == [(16_000, 4096), (32_000, 4096)]
    assert reasons(found) == {NEW_REQUEST: (CHANGED, 1)}
