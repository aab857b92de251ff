"""Notes under the tables: what was left out and why, what counts, and the end of a study that adds seeds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.report.samples import sample_run

from volery.core.omissions import CHANGED, LEFT_OUT, REQUESTS, WAITS, Omission, Omissions
from volery.metrics.windows import WindowSummary
from volery.report.groups import group_runs
from volery.report.notes import TITLES, end_rule, end_sentence, measured_notes, notes, omission_notes, warnings
from volery.report.schema import StudyEnd, StudyLook

WIDE = Omission("gangs of more than 9", 1, 3, 30.0, 0.3)
TINY = Omission("no length is given", 0, 1, unmeasured=1)


def left_out(*reasons: Omission, jobs: int = 0, tasks: int = 1_000) -> Omissions:
    return Omissions(10, tasks, 100.0, "core-seconds", jobs, reasons)


def told(*found: Omissions | None, field: str = "left_out") -> tuple[list[str], list[str]]:
    """Warnings, and smaller notes, of runs that leave out so much."""
    runs = [msgspec.structs.replace(sample_run(seed=k), **{field: one}) for k, one in enumerate(found)]
    return warnings(group_runs(runs)), omission_notes(group_runs(runs))


@pytest.mark.parametrize(
    ("field", "found", "sentence"),
    [
        (
            "left_out",
            left_out(WIDE, jobs=1),
            (
                "Left out of the trace: 1 of 10 jobs (10.0 %), 3 of 1,000 tasks, 30.0 % of the machine time: "
                "gangs of more than 9."
            ),
        ),
        (
            "never_ran",
            left_out(WIDE, TINY, tasks=16),
            (
                "Never run: 4 of 16 tasks (25.0 %), at least 30.0 % of the machine time: "
                "3 tasks: gangs of more than 9; 1 task: no length is given."
            ),
        ),
        (
            "in_one_slot",
            left_out(TINY, tasks=50),
            "Run in one slot each: 1 of 50 tasks (2.0 %), none of the machine time that is known: no length is given.",
        ),
    ],
)
def test_more_than_a_hundredth_that_is_left_out_comes_first(field: str, found: Omissions, sentence: str) -> None:
    assert told(found, field=field) == ([sentence], [])


@pytest.mark.parametrize(
    ("part", "share"),
    [
        (Omission("x", 1, 1), "1 of 1,000 tasks"),
        (Omission("x", 0, 11), "11 of 1,000 tasks"),
        (Omission("x", 0, 1, machine_share=0.011), "1.1 % of the machine time"),
        (Omission("x", 0, 1, waits=1, effect=WAITS), "1 of 50 waits (2.0 %)"),
        (Omission("x", 0, 11, effect=REQUESTS), "11 of 1,000 tasks"),
        (Omission("x", 0, 11, effect=CHANGED), "11 of 1,000 tasks"),
    ],
)
def test_a_hundredth_of_jobs_tasks_waits_or_machine_time_is_enough(part: Omission, share: str) -> None:
    (sentence,), rest = told(msgspec.structs.replace(left_out(part), waits=50))
    assert share in sentence
    assert sentence.startswith(TITLES[part.effect])
    assert rest == []


def test_the_first_line_names_the_jobs_that_make_few_tasks_important() -> None:
    few = Omission("no machine can run them", 34, 34, machine_share=0.00045)
    whole = Omissions(300, 75_000, 75_000.0, "task-seconds", 0, (few,))
    ((sentence,), _) = told(whole, field="never_ran")
    assert sentence.startswith(
        "Never run: 34 of 75,000 tasks (< 0.1 %) in 34 of 300 jobs (11.3 %), < 0.1 % of the machine time: no machine"
    )
    ((sentence,), _) = told(msgspec.structs.replace(whole, jobs_left_out=1), field="never_ran")
    assert "1 of 300 jobs (0.3 %), 34 of 75,000 tasks in 34 of 300 jobs (11.3 %), < 0.1 %" in sentence


def test_effects_are_judged_apart_and_the_small_ones_are_below() -> None:
    parts = Omission("x", 0, 6), Omission("y", 0, 7, effect=CHANGED), Omission("z", 0, 11, effect=REQUESTS)
    first, rest = told(left_out(*parts))
    assert [sentence.split(":")[0] for sentence in first] == [TITLES[REQUESTS]]
    assert [sentence.split(":")[0] for sentence in rest] == [TITLES[LEFT_OUT], TITLES[CHANGED]]


def test_less_is_a_note_with_the_largest_share_of_any_run() -> None:
    small = msgspec.structs.replace(WIDE, jobs=0, machine_share=0.001)
    first, rest = told(left_out(small), left_out(msgspec.structs.replace(small, machine_share=0.005)), None)
    assert first == []
    assert rest == [
        "Left out of the trace: up to 3 of 1,000 tasks (0.3 %), 0.5 % of the machine time: gangs of more than 9."
    ]
    assert told(None, left_out()) == ([], [])


def test_load_estimates_and_windows_are_told_once_for_all_runs() -> None:
    plain: dict[str, Any] = {"load_by": "machines", "estimates": "uniform:0.5"}
    runs = [
        msgspec.structs.replace(sample_run(seed=k), workers=workers, window=WindowSummary(10.0, end, jobs), **plain)
        for k, (workers, end, jobs) in enumerate([(100, 60.0, 40), (200, 60.0, 50)])
    ]
    assert list(measured_notes(runs)) == [
        (
            "Load is set by the number of machines, each with its constraints: jobs are the same at every load. "
            "100 to 200 machines."
        ),
        "Schedulers are told estimates of durations by the model uniform:0.5.",
        (
            "Only jobs that were submitted from 10.0 s to 60.0 s count (40 to 50 of a run), and utilisation is over "
            "that time; costs and counters are of the whole run."
        ),
    ]
    assert list(measured_notes([sample_run()])) == []


def test_seeds_that_gave_the_same_run_are_named() -> None:
    same = [msgspec.structs.replace(sample_run("pigeonc", k), digest="ab" * 32) for k in range(3)]
    others = [sample_run("megha", k) for k in range(3)]
    first = "Every number is a mean over 3 seeds."
    assert notes(group_runs(others))[0].endswith(first)
    assert notes(group_runs(same))[0].endswith(f"{first} Nothing is random here: 3 seeds gave the same run.")
    assert notes(group_runs([*same, *others]))[0].endswith(
        "Nothing is random under pigeonc: 3 seeds gave the same run."
    )


def look(seeds: int, undecided: int) -> StudyLook:
    return StudyLook(seeds=seeds, confidence=0.99, undecided=undecided)


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        (
            StudyEnd("decided", "megha", 3, (look(5, 0),), 30),
            "5 seeds drawn (one look at 5): every comparison with megha is decided.",
        ),
        (
            StudyEnd("limit", "megha", 3, (look(5, 3), look(7, 3), look(9, 2)), 9),
            (
                "9 seeds drawn (looks at 5, 7 and 9): 9 seeds are the limit, and 2 of 3 comparisons with megha are not "
                "decided."
            ),
        ),
        (
            StudyEnd("budget", "megha", 1, (look(5, 1),), 30, 12.5),
            (
                "5 seeds drawn (one look at 5): the budget of 12.5 CPU seconds is used up, and 1 of 1 comparison with "
                "megha is not decided."
            ),
        ),
    ],
)
def test_the_end_of_a_study_has_its_looks_and_its_reason(end: StudyEnd, sentence: str) -> None:
    assert end_sentence(end) == sentence
    assert "Each paired interval has 99 % confidence at the last look" in end_rule(end)
