"""Who lost what to whom, as rows of a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from volery.report.groups import RunGroup, shortened
from volery.report.units import digits, duration

PREEMPTION_HEADS: Final = ("loser", "winner", "tasks", "run in vain")
PREEMPTION_NOTE: Final = (
    "Preempted: means over the seeds of the tasks that one user lost to another, and of the time that they had run in "
    "vain."
)
ROWS_MAX: Final = 20
"""The largest losses of an architecture; `--json` has all."""


def preemption_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `PREEMPTION_HEADS`, the largest loss of each group first."""
    rows = []
    for group in groups:
        tasks: dict[tuple[str, str], int] = defaultdict(int)
        wasted_s: dict[tuple[str, str], float] = defaultdict(float)
        for run in group.runs:
            for loss in run.preemption.losses if run.preemption is not None else ():
                tasks[loss.loser, loss.winner] += loss.tasks
                wasted_s[loss.loser, loss.winner] += loss.wasted_s
        for pair in sorted(tasks, key=lambda pair: (-wasted_s[pair], pair))[:ROWS_MAX]:
            names = [name or "(no name)" for name in pair]
            count = len(group.runs)
            rows.append([group.label, *names, digits(tasks[pair] / count), duration(wasted_s[pair] / count)])
    return rows


def return_notes(groups: Sequence[RunGroup]) -> list[str]:
    """A warning for each group in which places went back to users who had lost them."""
    told = []
    for group in groups:
        count = sum(run.preemption.taken_back for run in group.runs if run.preemption is not None)
        if count:
            told.append(f"{shortened(group.label)}: {count} places went back to users who had lost them before.")
    return told
