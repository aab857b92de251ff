"""Why tasks waited, as a page tells it: the same answers as `volery why`, the longest waits first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.study import compare_spec, run_study, write_results_report
from volery.study.explanations import Explanations
from volery.study.why import explain, explaining


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("told")
    study = compare_spec(("pigeonc", "megha"), {"trace": "syn:40x20", "workers": 50, "constraints": "sharma2011"}, 1)
    run_study(explaining(study), folder=path)
    return path


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
