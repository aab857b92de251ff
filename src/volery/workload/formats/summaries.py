"""A trace rebuilt from a summary of its jobs: the Yahoo trace, of which three figures a job are public.

The table has for every job when it would end without a delay; for most jobs also the arrival and the mean duration of a
task, and for some the number of tasks. The rest follows from these figures alone, and nothing is drawn:

- Arrival: between the known arrivals around it in proportion to the job's number; after the last known one at their
  mean distance. It is never later than any end that a job of the same or a higher number has without a delay.
- Longest task: end without a delay - arrival, half a second more where the source cut it to whole seconds.
- Number of tasks, of a job with a known mean: that of the complete job nearest by the logarithms of its longest task
  and of the mean's share of it. Of a job without a mean: number and share of the complete jobs with the nearest longest
  tasks, in turn.
- Durations: the longest, and the powers longest * u ** p of evenly spread u for the others, with p such that the job's
  mean comes out.

Error of the rule, measured in tests/unit/workload/formats/test_summaries.py: the whole has 945,638 tasks where 968,335
are published (2.3 % fewer), means of 118.85 s (118.78 s) and 98.2 % of the work in long jobs (98.3 %). Complete jobs
that are treated like the others get 3 % fewer tasks and 4 % more work than they have, together; one job alone may be
off by many times, and ten of the complete jobs are half of their work. Arrivals between known ones are off by less than
a second. Durations in a job spread by 0.40 of their mean, and those of known tasks by 0.32 (medians over jobs).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.core.trace import Trace
from volery.workload.arrays import Integers, Reals, made_trace, microseconds
from volery.workload.files import bare_name
from volery.workload.formats.source import Format, Head, Noticed, place, real, table_rows
from volery.workload.quirks import in_order
from volery.workload.table import TaskRow

COLUMNS: Final = ("job_id", "arrival_s", "ntasks", "mean_task_s", "max_task_s_floor", "ideal_completion_s")
TURN: Final = 16
"""Complete jobs around a longest task that lend their number of tasks in turn: as many, or all of that length."""
POWER_MAX: Final = 20.0
"""The largest power of the durations in a job; beyond it one task is the whole job."""
FIGURE_MAX: Final = 1e9
"""The limit of seconds, and of the tasks of a job: beyond it a figure is an error of the table."""
GOLDEN: Final = (5**0.5 - 1) / 2
"""Multiples of it, modulo 1, are spread evenly and are not in order."""


class Summary:
    """The figures of the jobs in order of the table, in seconds; not-a-number where one is unknown."""

    def __init__(self, arrival_s: Reals, tasks: Reals, mean_s: Reals, end_s: Reals) -> None:
        self.arrival_s, self.tasks, self.mean_s, self.end_s = arrival_s, tasks, mean_s, end_s

    @property
    def known(self) -> NDArray[np.bool_]:
        """Per job, whether arrival and mean are known."""
        return ~np.isnan(self.arrival_s) & ~np.isnan(self.mean_s)

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Per job, whether the number of its tasks is known, too."""
        return self.known & ~np.isnan(self.tasks)


class Jobs:
    """The rebuilt jobs: arrival, longest task, mean and number of tasks of each.

    Args:
        summary: figures with two complete jobs, at least.
    """

    def __init__(self, summary: Summary) -> None:
        self.arrival_s = _arrivals(summary)
        self.floor_s = np.floor(summary.end_s - self.arrival_s + 1e-6)
        tasks, self.mean_s = summary.tasks.copy(), summary.mean_s.copy()

        complete = np.flatnonzero(summary.complete)
        size = np.log1p(self.floor_s)
        share = summary.mean_s / (self.floor_s + 1)

        # The number of tasks comes from the complete job that is nearest in length, and in the part of it that a task
        # lasts.
        for job in np.flatnonzero(summary.known & ~summary.complete):
            distance = (size[complete] - size[job]) ** 2 + np.log(share[complete] / share[job]) ** 2
            tasks[job] = summary.tasks[complete[np.argmin(distance)]]

        unknown_jobs = np.flatnonzero(~summary.known)
        lender = _in_turn(self.floor_s[unknown_jobs], self.floor_s[complete])
        tasks[unknown_jobs] = summary.tasks[complete[lender]]
        self.mean_s[unknown_jobs] = (self.floor_s[unknown_jobs] + 1) * share[complete[lender]]

        tasks_least = np.maximum(tasks, np.ceil(self.floor_s / self.mean_s))
        self.tasks: Integers = np.where(summary.complete, tasks, tasks_least).astype(np.int64)

        self.longest_s = np.clip(self.floor_s + 0.5, self.mean_s, self.mean_s * self.tasks)

    def durations_us(self, job: int) -> Integers:
        """Durations of the tasks of a job, whose mean is that of the job."""
        count, mean_s, longest_s = int(self.tasks[job]), self.mean_s[job], self.longest_s[job]
        if count == 1:
            return microseconds(np.array([mean_s]))
        others_s = (count * mean_s - longest_s) / (count - 1)
        power = min(longest_s / max(others_s, 1e-6) - 1, POWER_MAX)
        values_s = ((np.arange(1, count) * GOLDEN) % 1) ** power
        values_s *= others_s / values_s.mean()
        return microseconds(np.append(np.minimum(values_s, longest_s), longest_s))


def _arrivals(summary: Summary) -> Reals:
    """Arrivals of all jobs; those that are known stay."""
    number = np.arange(len(summary.end_s))
    at = np.flatnonzero(summary.known)
    known_s = summary.arrival_s[at]
    gap_s = (known_s[-1] - known_s[0]) / (at[-1] - at[0])
    arrival_s = np.interp(number, at, known_s)
    arrival_s[number > at[-1]] = known_s[-1] + gap_s * (number[number > at[-1]] - at[-1])
    latest_s = np.minimum.accumulate(summary.end_s[::-1])[::-1]
    return np.where(summary.known, summary.arrival_s, np.minimum(arrival_s, latest_s))


def _in_turn(wanted_s: Reals, lent_s: Reals) -> Integers:
    """Per wanted length, the place of one of those nearest in length; equal ones are taken in turn."""
    order = np.argsort(lent_s, kind="stable")
    low = np.searchsorted(lent_s[order], wanted_s, "left")
    high = np.searchsorted(lent_s[order], wanted_s, "right")
    middle = (low + high) // 2
    turn = min(TURN, len(order))
    low = np.clip(np.minimum(low, middle - turn // 2), 0, len(order) - turn)
    high = np.clip(np.maximum(high, middle + turn // 2), turn, len(order))
    return np.asarray(order[low + np.arange(len(wanted_s)) % (high - low)], dtype=np.int64)


def read_summary(path: Path) -> Summary:
    """The figures of a table.

    Raises:
        InputError: a row is wrong, or too few jobs are complete to rebuild the others.
    """
    rows: list[tuple[float, ...]] = []
    last_id = -inf

    for number, row in table_rows(path, COLUMNS, header=frozenset(COLUMNS)):
        with place(path, number, SUMMARY.title):
            figures = [real(row[name] or "nan") for name in ("arrival_s", "ntasks", "mean_task_s")]
            end_s = real(row["ideal_completion_s"])
            if any(value < 0 for value in (*figures, end_s)) or figures[1] == 0 or figures[2] == 0:
                raise ValueError("a time is negative, or a job has no tasks or no duration")
            if not end_s < FIGURE_MAX or any(value >= FIGURE_MAX for value in figures) or figures[1] % 1 > 0:
                raise ValueError(f"a number is not below {FIGURE_MAX:.0e}, or a number of tasks is not whole")
            if figures[0] > end_s:
                raise ValueError("a job ends before its arrival")
            if not real(row["job_id"]) > last_id:  # what is unknown is taken from the jobs around it
                raise ValueError(f"job_id {row['job_id']!r} is not above that of the row before")
            last_id = real(row["job_id"])
            rows.append((*figures, end_s))

    summary = Summary(*np.array(rows, dtype=np.float64).reshape(-1, 4).T)
    if (count := int(summary.complete.sum())) < 2:
        raise InputError(str(path), f"has {count} jobs with arrival, mean and number of tasks; give two or more")

    return summary


def _rows(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    summary = read_summary(path)
    jobs = Jobs(summary)
    noticed["arrivals and means that were rebuilt"] += int((~summary.known).sum())
    noticed["numbers of tasks that were rebuilt"] += int((~summary.complete).sum())

    for job, arrival_s in enumerate(jobs.arrival_s.tolist()):
        submit_us, estimate_us = round(arrival_s * SECOND), round(float(jobs.mean_s[job]) * SECOND)
        for task, runtime_us in enumerate(jobs.durations_us(job).tolist()):
            yield TaskRow(
                job=str(job + 1),
                task=str(task),
                submit_us=submit_us,
                runtime_us=runtime_us,
                estimate_us=estimate_us,
                parents=[],
                line=job + 2,
            )


def rebuilt(path: Path, job_count: int | None = None) -> Trace:
    """The trace that the table is a summary of, or its first jobs.

    Raises:
        InputError: as `read_summary`.
    """
    jobs = Jobs(read_summary(path))
    arrival_us = microseconds(jobs.arrival_s[:job_count])
    durations_us = [jobs.durations_us(job) for job in range(len(arrival_us))]
    name = bare_name(path).removesuffix(".csv")
    trace = made_trace(name, arrival_us - arrival_us.min(), jobs.tasks[:job_count], np.concatenate(durations_us))
    return in_order(trace)


def _fits(head: Head) -> bool:
    return set(COLUMNS) <= head.names()


SUMMARY: Final = Format(
    "job-summary",
    "a summary of jobs",
    _fits,
    rows=_rows,
    columns=frozenset(COLUMNS),
    remarks=("durations of tasks, and the figures that the summary lacks, are rebuilt by a rule",),
)
