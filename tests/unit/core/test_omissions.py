"""Why a task fits no machine, in words."""

from __future__ import annotations

import pytest

from volery.core.model import Amounts, Cluster
from volery.core.omissions import misses, nearest_miss

GB = 1024
OFFERING = Cluster(
    (0b0000, 0b10001000, 0b10001001),
    (1, 1, 1),
    "c",
    ("cpu_milli", "memory_mb", "gpus"),
    ((64_000, 128 * GB, 0), (8_000, 64 * GB, 0), (16_000, 32 * GB, 2)),
)


@pytest.mark.parametrize(
    ("constraints", "request_", "problem"),
    [
        (0, (64_000, 128 * GB, 0), ""),
        (1 << 3 | 1 << 7, (16_000, 1, 2), ""),
        (1 << 3 | 1 << 7, (1, 96 * GB, 0), "needs 96 GB; the largest machine that meets constraints 3, 7 has 64 GB"),
        (1 << 3, (500, 96 * GB, 0), "needs 96 GB; the largest machine that meets constraint 3 has 64 GB"),
        (
            0,
            (64_500, 1, 3),
            "needs 64.5 CPUs; the largest machine has 64 CPUs, and needs 3 gpus; the largest",
        ),
        (
            0,
            (64_000, 512, 1),
            "needs 64 CPUs with 512 MB with 1 gpus; the nearest machine has 16 CPUs with 32 GB",
        ),
        (1 << 3 | 1 << 5, (1, 1, 0), "no machine meets constraints 3, 5; the nearest lacks 5"),
    ],
)
def test_the_nearest_miss_is_named(constraints: int, request_: Amounts, problem: str) -> None:
    found = nearest_miss(OFFERING, constraints, request_)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_slots_miss_by_constraints_alone() -> None:
    slots = Cluster((0b1, 0b11), (1, 1))
    assert nearest_miss(slots, 0b11, ()) == ""
    assert nearest_miss(slots, 0b100, ()) == "no machine meets constraint 2; the nearest lacks 2"


def test_each_kind_of_task_is_told_once() -> None:
    from volery.conformance.cases import vector_cases

    case = vector_cases()[0]
    found = dict(misses(case.trace, case.cluster, range(case.trace.task_count)))
    fits = case.satisfiable()
    assert found
    assert not [task for task in found if fits[task]]
    kinds = list(zip(case.trace.constraints, case.trace.request, strict=True))
    assert {kinds[task] for task in found} == {kind for kind, good in zip(kinds, fits, strict=True) if not good}
    assert len({kinds[task] for task in found}) == len(found)
