"""What is read out of the log and the tables that a run of Slurm leaves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parity.recording import node_numbers, read_run
from parity.records import Attempt, read_record
from parity.scenarios import SCENARIOS, Submission
from volery.core.errors import InputError

LOG = """\
[2026-11-28T08:02:28.273] slurmctld version 22.05.8 started on cluster parity
[2026-11-28T08:02:30.100] _slurm_rpc_submit_batch_job: JobId=1 InitPrio=100 usec=258
[2026-11-28T08:02:30.300] _slurm_rpc_submit_batch_job: JobId=2 InitPrio=90 usec=300
[2026-11-28T08:02:30.400] debug:  sched: Running job scheduler for full queue.
[2026-11-28T08:02:30.401] sched: Allocate JobId=1 NodeList=n[0,2-3] #CPUs=3 Partition=spare
[2026-11-28T08:02:31.287] debug:  sched/backfill: _attempt_backfill: beginning
[2026-11-28T08:02:31.288] sched/backfill: _start_job: Started JobId=2_0(4) in main on n1
[2026-11-28T08:02:31.289] sched/backfill: _start_job: Started JobId=2_1(2) in main on n1
[2026-11-28T08:02:31.290] sched/backfill: _attempt_backfill: completed testing 2(2) jobs, usec=1071
[2026-11-28T08:02:32.000] preempted JobId=1 has been killed to reclaim resources for JobId=16
[2026-11-28T08:02:32.100] preempted JobId=2_0(4) has been requeued to reclaim resources for JobId=16
[2026-11-28T08:02:33.500] _job_complete: JobId=2_1(2) WEXITSTATUS 0
[2026-11-28T08:02:33.500] _job_complete: JobId=2_1(2) done
[2026-11-28T08:02:33.506] make_node_idle: enter JobId=2_1(2)
[2026-11-28T08:02:33.507] debug:  sched: Running job scheduler for default depth.
[2026-11-28T08:02:40.288] sched/backfill: _start_job: Started JobId=2_0(4) in main on n5
[2026-11-28T08:02:42.388] _job_complete: JobId=2_0(4) done
"""
TABLE = """\
JobId=1 JobName=parity JobState=PREEMPTED Reason=None SubmitTime=2026-11-28T08:02:30 EligibleTime=2026-11-28T08:02:30
JobId=2 ArrayJobId=2 ArrayTaskId=1 JobState=COMPLETED Reason=None EligibleTime=2026-11-28T08:02:30 NodeList=n1
JobId=4 ArrayJobId=2 ArrayTaskId=0 JobState=COMPLETED Reason=None EligibleTime=2026-11-28T08:02:38 NodeList=n5
"""
LOOPS = """\
Main schedule statistics (microseconds):
	Max cycle:    66
	Total cycles: 12
Backfilling stats
	Total backfilled jobs (since last slurm start): 14
	Total backfilled jobs (since last stats cycle start): 12
	Max cycle:  2089
"""
WORKLOAD = [
    Submission(0.0, (5.0,), 1, 3, 1, partition="spare"),
    Submission(0.2, (2.0, 2.1), 1, 1, 1),
]


def folder_of_a_run(tmp_path: Path, *, table: str = TABLE) -> Any:
    for name, text in (("slurmctld.log", LOG), ("scontrol.txt", table), ("sdiag.txt", LOOPS), ("numbers.txt", "1 2")):
        (tmp_path / name).write_text(text)
    return SimpleNamespace(folder=tmp_path, log=tmp_path / "slurmctld.log")


def test_attempts_of_arrays_and_of_preempted_jobs_are_read(tmp_path: Path) -> None:
    record = read_run(folder_of_a_run(tmp_path), "preemption", 1, ("A=b",), WORKLOAD)

    assert [(job.submission, job.index) for job in record.jobs] == [(0, 0), (1, 0), (1, 1)]
    cancelled, requeued, lucky = record.jobs
    assert cancelled.attempts == (Attempt(301, 1900, (0, 2, 3), is_whole=False),)
    assert requeued.attempts == (Attempt(1188, 2000, (1,), is_whole=False), Attempt(10188, 12288, (5,), is_whole=True))
    # Lines of one millisecond keep their order.
    assert lucky.attempts == (Attempt(1189, 3400.001, (1,), is_whole=True, answers_ms=(5.999,)),)
    assert (lucky.submit_ms, requeued.eligible_ms) == (200, 7900)


def test_passes_and_figures_of_the_loops_are_read(tmp_path: Path) -> None:
    record = read_run(folder_of_a_run(tmp_path), "preemption", 1, ("A=b",), WORKLOAD)

    assert (record.slurm, record.begun_ms, record.hour_ms) == ("22.05.8", -1827, 150_100)
    assert (record.main_ms, record.short_ms, record.backfill_ms) == ((300,), (3407,), (1187,))
    assert record.cuts == ((1187, 2),)
    assert record.loops == {
        "main max cycle": 66, "main total cycles": 12, "backfill total backfilled jobs": 14, "backfill max cycle": 2089,
    } | {"backfill total backfilled jobs": 12}  # fmt: skip


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    record = read_run(folder_of_a_run(tmp_path), "preemption", 1, ("A=b",), WORKLOAD)
    assert read_record(record.write(tmp_path)) == record


def test_a_job_that_failed_makes_no_record(tmp_path: Path) -> None:
    slurm = folder_of_a_run(tmp_path, table=TABLE.replace("COMPLETED", "FAILED"))
    with pytest.raises(InputError, match="job 2: it ended as FAILED"):
        read_run(slurm, "preemption", 1, (), WORKLOAD)


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fifo-1.json"
    path.write_text('{"scenario": "fifo"}')
    with pytest.raises(InputError, match=r"fifo-1.json: no record of a run .*make parity"):
        read_record(path)


@pytest.mark.parametrize(("text", "numbers"), [("n3", (3,)), ("n[0-2,5]", (0, 1, 2, 5)), ("n[4,6-7]", (4, 6, 7))])
def test_names_of_nodes_are_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert node_numbers(text) == numbers


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_workload_has_the_load_of_its_scenario(name: str) -> None:
    scenario = SCENARIOS[name]
    workload = scenario.workload(3)
    load = sum(job.work_s for job in workload) / (32 * workload[-1].at_s)
    assert load == pytest.approx(scenario.load, rel=0.02)
    assert scenario.load >= 1.3
    assert workload == scenario.workload(3) != scenario.workload(4)
    assert all(job.parent < place for place, job in enumerate(workload))
    assert workload[0].at_s == 0
