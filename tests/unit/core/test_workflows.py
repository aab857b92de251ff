"""Workflows as columns: what they make of a job, what is refused, what schedulers are told, and the digest."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.events import MoreTasks, Submit
from volery.core.model import CHUNK_TASKS, NEVER, Cluster
from volery.core.trace import Trace, longs
from volery.core.workflows import (
    below,
    check_workflows,
    children_of,
    critical_paths_us,
    ends_us,
    has_workflows,
    levels,
    spans_us,
    with_parents,
)


def diamond() -> Trace:
    """Task 0, then 1 and 2, then 3; and a job of two that wait for nobody."""
    trace = trace_of("diamond", [0, 5], [[10, 20, 5, 1], [7, 9]])
    return with_parents(trace, [(), (0,), (0,), (1, 2), (), ()])


def test_the_critical_path_is_the_longest_chain_and_of_a_plain_job_the_longest_task() -> None:
    trace = diamond()
    assert ends_us(trace).tolist() == [10, 30, 15, 31, 7, 9]
    assert critical_paths_us(trace).tolist() == [31, 9]
    assert critical_paths_us(trace_of("none", [0, 0], [[], [3]])).tolist() == [0, 3]
    assert critical_paths_us(trace, longs(6, 2)).tolist() == [6, 2]


def test_levels_children_and_what_lies_below_follow_the_parents() -> None:
    trace = diamond()
    assert levels(trace).tolist() == [0, 1, 1, 2, 0, 0]
    first, children = children_of(trace)
    assert [children[first[t] : first[t + 1]].tolist() for t in range(6)] == [[1, 2], [3], [3], [], [], []]
    assert below(trace, [False, True, False, False, True, False]) == [False, False, False, True, False, False]
    assert below(trace, [True, *[False] * 5]) == [False, True, True, True, False, False]
    assert [trace.parents_of(task) for task in (0, 3)] == [(), (1, 2)]


def test_parents_of_nobody_leave_no_columns() -> None:
    plain = trace_of("plain", [0], [[1, 2]])
    assert with_parents(plain, [(), ()]) == plain
    assert not has_workflows(plain)
    assert has_workflows(diamond())


def test_a_job_lasts_longer_where_its_tasks_are_submitted_late_and_its_critical_path_does_not() -> None:
    trace = msgspec.structs.replace(diamond(), submit_us=array("q", [0, 15, 0, 40, 5, 8]))
    check_workflows(trace)
    assert ends_us(trace).tolist() == [10, 35, 15, 41, 7, 12]
    assert spans_us(trace).tolist() == [41, 12]
    assert critical_paths_us(trace).tolist() == [31, 9]
    assert levels(trace).tolist() == levels(diamond()).tolist()


@pytest.mark.parametrize(
    ("submit_us", "problem"),
    [
        ([0, 0, 0, 0, 5], "5 submissions for 6 tasks"),
        ([0, 0, 0, 0, 4, 5], "the first task of job 1 is submitted at 4 us; the job is at 5 us"),
        ([1, 1, 1, 1, 5, 5], "the first task of job 0 is submitted at 1 us; the job is at 0 us"),
        ([0, 3, 0, 2, 5, 5], "task 3 of job 0 is submitted at 2 us; here not before 3"),
    ],
)
def test_submissions_before_the_job_or_a_parent_are_refused(submit_us: list[int], problem: str) -> None:
    trace = msgspec.structs.replace(diamond(), submit_us=array("q", submit_us))
    with pytest.raises(InputError, match=problem):
        check_workflows(trace)


@pytest.mark.parametrize("parents", [[(0,), ()], [(1,), ()], [(), (0,), (0,)], [(), (-1,)]])
def test_a_parent_of_another_job_or_after_its_child_is_refused(parents: list[tuple[int, ...]]) -> None:
    jobs = [[1, 1]] if len(parents) == 2 else [[1, 1], [1]]
    with pytest.raises(InputError, match="parents are tasks of the job with smaller numbers"):
        with_parents(trace_of("bad", [0] * len(jobs), jobs), parents)


def test_offsets_that_do_not_fit_are_refused() -> None:
    trace = msgspec.structs.replace(diamond(), parent_first=array("q", [0, 0, 4]))
    with pytest.raises(InputError, match="3 places of first parents for 6 tasks"):
        check_workflows(trace)
    trace = msgspec.structs.replace(diamond(), parent_first=array("q", [0, 1, 0, 2, 4, 4, 4]))
    with pytest.raises(InputError):
        check_workflows(trace)


def test_a_whole_submission_carries_parents_in_chunks_parallel_to_the_tasks() -> None:
    """docs/decisions/0012: what designs that take graphs are sent."""
    size = CHUNK_TASKS + 2
    trace = with_parents(trace_of("t", [0], [[1] * size]), [(), *[(k,) for k in range(size - 1)]])
    submit, more = trace.submission(0)
    assert isinstance(submit, Submit)
    assert isinstance(more, MoreTasks)
    told = [*submit.job.parents, *more.parents]
    assert [len(submit.job.tasks), len(more.tasks)] == [len(submit.job.parents), len(more.parents)]
    assert told == [(), *[(k,) for k in range(size - 1)]]
    (plain,) = diamond().submission(1)
    assert isinstance(plain, Submit)
    assert plain.job.parents == ()


def test_priority_and_deadline_reach_the_scheduler() -> None:
    trace = msgspec.structs.replace(diamond(), priority=array("q", [3, -1]), deadline_us=array("q", [NEVER, 99]))
    jobs = [message.job for job in range(2) for message in trace.submission(job) if isinstance(message, Submit)]
    assert [(job.priority, job.deadline_us) for job in jobs] == [(3, NEVER), (-1, 99)]


def test_the_digest_moves_with_each_new_column_and_without_them_is_what_it_was() -> None:
    plain = trace_of("plain", [0], [[1, 2]])
    assert plain.digest() == "a80c529e2aea48598b79ee27fb52ff2160547926b325cc1089141825e532b608"
    variants = [
        with_parents(plain, [(), (0,)]),
        msgspec.structs.replace(plain, priority=array("q", [0])),
        msgspec.structs.replace(plain, deadline_us=array("q", [0])),
        msgspec.structs.replace(plain, deadline_us=array("q", [1])),
        msgspec.structs.replace(plain, submit_us=array("q", [0, 4])),
    ]
    assert len({trace.digest() for trace in (plain, *variants)}) == 6


def test_an_attempt_on_a_machine_with_a_speed_is_rounded_down() -> None:
    cluster = Cluster((0, 0, 0), (1, 1, 1), speeds=(4100, 3500, 2000), reference_speed=4100)
    assert [cluster.attempt_us(1001, machine) for machine in range(3)] == [1001, 1172, 2052]
    assert Cluster.uniform(1).attempt_us(1001, 0) == 1001


@pytest.mark.parametrize(
    ("speeds", "reference", "match"),
    [((1, 2), 0, "reference speed"), ((1,), 1, "but 1 speeds"), ((), 5, "but 0 speeds"), ((1, 0), 1, "machine 1")],
)
def test_speeds_that_make_no_sense_are_refused(speeds: tuple[int, ...], reference: int, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Cluster((0, 0), (1, 1), speeds=speeds, reference_speed=reference)
