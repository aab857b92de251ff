"""Sentences about work that a run leaves out: how much, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from volery.core.omissions import Omissions
from volery.metrics import RunSummary
from volery.report.groups import RunGroup
from volery.report.units import percent

Kind = Callable[[RunSummary], Omissions | None]

KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("Left out of the trace", lambda run: run.left_out),
    ("Never run", lambda run: run.never_ran),
    ("Run in one slot each", lambda run: run.in_one_slot),
)


def warnings(groups: Sequence[RunGroup]) -> list[str]:
    """Sentences that come first: what is left out where that is more than 1 % of the machine time."""
    return [_sentence(name, found, several) for name, found, several in _kinds(groups) if found.is_large]


def omission_notes(groups: Sequence[RunGroup]) -> list[str]:
    """Sentences about smaller shares that are left out, for below a table."""
    return [_sentence(name, found, several) for name, found, several in _kinds(groups) if not found.is_large]


def _kinds(groups: Sequence[RunGroup]) -> list[tuple[str, Omissions, bool]]:
    """Per kind the runs' largest omission, and whether runs differ in it; kinds of which there is none are left out."""
    found = []
    for name, of in KINDS:
        told = [one for group in groups for run in group.runs if (one := of(run)) is not None and one.reasons]
        if told:
            largest = max(told, key=lambda one: (one.machine_share, one.unmeasured, one.tasks_left_out))
            found.append((name, largest, any(one != largest for one in told)))
    return found


def _sentence(name: str, found: Omissions, several: bool) -> str:
    """One kind of omission with its numbers, as "Never run: 3 of 10 jobs whole, 30 % of the machine time: ..."."""
    most = "up to " if several else ""
    return f"{name}: {most}{share(found)}: {reasons(found)}."


def share(found: Omissions) -> str:
    """How many jobs or tasks, and which share of the machine time."""
    if found.jobs_left_out:
        counted = f"{found.jobs_left_out:,} of {found.jobs:,} jobs ({percent(found.jobs_left_out / found.jobs)})"
        in_part = sum(one.tasks for one in found.reasons) > found.jobs_left_out
        counted += f", {found.tasks_left_out:,} of {found.tasks:,} tasks" if in_part else ""
    else:
        counted = f"{found.tasks_left_out:,} of {found.tasks:,} tasks ({percent(found.tasks_left_out / found.tasks)})"
    if not found.machine_share:
        return f"{counted}, none of the machine time" + (" that is known" if found.unmeasured else "")
    least = "at least " if found.unmeasured else ""
    return f"{counted}, {least}{percent(found.machine_share)} of the machine time"


def reasons(found: Omissions) -> str:
    """Why, with counts where there is more than one reason."""
    if len(found.reasons) == 1:
        return found.reasons[0].reason
    return "; ".join(f"{one.tasks:,} task{'s' if one.tasks > 1 else ''}: {one.reason}" for one in found.reasons)
