"""Why a task is where it is: the machines that are left of all, demand by demand, and what schedulers have decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.live.dashboard.tables import Column, table
from volery.live.status import DecisionStep, FunnelStep, Why
from volery.look.html import Markup, Piece, bar, joined, link, moment, name_of, part, tag
from volery.look.text import time_span, whole

_DECISIONS: Final = (
    Column("when", text=True),
    Column("by", text=True),
    Column("decided", text=True),
    Column("node", text=True),
    Column("asked", text=True),
    Column("view was old"),
    Column("passed over", text=True),
)


UNREPORTED: Final = "No scheduler reports its decisions; Megha does with the parameter why = true."
IS: Final = {
    "pending": "waits", "running": "runs", "finished": "has finished", "failed": "has failed",
    "killed": "was killed", "cancelled": "was cancelled", "unsatisfiable": "can never run",
    "unknown": "has ended, nobody has heard how",
}  # fmt: skip
"""What a state means, in words."""
PAST: Final = frozenset({"running", "finished", "failed", "killed", "cancelled", "unknown"})
"""Of a task in these states a scheduler has decided already: what is left of all machines now is another matter."""


def reasons(why: Why, task: str = "") -> Markup:
    """The answer to the question why.

    Args:
        task: the address of the task's page, where this is another.
    """
    about = joined((link(task, f"Task {why.index}") if task else "This task", f" {IS[why.state]}."))
    told: list[Piece] = [tag("p", about)]
    if why.reason:
        told.append(tag("p", name_of(why.reason), class_="reason"))
    if why.waiting:
        told.append(tag("p", f"{whole(why.waiting)} tasks of the job have not been started.", class_="soft"))
    told += [tag("p", f"{words}.", class_="reason absent") for words in why.absent]
    now = "Machines that it could have if it came now, of all; and where it was accepted:"
    told.append(tag("p", now if why.state in PAST else "Machines that it could have, of all:"))
    return joined((*told, steps(why.funnel), tag("h3", "What schedulers have decided"), decisions(why)))


def steps(found: Sequence[FunnelStep]) -> Markup:
    """Machines that are left after each demand, as bars."""
    most = found[0].machines if found and found[0].machines else 1
    rows = [
        tag(
            "li",
            tag("span", step.demand, class_="demand"),
            tag("span", whole(step.machines), class_="count"),
            bar(part(min(100.0, 100 * step.machines / most))),
        )
        for step in found
    ]
    return tag("ol", *rows, class_="funnel", aria_label="machines that are left of all")


def decisions(why: Why) -> Markup:
    """The history of a task's decisions."""
    if not why.explained:
        return tag("p", UNREPORTED, class_="soft")
    rows = [_row(step) for step in why.decisions]
    return table(_DECISIONS, rows, empty="No decision about it is known.", label="decisions")


def _row(step: DecisionStep) -> tuple[Piece, ...]:
    passed = "; ".join(f"{whole(one.count)} {one.scope}: {one.reason}" for one in step.passed)
    decided = step.chosen + (f" (after {whole(step.omitted)} more)" if step.omitted else "")
    return moment(step.at_us, fine=True), step.by, decided, step.node, step.asked, time_span(step.view_age_us), passed
