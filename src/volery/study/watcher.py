"""Reports of runs on their way: a watcher is told of progress, and a caller of outcomes and lost runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

from volery.report.schema import TraceFacts
from volery.sim import Progress
from volery.study.plan import PlannedRun
from volery.study.runs import RunOutcome


class Outcomes(Protocol):
    """Runs and their outcomes as they finish.

    Closing it (as an exception in the caller's loop must, Ctrl-C for one) ends the runs that are not finished.
    """

    def __iter__(self) -> Iterator[tuple[PlannedRun, RunOutcome]]: ...

    def __next__(self) -> tuple[PlannedRun, RunOutcome]:
        """Wait for the next."""

    def close(self) -> None:
        """End what is not finished."""


class LostRunError(RuntimeError):
    """A run's process ended without an answer, for example because the system ran out of memory."""


class Watcher(Protocol):
    """An observer of the progress of runs."""

    def expected(self, run_count: int) -> None:
        """Announce the number of runs."""

    def started(self, run: PlannedRun) -> None:
        """A run begins to read its input."""

    def sized(self, run: PlannedRun, facts: TraceFacts) -> None:
        """A run has read its input."""

    def moved(self, run: PlannedRun, progress: Progress) -> None:
        """A run is so far."""

    def ended(self, run: PlannedRun, outcome: RunOutcome) -> None:
        """A run is finished."""


@runtime_checkable
class LookWatcher(Watcher, Protocol):
    """A watcher that is told of the looks of a study that adds seeds, too."""

    def looked(self, seeds: int, seeds_max: int, undecided: int) -> None:
        """The comparisons were judged after a number of seeds; so many are not decided, and seeds are added."""


Permit = Callable[[], bool]
"""Asked before each run: true if it may begin."""


def always() -> bool:
    """Every run may begin."""
    return True


def tell(watcher: Watcher | None, run: PlannedRun, report: Any) -> None:
    """Pass on what a run reports."""
    if watcher is None:
        return
    if isinstance(report, TraceFacts):
        watcher.sized(run, report)
    elif isinstance(report, Progress):
        watcher.moved(run, report)
    elif isinstance(report, RunOutcome):
        watcher.ended(run, report)
