"""Stages, progress indicators, and Amdahl's law: worked out by hand."""

from __future__ import annotations

from typing import get_args

import pytest

from volery.architectures.jockey.stages import (
    Indicator,
    JobStage,
    amdahl_us,
    critical_us,
    parents_of,
    progress,
    sizes,
    stages_of,
    with_paths,
)

ONE_TO_ONE_THEN_BARRIER = [(), (), (), (0,), (1,), (2,), (3, 4, 5), (3, 4, 5)]
MAP, SORT, REDUCE = with_paths(
    [
        JobStage(4, (), 400, 100, 130, begin=0.0, end=0.5, ideal_begin=0.0, ideal_end=0.2),
        JobStage(2, (0,), 100, 200, 60, begin=0.3, end=0.6, ideal_begin=0.2, ideal_end=0.4),
        JobStage(1, (1,), 200, 0, 200, begin=0.6, end=1.0, ideal_begin=0.4, ideal_end=1.0),
    ]
)
JOB = (MAP, SORT, REDUCE)
HALF_MAPPED = (0.5, 0.25, 0.0)


def test_tasks_whose_parents_and_children_do_the_same_are_a_stage() -> None:
    found = stages_of(ONE_TO_ONE_THEN_BARRIER)
    assert found == (0, 0, 0, 1, 1, 1, 2, 2)
    assert sizes(found) == [3, 3, 2]
    assert parents_of(ONE_TO_ONE_THEN_BARRIER, found) == [(), (0,), (1,)]


def test_roots_that_are_awaited_by_others_are_stages_of_their_own() -> None:
    assert stages_of([(), (), (), (2,), (0, 1, 3)]) == (0, 0, 1, 2, 3)
    assert stages_of([(), (), ()]) == (0, 0, 0)
    assert stages_of([]) == ()


def test_the_longest_path_after_a_stage_is_of_longest_tasks() -> None:
    assert [stage.after_us for stage in JOB] == [260, 200, 0]


@pytest.mark.parametrize(
    ("indicator", "expected"),
    [
        ("totalworkWithQ", (0.5 * 500 + 0.25 * 300) / 1000),
        ("totalwork", (0.5 * 400 + 0.25 * 100) / 700),
        ("vertexfrac", (0.5 * 4 + 0.25 * 2) / 7),
        ("cp", 1 - (65 + 260) / 390),
        ("minstage", min(0.25, 0.3 + 0.25 * 0.3, 0.6)),
        ("minstage-inf", min(0.1, 0.2 + 0.25 * 0.2, 0.4)),
    ],
)
def test_each_indicator_measures_what_it_says(indicator: Indicator, expected: float) -> None:
    assert progress(indicator, JOB, HALF_MAPPED) == pytest.approx(expected)


@pytest.mark.parametrize("indicator", get_args(Indicator))
def test_progress_goes_from_0_to_1_and_never_back(indicator: Indicator) -> None:
    path = [(0, 0, 0), (0.25, 0, 0), (1, 0, 0), (1, 0.5, 0), (1, 1, 0), (1, 1, 0.9), (1, 1, 1)]
    found = [progress(indicator, JOB, done) for done in path]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0.0, 1.0)
    assert found[-2] < 1.0, "what is not done is not at the end"


@pytest.mark.parametrize("indicator", get_args(Indicator))
def test_tasks_that_take_no_time_have_a_progress_all_the_same(indicator: Indicator) -> None:
    nothing = with_paths([JobStage(2, (), 0, 0, 0)])
    assert 0 <= progress(indicator, nothing, [0.5]) < 1
    assert progress(indicator, nothing, [1.0]) == 1.0


def test_amdahl_adds_the_rest_of_the_critical_path_to_the_work_per_token() -> None:
    assert critical_us(JOB, HALF_MAPPED) == 65 + 260
    assert amdahl_us(JOB, HALF_MAPPED, 5) == round(325 + (200 + 75 + 200) / 5)
    assert amdahl_us(JOB, (1.0, 1.0, 1.0), 5) == 0
