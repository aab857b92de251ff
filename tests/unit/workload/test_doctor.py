"""The doctor finds every defect that was planted, each where it is, and none in a clean trace; repairs remove them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from volery.core.errors import InputError
from volery.workload.convert import convert
from volery.workload.doctor import RULES, Diagnosis, choices, examine
from volery.workload.table import TableManifest, TaskRow, batches, manifest_of, read_table, rows_of, table_output

TRACES = Path(os.environ.get("VOLERY_TRACES", Path(__file__).resolve().parents[4] / "shared" / "traces"))
S = 1_000_000
Rows = list[TaskRow]


def clean(jobs: int = 40, tasks: int = 6) -> Rows:
    """Jobs of chains, in order, from 0."""
    rows: Rows = []
    for job in range(jobs):
        for task in range(tasks):
            start = job * 10 * S + task * S
            rows.append(
                TaskRow(
                    f"j{job}",
                    f"t{task}",
                    "u",
                    job * 10 * S,
                    start,
                    start + S,
                    S,
                    instances=2,
                    cpu_share=0.5,
                    parents=[f"t{task - 1}"] if task else [],
                    status="finished",
                    line=len(rows) + 1,
                )
            )
    return rows


def written(path: Path, rows: Rows) -> Path:
    with table_output(path, force=True) as table:
        for batch in batches(rows):
            table.add(batch)
        table.finish(TableManifest(1, "made", "00", "table", "test"))
    return path


def rows_in(path: Path) -> Rows:
    return [row for batch in read_table(path) for row in rows_of(batch)]


def changed(**values: object) -> Callable[[Rows, int], None]:
    def plant(rows: Rows, at: int) -> None:
        rows[at] = msgspec.structs.replace(rows[at], **values)

    return plant


def repeat(rows: Rows, at: int) -> None:
    rows[at] = msgspec.structs.replace(rows[at - 1], line=rows[at].line)


def close_cycle(rows: Rows, at: int) -> None:
    """Task 1 of the job waits for the last; at is a first task."""
    rows[at + 1].parents = ["t0", "t4"]


def delay(rows: Rows, at: int) -> None:
    """One row is submitted late, the next is then early."""
    rows[at].submit_us = (rows[at].submit_us or 0) + S


def begin_later(rows: Rows, at: int) -> None:
    for row in rows:
        row.submit_us, row.start_us, row.end_us = (
            None if time is None else time + 3 * S for time in (row.submit_us, row.start_us, row.end_us)
        )


PLANTED: dict[str, tuple[Callable[[Rows, int], None], int, int, int]] = {
    "missing-id": (changed(job=None, parents=None), 66, 1, 67),
    "end-before-start": (changed(end_us=5, runtime_us=None), 72, 1, 73),
    "deadline-before-submission": (changed(deadline_us=9 * S), 9, 1, 10),
    "zero-limit": (changed(limit_us=0), 40, 1, 41),
    "negative-runtime": (changed(runtime_us=-1), 30, 1, 31),
    "zero-runtime": (changed(runtime_us=0), 31, 1, 32),
    "unit-suspicion": (changed(runtime_us=1000), 90, 1, 91),
    "duplicate": (repeat, 8, 1, 9),
    "unknown-parent": (changed(parents=["t77"]), 101, 1, 102),
    "cycle": (close_cycle, 120, 4, 122),
    "unsorted": (delay, 12, 1, 14),
    "clock-origin": (begin_later, 0, 1, 0),
}
"""Rule -> what is done, to which row, how many rows break it then, and the line of the first."""


def found_in(folder: Path, rows: Rows, repair: tuple[str, ...] = ()) -> Diagnosis:
    return examine(written(folder / "t.parquet", rows), None, choices(list(repair)))


def test_every_rule_is_planted() -> None:
    assert set(PLANTED) == set(RULES)


@pytest.mark.parametrize("seed", range(3))
def test_a_clean_trace_has_no_defects(tmp_path: Path, seed: int) -> None:
    """Not even with unknown fields, tasks in any order in their job, and diamonds."""
    rng = random.Random(seed)
    rows = clean()
    for row in rows:
        row.parents = [f"t{k}" for k in range(int((row.task or "t0")[1:])) if rng.random() < 0.5] or None
        if rng.random() < 0.5:
            row.start_us = row.runtime_us = row.cpu_share = None
    for low in range(0, len(rows), 6):
        rng.shuffle(block := rows[low : low + 6])
        rows[low : low + 6] = block
    found = found_in(tmp_path, rows)
    assert found.findings == ()
    assert found.unanswered == []
    assert found.unknown["cpu_share"] == sum(row.cpu_share is None for row in rows)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_planted_defect_is_found_alone_and_where_it_is(tmp_path: Path, rule: str) -> None:
    plant, at, count, line = PLANTED[rule]
    rows = clean()
    plant(rows, at)
    found = found_in(tmp_path, rows)
    expected = {"missing-id": {rule, "unknown-parent"}, "duplicate": {rule, "unknown-parent"}}.get(rule, {rule})
    assert {one.rule for one in found.findings} <= expected
    (finding,) = (one for one in found.findings if one.rule == rule)
    assert finding.rows == count
    assert rule in found.unanswered
    place = f"t.parquet:{line}" if line else "t.parquet: 3 s"
    assert finding.first[0].endswith(place)
    answered = found_in(tmp_path, rows, (f"{rule}=keep",))
    assert rule not in answered.unanswered


def test_all_defects_at_once_are_all_found(tmp_path: Path) -> None:
    rows = clean()
    for rule in RULES:
        PLANTED[rule][0](rows, PLANTED[rule][1])
    assert {one.rule for one in found_in(tmp_path, rows).findings} == set(RULES)


REPAIRS = [(rule, action) for rule in RULES for action in RULES[rule].actions if action != "keep"]


@pytest.mark.parametrize(("rule", "action"), REPAIRS)
def test_each_repair_removes_its_defect_and_the_manifest_says_so(tmp_path: Path, rule: str, action: str) -> None:
    rows = clean()
    plant, at, count, _ = PLANTED[rule]
    plant(rows, at)
    source, output = written(tmp_path / "t.parquet", rows), tmp_path / "out.parquet"
    manifest = convert(source, output, chosen_repairs={rule: action})
    assert manifest == manifest_of(output)
    assert manifest.found[rule] == count
    assert rule not in manifest.left
    assert [(one.rule, one.action, one.rows) for one in manifest.repairs] == [(rule, action, count)]
    assert (manifest.rows_read, manifest.rows) == (240, 240 - count if action == "drop" else 240)
    assert list(tmp_path.iterdir()) != [source]
    assert {path.name for path in tmp_path.iterdir()} == {"t.parquet", "out.parquet"}


def test_nothing_but_the_defect_is_changed(tmp_path: Path) -> None:
    rows = clean()
    for rule in ("zero-runtime", "unit-suspicion", "unknown-parent", "cycle", "clock-origin"):
        PLANTED[rule][0](rows, PLANTED[rule][1])
    rows[101].parents = ["t77", "t1"]
    chosen = {"zero-runtime": "null", "unit-suspicion": "null", "unknown-parent": "cut", "clock-origin": "shift"}
    convert(written(tmp_path / "t.parquet", rows), tmp_path / "out.parquet", chosen_repairs=chosen)
    wanted = clean()
    close_cycle(wanted, 120)
    wanted[31].runtime_us = wanted[90].runtime_us = None
    wanted[101].parents = ["t1"]
    assert rows_in(tmp_path / "out.parquet") == wanted


def test_sorting_is_stable_and_whole_when_buckets_lie_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volery.workload.convert.BUCKET_ROWS", 16)
    rows = clean()
    random.Random(1).shuffle(rows)
    rows[3].submit_us = None
    convert(written(tmp_path / "t.parquet", rows), tmp_path / "out.parquet", chosen_repairs={"unsorted": "sort"})
    assert rows_in(tmp_path / "out.parquet") == sorted(
        rows, key=lambda row: float("inf") if row.submit_us is None else row.submit_us
    )


def test_a_conversion_without_repairs_keeps_every_row_and_says_what_it_found(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_text("5 2 1.5 1 0\n\n4 1 3 3\n")
    manifest = convert(source, tmp_path / "out.parquet", chosen_repairs={"zero-runtime": "keep"})
    assert (manifest.format, manifest.source, manifest.rows) == ("tr", "a", 3)
    assert manifest.found == manifest.left == {"zero-runtime": 1, "unsorted": 1, "clock-origin": 1}
    assert [(one.rule, one.action) for one in manifest.repairs] == [("zero-runtime", "keep")]
    assert manifest.noticed == {"blank lines": 1}
    again = convert(tmp_path / "out.parquet", tmp_path / "again.parquet")
    assert again.format == "table"
    assert rows_in(tmp_path / "again.parquet") == rows_in(tmp_path / "out.parquet")
    with pytest.raises(InputError, match=r"out\.parquet: exists already; give --force"):
        convert(source, tmp_path / "out.parquet")


def test_parents_are_left_out_on_request_alone(tmp_path: Path) -> None:
    source = written(tmp_path / "t.parquet", clean())
    manifest = convert(source, tmp_path / "out.parquet", parents=False)
    assert {row.parents is None for row in rows_in(tmp_path / "out.parquet")} == {True}
    assert manifest.remarks[-2:] == (
        "parents were left out on request",
        "task_submit_us were left out on request",
    )


def test_a_wrong_source_leaves_nothing_behind(tmp_path: Path) -> None:
    source = tmp_path / "a.tr"
    source.write_text("5 2 1.5 1 0\n5 2 1.5 1\n")
    with pytest.raises(InputError, match=r"a\.tr:2: is no row of \.tr"):
        convert(source, tmp_path / "out.parquet", form="tr", chosen_repairs={"zero-runtime": "drop"})
    assert [path.name for path in tmp_path.iterdir()] == ["a.tr"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["zero-time=drop"], "'zero-time' is no rule; did you mean 'zero-runtime'"),
        (["cycle=sort"], "'cycle=sort': cycle is repaired by drop, cut, keep"),
        (["cycle"], "cycle is repaired by"),
        (["cycle=cut", "cycle=drop"], "'cycle' stands there twice"),
    ],
)
def test_wrong_repairs_are_refused(words: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        choices(words)


SAMPLES: list[tuple[str, dict[str, int], dict[str, int]]] = [
    ("gwf/askalon_workload_ee.gwf.gz", {"zero-runtime": 643, "unsorted": 9_398, "clock-origin": 1}, {}),
    ("gwf/opendc_test_trace.gwf", {"zero-runtime": 7, "unsorted": 16, "clock-origin": 1}, {}),
    ("wta/shell/tasks.parquet", {"unsorted": 430}, {"start_us": 10_208}),
    ("wta/spec_trace_1", {}, {"start_us": 14_630}),
    ("swf/SDSC-SP2-1998_first5000lines.swf.gz", {}, {"runtime_us": 355, "end_us": 355}),
    ("swf/NASA-iPSC-1993-3.1-cln.swf.gz", {"zero-runtime": 173}, {"start_us": 18_239, "estimate_us": 18_239}),
    (
        "alibaba2017/batch_task.csv.gz",
        {"end-before-start": 209, "zero-runtime": 64, "unsorted": 5_214, "clock-origin": 1},
        {"cpu_milli": 9_017},
    ),
    ("philly/philly_pollux.csv.gz", {"unsorted": 44_878, "clock-origin": 1}, {}),
    ("google2019/borg_traces_slice.csv", {"duplicate": 2, "unsorted": 42, "clock-origin": 1}, {}),
    ("alibaba_gpu/openb_pod_list_default.csv.gz", {}, {"start_us": 897}),
]


@pytest.mark.parametrize(("name", "defects", "unknown"), SAMPLES)
def test_the_known_quirks_of_the_samples_are_named(name: str, defects: dict[str, int], unknown: dict[str, int]) -> None:
    """../shared/traces/README.md and stats.md: zero runtimes, no order, runtimes of -1, no clock from 0."""
    path = TRACES / name
    if not path.exists():
        pytest.skip("the public traces are not beside this repository")
    found = examine(path)
    assert {one.rule: one.rows for one in found.findings} == defects
    assert unknown.items() <= found.unknown.items()
