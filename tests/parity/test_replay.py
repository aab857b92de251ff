"""The lab's replay: clocks, dependencies and throttles."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from parity.comparison import agreement
from parity.records import Attempt, RanJob, Record
from parity.replay import PLAIN_FIFO, LabStart, lab_design, replay
from parity.scenarios import Submission


def record_of(submissions: Sequence[Submission]) -> Record:
    """A record in which all jobs start at once and end when they should."""
    jobs = [
        RanJob(place, index, round(1000 * job.at_s), 0, (Attempt(0, round(1000 * run_s), (0,), is_whole=True),))
        for place, job in enumerate(submissions)
        for index, run_s in enumerate(job.runs_s)
    ]
    passes = tuple(range(0, 60_000, 1000))
    conf = ("SchedulerType=sched/builtin", "PartitionName=main Nodes=n[0-7] Default=YES", "SelectType=select/cons_tres")
    return Record("fifo", 1, "22.05.8", conf, -3000, 0, passes, (), (), (), (), {}, tuple(submissions), tuple(jobs))


def starts_s(record: Record) -> list[float]:
    return [start.start_ms / 1000 for start in replay(record, PLAIN_FIFO)]


def test_a_plain_fifo_lets_nobody_pass() -> None:
    wide = Submission(0.0, (4.0,), 1, 8, 3)
    record = record_of([wide, msgspec.structs.replace(wide, at_s=1.0), Submission(2.0, (1.0,), 1, 1, 1)])
    assert starts_s(record) == [0, 4, 4]


def test_a_job_waits_for_its_parents_in_the_lab() -> None:
    parent = Submission(0.0, (4.0, 2.0), 1, 1, 1)
    after_all = Submission(0.5, (1.0,), 1, 1, 1, dependency="afterok", parent=0)
    after_each = Submission(0.5, (1.0, 1.0), 1, 1, 1, dependency="aftercorr", parent=0)
    grandchild = Submission(0.5, (1.0,), 1, 1, 1, dependency="afterany", parent=1)
    assert starts_s(record_of([parent, after_all, after_each, grandchild])) == [0, 0, 4, 4, 2, 5]


def test_a_throttled_array_runs_so_many_tasks_at_once() -> None:
    assert starts_s(record_of([Submission(0.0, (5.0, 2.0, 2.0, 4.0), 1, 1, 1, throttle=2)])) == [0, 0, 2, 4]


def lab_starts_ms(record: Record) -> list[float]:
    return [start.start_ms for start in replay(record, lab_design(record))]


def test_the_lab_passes_when_slurm_did() -> None:
    record = record_of([Submission(float(at), (4.0,), 1, 8, 2) for at in range(4)])
    record = msgspec.structs.replace(record, main_ms=(0, 1040, 2050, 5060), short_ms=(3300,))
    assert lab_starts_ms(record) == [1040, 1040, 5060, 5060]
    assert lab_starts_ms(msgspec.structs.replace(record, short_ms=(5050,))) == [1040, 1040, 5050, 5050]


def test_nodes_that_complete_a_job_start_none() -> None:
    """Their cores are free, and a pass that comes before their answer starts nothing there."""
    record = record_of([Submission(0.0, (1.9,), 1, 8, 4), Submission(0.5, (2.0,), 1, 1, 1)])
    (whole,) = record.jobs[0].attempts
    slow = msgspec.structs.replace(record.jobs[0], attempts=(msgspec.structs.replace(whole, answers_ms=(1500.0,)),))
    record = msgspec.structs.replace(record, main_ms=tuple(range(10, 9000, 1000)))
    assert lab_starts_ms(record) == [10, 2010]
    assert lab_starts_ms(msgspec.structs.replace(record, jobs=(slow, record.jobs[1]))) == [10, 4010]


def test_tasks_of_an_array_are_elements_of_one_job_in_the_lab() -> None:
    """One that waits keeps its place for all; no more run than its throttle lets."""
    record = record_of([Submission(0.0, (1.9, 1.9, 1.9, 1.9), 1, 2, 4, throttle=3), Submission(0.5, (1.0,), 1, 1, 1)])
    record = msgspec.structs.replace(record, main_ms=tuple(range(10, 9000, 1000)))
    assert lab_starts_ms(record) == [10, 10, 10, 2010, 1010]


def test_the_lab_has_the_lines_of_slurm_conf() -> None:
    record = record_of([Submission(0.0, (4.0,), 1, 1, 1)])
    conf = (*record.conf[1:], "SchedulerParameters=sched_interval=1,bf_interval=2", "AuthInfo=cred_expire=5")
    design = lab_design(msgspec.structs.replace(record, conf=conf))
    assert {name: design.parameters[name] for name in ("sched_interval", "bf_interval", "cred_expire")} == {
        "sched_interval": "1", "bf_interval": "2", "cred_expire": "5",
    }  # fmt: skip
    assert design.parameters["PartitionName"] == "main/Nodes:0-7/Default:YES"


def test_agreement_counts_only_jobs_that_waited() -> None:
    record = record_of([Submission(float(at), (4.0,), 1, 1, 1) for at in range(4)])
    late = [
        msgspec.structs.replace(job, attempts=(Attempt(at_ms, at_ms + 1, (0,), is_whole=True),))
        for job, at_ms in zip(record.jobs, (500, 3000, 9000, 6000), strict=True)
    ]
    record = msgspec.structs.replace(record, jobs=tuple(late))
    starts = [LabStart(99_000, (5,)), LabStart(3000, (0,)), LabStart(6000, (0,)), LabStart(7500, (1,))]
    found = agreement(record, starts)
    assert found.tau == pytest.approx(1 / 3)
    assert (found.median_s, found.p95_s) == (1.5, 3.0)
    assert found.same_nodes == pytest.approx(2 / 3)
