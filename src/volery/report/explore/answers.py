"""What a served page is told beyond what it embeds: any job of a range, any pair, and why of any task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from volery.core.errors import InputError
from volery.metrics.columns import Floats
from volery.report.explore.content import Explored, ToldTask
from volery.report.explore.delays import Places
from volery.report.explore.pairs import Pair, pair
from volery.report.groups import CLASSES, JobClass

COUNT_MAX: Final = 500
Why = Callable[[int, str], Sequence[ToldTask]]
Query = Mapping[str, str]


class Answers:
    """Answers questions about one results folder from its jobs in memory.

    Args:
        explored: the content of the page, and the jobs behind it.
        why: tells of a run, by its number among those that explain themselves, a job or a task.
    """

    def __init__(self, explored: Explored, why: Why) -> None:
        self._content, self._runs, self._why = explored.content, explored.runs, why
        self._places = functools.lru_cache(maxsize=None)(self._ranked)  # the classes of every label, at most

    def prepare(self) -> None:
        """Rank all jobs of every label, so that the first choice of a range need not; in any thread."""
        for label in range(len(self._runs)):
            self._places(label, "all")

    def answer(self, question: str, query: Query) -> Any:
        """What is asked, ready to be encoded.

        Raises:
            InputError: what is asked is not there, or the query is wrong.
        """
        known: dict[str, Callable[[Query], Any]] = {"jobs": self._jobs, "pair": self._pair, "why": self._task}
        if question not in known:
            raise InputError(f"/{question}", f"there is no such page; these are here: /, /{', /'.join(known)}")
        return known[question](query)

    def _jobs(self, query: Query) -> dict[str, Any]:
        """Jobs of several labels, each in its range of bins, the most delayed first."""
        labels = [self._label(label) for label in _numbers(query, "labels")]
        lower, upper = _numbers(query, "from"), _numbers(query, "to")
        if not len(labels) == len(lower) == len(upper):
            raise InputError("from", "give one bin in from and one in to for each of the labels")
        jobs = _job_class(query.get("class", "all"))
        first, count = _number(query, "first"), min(_number(query, "count"), COUNT_MAX)
        grid, most = self._content.grid, first + count
        found: list[tuple[int, int]] = []
        delays: list[Floats] = []
        total = 0
        for label, low, high in zip(labels, lower, upper, strict=True):
            places = self._places(label, jobs)
            begin, end = places.within(grid, min(max(low, -1), grid.bins), min(max(high, -1), grid.bins))
            total += max(0, end - begin)
            ranks = np.arange(begin, min(end, begin + most))
            delays.append(places.delay_s[places.order[ranks]])
            found += [(label, rank) for rank in ranks.tolist()]
        order = np.argsort(-np.concatenate([*delays, np.zeros(0)]), kind="stable")[first:most].tolist()
        return {"total": total, "rows": [self._row(found[at], jobs) for at in order]}

    def _row(self, place: tuple[int, int], jobs: JobClass) -> tuple[Any, ...]:
        label, rank = place
        one = self._places(label, jobs).rows(self._content.grid, np.array([rank]), 1)
        return label, one.seed[0], one.job[0], one.tasks[0], one.submit_s[0], one.delay_s[0]

    def _pair(self, query: Query) -> Pair:
        a, b = self._label(_number(query, "a")), self._label(_number(query, "b"))
        return pair(a, b, self._runs[a], self._runs[b], self._content.grid)

    def _task(self, query: Query) -> Sequence[ToldTask]:
        run = _number(query, "run")
        if run >= len(self._content.why):
            raise InputError("run", f"{len(self._content.why)} runs explain themselves; there is no number {run}")
        return self._why(run, query.get("question", ""))

    def _label(self, number: int) -> int:
        if not 0 <= number < len(self._runs):
            raise InputError("labels", f"there are {len(self._runs)} labels; there is no number {number}")
        return number

    def _ranked(self, label: int, jobs: JobClass) -> Places:
        return Places.of(self._runs[label], jobs)


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
