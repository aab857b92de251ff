"""Why a task is where it is: the machines that are left of all, demand by demand, and what schedulers have decided."""

from __future__ import annotations

from typing import Final

from volery.live.hosts.explaining import DecisionStep, Why
from volery.live.window.html import Markup, Piece, duration, joined, link, moment, name_of, tag, whole
from volery.live.window.tables import Column, table

_DECISIONS: Final = (
    Column("when (UTC)"),
    Column("by", text=True),
    Column("decided", text=True),
    Column("node", text=True),
    Column("asked", text=True),
    Column("age of its view"),
    Column("passed over", text=True),
)


def reasons(why: Why, task: str = "") -> Markup:
    """The answer to the question why.

    Args:
        why: the answer.
        task: the address of the task's page, where this is another.
    """
    about = joined((link(task, f"Task {why.index}") if task else "This task", f" is {why.state}."))
    told: list[Piece] = [tag("p", about)]
    if why.reason:
        told.append(tag("p", name_of(why.reason), class_="reason"))
    if why.waiting:
        told.append(tag("p", f"{whole(why.waiting)} tasks of the job have not been started.", class_="soft"))
    return joined((*told, funnel(why), decisions(why)))


def funnel(why: Why) -> Markup:
    """Machines that are left after each demand, as bars."""
    most = why.funnel[0].machines if why.funnel and why.funnel[0].machines else 1
    rows = [
        tag(
            "li",
            tag("span", step.demand, class_="demand"),
            tag("span", whole(step.machines), class_="count"),
            _bar(min(100.0, 100 * step.machines / most)),
        )
        for step in why.funnel
    ]
    return tag("ol", *rows, class_="funnel", aria_label="machines that are left of all")


def _bar(width: float) -> Markup:
    return tag(
        "svg",
        tag("rect", width=f"{width:.2f}", height=8),
        class_="bar",
        viewbox="0 0 100 8",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def decisions(why: Why) -> Markup:
    """The history of a task's decisions."""
    if not why.explained:
        return tag("p", "No scheduler reports its decisions; Megha does with the parameter why = true.", class_="soft")
    return table(_DECISIONS, [_row(step) for step in why.decisions], empty="No decision about it is known.")


def _row(step: DecisionStep) -> tuple[Piece, ...]:
    passed = "; ".join(f"{whole(one.count)} {one.scope}: {one.reason}" for one in step.passed)
    decided = step.chosen + (f" (after {whole(step.omitted)} more)" if step.omitted else "")
    return moment(step.at_us), step.by, decided, step.node, step.asked, duration(step.view_age_us), passed
