"""Tables with columns of their own: units, decimal commas, zones, formats, states, filters, windows, gangs."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volery.core.errors import InputError
from volery.core.features import features_of
from volery.core.limits import LimitSummary
from volery.core.trace import NO_GANG
from volery.workload import load_workload
from volery.workload.formats import format_of, read_source
from volery.workload.formats.columns.rows import ATTEMPTS, CAME_BEFORE, UNEVEN
from volery.workload.formats.source import Noticed
from volery.workload.table import TaskRow, rows_of

S = 1_000_000
NINE = 1_709_283_600
"""2024-03-01 09:00 UTC, in seconds since 1970."""
TIMES = '[columns]\njob = "id"\nsubmit = "came"\nstart = "begun"\nend = "ended"\n'
CSV = "id,came,begun,ended\n"


def read(folder: Path, columns: str, text: str, noticed: Noticed | None = None) -> list[TaskRow]:
    """The rows that a map gives of a text."""
    (folder / "m.toml").write_text(columns)
    (folder / "t.txt").write_text(text)
    form = format_of(folder / "t.txt", columns=str(folder / "m.toml"))
    batches = read_source(folder / "t.txt", form, Noticed() if noticed is None else noticed)
    return [row for batch in batches for row in rows_of(batch)]


def us(text: str) -> int:
    """Microseconds since 1970 of a UTC time, by Python's own clock."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * S


def test_own_columns_units_and_a_decimal_comma_are_read(tmp_path: Path) -> None:
    """The right values: job 1 runs 3,600 s on 8 cores, job 2 100 s on 1 core and 1 GPU, job 3 never started."""
    columns = (
        '[source]\nseparator = ";"\ndecimal = ","\n' + TIMES + 'user = "who"\ncores = "cores"\ndevices = "gpus"\n'
        'memory = { column = "mem_gib", unit = "GiB" }\nlimit = { column = "limit_h", unit = "h" }\n'
    )
    text = (
        "id;who;came;begun;ended;cores;gpus;mem_gib;limit_h\n"
        "1;u1;2024-03-01 08:00:00;2024-03-01 08:00:10;2024-03-01 09:00:10;8;0;4;2\n"
        "2;u2;2024-03-01 08:05:00;2024-03-01 08:05:00;2024-03-01 08:06:40;1;1;2,5;0,5\n"
        "3;u2;2024-03-01 08:05:00;;;1;0;2;1\n"
    )
    first, second, third = read(tmp_path, columns, text)
    assert (first.job, first.user, first.line, first.status) == ("1", "u1", 2, None)
    assert (first.submit_us, first.start_us) == (us("2024-03-01 08:00:00"), us("2024-03-01 08:00:10"))
    assert (first.runtime_us, first.cpu_milli, first.gpu_milli, first.memory_mb) == (3600 * S, 8000, 0, 4096)
    assert (second.memory_mb, second.limit_us, second.estimate_us) == (2.5 * 1024, 1800 * S, 1800 * S)
    assert (third.status, third.start_us, third.runtime_us) == ("waiting", None, None)

    trace, reading = load_workload(tmp_path / "t.txt", columns=str(tmp_path / "m.toml"))
    assert (trace.job_count, sum(trace.duration_us)) == (2, 3700 * S)
    assert reading is not None
    assert reading.left_out is not None
    assert [omission.reason for omission in reading.left_out.reasons] == ["never started, so held no machine"]


@pytest.mark.parametrize(
    ("entry", "value", "seconds"),
    [
        ('"came"', "2024-03-01T09:00:00", NINE),
        ('"came"', "2024-03-01 10:00:00+01:00", NINE),
        ('"came"', "2024-03-01 01:00:00 PST", NINE),
        ('{ column = "came", unit = "s" }', str(NINE), NINE),
        ('{ column = "came", unit = "ms" }', f"{NINE}000", NINE),
        ('{ column = "came", unit = "min" }', "1.5", 90),
        ('{ column = "came", format = "%d.%m.%Y %H:%M" }', "01.03.2024 09:00", NINE),
        ('{ column = "came", format = "%m/%d/%Y %I:%M %p" }', "03/01/2024 09:00 AM", NINE),
        ('{ column = "came", pattern = "at (.*)" }', "queued at 2024-03-01 09:00", NINE),
        ('["earlier", "came"]', "2024-03-01 09:00", NINE),
    ],
)
def test_times_have_formats_units_and_zones(tmp_path: Path, entry: str, value: str, seconds: float) -> None:
    columns = (
        f'[source]\nlacks = true\n[columns]\njob = "id"\nsubmit = {entry}\nruntime = {{ column = "r", unit = "s" }}\n'
    )
    [row] = read(tmp_path, columns, f'id,came,r\n1,"{value}",5\n')
    assert (row.submit_us, row.runtime_us) == (round(seconds * S), 5 * S)


@pytest.mark.parametrize(("zone", "ahead_h"), [("Europe/Berlin", 1), ("America/New_York", -5), ("+05:30", 5.5)])
def test_times_without_a_zone_are_in_that_of_the_map(tmp_path: Path, zone: str, ahead_h: float) -> None:
    text = CSV + "1,2024-03-01 09:00,2024-03-01 09:01,2024-03-01 09:02\n2,2024-07-01 09:00Z,,\n"
    winter, stated = read(tmp_path, f'[source]\nzone = "{zone}"\n' + TIMES, text)
    assert winter.submit_us == NINE * S - round(ahead_h * 3600) * S
    assert stated.submit_us == us("2024-07-01 09:00")


def test_of_an_hour_that_a_clock_shows_twice_the_second_is_meant_if_the_first_is_too_early(tmp_path: Path) -> None:
    """Clocks in Berlin went from 03:00 back to 02:00 on 27 October 2024, at 01:00 UTC."""
    text = (
        CSV
        + "1,2024-10-27 02:10,2024-10-27 02:50,2024-10-27 02:20\n2,2024-10-27 01:30,2024-10-27 02:20,2024-10-27 02:30\n"
    )
    later, plain = read(tmp_path, '[source]\nzone = "Europe/Berlin"\n' + TIMES, text)
    assert (later.start_us, later.end_us) == (us("2024-10-27 00:50"), us("2024-10-27 01:20"))
    assert (later.runtime_us, plain.runtime_us) == (30 * 60 * S, 10 * 60 * S)


@pytest.mark.parametrize(
    ("target", "entry", "value", "field", "right"),
    [
        ("limit", '"x"', "1-02:03:04", "limit_us", (26 * 3600 + 3 * 60 + 4) * S),
        ("limit", '"x"', "90:00", "limit_us", 5400 * S),
        ("limit", '"x"', "1-02:03", "limit_us", (26 * 3600 + 3 * 60) * S),
        ("limit", '"x"', "1-02", "limit_us", 26 * 3600 * S),
        ("limit", '{ column = "x", unit = "min" }', "02:30", "limit_us", 150 * S),
        ("limit", '{ column = "x", unit = "h" }', "02:30", "limit_us", 9000 * S),
        ("limit", '{ column = "x", unit = "h" }', "1:02:03", "limit_us", 3723 * S),
        ("limit", '{ column = "x", unit = "min" }', "2.5", "limit_us", 150 * S),
        ("estimate", '{ column = "x", unit = "d" }', "1", "estimate_us", 86_400 * S),
        ("cores", '{ column = "x", unit = "milli" }', "250", "cpu_milli", 250),
        ("cores", '{ column = "x", unit = "percent" }', "600", "cpu_milli", 6000),
        ("devices", '"x"', "0.25", "gpu_milli", 250),
        ("memory", '"x"', "4G", "memory_mb", 4096),
        ("memory", '"x"', "512MiB", "memory_mb", 512),
        ("memory", '{ column = "x", unit = "MB" }', "1048.576", "memory_mb", 1000),
        ("memory", '{ column = "x", unit = "B" }', "1.048576e6", "memory_mb", 1),
        ("priority", '"x"', "-7", "priority", -7),
        ("partition", '"x"', "gpu", "partition", "gpu"),
        ("group", '"x"', " physics ", "group", "physics"),
        ("dependency", '"x"', "afterok:12:13_4", "parents", ["job 12", "job 13_4"]),
        ("dependency", '"x"', "afterok:r-12(unfulfilled)", "parents", ["job r-12"]),
        ("dependency", '"x"', "r-1;build_2", "parents", ["job r-1", "job build_2"]),
        ("dependency", '"x"', "done(a) && ended(12.host)", "parents", ["job a", "job 12.host"]),
        ("dependency", '"x"', "(null)", "parents", []),
        ("task", '"x"', "ps", "task", "ps"),
    ],
)
def test_each_target_is_read_in_our_units(
    tmp_path: Path, target: str, entry: str, value: str, field: str, right: Any
) -> None:
    text = f"id,came,begun,ended,x\n1,2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:01,{value}\n"
    [row] = read(tmp_path, f"{TIMES}{target} = {entry}\n", text)
    assert getattr(row, field) == (pytest.approx(right) if isinstance(right, int) else right)


BAD_VALUES = {
    "submit": ("yesterday", "'yesterday' is no date with a time"),
    "start": ("1709283600", "'1709283600' is no date with a time"),
    "end": ("2024-13-01 00:00", "is no date with a time"),
    "wait": ("-5", "'-5' is no duration from 0"),
    "runtime": ("1e12", "is no time up to"),
    "limit": ("two hours", "'two hours' is no number|'two hours' is no duration|could not convert"),
    "estimate": ("1_0", "'1_0' is no number"),
    "nodes": ("1.5", "'1.5' is no whole number"),
    "tasks": ("-1", "'-1' is no whole number"),
    "array": ("many", "could not convert|is no number"),
    "cores": ("-2", "'-2' is no amount from 0"),
    "devices": ("nan", "'nan' is no amount from 0"),
    "memory": ("7", "'7' states no unit of memory; state it in the map, as unit"),
    "priority": ("0.5", "is no priority"),
    "state": ("odd", "'odd' is no state of the map; add it to a list of \\[states\\]"),
}
UNITS = {"wait": "s", "runtime": "s", "limit": "s", "estimate": "s"}


@pytest.mark.parametrize("target", sorted(BAD_VALUES))
def test_a_wrong_value_is_named_by_line_column_and_target(tmp_path: Path, target: str) -> None:
    value, problem = BAD_VALUES[target]
    names = {"job": "id", "submit": "came", "start": "begun", "end": "ended", target: "x"}
    lines = [f'{name} = {{ column = "{column}", unit = "{UNITS[name]}" }}' if name in UNITS else f'{name} = "{column}"'
             for name, column in names.items()]  # fmt: skip
    states = '[states]\nfinished = ["fine"]\n' if target == "state" else ""
    good = {"state": "fine", "memory": "7G", "submit": "2024-03-01 09:00"}.get(target, "")
    row = "2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:01"
    text = f"id,came,begun,ended,x\n1,{row},{good}\n2,{row},{value}\n3,{row},{value}\n"
    with pytest.raises(
        InputError, match=rf"t\.txt:3: x gives no {target}: .*({problem}).*; mend it, or columns.{target}"
    ):
        read(tmp_path, "[columns]\n" + "\n".join(lines) + "\n" + states, text)


def test_a_number_without_a_unit_is_no_duration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r't\.txt:2: r gives no runtime: .*state the unit of a number, as unit = "s"'):
        read(tmp_path, '[columns]\njob = "id"\nsubmit = "came"\nruntime = "r"\n', "id,came,r\n1,2024-03-01 09:00,5\n")


def test_a_column_that_the_file_lacks_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"t\.txt: has no column 'came', which gives submit; did you mean 'cam'\?; mend"
    ):
        read(tmp_path, TIMES, "id,cam,begun,ended\n1,,,\n")
    with pytest.raises(InputError, match=r"t\.txt: has no column 'kind' for the filter of the map"):
        read(tmp_path, TIMES + '[[filter]]\ncolumn = "kind"\ndrop = ["x"]\n', CSV)
    with pytest.raises(InputError, match=r"t\.txt:1: names the column 'id' twice; keep one"):
        read(tmp_path, TIMES, "id,id,came,begun,ended\n")


def test_states_decide_what_ran_and_filters_what_is_read(tmp_path: Path) -> None:
    columns = (
        TIMES + 'state = "state"\n[states]\nfinished = ["OK"]\nfailed = ["FAIL*"]\nkilled = ["CANCELLED*"]\n'
        'running = ["R"]\nwaiting = ["PD"]\n'
        '[[filter]]\ncolumn = "kind"\nkeep = ["job"]\nreason = "rows of another kind"\n'
        '[[filter]]\ncolumn = "id"\ndrop = ["9*"]\n'
    )
    ran = "2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:01"
    text = (
        "id,came,begun,ended,state,kind\n"
        f"1,{ran},OK,job\n2,{ran},FAILED,job\n3,{ran},CANCELLED by 7,job\n4,2024-03-01 09:00,,,CANCELLED by 7,job\n"
        f"5,2024-03-01 09:00,2024-03-01 09:00,,R,job\n6,2024-03-01 09:00,,,PD,job\n7,{ran},OK,step\n91,{ran},OK,job\n"
    )
    noticed = Noticed()
    rows = read(tmp_path, columns, text, noticed)
    assert [(row.job, row.status) for row in rows] == [
        ("1", "finished"), ("2", "failed"), ("3", "killed"), ("4", "killed"), ("5", "running"), ("6", "waiting"),
    ]  # fmt: skip
    assert dict(+noticed) == {"rows of another kind": 1, "rows that the filter of id passes over": 1}

    trace, reading = load_workload(tmp_path / "t.txt", columns=str(tmp_path / "m.toml"))
    assert trace.job_count == 3
    assert reading is not None
    assert reading.left_out is not None
    assert {omission.reason: omission.tasks for omission in reading.left_out.reasons} == {
        "never started, so held no machine": 2,
        "still running when the trace ends, so its end is not known": 1,
    }


def test_a_window_cuts_what_began_before_and_counts_what_lies_outside(tmp_path: Path) -> None:
    """From 09:00 to 10:00: 1 ended before, 2 runs on for 300 s of 900 s, 3 waited, 4 lies inside, 5 came after."""
    rows = [("08:00", "08:10", "08:50"), ("08:40", "08:50", "09:05"), ("08:59", "09:10", "09:20"),
            ("09:30", "09:30", "11:00"), ("10:00", "10:00", "10:01")]  # fmt: skip
    text = CSV + "".join(
        f"{k},{','.join(f'2024-03-01 {time}' for time in row)}\n" for k, row in enumerate(rows, start=1)
    )
    noticed = Noticed()
    columns = TIMES + '[window]\nfrom = "2024-03-01 09:00"\nto = "2024-03-01 10:00"\n'
    early, waited, inside = read(tmp_path, columns, text, noticed)
    assert (early.job, early.start_us, early.runtime_us) == ("2", -600 * S, 900 * S)
    assert (waited.job, waited.submit_us, waited.start_us, waited.changed) == ("3", -60 * S, 600 * S, CAME_BEFORE)
    assert (inside.job, inside.submit_us, inside.changed) == ("4", 1800 * S, None)
    assert dict(+noticed) == {"rows submitted after the window": 1, "rows that ended before the window": 1}

    trace, reading = load_workload(tmp_path / "t.txt", columns=str(tmp_path / "m.toml"))
    assert list(trace.duration_us) == [300 * S, 600 * S, 5400 * S]
    assert reading is not None
    assert reading.left_out is not None
    reasons = {omission.reason for omission in reading.left_out.reasons}
    assert {CAME_BEFORE, "began before the trace, and begin with it here, with what was left of them"} <= reasons


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        (
            'from = "2024-03-01 09:00"\nto = "2024-03-01 09:00"\n',
            "window: is empty: it ends at .*; exchange or widen them",
        ),
        ('from = "noon"\n', "window.from: 'noon' is no date with a time.*; write it as the file does"),
        ('from = "2025-01-01 00:00"\n', r"window: holds none of the 1 rows of t\.txt; name times of the file"),
    ],
)
def test_an_empty_window_is_refused(tmp_path: Path, window: str, problem: str) -> None:
    text = CSV + "1,2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:01\n"
    with pytest.raises(InputError, match=rf"m\.toml: {problem}"):
        read(tmp_path, f"{TIMES}[window]\n{window}", text)


SHAPE = TIMES + 'nodes = "n"\ntasks = "t"\ncores = "c"\ndevices = "g"\nmemory = { column = "m", unit = "MiB" }\n'


@pytest.mark.parametrize(
    ("shape", "gang", "amounts", "changed"),
    [
        ("1,,8,0,100", (None, None), (8000, 0, 100), None),
        ("4,,8,4,100", (4, 4), (8000, 4000, 100), None),
        ("2,8,8,2,100", (8, 2), (8000, 8000, 100), UNEVEN),
        ("3,,8,0,100", (3, 3), (9000, 0, 100), UNEVEN),
        (",4,8,4,100", (4, None), (8000, 4000, 100), None),
        ("3,2,6,3,", (3, 3), (6000, 3000, None), None),
    ],
)
def test_a_job_of_several_nodes_or_tasks_is_a_gang_that_shares_what_it_asks_for(
    tmp_path: Path,
    shape: str,
    gang: tuple[int | None, int | None],
    amounts: tuple[float | None, ...],
    changed: str | None,
) -> None:
    ran = "2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:01"
    [row] = read(tmp_path, SHAPE, f"id,came,begun,ended,n,t,c,g,m\n1,{ran},{shape}\n")
    assert (row.instances, row.gang_tasks, row.gang_nodes) == (1, *gang)
    assert (row.cpu_milli, row.gpu_milli, row.memory_mb) == amounts
    assert row.changed == changed


def test_a_job_of_several_nodes_may_prefer_or_require_one_rack(tmp_path: Path) -> None:
    columns = '[columns]\njob = "id"\nsubmit = "came"\nnodes = "n"\nrack = "r"\n'
    columns += 'runtime = { column = "t", unit = "s" }\n'
    lines = "id,came,n,r,t\n" + "".join(
        f"{number},2024-03-01 09:00,{nodes},{rack},5\n"
        for number, (nodes, rack) in enumerate([(2, "prefer"), (2, "Require"), (2, ""), (1, "require")])
    )
    assert [row.gang_rack for row in read(tmp_path, columns, lines)] == ["prefer", "require", None, None]
    with pytest.raises(InputError, match="r gives no rack: 'near' is none of prefer, require; mend it"):
        read(tmp_path, columns, "id,came,n,r,t\n1,2024-03-01 09:00,2,near,5\n")


def test_amounts_may_be_stated_of_each_node_task_or_core(tmp_path: Path) -> None:
    columns = (
        "gang = false\n" + TIMES + 'tasks = "t"\nnodes = "n"\ncores = { column = "c", per = "node" }\n'
        'devices = { column = "g", per = "task" }\nmemory = { column = "m", unit = "MiB", per = "core" }\n'
    )
    ran = "2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:01"
    [row] = read(tmp_path, columns, f"id,came,begun,ended,n,t,c,g,m\n1,{ran},2,4,6,0.5,100\n")
    # 2 nodes of 6 cores are 12 cores, 3 for each of 4 tasks, with 100 MiB for each core.
    assert (row.instances, row.gang_tasks, row.cpu_milli, row.gpu_milli, row.memory_mb) == (4, None, 3000, 500, 300)


def test_a_start_comes_of_a_wait_and_an_end_of_a_runtime(tmp_path: Path) -> None:
    columns = '[columns]\njob = "id"\nsubmit = "came"\n'
    columns += 'wait = { column = "w", unit = "s" }\nruntime = { column = "r", unit = "s" }\n'
    [row] = read(tmp_path, columns, "id,came,w,r\n1,2024-03-01 09:00,60,5\n")
    assert (row.start_us, row.end_us) == ((NINE + 60) * S, (NINE + 65) * S)


def test_a_runtime_counts_more_than_its_times(tmp_path: Path) -> None:
    columns = TIMES + 'runtime = { column = "r", unit = "s" }\n'
    noticed = Noticed()
    text = "id,came,begun,ended,r\n1,2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:01,30\n"
    [row] = read(tmp_path, columns, text, noticed)
    assert row.runtime_us == 30 * S
    assert dict(+noticed) == {"rows whose runtime is not end minus start, of which the runtime counts": 1}


def test_further_attempts_of_a_job_come_one_after_another(tmp_path: Path) -> None:
    text = CSV + (
        "1,2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:10\n"
        "1,2024-03-01 09:00,2024-03-01 09:20,2024-03-01 09:30\n"
        "1,2024-03-01 09:40,2024-03-01 09:40,2024-03-01 09:50\n"
    )
    noticed = Noticed()
    rows = read(tmp_path, "[source]\nattempts = true\n" + TIMES, text, noticed)
    assert [(row.task, row.submit_us) for row in rows] == [
        ("0", NINE * S), ("1", (NINE + 600) * S), ("2", (NINE + 2400) * S),
    ]  # fmt: skip
    assert noticed[ATTEMPTS] == 2


def test_a_table_is_read_from_json_parquet_and_compressed_text_alike(tmp_path: Path) -> None:
    times = [{"came": f"2024-03-01 09:0{k}", "begun": f"2024-03-01 09:0{k}", "ended": "2024-03-01 09:30"}
             for k in range(1, 9)]  # fmt: skip
    rows: list[dict[str, Any]] = [{"id": k, "at": at, "cores": 2.0 * k} for k, at in enumerate(times, start=1)]
    names = TIMES.replace('"came"', '"at.came"').replace('"begun"', '"at.begun"').replace('"ended"', '"at.ended"')
    names += 'cores = "cores"\n'
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    nested = json.dumps({"meta": {}, "of": {"jobs": rows}})
    expected = [(str(k), (NINE + 60 * k) * S, (30 - k) * 60 * S, 2000.0 * k) for k in range(1, 9)]

    def told(columns: str, path: Path) -> list[tuple[Any, ...]]:
        (tmp_path / "m.toml").write_text(columns)
        form = format_of(path, columns=str(tmp_path / "m.toml"))
        found = [row for batch in read_source(path, form, Noticed()) for row in rows_of(batch)]
        return [(row.job, row.submit_us, row.runtime_us, row.cpu_milli) for row in found]

    (tmp_path / "l").write_text(lines)
    assert told('[source]\nform = "json-lines"\n' + names, tmp_path / "l") == expected
    (tmp_path / "j").write_text(nested)
    assert told('[source]\nform = "json"\nrows = "of.jobs"\n' + names, tmp_path / "j") == expected
    flat = [{"id": row["id"], **row["at"], "cores": row["cores"]} for row in rows]
    pq.write_table(pa.Table.from_pylist(flat), tmp_path / "p")
    assert told('[source]\nform = "parquet"\n' + TIMES + 'cores = "cores"\n', tmp_path / "p") == expected
    text = CSV.strip() + ",cores\n" + "".join(",".join(map(str, row.values())) + "\n" for row in flat)
    (tmp_path / "z").write_bytes(gzip.compress(text.encode()))
    assert told(TIMES + 'cores = "cores"\n', tmp_path / "z") == expected


@pytest.mark.parametrize(
    ("more", "words", "enforces"),
    [
        ('runtime = { column = "ran", unit = "s" }\n', "id,came,lim,ran\na,2024-03-01 09:00:00,60,100\n", True),
        (
            'start = "begun"\nend = "ended"\n',
            "id,came,lim,begun,ended\na,2024-03-01 09:00:00,60,2024-03-01 09:00:00,2024-03-01 09:01:40\n",
            False,
        ),
    ],
)
def test_limits_of_planned_work_are_enforced_and_those_of_work_that_ran_counted(
    tmp_path: Path, more: str, words: str, enforces: bool
) -> None:
    head = '[columns]\njob = "id"\nsubmit = "came"\nlimit = { column = "lim", unit = "s" }\n'
    (tmp_path / "m.toml").write_text(head + more)
    (tmp_path / "t.csv").write_text(words)
    trace, reading = load_workload(tmp_path / "t.csv", columns=str(tmp_path / "m.toml"))
    assert reading is not None
    assert reading.limits == LimitSummary(enforced=enforces, jobs=1, over_jobs=1, over_tasks=1)
    assert trace.limit_us.tolist() == ([60 * S] if enforces else [])
    assert trace.duration_us.tolist() == [100 * S]
    if enforces:
        (tmp_path / "t.csv").write_text(words.replace(",60,", ",0,"))
        with pytest.raises(InputError, match=r"t\.csv:2: the limit is 0 s, in which no job can run"):
            load_workload(tmp_path / "t.csv", columns=str(tmp_path / "m.toml"))


@pytest.mark.parametrize("waits", ["", "afterok:7"])
def test_attempts_stay_apart_where_a_row_states_a_dependency(tmp_path: Path, waits: str) -> None:
    """One dependency in the file makes one job of the rows of each; attempts that are gangs come one after another."""
    text = (
        "id,came,begun,ended,n,after\n"
        "1,2024-03-01 09:00:00,2024-03-01 09:00:00,2024-03-01 09:01:40,2,\n"
        f"1,2024-03-01 09:00:00,2024-03-01 09:01:50,2024-03-01 09:03:20,2,{waits}\n"
        "2,2024-03-01 09:00:00,2024-03-01 09:00:00,2024-03-01 09:00:10,1,afterok:1\n"
    )
    columns = "[source]\nattempts = true\n" + TIMES + 'nodes = "n"\ndependency = "after"\n'
    rows = read(tmp_path, columns, text)
    assert rows[1].parents == [*(["job 7"] if waits else []), "0"]
    trace, _ = load_workload(tmp_path / "t.txt", columns=str(tmp_path / "m.toml"))
    assert trace.arrival_us.tolist() == [0, 0, 100 * S]
    assert trace.gang_nodes.tolist() == [2, NO_GANG, 2]
    assert trace.duration_us.tolist() == [100 * S, 100 * S, 10 * S, 90 * S, 90 * S]


def test_an_attempt_within_a_window_comes_no_earlier_than_it(tmp_path: Path) -> None:
    text = (
        "id,came,begun,ended,after\n"
        "1,2024-03-01 08:00,2024-03-01 08:00,2024-03-01 08:10,\n"
        "1,2024-03-01 08:00,2024-03-01 08:20,2024-03-01 09:10,\n"
        "2,2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:10,afterok:1\n"
    )
    columns = "[source]\nattempts = true\n" + TIMES + 'dependency = "after"\n[window]\nfrom = "2024-03-01 09:00"\n'
    assert [row.task_submit_us for row in read(tmp_path, columns, text)] == [0, None]
    trace, _ = load_workload(tmp_path / "t.txt", columns=str(tmp_path / "m.toml"))
    assert trace.arrival_us.tolist() == [0, 0]


def test_the_jobs_of_an_array_ask_each_for_all_that_its_row_states(tmp_path: Path) -> None:
    text = "id,came,begun,ended,n,t,c,g,m,a\n1,2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:01,2,4,8,2,100,3\n"
    [row] = read(tmp_path, SHAPE + 'array = "a"\n', text)
    assert (row.instances, row.gang_tasks, row.gang_nodes) == (3, None, None)
    assert (row.cpu_milli, row.gpu_milli, row.memory_mb, row.changed) == (8000, 2000, 100, None)


@pytest.mark.parametrize("shape", ["0,,8,0,100", ",0,8,0,100", "0,0,8,0,100"])
def test_what_ran_on_no_node_or_in_no_task_had_one(tmp_path: Path, shape: str) -> None:
    text = f"id,came,begun,ended,n,t,c,g,m\n1,2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:01,{shape}\n"
    [row] = read(tmp_path, SHAPE, text)
    assert (row.instances, row.gang_tasks, row.cpu_milli, row.memory_mb) == (1, None, 8000, 100)
    per_node = SHAPE.replace('cores = "c"', 'cores = { column = "c", per = "node" }')
    [row] = read(tmp_path, per_node, text)
    assert row.cpu_milli == 8000
    plan = '[columns]\njob = "id"\nsubmit = "came"\nruntime = { column = "c", unit = "s" }\ntasks = "t"\n'
    if shape.startswith(",0"):
        assert [row.instances for row in read(tmp_path, plan, text)] == [0]


def test_attempts_are_known_again_however_far_apart_their_rows_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are read part by part; of jobs with one row so far only a hash and an end are kept."""
    monkeypatch.setattr("volery.workload.formats.columns.records.BATCH_ROWS", 3)
    lines = [(job, 10 * at) for at, job in enumerate("abcadbeafgaabh")]
    text = "id,came,begun,ended\n" + "".join(f"{job},0,{at},{at + 5}\n" for job, at in lines) + "i,0,,\ni,0,200,300\n"
    clocks = "".join(
        f'{to} = {{ column = "{name}", unit = "s" }}\n'
        for to, name in (("submit", "came"), ("start", "begun"), ("end", "ended"))
    )
    rows = read(tmp_path, f'[source]\nattempts = true\n[columns]\njob = "id"\n{clocks}', text)
    ends: dict[str, int] = {}
    counts: dict[str, int] = {}
    for row, (job, at) in zip(rows, lines, strict=False):
        assert (row.job, row.task) == (job, str(counts.get(job, 0)))
        assert row.submit_us == ends.get(job, 0) * S
        ends[job], counts[job] = at + 5, counts.get(job, 0) + 1
    assert [(row.task, row.submit_us) for row in rows[-2:]] == [("0", 0), ("1", 0)]


def test_jobs_keep_their_partition_in_the_lab(tmp_path: Path) -> None:
    text = (
        "id,came,begun,ended,queue\n"
        "2,2024-03-01 09:01,2024-03-01 09:01,2024-03-01 09:02,long\n"
        "1,2024-03-01 09:00,2024-03-01 09:00,2024-03-01 09:01,\n"
    )
    assert [row.partition for row in read(tmp_path, TIMES + 'partition = "queue"\n', text)] == ["long", None]
    trace, _ = load_workload(tmp_path / "t.txt", columns=str(tmp_path / "m.toml"))
    assert trace.partition == ("", "long")
    assert "partitions" in features_of(trace)
    read(tmp_path, TIMES, text)
    trace, _ = load_workload(tmp_path / "t.txt", columns=str(tmp_path / "m.toml"))
    assert trace.partition == ()
