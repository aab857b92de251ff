"""The lab's field cases, where they are beside this repository: each command gives the right value."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.unit.cli.conftest import Command

CASES = Path(__file__).resolve().parents[4] / "shared" / "cases" / "lab"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CASES.is_dir(), reason="the field cases (../shared/cases/lab) are not here"),
]


@pytest.mark.parametrize(
    ("name", "jrt_s", "waits"),
    [
        ("01-names-1.4.json", 45, 4),
        ("01-names-1.3.json", 45, 4),
        ("01-jobs-1.0.json", 30, 1),
        ("02-part-memory.json", 60, 2),
    ],
)
def test_a_workflow_takes_its_critical_path(
    command: Command, tmp_path: Path, name: str, jrt_s: float, waits: int
) -> None:
    cluster = ("--workers", "4", "--capacity", "cpu_milli=4000,memory_mb=16384", "--delay-us", "0")
    ended = command("compare", "pegasus", "--trace", CASES / name, *cluster, "-o", tmp_path / "o", "--strict")
    assert (ended.status, ended.err) == (0, "")
    assert pq.read_table(tmp_path / "o" / "jobs.parquet")["jrt_s"].to_pylist() == [jrt_s]
    assert command("trace", "describe", CASES / name, "--json").json["workflows"]["waits"] == waits


@pytest.mark.parametrize(
    ("name", "words", "jobs", "wait_s"),
    [
        ("02-part-memory.swf", ("--capacity", "cpu_milli=8000"), 10, 160),
        ("02-part-memory.swf", ("--capacity", "cpu_milli=8000,memory_mb=1000000"), 10, 160),
        ("02-part-memory.swf", ("--capacity", "cpu_milli=8000", "--requests", CASES / "02-requests.toml"), 10, 4),
        ("05-status.swf", ("--capacity", "cpu_milli=8000"), 3, 80 / 3),
    ],
)
def test_no_job_of_a_log_is_lost(
    command: Command, name: str, words: tuple[str | Path, ...], jobs: int, wait_s: float
) -> None:
    ended = command(
        "compare", "backfill", "--trace", CASES / name, "--workers", "1", "--delay-us", "0", "--json", *words
    )
    (run,) = ended.json["runs"]
    assert (run["jobs"], run["delay_s"]["mean"]) == (jobs, pytest.approx(wait_s))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("07-sacct.txt", "is output of Slurm's sacct"),
        ("08-own.csv", "is a table with columns of its own (job, who, submitted"),
        ("11-swf_19.swf", "nearest to SWF (--format swf): 19 fields where there are 18"),
        ("11-swf_hash.swf", "nearest to SWF (--format swf): a comment that begins with '#'"),
        ("11-swf_trail.swf", "nearest to SWF (--format swf): 20 fields where there are 18"),
    ],
)
def test_a_file_that_is_not_read_is_told_its_format(command: Command, name: str, problem: str) -> None:
    ended = command("trace", "doctor", CASES / name)
    assert (ended.status, problem in ended.err) == (2, True)


@pytest.mark.parametrize("name", ["11-swf_exp.swf", "11-swf_nan.swf"])
def test_numbers_with_an_exponent_or_unknown_are_read(command: Command, name: str) -> None:
    assert command("trace", "doctor", CASES / name).out.startswith(f"{CASES / name}: 3 rows of swf")


@pytest.mark.parametrize("name", ["06-pai_task_table.csv", "06-pai_task_table_with_header.csv"])
def test_the_jobs_of_pai_that_ran_are_read(command: Command, tmp_path: Path, name: str) -> None:
    """jobA: 4 x (6 cores, 1 GPU) and 1 x 6 cores for 600 s; jobB: 6 cores and a quarter of a GPU for 1 s."""
    command("trace", "convert", CASES / name, "-o", tmp_path / "t.parquet")
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    ran = [row for row in rows if row["runtime_us"] is not None]
    assert [(row["job"], row["gang_tasks"], row["cpu_milli"], row["gpu_milli"], row["runtime_us"]) for row in ran] == [
        ("jobA", 4, 24_000.0, 4000.0, 600_000_000),
        ("jobA", None, 6000.0, None, 600_000_000),
        ("jobB", None, 6000.0, 250.0, 1_000_000),
    ]
    assert [(row["job"], row["status"], row["gang_tasks"], row["gpu_milli"]) for row in rows[3:]] == [
        ("jobC", "running", None, 8000.0),
        ("jobD", "waiting", 2, 1000.0),
    ]


def test_a_file_of_the_grid_workloads_archive_is_read(command: Command, tmp_path: Path) -> None:
    command("trace", "convert", CASES / "09-gwa.gwf", "-o", tmp_path / "t.parquet")
    rows = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [(row["gang_tasks"], row["cpu_milli"], row["runtime_us"]) for row in rows] == [
        (4, 4000.0, 100_000_000),
        (None, 1000.0, 60_000_000),
    ]
