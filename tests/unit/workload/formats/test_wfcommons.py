"""WfCommons documents of all versions: every wait is kept, by ids or names, parents or children, or is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from volery.core.errors import InputError
from volery.core.omissions import LEFT_OUT, WAITS, Omissions
from volery.core.trace import Trace
from volery.core.workflows import critical_paths_us
from volery.workload import load_workload
from volery.workload.convert import convert
from volery.workload.formats.wfcommons import REPEATED, SECOND_LIST, UNSPECIFIED

S = 1_000_000
DIAMOND = {"split": 10.0, "left": 20.0, "right": 30.0, "join": 5.0}
PARENTS = {"split": [], "left": ["split"], "right": ["split"], "join": ["left", "right"]}
CHILDREN = {"split": ["left", "right"], "left": ["join"], "right": ["join"], "join": []}


def load(path: Path, document: dict[str, Any]) -> tuple[Trace, Omissions]:
    path.write_text(json.dumps(document))
    trace, reading = load_workload(path)
    assert reading is not None
    assert reading.left_out is not None
    return trace, reading.left_out


def tasks(*, ids: bool = True, parents: str = "names", children: str = "", runtime: str = "runtime") -> list[Any]:
    """The diamond of four tasks.

    Args:
        ids: whether tasks have ids beside their names.
        parents, children: what they are given by, "names" or "ids"; empty: not at all.
        runtime: the key of the runtime.
    """
    numbers = {name: f"ID{number}" for number, name in enumerate(DIAMOND)}
    made = []
    for name, seconds in DIAMOND.items():
        task: dict[str, Any] = {"name": name, "cores": 1, runtime: seconds}
        task |= {"id": numbers[name]} if ids else {}
        for key, by, of in (("parents", parents, PARENTS), ("children", children, CHILDREN)):
            if by:
                task[key] = [numbers[one] if by == "ids" else one for one in of[name]]
        made.append(task)
    return made


@pytest.mark.parametrize(
    ("version", "key", "form"),
    [
        ("1.0", "jobs", {"ids": False}),
        ("1.1", "tasks", {"ids": False}),
        ("1.2", "tasks", {"ids": False, "parents": "", "children": "names"}),
        ("1.3", "tasks", {}),
        ("1.3", "tasks", {"parents": "ids"}),
        ("1.3", "tasks", {"parents": "ids", "children": "names"}),
        ("1.4", "tasks", {"runtime": "runtimeInSeconds"}),
        ("1.4", "tasks", {"parents": "", "children": "ids"}),
        ("1.4", "tasks", {"parents": "names", "children": "names"}),
        ("1.0", "jobs", {"parents": "", "children": "names"}),
    ],
)
def test_a_workflow_keeps_its_waits_in_every_version(
    tmp_path: Path, version: str, key: str, form: dict[str, Any]
) -> None:
    document = {"name": "case", "schemaVersion": version, "workflow": {key: tasks(**form)}}
    trace, omissions = load(tmp_path / "case.json", document)
    assert critical_paths_us(trace)[0] == 45 * S
    assert (len(trace.parents), omissions.waits) == (4, 4)
    assert omissions.reasons == ()


@pytest.mark.parametrize("by", ["ids", "names"])
@pytest.mark.parametrize("given", ["parents", "children"])
def test_specification_and_execution_are_joined_by_ids_or_names(tmp_path: Path, by: str, given: str) -> None:
    form: dict[str, Any] = {"parents": "", "children": ""} | {given: by}
    specified, executed = tasks(**form), tasks(parents="")
    for task in specified:
        del task["runtime"], task["cores"]
    for task in executed:
        task["runtimeInSeconds"] = task.pop("runtime")
        task["coreCount"] = task.pop("cores")
        if by == "names":
            task["id"] = task["name"]
    flow = {"specification": {"tasks": specified}, "execution": {"tasks": executed}}
    trace, omissions = load(tmp_path / "case.json", {"name": "c", "schemaVersion": "1.5", "workflow": flow})
    assert critical_paths_us(trace)[0] == 45 * S
    assert omissions.reasons == ()


def test_a_text_that_is_an_id_and_a_name_is_what_most_references_are(tmp_path: Path) -> None:
    chain = [
        {"name": "b", "id": "a", "runtime": 1, "parents": []},
        {"name": "c", "id": "b", "runtime": 10, "parents": ["b"]},
        {"name": "d", "id": "c", "runtime": 100, "parents": ["c"]},
        {"name": "e", "id": "d", "runtime": 1000, "parents": ["d"]},
        {"name": "f", "id": "x", "runtime": 10_000, "parents": ["e"]},
    ]
    trace, omissions = load(tmp_path / "c.json", {"name": "c", "workflow": {"tasks": chain}})
    assert critical_paths_us(trace)[0] == 11_111 * S
    assert omissions.reasons == ()


@pytest.mark.parametrize(
    ("change", "unresolved", "stated"),
    [
        ({"parents": ["left", "nobody"]}, 1, 4),
        ({"parents": ["left", "right", "nobody", "no one"]}, 2, 6),
        ({"children": ["nobody"]}, 1, 5),
    ],
)
def test_a_wait_for_a_task_that_is_not_there_is_counted_not_dropped(
    tmp_path: Path, change: dict[str, Any], unresolved: int, stated: int
) -> None:
    made = tasks()
    if "children" in change:
        made = tasks(children="names")
    made[-1] |= change
    path = tmp_path / "case.json"
    trace, omissions = load(path, {"name": "case", "schemaVersion": "1.4", "workflow": {"tasks": made}})
    assert trace.task_count == 4
    (one,) = omissions.reasons
    assert (one.effect, one.jobs, one.tasks, one.waits, omissions.waits) == (WAITS, 1, 1, unresolved, stated)
    assert omissions.is_large

    convert(path, tmp_path / "t.parquet")
    _, reading = load_workload(tmp_path / "t.parquet")
    assert reading is not None
    assert reading.left_out == omissions


def test_a_name_of_several_tasks_tells_nobody_what_to_wait_for(tmp_path: Path) -> None:
    made = [{"name": "work", "id": str(k), "runtime": 1} for k in range(2)]
    made.append({"name": "join", "id": "9", "runtime": 1, "parents": ["work", "0"]})
    _, omissions = load(tmp_path / "c.json", {"name": "c", "workflow": {"tasks": made}})
    assert (omissions.waits_omitted, omissions.waits) == (1, 2)


def test_a_task_that_was_executed_again_is_replayed_once_and_its_other_attempts_are_counted(tmp_path: Path) -> None:
    flow = {
        "specification": {"tasks": [{"name": "a", "id": "a", "parents": []}]},
        "execution": {
            "tasks": [
                {"id": "a", "runtimeInSeconds": 7},
                {"id": "a", "runtimeInSeconds": 5},
                {"id": "z", "runtimeInSeconds": 3},
            ]
        },
    }
    trace, omissions = load(tmp_path / "c.json", {"name": "c", "schemaVersion": "1.5", "workflow": flow})
    assert sorted(trace.duration_us) == [3 * S, 5 * S]
    assert {(one.reason, one.tasks) for one in omissions.reasons} == {(REPEATED, 1), (UNSPECIFIED, 1)}
    assert [one.machine_time for one in omissions.of(LEFT_OUT).reasons] == [7]


def test_tasks_of_a_second_list_are_left_out_and_counted(tmp_path: Path) -> None:
    """A task of both lists is no omission."""
    second = [*tasks(ids=False), {"name": "alone", "runtime": 7.0}]
    trace, left = load(tmp_path / "w.json", {"name": "w", "workflow": {"tasks": tasks(), "jobs": second}})
    assert (trace.task_count, critical_paths_us(trace)[0]) == (4, 45 * S)
    assert [(one.effect, one.reason, one.tasks) for one in left.reasons if one.effect == LEFT_OUT] == [
        (LEFT_OUT, SECOND_LIST, 1)
    ]


def test_measured_memory_is_no_request(tmp_path: Path) -> None:
    made = tasks()
    made[0]["memoryInBytes"] = 1 << 30
    trace, omissions = load(tmp_path / "c.json", {"name": "c", "workflow": {"tasks": made}})
    assert (trace.resources, trace.task_count) == (("cpu_milli",), 4)
    assert omissions.reasons == ()


def test_a_document_without_tasks_names_its_version(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"name": "c", "schemaVersion": "2.0", "workflow": {"steps": []}}))
    with pytest.raises(InputError, match=r"c\.json: has no task in .*workflow\.jobs \(schema version 2\.0\)"):
        load_workload(path)
