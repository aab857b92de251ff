"""Why tasks waited, as a report's page tells it: of every run that explains itself, the tasks that waited longest."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from volery.core.errors import InputError
from volery.core.model import NEVER
from volery.report.explore.content import ToldRun, ToldTask
from volery.report.schema import FinishedRun
from volery.study.results import ResultsFolder
from volery.study.why import parsed, task_answer

TASKS_MAX: Final = 3000
"""That a page holds, over all runs: some 0.3 MB."""
OF_A_JOB: Final = 10
RUNS_OPEN: Final = 8
"""Runs whose columns stay mapped: some 25 files each."""


class Explanations:
    """What the runs of a results folder say of their tasks.

    Raises:
        InputError: when the folder or a run in it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._folder = ResultsFolder(path)
        self._lines = [line for line in self._folder.manifest().runs if self._folder.has(line.key, "why")]
        self._columns = functools.lru_cache(maxsize=RUNS_OPEN)(self._read)

    def longest(self, most: int = TASKS_MAX) -> list[ToldRun]:
        """Of each run the tasks that waited longest, those that never started first; at most so many in all."""
        each = most // max(1, len(self._lines))
        return [self._longest(place, line, each) for place, line in enumerate(self._lines)]

    def answer(self, run: int, question: str) -> Sequence[ToldTask]:
        """One task, or the tasks of a job that waited longest.

        Args:
            run: place among those that explain themselves.
            question: JOB, or JOB/TASK with the task's place in its job.

        Raises:
            InputError: the job or task is not there.
        """
        job, place = parsed(question)
        tasks, decisions = self._columns(run)
        last = int(tasks["job"][-1])  # tasks stand by job
        members = np.arange(*np.searchsorted(tasks["job"], (job, job + 1))) if job <= last else np.zeros(0)
        if not members.size:
            raise InputError(question, f"there is no job {job}; the run has jobs 0 to {last}")
        if place is not None and place >= members.size:
            raise InputError(question, f"job {job} has tasks 0 to {members.size - 1}")
        if place is None:
            members = members[np.argsort(-_waits(tasks, members), kind="stable")[:OF_A_JOB]]
        chosen = members if place is None else members[place : place + 1]
        return [_told(int(task), tasks, decisions) for task in chosen]

    def _longest(self, place: int, line: FinishedRun, most: int) -> ToldRun:
        tasks, decisions = self._columns(place)
        decided = np.unique(decisions["task"])
        chosen = decided[np.argsort(-_waits(tasks, decided), kind="stable")[:most]]
        return ToldRun(line.label, line.seed, decided.size, [_told(int(task), tasks, decisions) for task in chosen])

    def _read(self, place: int) -> tuple[dict[str, Any], dict[str, Any]]:
        key = self._lines[place].key
        return self._folder.mapped(key, "task"), self._folder.mapped(key, "why")


def _waits(tasks: dict[str, Any], some: Any) -> Any:
    """Microseconds from submission to start of some tasks; longer than all others where there was none."""
    started = tasks["start_us"][some]
    return np.where(started == NEVER, np.iinfo(np.int64).max, started - tasks["submit_us"][some])


def _told(task: int, tasks: dict[str, Any], decisions: dict[str, Any]) -> ToldTask:
    found = task_answer(task, tasks, decisions)
    steps = [
        (step.at_s, step.by, step.chosen, step.machine, step.asked, step.view_age_s, list(step.passed), step.omitted)
        for step in found.steps
    ]
    return ToldTask(
        found.job, found.place, found.submitted_s, found.started_s, found.finished_s, found.machine, steps
    )  # fmt: skip
