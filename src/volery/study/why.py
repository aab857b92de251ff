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
from volery.metrics.why import REASONS, Staleness, staleness
from volery.report.explore.content import RunExplanation, TaskExplanation
from volery.report.schema import FinishedRun
from volery.study.results import ResultsFolder
from volery.study.spec import ArchitectureChoice, StudySpec

SECONDS = 1e6
TASKS_MAX: Final = 3000
"""That a page holds, over all runs: some 0.3 MB."""
OF_A_JOB: Final = 10
RUNS_OPEN: Final = 8
"""Runs whose columns stay mapped: some 25 files each."""


class Step(msgspec.Struct, frozen=True):
    """One decision about a task.

    Args:
        at_s: when, seconds since the run began.
        chosen: placed, queued, refused, unsatisfiable, preempted or lost.
        machine: number, or -1.
        asked: who had to confirm it, or refused it.
        view_age_s: how old the view was.
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
        submitted_s, started_s, finished_s: since the run began.
        machine: that it ran on, or -1.
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
        chosen: how many tasks met each decision at least once.
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
        staleness: of the whole run.
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
        label, seed: of the run; the first that explains itself.

    Raises:
        InputError: the folder, run, job or task is not there, or no run explains itself.
    """
    folder = ResultsFolder(path)
    able = [line for line in folder.manifest().runs if folder.has(line.key, "why")]
    if not able:
        raise InputError(str(path), "no run in it explains its decisions; run it with --why (megha does)")
    chosen = [line for line in able if label in (None, line.label, line.architecture) and seed in (None, line.seed)]
    if not chosen:
        known = ", ".join(f"{line.label} with seed {line.seed}" for line in able)
        raise InputError("--run" if label is not None else "--seed", f"no such run explains itself; these do: {known}")
    line = chosen[0]
    others = tuple((other.label, other.seed) for other in able if other is not line)
    decisions = folder.columns(line.key, "why")
    if question is None:
        return RunAnswer(
            line.label,
            line.seed,
            others,
            staleness=staleness(folder.columns(line.key, "pair"), folder.columns(line.key, "age")),
        )
    tasks = folder.columns(line.key, "task")
    members, one = _members(tasks, question)
    if one is None:
        return RunAnswer(line.label, line.seed, others, job=_job(members, tasks, decisions))
    return RunAnswer(line.label, line.seed, others, task=task_answer(one, tasks, decisions))


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
    starts, ends = tasks["start_us"][members], tasks["finish_us"][members]
    job, submitted = (int(tasks[name][members[0]]) for name in ("job", "submit_us"))
    ran = starts != NEVER
    rows = np.flatnonzero(decisions["job"] == job)
    chosen = {
        str(kind): len(np.unique(decisions["task"][rows][decisions["chosen"][rows] == kind]))
        for kind in np.unique(decisions["chosen"][rows])
    }
    never = np.flatnonzero(~ran)
    slowest = int(members[never[0]] if len(never) else members[np.argmax(starts)])
    return JobAnswer(
        job,
        len(members),
        submitted / SECONDS,
        int(ends.max()) / SECONDS if ran.all() else None,
        int(ran.sum()),
        (int(starts[ran].max()) - submitted) / SECONDS if ran.any() else 0.0,
        chosen,
        _passed(decisions, rows),
        task_answer(slowest, tasks, decisions),
    )


def explaining(study: StudySpec) -> StudySpec:
    """The study with all architectures that can explain their decisions asked to.

    Raises:
        InputError: none can.
    """
    asked = tuple(
        msgspec.structs.replace(choice, parameters={**choice.parameters, "why": True}) if _can(choice) else choice
        for choice in study.architectures
    )
    if not any(choice.parameters.get("why") for choice in asked):
        names = ", ".join(sorted({choice.name for choice in asked}))
        raise InputError("--why", f"{names} cannot explain decisions; of the architectures here megha can")
    return msgspec.structs.replace(study, architectures=asked)


def _can(choice: ArchitectureChoice) -> bool:
    known = architectures.parameters(architectures.lookup(choice.name))
    return any(parameter.name == "why" for parameter in known)


class Explanations:
    """The decisions about tasks in the runs of a results folder that explain themselves.

    Raises:
        InputError: when the folder or a run in it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._folder = ResultsFolder(path)
        self._lines = [line for line in self._folder.manifest().runs if self._folder.has(line.key, "why")]
        self._columns = functools.lru_cache(maxsize=RUNS_OPEN)(self._read)

    def longest(self, most: int = TASKS_MAX) -> list[RunExplanation]:
        """Of each run the tasks that waited longest, those that never started first; at most so many in all."""
        each = most // max(1, len(self._lines))
        return [self._longest(place, line, each) for place, line in enumerate(self._lines)]

    def answer(self, run: int, question: str) -> Sequence[TaskExplanation]:
        """One task, or the tasks of a job that waited longest.

        Args:
            run: place among those that explain themselves.
            question: JOB, or JOB/TASK with the task's place in its job.

        Raises:
            InputError: the job or task is not there.
        """
        tasks, decisions = self._columns(run)
        members, one = _members(tasks, question)
        chosen = _slowest(tasks, members, OF_A_JOB) if one is None else [one]
        return [_told(int(task), tasks, decisions) for task in chosen]

    def _longest(self, place: int, line: FinishedRun, most: int) -> RunExplanation:
        tasks, decisions = self._columns(place)
        decided = np.unique(decisions["task"])
        chosen = _slowest(tasks, decided, most)
        return RunExplanation(
            line.label, line.seed, decided.size, [_told(int(task), tasks, decisions) for task in chosen]
        )

    def _read(self, place: int) -> tuple[dict[str, Any], dict[str, Any]]:
        key = self._lines[place].key
        return self._folder.mapped(key, "task"), self._folder.mapped(key, "why")


def _slowest(tasks: dict[str, Any], some: Any, most: int) -> Any:
    """The tasks with the longest time from submission to start, those that never started first."""
    started = tasks["start_us"][some]
    waits_us = np.where(started == NEVER, np.iinfo(np.int64).max, started - tasks["submit_us"][some])
    return some[np.argsort(-waits_us, kind="stable")[:most]]


def _told(task: int, tasks: dict[str, Any], decisions: dict[str, Any]) -> TaskExplanation:
    found = task_answer(task, tasks, decisions)
    steps = [
        (step.at_s, step.by, step.chosen, step.machine, step.asked, step.view_age_s, list(step.passed), step.omitted)
        for step in found.steps
    ]
    return TaskExplanation(
        found.job, found.place, found.submitted_s, found.started_s, found.finished_s, found.machine, steps
    )
