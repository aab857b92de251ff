"""Limits that a trace file states: enforced or counted, by the kind of the file, and refused where no job can run."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volery.core.errors import InputError
from volery.core.limits import LimitSummary
from volery.core.model import NEVER, SECOND, Cluster
from volery.workload import load_trace, load_workload, offered_load
from volery.workload.convert import convert
from volery.workload.doctor import examine
from volery.workload.limits import bounded_durations_us
from volery.workload.models import with_estimates
from volery.workload.table import TaskRow, batches, manifest_of, read_table, rows_of

ROW = "{job} {submit} -1 {run} 1 -1 -1 1 {limit} -1 1 1 -1 -1 -1 -1 -1 -1"


def swf(path: Path, *rows: tuple[int, object]) -> Path:
    lines = [ROW.format(job=n, submit=10 * n, run=run, limit=limit) for n, (run, limit) in enumerate(rows)]
    path.write_text("; MaxProcs: 1\n" + "\n".join(lines) + "\n")
    return path


def table(path: Path, *rows: TaskRow) -> Path:
    """A table as a user's own program writes it: without a manifest."""
    pq.write_table(pa.Table.from_batches(list(batches(rows))), path)
    return path


def row(job: str, run_s: int, limit_s: int | None, task: str = "0") -> TaskRow:
    limit_us = None if limit_s is None else limit_s * SECOND
    return TaskRow(job=job, task=task, submit_us=0, runtime_us=run_s * SECOND, line=1, limit_us=limit_us)


def test_a_log_of_work_that_ran_ignores_its_limits_and_counts_what_exceeded_them(tmp_path: Path) -> None:
    log = swf(tmp_path / "log.swf", (100, 60), (60, 60), (77, -1), (61, 60))
    trace, reading = load_workload(log)
    assert not trace.limit_us
    assert reading is not None
    assert reading.limits == LimitSummary(enforced=False, jobs=3, over_jobs=2, over_tasks=2)
    assert load_trace(log).digest() == trace.digest()


def test_limits_are_enforced_on_request_and_change_the_digest_of_the_input(tmp_path: Path) -> None:
    log = swf(tmp_path / "log.swf", (100, 60), (60, 60), (77, -1))
    trace, reading = load_workload(log, limits="enforce")
    assert trace.limit_us.tolist() == [60 * SECOND, 60 * SECOND, NEVER]
    assert reading is not None
    assert reading.limits == LimitSummary(enforced=True, jobs=2, over_jobs=1, over_tasks=1)
    assert trace.digest() != load_trace(log).digest()
    assert trace.duration_us.tolist() == [100 * SECOND, 60 * SECOND, 77 * SECOND], "the driver alone cuts them"
    assert bounded_durations_us(trace).tolist() == [60 * SECOND, 60 * SECOND, 77 * SECOND]


def test_a_table_of_one_s_own_enforces_its_limits_and_a_converted_log_does_not(tmp_path: Path) -> None:
    own = table(tmp_path / "own.parquet", row("a", 100, 60), row("b", 100, None))
    assert load_trace(own).limit_us.tolist() == [60 * SECOND, NEVER]
    assert not load_workload(own, limits="ignore")[0].limit_us

    log = swf(tmp_path / "log.swf", (100, 60))
    made, again = tmp_path / "made.parquet", tmp_path / "again.parquet"
    convert(log, made)
    convert(made, again)
    assert (manifest_of(made).limits, manifest_of(again).limits) == ("ignore", "ignore")
    assert not load_trace(again).limit_us
    assert load_workload(again, limits="enforce")[0].limit_us.tolist() == [60 * SECOND]
    convert(own, tmp_path / "kept.parquet")
    assert load_trace(tmp_path / "kept.parquet").limit_us.tolist() == [60 * SECOND, NEVER]


def test_a_job_has_the_longest_limit_of_its_rows(tmp_path: Path) -> None:
    rows = [row("a", 5, 60, "0"), row("a", 5, 90, "1"), row("a", 5, None, "2"), row("b", 5, None)]
    assert load_trace(table(tmp_path / "t.parquet", *rows)).limit_us.tolist() == [90 * SECOND, NEVER]
    assert not load_trace(table(tmp_path / "none.parquet", row("a", 5, None))).limit_us


@pytest.mark.parametrize("limit", [0, -7])
def test_a_limit_in_which_no_job_can_run_is_refused_by_line_where_it_would_count(tmp_path: Path, limit: int) -> None:
    log = swf(tmp_path / "log.swf", (100, 60), (100, limit))
    with pytest.raises(
        InputError, match=rf"log\.swf:3: the limit is {limit} s, in which no job can run; state one above"
    ):
        load_workload(log, limits="enforce")
    _, reading = load_workload(log)
    assert reading is not None
    assert reading.limits == LimitSummary(enforced=False, jobs=1, over_jobs=1, over_tasks=1)

    own = table(tmp_path / "own.parquet", row("a", 1, 60), row("b", 1, limit))
    with pytest.raises(InputError, match=rf"own\.parquet:2: the limit is {limit} s, .* or run with --limits ignore"):
        load_trace(own)


def test_a_limit_of_a_job_that_is_not_replayed_stops_no_run(tmp_path: Path) -> None:
    log = swf(tmp_path / "log.swf", (100, 60), (50, 60), (0, 0), (100, 0))
    assert load_workload(log, limits="enforce", job_count=2)[0].job_count == 2
    with pytest.raises(InputError, match=r"log\.swf:4: the limit is 0 s"):
        load_workload(log, limits="enforce", job_count=4)


def test_a_limit_that_is_no_number_is_refused_by_line(tmp_path: Path) -> None:
    log = swf(tmp_path / "log.swf", (100, 60), (100, "long"))
    with pytest.raises(InputError, match=r"log\.swf:3: .*'long'; mend or delete the row"):
        load_trace(log)


def test_the_doctor_finds_limits_of_0_and_conversion_makes_them_none(tmp_path: Path) -> None:
    log = swf(tmp_path / "log.swf", (100, 60), (100, 0), (100, -7))
    found = {defect.rule: (defect.rows, defect.first) for defect in examine(log).findings}
    assert found["zero-limit"] == (2, (f"{log}:3", f"{log}:4"))

    mended = tmp_path / "mended.parquet"
    convert(log, mended, chosen_repairs={"zero-limit": "null"})
    assert [each.limit_us for part in read_table(mended) for each in rows_of(part)] == [60 * SECOND, None, None]
    assert load_workload(mended, limits="enforce")[0].limit_us.tolist() == [60 * SECOND, NEVER, NEVER]


def test_work_beyond_a_limit_in_force_is_no_load(tmp_path: Path) -> None:
    log = swf(tmp_path / "log.swf", (100, 60), (20, 60))
    cluster = Cluster((0,), (1,), "one", ("cpu_milli",), ((1000,),))
    assert offered_load(load_trace(log), cluster) == 12
    assert offered_load(load_workload(log, limits="enforce")[0], cluster) == 8


def test_requested_times_that_equal_the_run_times_are_requested_times(tmp_path: Path) -> None:
    log = swf(tmp_path / "log.swf", (100, 100), (60, 60))
    trace, reading = load_workload(log)
    assert reading is not None
    told = with_estimates(trace, "requested", 0, has_estimates=reading.has_estimates)
    assert told.estimate_us.tolist() == [100 * SECOND, 60 * SECOND]
    without, nothing = load_workload(swf(tmp_path / "none.swf", (100, -1)))
    assert nothing is not None
    assert not nothing.has_estimates
    with pytest.raises(InputError, match="has no requested times"):
        with_estimates(without, "requested", 0, has_estimates=nothing.has_estimates)
