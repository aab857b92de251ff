"""Answers of a recording at a moment: jobs, tasks, nodes, users and reasons as they were then."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from volery.live.service.rows import NEWEST, JobOrder, JobQuery
from volery.playback.recording import Recording
from volery.playback.snapshot import Snapshot, at
from volery.playback.traced_runs import CRASH, LENGTH_US, WORK

ENDED_US, BUSY_US = LENGTH_US, 4_000_000


@pytest.fixture
def ended(recording: Recording) -> Snapshot:
    return at(recording, ENDED_US)


@pytest.fixture
def busy(recording: Recording) -> Snapshot:
    return at(recording, BUSY_US)


def numbers(snapshot: Snapshot, query: JobQuery, order: JobOrder = NEWEST) -> list[int]:
    return [job.id for job in snapshot.jobs(query, 100, order)]


def test_jobs_are_those_submitted_by_then(recording: Recording) -> None:
    for moment_us in (0, 400_000, 2_000_000, BUSY_US, ENDED_US):
        submitted = [job for job, (at_s, *_) in enumerate(WORK) if at_s * 1e6 <= moment_us]
        assert len(numbers(at(recording, moment_us), JobQuery())) == pytest.approx(len(submitted), abs=1)
    assert numbers(at(recording, ENDED_US), JobQuery()) == list(range(len(WORK)))[::-1], "the newest first"


def test_all_tasks_finish_though_a_machine_crashes(ended: Snapshot) -> None:
    tasks = sum(count for _, _, count, _ in WORK)
    assert sum(job.finished for job in ended.jobs(JobQuery(), 100)) == tasks == ended.reports_by_state["finished"]
    assert ended.reports_by_state["failed"] == 0
    assert {job.state for job in ended.jobs(JobQuery(), 100)} == {"done"}


def test_filters_apply(ended: Snapshot, busy: Snapshot) -> None:
    of_eve = [job for job, (_, user, *_) in enumerate(WORK) if user == "eve"]
    assert numbers(ended, JobQuery(user="eve")) == of_eve[::-1]
    assert numbers(ended, JobQuery(user="nobody")) == []
    assert numbers(ended, JobQuery(before=3)) == [2, 1, 0]
    assert numbers(ended, JobQuery(since_us=9_000_000)) == [6]
    assert numbers(busy, JobQuery(state="running")) == [job.id for job in busy.jobs(JobQuery(), 9) if job.running]
    assert numbers(ended, JobQuery(reason="cancelled")) == []


def test_no_job_of_a_recording_has_a_name(ended: Snapshot) -> None:
    assert numbers(ended, JobQuery(name="train")) == []
    assert len(numbers(ended, JobQuery(name=""))) == len(WORK)


@pytest.mark.parametrize("by", ["id", "state", "reason", "name", "user", "tasks", "submitted_us", "ended_us"])
def test_every_order_is_a_sort_with_the_newest_first_among_equals(ended: Snapshot, by: str) -> None:
    listed = ended.jobs(JobQuery(), 100, JobOrder(by, falling=False))
    keys = [getattr(job, by) for job in listed]
    assert keys == sorted(keys)
    assert all(a.id > b.id for a, b in itertools.pairwise(listed) if getattr(a, by) == getattr(b, by))
    skipped = ended.jobs(JobQuery(), 2, JobOrder(by, falling=False, skip=3))
    assert [job.id for job in skipped] == [job.id for job in listed[3:5]]


def test_tasks_are_in_the_state_of_their_last_attempt(busy: Snapshot) -> None:
    for job in busy.jobs(JobQuery(), 100):
        states = [task.state for task in busy.tasks(job.id, 0, 100)]
        assert (states.count("running"), states.count("finished")) == (job.running, job.finished)
        assert len(states) == job.tasks
    assert busy.tasks(99, 0, 10) == []
    assert busy.job(99) is None


def test_a_node_runs_what_its_tasks_say(busy: Snapshot) -> None:
    nodes = busy.nodes()
    assert len(nodes) == 18
    assert sum(node.running for node in nodes) == sum(job.running for job in busy.jobs(JobQuery(), 100)) > 0
    for node in nodes:
        ran = busy.runs_on(node.address, 100)
        assert [task.node for task in ran] == [node.address] * node.running


def test_a_crashed_node_is_lost_until_it_is_restarted(recording: Recording) -> None:
    lost = [CRASH.address in at(recording, moment_us).lost() for moment_us in (6_000_000, 7_000_000, ENDED_US)]
    assert lost == [False, True, False]
    node = next(one for one in at(recording, 7_000_000).nodes() if one.address == CRASH.address)
    assert node.lost


def test_a_task_explains_its_decisions(busy: Snapshot, ended: Snapshot) -> None:
    why = asyncio.run(ended.explain(0, 0))
    assert why is not None
    assert why.explained
    assert why.decisions[0].chosen in ("placed", "queued")
    assert [step.machines for step in why.funnel][:1] == [18]
    assert asyncio.run(ended.explain(0, 99)) is None
    assert asyncio.run(ended.explain(99, None)) is None
    waiting = next(job for job in busy.jobs(JobQuery(), 100) if job.running + job.finished < job.tasks)
    told = asyncio.run(busy.explain(waiting.id, None))
    assert told is not None
    assert told.state == "pending"
    assert told.waiting == waiting.tasks - waiting.running - waiting.finished


def test_pairs_count_the_decisions_so_far(busy: Snapshot, ended: Snapshot) -> None:
    before, after = ({(one.by, one.asked): one.decisions for one in snapshot.views()} for snapshot in (busy, ended))
    assert sum(after.values()) > sum(before.values()) > 0
    assert all(after[pair] >= count for pair, count in before.items())


def test_users_have_the_load_of_their_jobs(busy: Snapshot) -> None:
    jobs = busy.jobs(JobQuery(), 100)
    assert {user.user for user in busy.users(None)} == {job.user for job in jobs if not job.ended}
    for load in busy.loads():
        assert load.tasks_running == sum(job.running for job in jobs if job.user == load.user)
    assert [user.user for user in busy.users("zoe")] == ["zoe"]


def test_the_pace_counts_the_last_minute(recording: Recording) -> None:
    assert at(recording, 0).per_second(0) is None
    tasks = sum(count for _, _, count, _ in WORK)
    pace = at(recording, ENDED_US).per_second(0)
    assert pace is not None
    assert pace >= tasks / (recording.end_us / 1e6) * 0.99


def test_times_from_submission_to_start_are_of_the_last_jobs(ended: Snapshot) -> None:
    found = ended.allocations_us(1000)
    assert len(found) == sum(count for _, _, count, _ in WORK)
    assert min(found) > 0
    assert ended.allocations_us(3) == found[:3]


def test_a_moment_outside_is_the_nearest_within(recording: Recording) -> None:
    assert at(recording, -5).time_us == recording.begin_us
    assert at(recording, 10**12).time_us == recording.end_us
    assert at(recording, 5) is at(recording, 5)
