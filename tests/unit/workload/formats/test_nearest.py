"""A file of no known format: the error names the nearest format with line and reason, or one that is not read yet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volery.core.errors import InputError
from volery.workload import load_workload
from volery.workload.formats import FORMATS, format_of
from volery.workload.formats.source import head_of
from volery.workload.table import SCHEMA, VERSION_KEY, read_table

ROW = "1 0 -1 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1"
MORE = "\n2 10 -1 50 2 -1 -1 2 60 -1 1 2 1 -1 1 -1 -1 -1\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time\n"
GWF = "WorkflowID,JobID,SubmitTime,RunTime,NProcs,ReqNProcs,Dependencies\n"
PAI = "jobA,ps,1.0,Terminated,494319.0,494919.0,600.0,29.2,,\n"
GWA = "1\t1109000000\t10\t100\t4" + "\t-1" * 5 + "\t1" + "\t-1" * 18 + "\n"
CSV = "job;who;submitted;cores\n1;u1;2024-03-01 08:00:00;8\n2;u2;2024-03-01 08:05:00;1\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"; x\n{ROW} 0{MORE}", r"f:2: .*nearest to SWF .*: 19 fields where there are 18, and field 19 is '0'"),
        (f"# a comment\n{ROW}{MORE}", r"f:1: .*nearest to SWF .*: a comment that begins with '#' where .* ';'"),
        (f"{ROW}{MORE}3 soon{ROW[3:]}", r"f:3: .*nearest to SWF .*: could not convert string to float: 'soon'"),
        (f"{ROW} ; note{MORE}", r"f:1: .*nearest to SWF .*: 20 fields where there are 18, and field 19 is ';'"),
        (f"{ROW[:-3]}{MORE}", r"f:1: .*nearest to SWF .*: 17 fields where there are 18"),
        (PODS.replace(",num_gpu,creation_time", ""), r"f:1: .*nearest to Alibaba GPU .*the columns creation_time, n"),
        (PODS.replace("num_gpu", "gpus"), r"f:1: .*nearest to Alibaba GPU v2023 pods .*: lacks the column num_gpu;"),
        (GWF.replace(",Dependencies", ""), r"f:1: .*nearest to GWF .*: lacks the column Dependencies;"),
        (GWF.replace(",", ";"), r"f:1: .*nearest to GWF .*: separates its columns otherwise than by a comma"),
        ("0 2 1.5 1 2\n3 2 1.5 1 2\n6 3 1.5 1 2\n", r"f:3: .*nearest to \.tr .*: it has 2 durations where .*'3'"),
        ("M1,2,j,1,Terminated,1,2,5,2\nM1,2,j,1,Over,1,2,5,2\n", r"f:2: .*nearest to Alibaba v2018 .*'Over'"),
        ("0,,1,1,,0,u,3,9,.5,.2,.1,1\n4,,1,1,7,x,u,3,9,.5,.2,.1,1\n", r"f:2: .*nearest to Google 2011 .*'x'"),
        ('{"name": "x", "tasks": []}', r"f: .*nearest to WfCommons .*: lacks the key workflow;"),
        ('[{"submitted_time": "", "attempts": []}]', r"f: .*nearest to Philly job log .*: lacks the key jobid;"),
        ("what is this\n", r"f:1: begins with 'what is this', which no known format does; name .* with --format"),
    ],
)
def test_the_nearest_format_is_named_with_line_and_reason(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "f"
    path.write_text(text)
    for refused in (format_of, load_workload):
        with pytest.raises(InputError, match=problem) as caught:
            refused(path)
        assert "Azure" not in str(caught.value), "no list of all titles"


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        (("0,2.0,489,3,2650.5,50,simulated,medium", "1,4,9786,0,.5,9,real,a1"), "azure-requests"),
        (("0,2.0,489,3,2650.5,-50,simulated,medium", "1,4,9786,1e2,.5,9,x-y,"), "azure-requests"),
        ((",2.0,489,3,,50,simulated,medium", "1,4,,,.5,9,real,a1"), "azure-requests"),
        (("0,2,489,3,2,Running,1,.5", "-5,4,9786,1,,Waiting,,", "1,4,9786,1,,,,"), "alibaba-2017"),
        (("0,2,489,0,u=,2,n=,l=", "4,,9786,1,,2,,"), "google-2011-jobs"),
    ],
)
def test_tables_of_eight_columns_without_names_are_told_apart(tmp_path: Path, rows: tuple[str, ...], name: str) -> None:
    path = tmp_path / "f"
    path.write_text("\n".join(rows))
    assert [form.name for form in FORMATS if form.fits(head_of(path))] == [name]


def test_a_table_that_is_near_several_formats_is_told_all(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("1,4,x,0,5,9,real,b\n" * 2)
    with pytest.raises(InputError, match=r"f:1: .*nearest to Azure requests .*'x'.*; it is about as near to Google"):
        format_of(path)
    path.write_text("1,1,1,1,1,Ready,1,1\n1,1,1,1,1,9,real,b\n")
    with pytest.raises(InputError, match=r"f:2: .*nearest to A.*\(--format a.*; it is about as near to .*\(--format a"):
        format_of(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            f"{PAI}{PAI.replace('600.0', 'six')}",
            r"f:2: .*nearest to Alibaba GPU v2020 .*plan_cpu gives no cores: .*'six'",
        ),
        (
            "job_name,task_name,inst_num,status,plan_gpu\nj,t,1,Failed,3\n",
            r"f:1: .*v2020 .*: lacks the column plan_cpu;",
        ),
        (
            f"{GWA}{GWA.replace('100', 'long')}",
            r"f:2: .*nearest to GWF with 29 columns .*RunTime gives no runtime: .*'long'",
        ),
    ],
)
def test_a_file_that_nearly_fits_a_shipped_map_is_told_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "f"
    path.write_text(text)
    for refused in (format_of, load_workload):
        with pytest.raises(InputError, match=problem):
            refused(path)


@pytest.mark.parametrize("text", [CSV, CSV.replace(";", "\t"), "JobID,Elapsed,State\n1,00:10:00,COMPLETED\n"])
def test_a_table_with_columns_of_its_own_is_told_how_to_map_them(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.txt"
    path.write_text(text)
    for refused in (format_of, load_workload):
        with pytest.raises(
            InputError, match=r"is a table with columns of its own \(\w+, .*`volery trace columns f\.txt >"
        ):
            refused(path)


def test_output_of_sacct_without_a_separator_is_told_the_option(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_text("JobID           JobName      State ExitCode \n------------ ---------- ---------- -------- \n")
    with pytest.raises(InputError, match=r"f\.txt:1: is output of sacct without -P, .*; export it with -P"):
        format_of(path)


def columns(*names: str) -> pa.Table:
    return pa.table({name: pa.array([], SCHEMA.field(name).type) for name in names})


def test_a_parquet_file_is_told_the_columns_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(columns("job", "task", "submit_us", "runtime_us"), path)
    with pytest.raises(InputError, match=r"nearest to canonical table .*lacks the columns .*cpu_milli.*user"):
        format_of(path)
    table = pa.table({"id": [1], "workflow_id": [1], "ts_submit": [0], "runtime": [1]})
    pq.write_table(table, path)
    with pytest.raises(InputError, match=r"nearest to WTA .*lacks the column parents"):
        format_of(path)
    pq.write_table(columns(*SCHEMA.names), path)
    with pytest.raises(InputError, match=r"nearest to canonical table .*its metadata have no volery\.trace_table"):
        format_of(path)


def test_a_parquet_file_that_is_near_no_format_is_told_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"colour": ["red"], "shape": ["round"]}), path)
    with pytest.raises(InputError, match=r"has the columns colour, shape, which no known format does"):
        format_of(path)


def test_a_table_of_a_version_is_told_how_its_columns_differ(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    names = [name for name in SCHEMA.names if name != "user"]
    odd = columns(*names).append_column("colour", pa.array([], pa.string()))
    odd = odd.replace_schema_metadata({VERSION_KEY: b"6"})
    odd = odd.set_column(0, "job", pa.array([], pa.int64()))
    pq.write_table(odd, path)
    with pytest.raises(InputError, match=r"lacks user, colour .* another version, job \(int64, not string\)"):
        next(read_table(path))
