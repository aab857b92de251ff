"""`--columns` and `volery trace columns`: a stranger's table is in the lab in two commands and one edit."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Command

from volery.study import read_study
from volery.study.plan import plan

OWN = (
    "job;who;submitted;begun;ended;cores;gpus;mem_gib;limit_h\n"
    "1;u1;2024-03-01 08:00:00;2024-03-01 08:00:10;2024-03-01 09:00:10;8;0;4;2\n"
    "2;u2;2024-03-01 08:05:00;2024-03-01 08:05:00;2024-03-01 08:06:40;1;1;2,5;0,5\n"
    "3;u2;2024-03-01 08:05:00;;;1;0;2;1\n"
)
CLUSTER = ("--workers", "1", "--capacity", "cpu_milli=8000", "--delay-us", "0")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    path.write_text(OWN)
    return path


def mapped(command: Command, own: Path) -> Path:
    """The proposal of the first command, with the edit of a person: the zone of the clock."""
    columns = own.with_suffix(".toml")
    proposal = command("trace", "columns", own)
    assert (proposal.status, proposal.err) == (0, "")
    columns.write_text(proposal.out.replace('"UTC"', '"Europe/Berlin"'))
    return columns


def test_a_strangers_table_is_compared_after_two_commands_and_one_edit(command: Command, own: Path) -> None:
    """Job 1 holds all 8 cores for 3,600 s from 0 on, job 2 comes at 300 and waits for 3,300 s; job 3 never ran."""
    ended = command("compare", "backfill", "--trace", own, "--columns", mapped(command, own), *CLUSTER, "--json")
    assert ended.status == 0
    (run,) = ended.json["runs"]
    assert (run["jobs"], run["delay_s"]["max"], run["delay_s"]["mean"]) == (2, 3300, 1650)
    assert "1 of 3 jobs (33.3 %)" in ended.out, "what is left out is said"


def test_a_table_from_standard_input_is_read_by_a_map(
    command: Command, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = mapped(command, own)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(own.read_bytes())))
    assert command("trace", "describe", "-", "--columns", columns, "--json").json["jobs"] == 2


def test_doctor_and_convert_take_a_map_and_the_table_keeps_what_it_says(command: Command, own: Path) -> None:
    columns = mapped(command, own)
    doctor = command("trace", "doctor", own, "--columns", columns, "--json").json
    assert (doctor["format"], doctor["rows"]) == ("columns", 3)
    table = own.with_suffix(".parquet")
    assert command("trace", "convert", own, "--columns", columns, "-o", table).status == 0
    direct, converted = (
        command("trace", "describe", source, *words, "--json").json
        for source, words in ((own, ("--columns", columns)), (table, ()))
    )
    assert converted["digest"] == direct["digest"]


def test_the_map_of_a_shipped_form_is_named_or_printed(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "export"
    path.write_text(
        "JobID|Submit|Start|End|NCPUS|State\n1|2024-03-01T08:00:00|2024-03-01T08:00:00|2024-03-01T08:01:00|2|COMPLETED\n"
    )
    assert command("trace", "describe", path, "--columns", "sacct", "--json").json["work"] == 120
    printed = command("trace", "columns", path)
    assert printed.out.startswith("# A copy of the shipped map sacct.")
    (tmp_path / "m.toml").write_text(printed.out)
    assert command("trace", "describe", path, "--columns", tmp_path / "m.toml", "--json").json["work"] == 120


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("trace", "columns", "none.csv"), "none.csv: no such file; check the path"),
        (("trace", "doctor", "own.csv", "--columns", "none.toml"), "none.toml: cannot be read"),
        (("trace", "doctor", "own.csv", "--columns", "sact"), "columns: 'sact' is neither a shipped map"),
        (("trace", "doctor", "own.csv", "--columns", "sacct"), "own.csv: has no column 'JobID', which gives job"),
        (
            ("trace", "doctor", "own.csv", "--columns", "sacct", "--format", "swf"),
            "--format: 'swf' and a map of columns",
        ),
        (
            ("compare", "backfill", "--trace", "syn:2x2", "--workers", "1", "--columns", "sacct"),
            "columns: a map is for",
        ),
        (("compare", "backfill", "--trace", "own.csv", "--workers", "1"), "`volery trace columns own.csv > map.toml`"),
    ],
)
def test_what_is_wrong_ends_with_place_reason_and_status_2(
    command: Command, own: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], problem: str
) -> None:
    monkeypatch.chdir(own.parent)
    ended = command(*words)
    assert (ended.status, problem in ended.err) == (2, True), ended.err


def test_a_trace_of_a_known_format_needs_no_map(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text(" ".join(["1", "0", "0", "5", "1", *["-1"] * 13]) + "\n")
    ended = command("trace", "columns", path)
    assert (ended.status, "is a trace of the format swf, which is read without a map" in ended.err) == (2, True)


def test_a_study_names_its_map_relative_to_itself_and_runs_again_when_the_map_changes(
    command: Command, own: Path
) -> None:
    columns = mapped(command, own)
    study = own.with_name("study.toml")
    study.write_text(
        '[axes]\narchitectures = ["backfill"]\n[workload]\ntrace = "own.csv"\ncolumns = "own.toml"\nworkers = 1\n'
        'capacity = "cpu_milli=8000"\n'
    )
    first_key = plan(read_study(study))[0].key
    assert plan(read_study(study))[0].key == first_key
    assert command("run", study, "--json").json["runs"][0]["jobs"] == 2

    columns.write_text(columns.read_text() + '\n[window]\nto = "2024-03-01 08:03"\n')
    assert plan(read_study(study))[0].key != first_key
    assert command("run", study, "--json").json["runs"][0]["jobs"] == 1
