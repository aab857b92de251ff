"""Answers to why a job or a task waited, from runs that explain their decisions: for questions, and for a report."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from volery import architectures
from volery.core.errors import InputError
from volery.core.model import NEVER
from volery.metrics.explanations import REASONS, Staleness, staleness
from volery.report.explore.content import RunExplanation, TaskExplanation
from volery.report.schema import FinishedRun
from volery.study.results import ResultsFolder
from volery.study.spec import StudySpec

SECONDS = 1e6
TASKS_MAX: Final = 3000
"""The largest number of tasks in a page, over all runs: some 0.3 MB."""
OF_A_JOB: Final = 10
RUNS_OPEN: Final = 8
"""Runs whose columns stay mapped: some 25 files each."""


class Step(msgspec.Struct, frozen=True):
    """One decision about a task.

    Args:
        at_s: time of the step, seconds since the run began.
        chosen: placed, queued, refused, unsatisfiable, preempted or lost.
        machine: number of the machine, or -1.
        asked: the component that had to confirm it, or refused it.
        view_age_s: age of the view.
        passed: scope, reason and number of the units that were passed over.
        omitted: decisions before this one that were not kept.
    """

    at_s: float
    by: str
    chosen: str
    machine: int
    asked: str
    view_age_s: float
    passed: tuple[tuple[str, str, int], ...]
    omitted: int


class TaskAnswer(msgspec.Struct, frozen=True):
    """The course of one task; times in seconds, None: it did not happen.

    Args:
        job, place: the task is the one at this place of the job, from 0.
        submitted_s, started_s, finished_s: seconds since the run began.
        machine: number of the machine on which it ran, or -1.
    """

    job: int
    place: int
    submitted_s: float
    started_s: float | None
    finished_s: float | None
    machine: int
    steps: tuple[Step, ...]


class JobAnswer(msgspec.Struct, frozen=True):
    """The course of the tasks of one job.

    Args:
        submitted_s, finished_s: since the run began; the end of its last task.
        started, waited_s: tasks that have started, and the longest time that one of them waited for it.
        chosen: decision -> number of tasks that met it at least once.
        passed: scope, reason and number of the units that were passed over, over all its decisions that are kept.
        slowest: the task that started last, or never.
    """

    job: int
    tasks: int
    submitted_s: float
    finished_s: float | None
    started: int
    waited_s: float
    chosen: dict[str, int]
    passed: tuple[tuple[str, str, int], ...]
    slowest: TaskAnswer


class RunAnswer(msgspec.Struct, frozen=True):
    """The answer of one run; without a question, the ages of its views.

    Args:
        others: the other runs of the folder that explain themselves.
        staleness: staleness of the views in the whole run.
    """

    label: str
    seed: int
    others: tuple[tuple[str, int], ...]
    staleness: Staleness | None = None
    job: JobAnswer | None = None
    task: TaskAnswer | None = None


def explain(path: Path, question: str | None = None, *, label: str | None = None, seed: int | None = None) -> RunAnswer:
    """Answer from a results folder.

    Args:
        question: JOB, or JOB/TASK with the task's place in its job; None: about the views of all schedulers.
        label, seed: label and seed of the run; None: the first that explains itself.

    Raises:
        InputError: the folder, run, job or task is not there, or no run explains itself.
    """
    folder = ResultsFolder(path)
    explaining_runs = [line for line in folder.manifest().runs if folder.has(line.key, "why")]

    if not explaining_runs:
        raise InputError(str(path), "no run in it explains its decisions; run it with --why (megha does)")

    matching_runs = [
        line for line in explaining_runs if label in (None, line.label, line.architecture) and seed in (None, line.seed)
    ]
    if not matching_runs:
        described_runs = ", ".join(f"{line.label} with seed {line.seed}" for line in explaining_runs)
        raise InputError(
            "--run" if label is not None else "--seed", f"no such run explains itself; these do: {described_runs}"
        )

    line = matching_runs[0]
    other_runs = tuple((other_run.label, other_run.seed) for other_run in explaining_runs if other_run is not line)

    decisions = folder.columns(line.key, "why")
    if question is None:
        return RunAnswer(
            line.label,
            line.seed,
            other_runs,
            staleness=staleness(folder.columns(line.key, "pair"), folder.columns(line.key, "age")),
        )

    tasks = folder.columns(line.key, "task")
    members, task_row = _members(tasks, question)

    if task_row is None:
        return RunAnswer(line.label, line.seed, other_runs, job=_job(members, tasks, decisions))
    return RunAnswer(line.label, line.seed, other_runs, task=task_answer(task_row, tasks, decisions))


def _members(tasks: Mapping[str, Any], question: str) -> tuple[Any, int | None]:
    """The tasks of the job in question, and the task in question where it is one.

    Raises:
        InputError: the job or task is not there.
    """
    job, place = parsed(question)
    last = int(tasks["job"][-1])  # tasks stand by job
    members = np.arange(*np.searchsorted(tasks["job"], (job, job + 1))) if job <= last else np.zeros(0)
    if not members.size:
        raise InputError(question, f"there is no job {job}; the run has jobs 0 to {last}")
    if place is not None and place >= members.size:
        raise InputError(question, f"job {job} has tasks 0 to {members.size - 1}")
    return members, None if place is None else int(members[place])


def parsed(question: str) -> tuple[int, int | None]:
    """Job and task of JOB or JOB/TASK.

    Raises:
        InputError: when it is neither.
    """
    job, slash, place = question.partition("/")
    if not (job.isascii() and job.isdigit() and (not slash or (place.isascii() and place.isdigit()))):
        raise InputError("JOB", f"{question!r} is not JOB or JOB/TASK, as 14 or 14/3")
    return int(job), int(place) if slash else None


def _seconds(value: int) -> float | None:
    return None if value == NEVER else value / SECONDS


def _passed(decisions: Mapping[str, Any], rows: Any) -> tuple[tuple[str, str, int], ...]:
    sums = [(scope, reason, int(decisions[f"{scope}_{reason}"][rows].sum())) for scope, reason in REASONS]
    return tuple((str(scope), str(reason), count) for scope, reason, count in sums if count)


def task_answer(task: int, tasks: Mapping[str, Any], decisions: Mapping[str, Any]) -> TaskAnswer:
    """The course of one task, from the columns of its run."""
    job = int(tasks["job"][task])
    first = int(np.searchsorted(tasks["job"], job))

    low, high = (int(np.searchsorted(decisions["task"], task, side)) for side in ("left", "right"))

    steps = tuple(
        Step(
            int(decisions["time_us"][row]) / SECONDS,
            str(decisions["by"][row]),
            str(decisions["chosen"][row]),
            int(decisions["machine"][row]),
            str(decisions["asked"][row]),
            int(decisions["view_age_us"][row]) / SECONDS,
            _passed(decisions, [row]),
            int(decisions["dropped"][row]),
        )
        for row in range(low, high)
    )

    return TaskAnswer(
        job,
        task - first,
        int(tasks["submit_us"][task]) / SECONDS,
        _seconds(int(tasks["start_us"][task])),
        _seconds(int(tasks["finish_us"][task])),
        int(tasks["worker"][task]),
        steps,
    )


def _job(members: Any, tasks: Mapping[str, Any], decisions: Mapping[str, Any]) -> JobAnswer:
    starts = tasks["start_us"][members]
    ends = tasks["finish_us"][members]
    job, submitted = (int(tasks[name][members[0]]) for name in ("job", "submit_us"))

    ran = starts != NEVER
    rows = np.flatnonzero(decisions["job"] == job)

    decision_counts = {
        str(kind): len(np.unique(decisions["task"][rows][decisions["chosen"][rows] == kind]))
        for kind in np.unique(decisions["chosen"][rows])
    }

    never_started = np.flatnonzero(~ran)
    slowest = int(members[never_started[0]] if len(never_started) else members[np.argmax(starts)])

    return JobAnswer(
        job,
        len(members),
        submitted / SECONDS,
        int(ends.max()) / SECONDS if ran.all() else None,
        int(ran.sum()),
        (int(starts[ran].max()) - submitted) / SECONDS if ran.any() else 0.0,
        decision_counts,
        _passed(decisions, rows),
        task_answer(slowest, tasks, decisions),
    )


def explaining(study: StudySpec) -> StudySpec:
    """The study with all architectures that can explain their decisions asked to.

    Raises:
        InputError: none can.
    """
    choices = tuple(
        msgspec.structs.replace(choice, parameters={**choice.parameters, "why": True})
        if architectures.takes(choice.name, "why")
        else choice
        for choice in study.architectures
    )

    if not any(choice.parameters.get("why") for choice in choices):
        names = ", ".join(sorted({choice.name for choice in choices}))
        raise InputError("--why", f"{names} cannot explain decisions; of the architectures here megha can")
    return msgspec.structs.replace(study, architectures=choices)


class Explanations:
    """The decisions about tasks in the runs of a results folder that explain themselves.

    Raises:
        InputError: when the folder or a run in it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._folder = ResultsFolder(path)
        self._lines = [line for line in self._folder.manifest().runs if self._folder.has(line.key, "why")]
        self._columns = functools.lru_cache(maxsize=RUNS_OPEN)(self._read)

    def longest(self, tasks_max: int = TASKS_MAX) -> list[RunExplanation]:
        """Of each run the tasks that waited longest, those that never started first; at most so many in all."""
        tasks_per_run = tasks_max // max(1, len(self._lines))
        return [self._longest(place, line, tasks_per_run) for place, line in enumerate(self._lines)]

    def answer(self, run: int, question: str) -> Sequence[TaskExplanation]:
        """One task, or the tasks of a job that waited longest.

        Args:
            run: place of the run among those that explain themselves.
            question: JOB, or JOB/TASK with the task's place in its job.

        Raises:
            InputError: the job or task is not there.
        """
        tasks, decisions = self._columns(run)

        members, task_row = _members(tasks, question)
        task_rows = _slowest(tasks, members, OF_A_JOB) if task_row is None else [task_row]
        return [_told(int(task), tasks, decisions) for task in task_rows]

    def _longest(self, place: int, line: FinishedRun, tasks_max: int) -> RunExplanation:
        tasks, decisions = self._columns(place)
        decided = np.unique(decisions["task"])
        task_rows = _slowest(tasks, decided, tasks_max)
        return RunExplanation(
            line.label, line.seed, decided.size, [_told(int(task), tasks, decisions) for task in task_rows]
        )

    def _read(self, place: int) -> tuple[dict[str, Any], dict[str, Any]]:
        key = self._lines[place].key
        return self._folder.mapped(key, "task"), self._folder.mapped(key, "why")


def _slowest(tasks: dict[str, Any], task_rows: Any, tasks_max: int) -> Any:
    """The tasks with the longest time from submission to start, those that never started first."""
    started = tasks["start_us"][task_rows]

    waits_us = np.where(started == NEVER, np.iinfo(np.int64).max, started - tasks["submit_us"][task_rows])
    return task_rows[np.argsort(-waits_us, kind="stable")[:tasks_max]]


def _told(task: int, tasks: dict[str, Any], decisions: dict[str, Any]) -> TaskExplanation:
    answer = task_answer(task, tasks, decisions)

    steps = [
        (step.at_s, step.by, step.chosen, step.machine, step.asked, step.view_age_s, list(step.passed), step.omitted)
        for step in answer.steps
    ]
    return TaskExplanation(
        answer.job, answer.place, answer.submitted_s, answer.started_s, answer.finished_s, answer.machine, steps
    )
