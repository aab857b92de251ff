"""The comparisons of a study on a page: drawn, in a table, and for many pairs in a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from volery.report.groups import Compared
from volery.report.intervals import interval_picture
from volery.report.page import Row, figure, folded, paragraph, table
from volery.report.units import MINUS, confidence
from volery.report.verdict import (
    PAIRS_TOLD_WHOLE,
    against,
    by_quantity,
    comparison_columns,
    confidence_of,
    rule,
)


def _caption(differences: Sequence[Compared]) -> str:
    return (
        f"Ratios b / a on a logarithmic scale, the stroke is 1; differences b {MINUS} a, the stroke is 0. Each "
        f"quantity has a scale of its own, lines are {confidence(confidence_of(differences))} intervals. Grey and "
        "hollow: the corrected verdict shows no difference."
    )


def _against(differences: Sequence[Compared]) -> str:
    """A line per pair and class of jobs: b beside a in every quantity."""
    quantities, lines = by_quantity(differences)

    def rows() -> Iterator[Row]:
        before = ("", "")
        for (a, b, jobs), known in lines.items():
            first = (a, b) != before
            before = (a, b)
            name = f"{b} against {a}" if first else ""
            yield Row([name, jobs, *(against(d) if d else "" for d in known)], "first" if first else "part")

    return table(["architecture", "jobs", *quantities], rows(), text_columns=2)


def _table(differences: Sequence[Compared]) -> str:
    columns = comparison_columns(differences)
    chosen = [columns[name] for name in ("quantity", "verdict", "a", "b", "effect", "interval", "method")]

    def rows() -> Iterator[Row]:
        before, jobs_before = None, ""
        for d in differences:
            pair = (d.a, d.b)
            jobs = d.jobs if (pair, d.jobs) != (before, jobs_before) else ""
            name = f"a: {d.a}, b: {d.b}" if pair != before else ""
            cells = [name, jobs, *(text(d) for _, text in chosen)]
            yield Row(cells, "first " * (pair != before) + "part" * (not d.difference.is_shown))
            before, jobs_before = pair, d.jobs

    return table(["pair", "jobs", *(head for head, _ in chosen)], rows(), text_columns=4, names={8})


def comparisons_part(differences: Sequence[Compared], name: str, said: str) -> str:
    """What the comparisons mean, their picture and table; empty where nothing was compared.

    Args:
        differences: over seeds, or of single runs job by job.
        name: of the pictures, unlike that of any other of the page.
        said: which chance they are about.
    """
    if not differences:
        return ""
    drawn = [d for d in differences if d.jobs == "all"]
    picture = figure(interval_picture(drawn), name, _caption(drawn))
    classes = [d for d in differences if d.jobs != "all"]
    if classes:
        picture += folded(
            "Short and long jobs, drawn", figure(interval_picture(classes), f"{name}-classes", _caption(classes))
        )
    told = paragraph(f"{said} {rule(differences)}")
    pairs = len({(d.a, d.b) for d in differences})
    if pairs <= PAIRS_TOLD_WHOLE:
        return told + picture + _table(differences)
    everything = folded(f"The {len(differences)} comparisons of {pairs} pairs", _table(differences))
    return told + _against(differences) + picture + everything
