"""Answers of `volery why`, and the longest waits of a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.study import compare_spec, load_results, run_study, write_results_report
from volery.study.answers import Explanations, explain, explaining
from volery.study.spec import StudySpec


def study(*architectures: str) -> StudySpec:
    return compare_spec(architectures, {"trace": "syn:40x20", "workers": 50, "constraints": "sharma2011"}, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("why")
    run_study(explaining(study("pigeonc", "megha")), folder=path)
    return path


@pytest.mark.slow
def test_a_job_is_answered_with_its_last_task(folder: Path) -> None:
    found = explain(folder, "12")
    assert found.label == "megha:why=true"
    job = found.job
    assert job is not None
    assert (job.job, job.tasks) == (12, 40)
    assert job.chosen["placed"] == job.started
    assert job.slowest.job == 12
    assert job.slowest.steps[0].at_s >= job.submitted_s == 12.0
    assert {reason for _, reason, _ in job.passed} >= {"constraint", "busy"}


@pytest.mark.slow
def test_a_task_is_answered_with_every_decision_about_it(folder: Path) -> None:
    job = explain(folder, "12").job
    assert job is not None
    task = explain(folder, f"12/{job.slowest.place}").task
    assert task == job.slowest
    if task.started_s is not None:
        assert task.steps[-1].chosen == "placed"
        assert task.steps[-1].machine == task.machine


@pytest.mark.slow
def test_without_a_question_the_age_of_the_views_is_told(folder: Path) -> None:
    found = explain(folder).staleness
    assert found is not None
    assert found.placed == sum(placed for _, _, placed, _ in found.rates) > 0
    assert len(found.rates) == 25, "each of five Global Masters asks each of five Local Masters"
    assert list(found.view_age_s) == sorted(found.view_age_s)


def test_the_rate_of_refusals_counts_decisions_that_are_not_kept_too(folder: Path) -> None:
    """As many as the counter of inconsistencies, which is there without --why."""
    (run,) = (run for run in load_results(folder).runs if run.architecture == "megha")
    found = explain(folder).staleness
    assert found is not None
    assert found.refused == sum(refused for _, _, _, refused in found.rates) == run.counters["inconsistencies"] > 0


@pytest.mark.parametrize(
    ("question", "named"), [("20", "jobs 0 to 19"), ("3/40", "tasks 0 to 39"), ("x", "JOB/TASK"), ("3/", "JOB/TASK")]
)
def test_what_is_not_there_is_named(folder: Path, question: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        explain(folder, question)


def test_a_run_that_does_not_explain_itself_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="megha:why=true with seed 0"):
        explain(folder, "1", label="pigeonc")
    run_study(study("megha"), folder=tmp_path)
    with pytest.raises(InputError, match="--why"):
        explain(tmp_path, "1")


def test_designs_that_cannot_explain_themselves_are_refused_before_any_run() -> None:
    with pytest.raises(InputError, match="pigeon"):
        explaining(study("pigeon"))


def test_the_longest_waits_come_first_and_agree_with_what_why_answers(folder: Path) -> None:
    (run,) = Explanations(folder).longest(30)
    assert (run.label, run.seed, run.total, len(run.tasks)) == ("megha:why=true", 0, 800, 30)
    waits = [1e12 if one.started_s is None else one.started_s - one.submitted_s for one in run.tasks]
    assert waits == sorted(waits, reverse=True)
    for told in run.tasks[:3]:
        task = explain(folder, f"{told.job}/{told.place}").task
        assert task is not None
        assert (told.submitted_s, told.started_s, told.machine) == (task.submitted_s, task.started_s, task.machine)
        assert [step[:3] for step in told.steps] == [(step.at_s, step.by, step.chosen) for step in task.steps]


def test_any_task_is_answered_and_of_a_job_those_that_waited_longest(folder: Path) -> None:
    explanations = Explanations(folder)
    (task,) = explanations.answer(0, "12/3")
    assert (task.job, task.place) == (12, 3)
    of_job = explanations.answer(0, "12")
    assert len(of_job) == 10
    slowest = explain(folder, "12").job
    assert slowest is not None
    assert of_job[0].started_s == slowest.slowest.started_s
    for question, problem in (
        ("99", "jobs 0 to 19"),
        ("9" * 40, "jobs 0 to 19"),
        ("1/40", "tasks 0 to 39"),
        ("x", "is not JOB"),
    ):
        with pytest.raises(InputError, match=problem):
            explanations.answer(0, question)


def test_the_report_of_a_run_that_explains_itself_holds_its_longest_waits(folder: Path) -> None:
    page = write_results_report(folder).read_text(encoding="utf-8")
    start = page.index(">", page.index('id="volery-content"')) + 1
    content = json.loads(page[start : page.index("</script>", start)])
    assert [run["label"] for run in content["why"]] == ["megha:why=true"]
    assert len(content["why"][0]["tasks"]) == 800
    assert all(course["waiting"] for course in content["courses"])
