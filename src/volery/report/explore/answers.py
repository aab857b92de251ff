"""Answers to a served page beyond its embedded content: any job of a range, any pair, the reasons of any task."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from volery.core.errors import InputError
from volery.report.explore.content import TaskExplanation
from volery.report.explore.delays import DelayGrid, Pair, RankedJobs, pair, rows_at
from volery.report.groups import CLASSES, JobClass

COUNT_MAX: Final = 500
PAIRS_KEPT: Final = 1000
Why = Callable[[int, str], Sequence[TaskExplanation]]
Query = Mapping[str, str]


class Answers:
    """Answers questions about one results folder from its jobs by rank.

    Args:
        explaining: the number of runs that explain themselves.
        explain_waits: tells of a run, by its number among those that explain themselves, a job or a task.
    """

    def __init__(self, grid: DelayGrid, ranked: Sequence[RankedJobs], explaining: int, explain_waits: Why) -> None:
        self._grid, self._ranked, self._explaining, self._why = grid, ranked, explaining, explain_waits
        self._compared = functools.lru_cache(maxsize=PAIRS_KEPT)(self._compare)

    def answer(self, question: str, query: Query) -> Any:
        """The answer to a question, ready to be encoded.

        Raises:
            InputError: what is asked is not there, or the query is wrong.
        """
        answers: dict[str, Callable[[Query], Any]] = {"jobs": self._jobs, "pair": self._pair, "why": self._task}
        if question not in answers:
            raise InputError(f"/{question}", f"there is no such page; these are here: /, /{', /'.join(answers)}")
        return answers[question](query)

    def _jobs(self, query: Query) -> dict[str, Any]:
        """Jobs of several labels, each in its range of bins, the most delayed first."""
        labels = [self._label(label) for label in _numbers(query, "labels")]
        lower, upper = _numbers(query, "from"), _numbers(query, "to")
        if not len(labels) == len(lower) == len(upper):
            raise InputError("from", "give one bin in from and one in to for each of the labels")

        jobs = _job_class(query.get("class", "all"))
        first, count = _number(query, "first"), min(_number(query, "count"), COUNT_MAX)
        top = self._grid.bins
        ranges = []

        for label, low, high in zip(labels, lower, upper, strict=True):
            ranked_jobs = self._ranked[label]
            ranges.append(
                (label, ranked_jobs, *ranked_jobs.within(min(max(low, -1), top), min(max(high, -1), top), jobs))
            )

        total = sum(max(0, end - begin) for _, _, begin, end in ranges)
        spans = [(ranked_jobs, begin, max(begin, end)) for _, ranked_jobs, begin, end in ranges]

        rows: list[tuple[float, int, int]] = []
        for place, (begin, end) in enumerate(part(spans, first, count, jobs)):
            rows += [(-spans[place][0].delay_s(rank, jobs), place, rank) for rank in range(begin, end)]
        return {"total": total, "rows": [self._row(ranges[place][0], rank, jobs) for _, place, rank in sorted(rows)]}

    def _row(self, label: int, rank: int, jobs: JobClass) -> tuple[Any, ...]:
        row = rows_at(self._ranked[label], self._grid, [rank], jobs)
        return label, row.seed[0], row.job[0], row.tasks[0], row.submit_s[0], row.delay_s[0]

    def _pair(self, query: Query) -> Pair:
        return self._compared(self._label(_number(query, "a")), self._label(_number(query, "b")))

    def _compare(self, a: int, b: int) -> Pair:
        return pair(a, b, self._ranked[a], self._ranked[b], self._grid)

    def _task(self, query: Query) -> Sequence[TaskExplanation]:
        run = _number(query, "run")
        if run >= self._explaining:
            raise InputError("run", f"{self._explaining} runs explain themselves; there is no number {run}")
        return self._why(run, query.get("question", ""))

    def _label(self, number: int) -> int:
        if not 0 <= number < len(self._ranked):
            raise InputError("labels", f"there are {len(self._ranked)} labels; there is no number {number}")
        return number


Span = tuple[RankedJobs, int, int]
"""Ranks [first, last) of a label."""


def part(spans: Sequence[Span], first: int, count: int, jobs: JobClass = "all") -> list[tuple[int, int]]:
    """Span and rank of the jobs at the places [first, first + count) of all spans, merged by falling delay.

    Neither the length of the spans nor how far down the part begins matters: nothing is merged that is not in it.
    """
    begins, ends = _cut(spans, first, jobs), _cut(spans, first + count, jobs)
    return list(zip(begins, ends, strict=True))


def _cut(spans: Sequence[Span], at: int, jobs: JobClass) -> list[int]:
    """The rank in each span at which the first so many jobs of the merged spans end."""
    if at >= sum(last - first for _, first, last in spans):
        return [last for _, _, last in spans]

    near = [
        (of, first, min(last, first + at)) for of, first, last in spans
    ]  # no span is cut later than where it alone would give all jobs
    low, high = 0, max((_bits(of.delay_s(first, jobs)) for of, first, last in near if first < last), default=0)
    while low < high:  # halving the bits of a float is exact: it ends
        middle = (low + high) // 2
        if sum(_exceeding(span, _float(middle), jobs) - span[1] for span in near) <= at:
            high = middle
        else:
            low = middle + 1

    # Now `high` is the least delay that at most so many jobs exceed; jobs that are equal to it fill up the rest.
    cuts = [_exceeding(span, _float(high), jobs) for span in near]
    missing = at - sum(cut - first for cut, (_, first, _) in zip(cuts, near, strict=True))
    for place, (of, _, last) in enumerate(near):
        equal = _exceeding((of, cuts[place], last), _float(high - 1), jobs) - cuts[place]
        cuts[place] += min(missing, equal)
        missing -= min(missing, equal)
    return cuts


def _exceeding(span: Span, delay_s: float, jobs: JobClass) -> int:
    """The rank at which the jobs that are delayed longer end."""
    of, first, last = span
    return first + bisect_left(range(first, last), -delay_s, key=lambda rank: -of.delay_s(rank, jobs))


def _bits(value: float) -> int:
    """Floats of zero and more as integers in the same order (IEEE 754)."""
    return int(np.float64(value).view(np.int64))


def _float(bits: int) -> float:
    """The number with these bits; below zero for those below none."""
    return -1.0 if bits < 0 else float(np.int64(bits).view(np.float64))


def _job_class(name: str) -> JobClass:
    for jobs in CLASSES:
        if jobs == name:
            return jobs
    raise InputError("class", f"{name!r} is no class of jobs; give one of {', '.join(CLASSES)}")


def _numbers(query: Query, name: str) -> list[int]:
    try:
        return [int(number) for number in query.get(name, "").split(",") if number]
    except ValueError:
        raise InputError(name, "give whole numbers with commas between them") from None


def _number(query: Query, name: str) -> int:
    text = query.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InputError(name, f"{text!r} is no whole number of zero or more")
    return int(text)
