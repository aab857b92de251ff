"""The paired differences of a study on a page: drawn, in a table, and for many pairs in a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from volery.report.elements import Row, figure, folded, paragraph, table
from volery.report.groups import Compared
from volery.report.intervals import interval_picture
from volery.report.units import MINUS
from volery.report.verdict import PAIRS_TOLD_WHOLE, against, amount, interval, reading, signed

CAPTION: Final = (
    "Differences with their 95 % intervals, each quantity on a scale of its own; the stroke is zero. Grey and "
    "hollow: the interval spans it, so that nothing is shown."
)


def _against(differences: Sequence[Compared]) -> str:
    """How the others stand to the first, one line per class of jobs."""
    quantities = list(dict.fromkeys(d.quantity for d in differences))
    found = {(d.a, d.b, d.jobs, d.quantity): d for d in differences}

    def rows() -> Iterator[Row]:
        before = ("", "")
        for a, b, jobs in dict.fromkeys((d.a, d.b, d.jobs) for d in differences):
            known = [found.get((a, b, jobs, quantity)) for quantity in quantities]
            first = (a, b) != before
            before = (a, b)
            name = f"{b} against {a}" if first else ""
            yield Row([name, jobs, *(against(d) if d else "" for d in known)], "first" if first else "part")

    return table(["architecture", "jobs", *quantities], rows(), text_columns=2)


def differences_part(differences: Sequence[Compared]) -> str:
    """Table, picture and what they mean; empty where nothing was compared."""

    def rows() -> Iterator[Row]:
        before, jobs_before = None, ""
        for d in differences:
            pair = (d.a, d.b)
            jobs = d.jobs if (pair, d.jobs) != (before, jobs_before) else ""
            name = f"{d.a} {MINUS} {d.b}" if pair != before else ""
            numbers = [amount(d.a_mean, d.unit), amount(d.b_mean, d.unit), signed(d.difference.mean, d.unit)]
            cells = [name, jobs, d.quantity, reading(d), *numbers, interval(d.difference, d.unit)]
            yield Row(cells, "first " * (pair != before) + "part" * (not d.difference.is_shown))
            before, jobs_before = pair, d.jobs

    if not differences:
        return ""
    heads = ["a \u2212 b", "jobs", "quantity", "verdict", "a", "b", "difference", "95 % interval"]
    drawn = [d for d in differences if d.jobs == "all"]
    picture = figure(interval_picture(drawn), "differences", CAPTION)
    classes = [d for d in differences if d.jobs != "all"]
    if classes:
        picture += folded(
            "Short and long jobs, drawn", figure(interval_picture(classes), "differences-classes", CAPTION)
        )
    said = paragraph(
        "Runs of one seed share their jobs, constraints and machines. The interval is a bootstrap over seeds; nothing "
        "is called lower or higher where it spans zero. One seed, and runs in which nothing is random, have none."
    )
    everything = table(heads, rows(), text_columns=4)
    pairs = len({(d.a, d.b) for d in differences})
    if pairs <= PAIRS_TOLD_WHOLE:
        return said + picture + everything
    return (
        said
        + _against(differences)
        + picture
        + folded(f"The {len(differences)} differences of {pairs} pairs", everything)
    )
