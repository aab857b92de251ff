"""Every rule of the check of tag constraints rejects records that violate it, and accepts those beside them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from tests.unit.conformance.made import records_of

from volery.architectures import configure, lookup
from volery.conformance import CHECKS, NonconformanceError
from volery.conformance.cases import Case, trace_of
from volery.conformance.features import _demand_tags
from volery.core.model import UNLIMITED, Cluster, NodeGroup, TagConstraint
from volery.core.tags import with_tags

CACHE, WORKER = ("cache",), ("worker",)
RACKS = (0, 0, 1)
DONE = {0: 9_000, 1: 9_000}


def pair(one: TagConstraint, first: tuple[str, ...] = CACHE, second: tuple[str, ...] = WORKER) -> Case:
    """Two jobs of one task each, on three machines in two racks."""
    trace = with_tags(trace_of("pair", [0, 1_000], [[4_000], [4_000]]), [first, second], [one])
    return Case("pair", 0, trace, Cluster((0,) * 3, (2,) * 3, racks=RACKS))


def judge(
    case: Case,
    runs: Mapping[int, tuple[int, int, int]],
    answers: Mapping[int, int] = DONE,
    given_up: int = 0,
    first_of_all: bool = True,
) -> None:
    """`given_up`: tasks of the second job."""
    _demand_tags(case, records_of(case, runs, answers, {1: given_up}), first_of_all=first_of_all)


@pytest.mark.parametrize(
    ("group", "machine", "at", "is_allowed"),
    [
        ("node", 0, 2_000, False),
        ("node", 1, 2_000, True),
        ("node", 0, 5_000, True),
        ("rack", 1, 2_000, False),
        ("rack", 2, 2_000, True),
    ],
    ids=["same machine", "other machine", "after its end", "same rack", "other rack"],
)
def test_anti_affinity_is_judged_by_machine_or_rack_while_both_run(
    group: NodeGroup, machine: int, at: int, is_allowed: bool
) -> None:
    case = pair(TagConstraint(WORKER, CACHE, 0, 0, group))
    runs = {0: (0, 1_000, 5_000), 1: (machine, at, at + 4_000)}
    if is_allowed:
        judge(case, runs)
    else:
        with pytest.raises(NonconformanceError, match=f"1 targets of .* are near task 1 at {at} us"):
            judge(case, runs)


def test_a_target_may_not_join_a_subject_that_has_enough_of_them() -> None:
    case = pair(TagConstraint(WORKER, CACHE, 0, 0))
    with pytest.raises(NonconformanceError, match="near task 1 at 3000 us"):
        judge(case, {0: (0, 3_000, 7_000), 1: (0, 2_000, 6_000)})


NEAR_CACHE = TagConstraint(WORKER, CACHE, 1, UNLIMITED)


@pytest.mark.parametrize(
    ("machine", "at", "is_allowed"),
    [(0, 2_000, True), (1, 2_000, False), (0, 500, False)],
    ids=["beside it", "elsewhere", "before it"],
)
def test_affinity_needs_a_target_at_the_start(machine: int, at: int, is_allowed: bool) -> None:
    case, runs = pair(NEAR_CACHE), {0: (0, 1_000, 5_000), 1: (machine, at, at + 4_000)}
    if is_allowed:
        judge(case, runs)
    else:
        with pytest.raises(NonconformanceError, match="task 1 started near 0 targets"):
            judge(case, runs)
    judge(case, runs, first_of_all=False)


@pytest.mark.parametrize(("end", "is_known"), [(500, False), (499, True)])
def test_the_end_of_a_target_is_known_a_hop_later(end: int, is_known: bool) -> None:
    """The job of the subject comes at 1,000 us; a hop takes 500 us."""
    case, runs = pair(NEAR_CACHE), {0: (0, 100, end), 1: (0, 2_000, 6_000)}
    if is_known:
        with pytest.raises(NonconformanceError, match="near 0 targets"):
            judge(case, runs)
    else:
        judge(case, runs)


@pytest.mark.parametrize("machine", [0, 1])
def test_a_group_gathers_around_the_first_that_runs(machine: int) -> None:
    gathered = pair(TagConstraint(("group",), ("group",), 1, UNLIMITED), ("group",), ("group",))
    runs = {0: (0, 1_000, 5_000), 1: (machine, 2_000, 6_000)}
    if machine == 0:
        judge(gathered, runs)
    else:
        with pytest.raises(NonconformanceError, match="task 1 started near 0 targets"):
            judge(gathered, runs)


CACHE_ALONE = {0: (0, 1_000, 5_000)}


@pytest.mark.parametrize(
    ("answers", "given_up", "problem"),
    [
        ({0: 5_000, 1: 6_000}, 1, ""),
        ({0: 5_000}, 1, "job 1 was never answered"),
        ({0: 5_000, 1: 6_000}, 0, "1 tasks of job 1 never ran to their end, and 0 were reported"),
        ({0: 5_000, 1: 4_000}, 1, "job 1 was given up, and the tags that it waits for were still there"),
    ],
)
def test_a_job_may_be_given_up_when_all_that_it_waits_for_has_ended(
    answers: Mapping[int, int], given_up: int, problem: str
) -> None:
    if not problem:
        judge(pair(NEAR_CACHE), CACHE_ALONE, answers, given_up)
        return
    with pytest.raises(NonconformanceError, match=problem):
        judge(pair(NEAR_CACHE), CACHE_ALONE, answers, given_up)


def test_a_job_that_waits_for_no_tags_is_not_given_up() -> None:
    with pytest.raises(NonconformanceError, match="job 1, which waits for no tags, was given up"):
        judge(pair(TagConstraint(WORKER, CACHE, 0, 1)), CACHE_ALONE, {0: 5_000, 1: 6_000}, 1)


def test_a_design_whose_parameters_exclude_tags_is_not_judged_by_them() -> None:
    omega = lookup("omega")
    preempting = msgspec.structs.replace(omega, defaults=configure(omega, {"preemption": True}))
    CHECKS["check_tag_constraints"](preempting)
