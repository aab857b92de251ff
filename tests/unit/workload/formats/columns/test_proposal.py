"""Proposed maps: read as they are, they give the right values; what could not be placed is said."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volery.core.errors import InputError
from volery.workload.formats import format_of, read_source
from volery.workload.formats.columns import map_text, proposed_map
from volery.workload.formats.columns.proposal import Proposal
from volery.workload.formats.source import Noticed, head_of
from volery.workload.table import TaskRow, rows_of

S = 1_000_000
OWN = (
    "job;who;submitted;begun;ended;cores;gpus;mem_gib;limit_h\n"
    "1;u1;2024-03-01 08:00:00;2024-03-01 08:00:10;2024-03-01 09:00:10;8;0;4;2\n"
    "2;u2;2024-03-01 08:05:00;2024-03-01 08:05:00;2024-03-01 08:06:40;1;1;2,5;0,5\n"
)
ROW = {"id": 1, "submit": 5, "start": 6, "end": 7}
STRANGE = (
    'request_id,created_at,launched,completion date,run time [s],status,"GPU count",vCPUs,ram,team,colour\n'
    "r-1,03/01/2024 08:00,03/01/2024 08:01,03/01/2024 09:01,3600,OK,1,8,16 GB,blue,red\n"
    'r-2,03/02/2024 18:00,03/02/2024 18:01,03/02/2024 19:01,3600,Cancelled by 1004,0,8,16 GB,blue,"x, y"\n'
    "r-3,03/02/2024 18:00,,,,in the queue,0,8,16 GB,green,\n"
)


def propose(path: Path, text: str) -> Proposal:
    path.write_text(text)
    return proposed_map(path, head_of(path))


def rows_with(path: Path, proposal: Proposal) -> list[TaskRow]:
    """The rows that the proposal gives, unedited."""
    columns = path.with_name("m.toml")
    columns.write_text(proposal.text)
    form = format_of(path, columns=str(columns))
    return [row for batch in read_source(path, form, Noticed()) for row in rows_of(batch)]


def test_a_table_with_units_in_its_names_needs_no_edit(tmp_path: Path) -> None:
    proposal = propose(tmp_path / "own.csv", OWN)
    assert tomllib.loads(proposal.text)["source"] == {"separator": ";", "decimal": ",", "zone": "UTC"}
    assert (proposal.unplaced, "nodes" in proposal.lacking) == ((), True)
    first, second = rows_with(tmp_path / "own.csv", proposal)
    assert (first.user, first.runtime_us, first.cpu_milli, first.memory_mb) == ("u1", 3600 * S, 8000, 4096)
    assert (second.memory_mb, second.limit_us, second.gpu_milli) == (2560, 1800 * S, 1000)


def test_a_strange_table_is_placed_by_names_and_values(tmp_path: Path) -> None:
    proposal = propose(tmp_path / "s.csv", STRANGE)
    assert proposal.placed == {
        "job": "request_id", "submit": "created_at", "start": "launched", "end": "completion date",
        "runtime": "run time [s]", "cores": "vCPUs", "devices": "GPU count", "memory": "ram", "group": "team",
        "state": "status",
    }  # fmt: skip
    assert proposal.unplaced == ("colour",)
    assert "#   colour (red, x, y)" in proposal.text
    assert "; or %d/%m/%Y %H:%M" in proposal.text, "the sample does not show whether days or months come first"
    tables = tomllib.loads(proposal.text)
    assert tables["states"] == {"finished": ["OK"], "killed": ["Cancelled by *"], "waiting": ["in the queue"]}
    rows = rows_with(tmp_path / "s.csv", proposal)
    assert [(row.job, row.status, row.runtime_us) for row in rows] == [
        ("r-1", "finished", 3600 * S), ("r-2", "killed", 3600 * S), ("r-3", "waiting", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("id\tsubmit\tstart\tend\n1\t5\t6\t7\n", {"separator": "\t"}),
        ("1,1709283600,1709283601,1709283602\n2,1709283600,1709283601,1709283602\n",
         {"separator": ",", "names": ["column1", "column2", "column3", "column4"]}),
        (f"{json.dumps({'t': ROW})}\n" * 2, {"form": "json-lines"}),
        (json.dumps({"meta": 1, "jobs": [ROW]}), {"form": "json", "rows": "jobs"}),
        (json.dumps([ROW], indent=1), {"form": "json"}),
    ],
)  # fmt: skip
def test_the_form_of_a_file_is_recognised(tmp_path: Path, text: str, source: dict[str, object]) -> None:
    proposal = propose(tmp_path / "f", text)
    stated = tomllib.loads(proposal.text)["source"]
    assert {name: stated[name] for name in source} == source
    if "names" not in source:
        assert rows_with(tmp_path / "f", proposal)[0].runtime_us == S


def test_the_columns_of_a_parquet_file_are_placed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    pq.write_table(pa.table({"JobID": [1], "submitTime": [1_709_283_600_000], "durationSec": [2.5]}), path)
    proposal = proposed_map(path, head_of(path))
    assert proposal.placed == {"job": "JobID", "submit": "submitTime", "runtime": "durationSec"}
    [row] = rows_with(path, proposal)
    assert (row.submit_us, row.runtime_us) == (1_709_283_600 * S, 2.5 * S)


def test_what_is_needed_and_not_found_is_said_and_the_unedited_map_refused(tmp_path: Path) -> None:
    proposal = propose(tmp_path / "f.csv", "shape,colour\nround,red\nflat,blue\n")
    for target in ("job", "submit", "end"):
        assert f'# {target} = "?"  # needed, and no column looks like it' in proposal.text
    with pytest.raises(InputError, match=r"m\.toml: columns: lacks job"):
        rows_with(tmp_path / "f.csv", proposal)


def test_the_file_of_a_shipped_map_gets_a_copy_of_it(tmp_path: Path) -> None:
    proposal = propose(
        tmp_path / "f", "JobID|State|Submit|Start|End\n1|COMPLETED|2024-03-01T08:00:00|Unknown|Unknown\n"
    )
    assert proposal.text.endswith(map_text("sacct"))


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="f:1: is no table with a separator"):
        propose(tmp_path / "f", "some words\nand others\n")
    with pytest.raises(InputError, match="f: holds no list of objects that could be rows"):
        propose(tmp_path / "f", '{"a": [1, 2]}')


@pytest.mark.parametrize(
    ("name", "unit", "guess"), [("limit", "", "minutes:seconds"), ("limit_h", "h", "hours:minutes")]
)
def test_a_clock_of_two_parts_is_marked_as_a_guess(tmp_path: Path, name: str, unit: str, guess: str) -> None:
    text = f"id,submit,start,end,{name}\n1,5,6,7,02:30\n"
    proposal = propose(tmp_path / "f", text)
    assert f"{guess} is a guess" in proposal.text
    [row] = rows_with(tmp_path / "f", proposal)
    assert row.limit_us == (9000 if unit else 150) * S


@pytest.mark.parametrize(
    ("text", "problem"),
    [(",,\n" * 3, "f:1: holds separators alone"), (" , \n" * 3, "f:1: holds separators alone"),
     ("a,b\n1,2\n3," + "x" * 200_000 + "\n", "f:3: is no row of a table: field larger than")],
)  # fmt: skip
def test_a_table_without_rows_is_refused_by_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        propose(tmp_path / "f", text)


def test_odd_signs_of_names_and_words_make_a_proposal_that_is_toml(tmp_path: Path) -> None:
    text = 'id,submit,start,end,\U0001f40e limit_h,mem\x7f_gib,"co\nlour",state\n1,5,6,7,2,3,red,\U0001f40e odd\x7f\n'
    proposal = propose(tmp_path / "f", text)
    columns = tomllib.loads(proposal.text)["columns"]
    assert columns["limit"] == {"column": "\U0001f40e limit_h", "unit": "h"}
    assert columns["memory"] == {"column": "mem\x7f_gib", "unit": "GiB"}
    assert "#   co lour (red)" in proposal.text
    assert "# Words without a status: \U0001f40e odd" in proposal.text
