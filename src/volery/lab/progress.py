"""Live progress, a line per run that is running and one for all: on standard error, or below a notebook's cell."""

from __future__ import annotations

import io
import sys
import time
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from volery.core.model import SECOND

if TYPE_CHECKING:
    from volery.sim import Progress as SimProgress
    from volery.study import PlannedRun, RunOutcome, TraceFacts

LABEL_WIDTH = 44
NOTEBOOK_WIDTH = 132
REDRAWS_PER_S = 4
"""Drawing takes time from a run in the same process."""


class _Remaining(ProgressColumn):
    """The remaining time, estimated from the share that is done; a run is no steadier than that."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """The time left as m:ss, or a blank before anything is known."""
        if not task.completed or task.total is None or task.elapsed is None:
            return Text("ETA -:--")
        left_s = round(task.elapsed * (task.total - task.completed) / task.completed)
        return Text(f"ETA {left_s // 60}:{left_s % 60:02d}")


def in_notebook() -> bool:
    """True where a notebook's kernel runs this code."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def html_of(renderable: RenderableType, width: int) -> str:
    """The text that a terminal of this width would show, as HTML without styles of its own."""
    console = Console(record=True, file=io.StringIO(), width=width, markup=False, force_jupyter=False)
    console.print(renderable, highlight=False)
    page = console.export_html(inline_styles=True, code_format="<pre style='line-height:1.3'>{code}</pre>")
    return page.replace("\n</pre>", "</pre>")


class _NotebookDisplay(Progress):
    """Draws below the cell that runs, when something moves; no thread draws beside a run."""

    _handle: Any = None
    _drawn_s = 0.0

    def start(self) -> None:
        """Open the place below the cell."""
        if not self.disable:
            ipython = import_module("IPython.display")
            self._handle = ipython.display(ipython.HTML(""), display_id=True)

    def update(self, *arguments: Any, **fields: Any) -> None:
        """Change a line, and draw all of them if the last drawing is old enough."""
        super().update(*arguments, **fields)
        now_s = time.monotonic()
        if self._handle is not None and now_s - self._drawn_s >= 1 / REDRAWS_PER_S:
            self._drawn_s = now_s
            self._show(html_of(self.get_renderable(), NOTEBOOK_WIDTH))

    def stop(self) -> None:
        """Leave nothing below the cell."""
        self._show("")

    def _show(self, html: str) -> None:
        if self._handle is not None:
            self._handle.update(import_module("IPython.display").HTML(html))


def _display(silent: bool, *, auto_refresh: bool = True) -> Progress:
    kind = _NotebookDisplay if in_notebook() else Progress
    return kind(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[state]}"),
        _Remaining(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=REDRAWS_PER_S,
        disable=silent or (kind is Progress and not (sys.stderr and sys.stderr.isatty())),
        auto_refresh=auto_refresh,
    )


class _Drawn:
    """Lines on the terminal, between the beginning and the end of a `with`."""

    _display: Progress

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._display.stop()


class LiveProgress(_Drawn):
    """A watcher of runs that draws on the terminal; silent where there is none, or on request.

    It is a context manager: the lines vanish when it closes, and what stays is the table.
    """

    def __init__(self, silent: bool) -> None:
        self._display = _display(silent)
        self._lines: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._jobs: dict[str, int] = {}
        self._shares: dict[str, float] = {}
        self._finished = self._expected = 0
        self._all = self._display.add_task("all runs", total=None, state="")

    def expected(self, run_count: int) -> None:
        """Add to the number of runs."""
        self._expected += run_count
        self._display.update(self._all, total=self._expected)
        self._draw_all()

    def looked(self, seeds: int, seeds_max: int, undecided: int) -> None:
        """The comparisons were judged, and seeds are added."""
        undecided_words = f"{undecided} comparison{'s' if undecided > 1 else ''} undecided"
        self._display.update(
            self._all, description=f"all runs ({undecided_words} at {seeds} of at most {seeds_max} seeds)"
        )

    def started(self, run: PlannedRun) -> None:
        """A run begins to read its input."""
        from volery.look.text import straight

        label = f"{straight(run.spec.label)}, seed {run.spec.seed}"
        if len(label) > LABEL_WIDTH:
            label = label[: LABEL_WIDTH - 1] + "…"
        self._lines[run.key] = self._display.add_task(label, total=None, state="reading the workload")

    def sized(self, run: PlannedRun, facts: TraceFacts) -> None:
        """A run has read its input."""
        self._began[run.key] = time.monotonic()
        self._jobs[run.key] = facts.jobs
        self._display.reset(self._lines[run.key], total=facts.jobs, state=f"0/{facts.jobs:,} jobs")

    def moved(self, run: PlannedRun, progress: SimProgress) -> None:
        """A run is so far."""
        jobs = self._jobs[run.key]
        rate = progress.tasks_finished / max(time.monotonic() - self._began[run.key], 1e-3)
        state = f"{progress.jobs_done:,}/{jobs:,} jobs, "
        state += f"{progress.now_us / SECOND:,.0f} s simulated, {rate:,.0f} tasks/s"
        self._display.update(self._lines[run.key], completed=progress.jobs_done, state=state)
        self._shares[run.key] = progress.jobs_done / max(jobs, 1)
        self._draw_all()

    def ended(self, run: PlannedRun, outcome: RunOutcome) -> None:  # noqa: ARG002 - the table shows the outcome
        """A run is finished."""
        self._display.remove_task(self._lines.pop(run.key))
        self._shares.pop(run.key, None)
        self._finished += 1
        self._draw_all()

    def _draw_all(self) -> None:
        finished_runs = self._finished + sum(self._shares.values())
        self._display.update(self._all, completed=finished_runs, state=f"{self._finished}/{self._expected} runs")


class OneLine(_Drawn):
    """Progress of one thing on standard error; silent where there is no terminal, or on request.

    Args:
        when_moved: it is drawn only when it moves, without a thread that takes time from what is measured.
    """

    def __init__(self, silent: bool, *, when_moved: bool = False) -> None:
        self._display = _display(silent, auto_refresh=not when_moved)
        self._when_moved = when_moved
        self._line: TaskID | None = None

    def moved(self, description: str, part: float, total: float, state: str = "") -> None:
        """Show the progress of one thing, as a part of its total."""
        if self._line is None:
            self._line = self._display.add_task(description, total=total, state=state)
        self._display.update(self._line, completed=part, total=total, state=state, refresh=self._when_moved)
