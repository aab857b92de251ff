"""Tables and figures of a results folder as files for a paper: CSV, LaTeX (booktabs), and PDF, PNG or SVG.

Figures are as wide as a column, or as a page, of two-column papers (ACM's acmart: 3.33 and 7 inches), in letters of 8
points, with TrueType fonts inside. The same folder gives the same bytes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from volery.core.errors import InputError
from volery.look.text import MINUS, NOTHING, TIMES, digits, shortened
from volery.metrics import RunSummary
from volery.report.axes import AxisPoint, Panel, axis_figure, bare_label, numeric_axes, panels, slug, varying
from volery.report.columns import BRIEF_STATISTICS, CSV_DIFFERENCE, STATISTICS
from volery.report.folder import StoredResults, read_results
from volery.report.groups import CLASSES, RunGroup, class_summary, group_runs, methods
from volery.report.pictures import DelaySamples, delay_series, settings
from volery.report.plots import Size, delay_figure, figure_bytes, style
from volery.report.verdict import effect, interval, reading, rule
from volery.statistics import ComparedMeans

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ON_DAYS_LIKE_THIS: Final = "on_days_like_this"
FORMATS: Final = ("csv", "latex", "pdf", "png", "svg")
WIDTHS: Final = {"single": Size(3.33, 2.0, 8.0), "double": Size(7.0, 2.6, 8.0)}
_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}
_UNITS: Final = (("s", 1.0), ("ms", 1e-3), ("$\\mu$s", 1e-6))


class Comparisons(Protocol):
    """The comparisons of a study (read-only)."""

    @property
    def differences(self) -> Sequence[ComparedMeans]:
        """The paired differences over the seeds."""

    @property
    def on_days_like_this(self) -> Sequence[ComparedMeans] | None:
        """Comparisons of single runs, job by job; None in a folder of an earlier version."""


def write_export(
    folder: Path, into: Path, formats: Sequence[str], width: str, compared: Comparisons | None = None
) -> list[Path]:
    """Write tables and figures of a results folder; the folder for them is made.

    Args:
        formats: names from `FORMATS`.
        width: a key of `WIDTHS`.
        compared: comparisons in place of those of the folder, where another baseline was chosen.

    Raises:
        InputError: a file of the folder is missing or damaged, or one cannot be written.
    """
    results = read_results(folder)

    written = []
    try:
        into.mkdir(parents=True, exist_ok=True)
        for name, content in _files(results, formats, WIDTHS[width], compared or results.summary):
            (into / name).write_bytes(content)
            written.append(into / name)
    except OSError as error:
        raise InputError(str(into), f"cannot be written: {error.strerror}; choose another place with --into") from None
    return written


def _files(
    results: StoredResults, formats: Sequence[str], size: Size, all_comparisons: Comparisons
) -> Iterator[tuple[str, bytes]]:
    runs = results.summary.runs
    lists = {"differences": all_comparisons.differences, ON_DAYS_LIKE_THIS: all_comparisons.on_days_like_this or ()}
    compared = {name: comparisons for name, comparisons in lists.items() if comparisons}
    over = [panel for axis in numeric_axes(runs) for panel in panels(runs, axis)]

    if "csv" in formats:
        yield "runs.csv", _csv(run_rows(runs))
        yield "delay.csv", _csv(delay_rows(group_runs(runs)))
        for name, comparisons in compared.items():
            yield f"{name}.csv", _csv(difference_rows(comparisons, runs))
        if over:
            yield "axes.csv", _csv(axis_rows(over))

    if "latex" in formats:
        for name, latex_table in latex_tables(runs, all_comparisons).items():
            yield f"{name}.tex", latex_table().encode()

    for suffix in (f".{name_of_format}" for name_of_format in formats if name_of_format in ("pdf", "png", "svg")):
        with style(size):
            for name, figure in figures(runs, results, size).items():
                yield f"{name}{suffix}", figure_bytes(figure(), suffix)


def latex_tables(runs: Sequence[RunSummary], compared: Comparisons) -> dict[str, Callable[[], str]]:
    """The LaTeX tables of a study by name, each made when it is called."""
    over = [panel for axis in numeric_axes(runs) for panel in panels(runs, axis)]
    lists = {"differences": compared.differences, ON_DAYS_LIKE_THIS: compared.on_days_like_this or ()}
    tables: dict[str, Callable[[], str]] = {"delay": partial(delay_latex, group_runs(runs))}
    tables |= {name: partial(differences_latex, comparisons) for name, comparisons in lists.items() if comparisons}
    return tables | {panel.name: partial(axis_latex, panel) for panel in over}


def figures(runs: Sequence[RunSummary], samples: DelaySamples, size: Size) -> dict[str, Callable[[], Figure]]:
    """The figures of a study by name, each drawn when it is called, within `volery.report.plots.style`."""
    over = [panel for axis in numeric_axes(runs) for panel in panels(runs, axis)]
    drawn: dict[str, Callable[[], Figure]] = {panel.name: partial(axis_figure, panel, "", size) for panel in over}

    for setting, members in settings(group_runs(runs)):
        for jobs in CLASSES:
            if any(jobs in group.classes() for group in members):
                series = delay_series(samples, setting, members, jobs)
                if series:
                    drawn[slug(f"delay-{jobs}", setting)] = partial(delay_figure, series, "", size)
    return drawn


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def run_rows(runs: Sequence[RunSummary]) -> Iterator[list[Any]]:
    """A head, and a line per run and class of jobs: axes, seed, delay in seconds, utilisation, messages."""
    axes = list(varying(runs))
    measured = [f"{name}_delay_s" for name in STATISTICS]
    yield ["architecture", *axes, "seed", "jobs", "measured_jobs", *measured, "utilisation", "messages_per_task"]

    for run in runs:
        for jobs in CLASSES:
            members = class_summary(run, jobs)
            if members is None:
                continue

            axis_values = [run.axes.get(name) for name in axes]
            delays = [getattr(members.delay_s, name) for name in STATISTICS.values()]
            row = [bare_label(run), *axis_values, run.seed, jobs, members.delay_s.count, *delays]
            yield [*row, run.utilisation_mean, run.messages_per_task]


def delay_rows(groups: Sequence[RunGroup]) -> Iterator[list[Any]]:
    """A head, and a line per architecture, setting and class of jobs: means over seeds, seconds."""
    axes = list(varying([run for group in groups for run in group.runs]))
    heads = [f"{name}_delay_s" for name in STATISTICS]
    yield ["architecture", *axes, "jobs", "seeds", *heads, "mean_half_width_s", "utilisation", "messages_per_task"]

    for group in groups:
        first = group.runs[0]
        axis_values = [first.axes.get(name) for name in axes]
        costs = group.mean(lambda run: run.utilisation_mean), group.mean(lambda run: run.messages_per_task)

        for jobs in group.classes():
            delay = group.delay_s(jobs)
            delays = [getattr(delay, name, None) for name in STATISTICS.values()]
            row = [bare_label(first), *axis_values, jobs, len(group.runs), *delays]
            yield [*row, group.half_width_s(jobs), *costs]


def difference_rows(differences: Sequence[ComparedMeans], runs: Sequence[RunSummary]) -> Iterator[list[Any]]:
    """A head, and a line per paired difference a - b: the axes of a, and mean and interval over the seeds."""
    axes = list(varying(runs))
    first = {run.label: run for run in reversed(runs)}
    yield ["a", "b", *axes, *CSV_DIFFERENCE]

    for compared in differences:
        run_of_a, run_of_b = first[compared.a], first[compared.b]
        of_axes = [run_of_a.axes.get(name) for name in axes]
        values = attrgetter(*CSV_DIFFERENCE.values())(compared)
        yield [bare_label(run_of_a), bare_label(run_of_b), *of_axes, *values]


def axis_rows(over: Iterable[Panel]) -> Iterator[list[Any]]:
    """A head, and a line per point of a figure over an axis."""
    yield ["measure", "unit", "jobs", "axis", "value", "setting", "architecture", "mean", "low", "high", "seeds"]
    for panel in over:
        measure, setting = panel.measure, panel.setting
        of_panel = [measure.title, measure.unit, measure.jobs, panel.axis]
        for line in panel.lines:
            for point in line.points:
                bounds = (point.interval.low, point.interval.high) if point.interval else (None, None)
                yield [*of_panel, point.x, setting, line.label, point.mean, *bounds, point.seeds]


def axis_latex(panel: Panel) -> str:
    """A booktabs table: a row per architecture, a column per value of the axis, mean and half of the interval."""
    values = sorted({point.x for line in panel.lines for point in line.points})
    unit, scale = _unit(panel)
    jobs = "" if panel.measure.jobs == "all" else f" of {panel.measure.jobs} jobs"
    setting_note = f", {escaped(panel.setting)}" if panel.setting else ""
    interval_methods = methods(point.interval for line in panel.lines for point in line.points)
    half = f" with half of its 95\\,\\% interval ({interval_methods})" if interval_methods else ""
    caption = f"{escaped(panel.measure.title + jobs)}{setting_note} ({unit}), mean over seeds{half}"

    rows = []
    for line in panel.lines:
        at = {point.x: point for point in line.points}
        rows.append([escaped(line.label), *(_latex_point(at.get(x), scale) for x in values)])
    return _tabular(caption, [escaped(panel.axis), *(f"{x:g}" for x in values)], rows)


def delay_latex(groups: Sequence[RunGroup]) -> str:
    """A booktabs table of delays in seconds: means over seeds, and half of the interval of the mean."""
    rows = []
    for group in groups:
        for jobs in group.classes():
            delay = group.delay_s(jobs)
            half = group.half_width_s(jobs)
            if delay is None:
                continue
            numbers = [
                _with_half(getattr(delay, name), half if name == "mean" else None) for name in BRIEF_STATISTICS.values()
            ]
            rows.append([escaped(group.label) if jobs == "all" else "", jobs, *numbers])

    interval_methods = methods(group.interval_s("all") for group in groups)
    caption = "Delay (s), means over seeds" + (
        f", with half of the 95\\,\\% interval of the mean ({interval_methods})" if interval_methods else ""
    )
    return _tabular(caption, ["architecture", "jobs", *BRIEF_STATISTICS], rows)


def differences_latex(differences: Sequence[ComparedMeans]) -> str:
    """A booktabs table of comparisons: ratios of durations, else differences, with intervals and methods."""
    rows = [
        [
            *map(escaped, (shortened(compared.a), shortened(compared.b), compared.jobs, compared.quantity)),
            *map(_latex_words, (effect(compared), interval(compared.difference, compared.unit))),
            *map(escaped, (compared.difference.method, reading(compared))),
        ]
        for compared in differences
    ]

    heads = ["a", "b", "jobs", "quantity", "b / a, $b - a$", r"95\,\% interval", "method", "verdict"]
    return _tabular(escaped(rule(differences)), heads, [[*row[:-1], _latex_words(row[-1])] for row in rows])


def escaped(text: str) -> str:
    """Text as LaTeX shows it unchanged."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _latex_words(text: str) -> str:
    """Signs of ours as LaTeX has them."""
    for sign, latex in (
        (TIMES, r"$\times$"),
        (MINUS, "$-$"),
        ("\u2026", r"\ldots{}"),
        (NOTHING, "--"),
        ("\u00b5", r"$\mu$"),
    ):
        text = text.replace(sign, latex)
    return text


def _unit(panel: Panel) -> tuple[str, float]:
    if panel.measure.unit != "s":
        return "\\%", 0.01
    largest = max(point.mean for line in panel.lines for point in line.points)
    return next(((unit, scale) for unit, scale in _UNITS if largest >= scale), _UNITS[-1])


def _latex_point(point: AxisPoint | None, scale: float) -> str:
    if point is None:
        return "--"
    half = None if point.interval is None else (point.interval.high - point.interval.low) / 2 / scale
    return _with_half(point.mean / scale, half)


def _with_half(mean: float, half: float | None) -> str:
    return f"${_number(mean)}$" if half is None else f"${_number(mean)} \\pm {_number(half)}$"


def _number(value: float) -> str:
    """Three significant digits as LaTeX writes them in formulas, small numbers included."""
    number = digits(value) if abs(value) >= 1 or not value else f"{value:#.3g}"
    number = number.replace(",", "{,}")
    return re.sub(r"e([+-])0*(\d+)", lambda exponent: rf" \cdot 10^{{{exponent[1].strip('+')}{exponent[2]}}}", number)


def _tabular(comment: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    columns = "l" + "r" * (len(heads) - 1)
    lines = [f"% {comment}", "% \\usepackage{booktabs}", f"\\begin{{tabular}}{{{columns}}}", "\\toprule"]
    lines += [" & ".join(heads) + r" \\", "\\midrule"]
    lines += [" & ".join(row) + r" \\" for row in rows]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])
