"""Tag constraints: what they mean on a node set, and workloads that no order of starts can meet."""

from __future__ import annotations

import pytest

from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.model import SECOND, UNLIMITED, TagConstraint, Tags
from volery.core.tags import check_tags, exceeded, lacking, with_tags
from volery.core.trace import Trace

APART = TagConstraint(("hb",), ("hb",), 0, 0, "node")
NEAR = TagConstraint(("storm",), ("hb", "mem"), 1, UNLIMITED, "node")
FEW = TagConstraint(("storm",), ("spark",), 0, 5, "rack")
GATHER = TagConstraint(("spark",), ("spark",), 3, 10, "rack")
HB, STORM, SPARK = Tags(("hb",), (APART,)), Tags(("storm",), (NEAR, FEW)), Tags(("spark",), (GATHER,))
MEMORY = Tags(("hb", "mem"))


def workload(*names: tuple[str, ...], constraints: tuple[TagConstraint, ...]) -> Trace:
    """Jobs of two tasks with these tags."""
    return with_tags(trace_of("tagged", [0] * len(names), [[SECOND] * 2 for _ in names]), names, constraints)


def test_a_task_does_not_count_for_itself() -> None:
    assert exceeded(HB, {}, "node") is None
    assert exceeded(HB, {HB: 1}, "node") == APART
    assert exceeded(HB, {HB: 1}, "rack") is None, "it is about machines"


def test_a_target_may_not_join_a_subject_that_has_enough_of_them() -> None:
    assert exceeded(SPARK, {STORM: 1, SPARK: 4}, "rack") is None
    assert exceeded(SPARK, {STORM: 1, SPARK: 5}, "rack") == FEW
    assert exceeded(SPARK, {SPARK: 5}, "rack") is None, "without a subject nobody minds"
    assert exceeded(MEMORY, {HB: 1}, "node") == APART, "nor without a constraint of its own"


def test_a_target_has_all_tags_of_its_constraint() -> None:
    assert lacking(STORM, {HB: 2}, {HB: 2}, "node") == NEAR
    assert lacking(STORM, {MEMORY: 1}, {MEMORY: 1}, "node") is None


def test_a_group_gathers_one_task_after_another() -> None:
    assert lacking(SPARK, {}, {}, "rack") is None, "the first may start anywhere"
    assert lacking(SPARK, {SPARK: 1}, {SPARK: 1}, "rack") is None, "the second where the first is"
    assert lacking(SPARK, {}, {SPARK: 1}, "rack") == GATHER, "and nowhere else"
    assert lacking(SPARK, {SPARK: 3}, {SPARK: 9}, "rack") is None


def test_constraints_go_to_the_jobs_with_all_tags_of_their_subject() -> None:
    both = TagConstraint(("a", "b"), ("a",), 0, 1)
    trace = workload(("a", "b"), ("b",), (), constraints=(both,))
    assert trace.tags_of(0) == Tags(("a", "b"), (both,))
    assert trace.tags_of(1) == Tags(("b",))
    assert trace.tags_of(2) is None
    assert [task.tags for task in trace.tasks_of(0, range(2))] == [Tags(("a", "b"), (both,))] * 2


def test_a_workload_without_tags_keeps_its_digest_and_tags_change_it() -> None:
    plain = workload((), (), constraints=())
    assert not plain.tag_set
    assert plain.digest() == trace_of("tagged", [0, 0], [[SECOND] * 2] * 2).digest()
    assert workload(("a",), (), constraints=()).digest() != plain.digest()


@pytest.mark.parametrize(
    ("names", "constraints", "problem"),
    [
        ((("a",),), (TagConstraint(("a",), ("a",), 3, 2),), "allows no number"),
        ((("a",),), (TagConstraint(("a",), ()),), "no subject or no target"),
        ((("a",),), (TagConstraint(("a",), ("b",), 1),), "job 0 can never start.*needs 1 other tasks, and 0 have"),
        ((("a",), ("b",)), (TagConstraint(("a",), ("b",), 3),), "needs 3 other tasks, and 2 have"),
        (
            (("a",), ("b",)),
            (TagConstraint(("a",), ("b",), 1), TagConstraint(("b",), ("a",), 1)),
            "job 0 and job 1 wait for tasks of each other",
        ),
        (
            (("a",), ("b",), ("b", "x")),
            (TagConstraint(("a",), ("b",), 1), TagConstraint(("b", "x"), ("a",), 1)),
            "wait for tasks of each other",  # once job 1 has ended
        ),
    ],
)
def test_what_no_order_of_starts_can_meet_is_refused(
    names: tuple[tuple[str, ...], ...], constraints: tuple[TagConstraint, ...], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        check_tags(workload(*names, constraints=constraints))


def test_tasks_that_wait_in_a_chain_can_start() -> None:
    chain = (TagConstraint(("a",), ("b",), 1), TagConstraint(("b",), ("c",), 2))
    check_tags(workload(("a",), ("b",), ("c",), constraints=chain))
