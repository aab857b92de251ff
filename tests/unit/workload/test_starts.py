"""Starts that a log states, in the order of the trace that is run of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.core.model import NEVER, SECOND
from volery.workload import load_workload
from volery.workload.starts import recorded_starts

SACCT = """JobID|Submit|Start|End|NNodes|NCPUS|State
3|2024-03-01T00:01:00|2024-03-01T00:01:30|2024-03-01T00:01:40|1|1|COMPLETED
1|2024-03-01T00:00:00|2024-03-01T00:00:10|2024-03-01T00:00:20|2|4|REQUEUED
1|2024-03-01T00:00:00|2024-03-01T00:00:50|2024-03-01T00:01:00|2|4|COMPLETED
2|2024-03-01T00:00:05|Unknown|Unknown|1|1|PENDING
4|Unknown|2024-03-01T00:02:00|2024-03-01T00:02:10|1|1|FAILED
5|2024-03-01T00:01:00|2024-03-01T00:01:05|2024-03-01T00:01:06|1|1|COMPLETED
"""


def starts_s(path: Path, job_count: int | None = None) -> list[int]:
    log = recorded_starts(str(path), None, job_count, "ran", None, has_gangs=True)
    assert log.arrival_us == load_workload(path, job_count=job_count)[0].arrival_us
    return [start_us // SECOND if start_us != NEVER else NEVER for start_us in log.deadline_us]


def test_attempts_have_starts_of_their_own_and_jobs_are_in_order_of_submission(tmp_path: Path) -> None:
    """Job 2 never started; job 4, whose submission is unknown, comes when it started; 3 and 5 keep their order."""
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT)
    assert starts_s(path) == [10, 50, 90, 65, 120]
    path.write_text("".join([line + "\n" for line in SACCT.splitlines() if not line.startswith("3")]))
    assert starts_s(path, 2) == [10, 50]


def test_a_start_that_one_row_lacks_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    rows = ["1 0 5 10 1 -1 -1 1 -1 -1 1", "2 3 -1 10 1 -1 -1 1 -1 -1 1"]
    path.write_text("; Version: 2.2\n" + "".join([f"{row} 1 1 -1 -1 -1 -1 -1\n" for row in rows]))
    assert starts_s(path) == [5, NEVER]


@pytest.mark.parametrize("text", ["0 1 10 10\n", "1 1 5 5\n2 1 5 5\n"])
def test_a_log_without_starts_names_logs_that_have_them(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jobs.tr"
    path.write_text(text)
    with pytest.raises(InputError, match=r"states no starts of jobs \(.tr\); name a log that does, as output of sacct"):
        recorded_starts(str(path), None, None, "ran", None, has_gangs=True)
