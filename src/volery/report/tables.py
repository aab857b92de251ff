"""Tables for the terminal: what each group of runs gave, and the paired differences between groups."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from typing import Final, Literal

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from volery.look.text import NOTHING, NUMBER_WIDTH, PLUS_MINUS, aligned_duration, broken_label, duration, shortened
from volery.metrics import RunSummary
from volery.report.best import Best, best
from volery.report.columns import (
    COSTS,
    MEAN_PLACE,
    NARROW_COMPARISON,
    STATISTICS,
    WIDE_COMPARISON,
    SummaryColumn,
    comparison_columns,
)
from volery.report.groups import JobClass, RunGroup, group_runs
from volery.report.notes import notes, warnings
from volery.report.sections import Section, sections
from volery.report.verdict import (
    ON_DAYS,
    PAIRS_TOLD_WHOLE,
    against,
    by_quantity,
    caution,
    confidence_of,
    is_of_one_seed,
    over_seeds,
    rule,
)
from volery.statistics import ComparedMeans

WIDE = 118
"""The least width, in columns, at which delays and costs share one table."""
LABEL_WIDTH = 20
"""The width of the architecture column in a narrow terminal: what six durations leave of 80 columns."""
BEST_COLUMNS = 46
"""The width of the ranking without its two columns of labels."""
BRIEF: Final = tuple(cost for cost in COSTS if cost.brief)
"""The costs that stand in a terminal of 80 columns."""


def comparison(
    runs: Sequence[RunSummary],
    differences: Sequence[ComparedMeans] = (),
    on_days: Sequence[ComparedMeans] | None = None,
    *,
    width: int = 80,
    baseline: str = "",
) -> RenderableType:
    """The tables of `volery compare` and `volery show`.

    Args:
        runs: summaries, grouped by label; every number is a mean over the seeds of its group.
        differences: paired differences between groups, over seeds.
        on_days: comparisons of single runs, job by job; None where that is not known.
        width: width of the terminal in columns; a narrow one gets delays and costs in two tables.
        baseline: label of the architecture that ratios are taken to; empty: there is no such table.
    """
    groups = group_runs(runs)

    parts: list[RenderableType] = [Text(line, style="bold yellow") for line in warnings(groups)]

    if width >= WIDE:
        parts.append(_group_table(groups, width, delays=True, costs=True))
    else:
        parts += [_group_table(groups, width, delays=True), "", _group_table(groups, width, costs=True)]

    remarks = [*notes(groups), "tasks/s: per CPU second."]
    for section in sections(groups, baseline):
        parts += ["", _section_table(section, width)]
        remarks += section.notes
    parts += ["", *(Text(note, style="dim") for note in remarks)]

    for setting, ranking in itertools.groupby(
        best(groups, confidence_of(differences)), key=lambda ranked: ranked.setting
    ):
        parts += ["", _best_table(setting, list(ranking), width)]

    # One seed shows nothing of the chance of choices where jobs are compared one by one: that table is left out.
    if not (on_days and is_of_one_seed(differences)):
        parts += _difference_tables(differences, over_seeds(on_days), width)
    parts += _difference_tables(on_days or (), ON_DAYS, width)

    if warning := caution(differences, on_days):
        parts += ["", Text(warning, style="yellow")]
    return Group(*parts)


def print_comparison(
    console: Console,
    runs: Sequence[RunSummary],
    differences: Sequence[ComparedMeans] = (),
    on_days: Sequence[ComparedMeans] | None = None,
    baseline: str = "",
) -> None:
    """Print the tables, fitted to the console's width."""
    tables = comparison(runs, differences, on_days, width=console.width, baseline=baseline)
    console.print(tables, highlight=False)


def plain(
    runs: Sequence[RunSummary],
    differences: Sequence[ComparedMeans] = (),
    on_days: Sequence[ComparedMeans] | None = None,
    *,
    width: int = 80,
) -> str:
    """The tables as text without colours, lines without trailing blanks."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False, markup=False)
    with console.capture() as capture:
        print_comparison(console, runs, differences, on_days)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _difference_tables(differences: Sequence[ComparedMeans], chance: str, width: int) -> list[RenderableType]:
    """A table per pair while they are few; else one per first architecture, a line per other and class of jobs.

    Args:
        chance: the chance that they are about, in a few words.
        width: width of the terminal in columns.
    """
    if not differences:
        return []

    pairs: dict[tuple[str, str], list[ComparedMeans]] = {}
    for compared in differences:
        pairs.setdefault((compared.a, compared.b), []).append(compared)

    parts: list[RenderableType] = []
    if len(pairs) <= PAIRS_TOLD_WHOLE:
        for (a, b), pair in pairs.items():
            parts += ["", _difference_table(f"a = {shortened(a)}, b = {shortened(b)}, {chance}", pair, width)]
    else:
        for a in dict.fromkeys(a for a, _ in pairs):
            own = [compared for compared in differences if compared.a == a]
            parts += ["", _against_table(f"Against {shortened(a)}, {chance}", own, width)]
    return [*parts, "", Text(rule(differences), style="dim")]


def _new_table(title: str) -> Table:
    return Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)


def _group_table(groups: Sequence[RunGroup], width: int, *, delays: bool = False, costs: bool = False) -> Table:
    table = _new_table(" and ".join(["Delay"] * delays + ["Cost"] * costs).capitalize())
    table.add_column("architecture", no_wrap=width < WIDE, overflow="fold", min_width=12)

    classes = delays and any(len(list(group.classes())) > 1 for group in groups)
    if classes:
        table.add_column("jobs", no_wrap=True)
    if delays:
        for place, name in enumerate(STATISTICS):
            table.add_column(f"{name:>{NUMBER_WIDTH}}", no_wrap=True)
            if place == MEAN_PLACE and costs:
                table.add_column(PLUS_MINUS, no_wrap=True)

    if costs and not delays:
        table.add_column(f"{PLUS_MINUS} mean", no_wrap=True)
    if costs:
        for cost in BRIEF:
            justify: Literal["left", "right"] = "left" if cost.text is duration else "right"
            table.add_column(cost.brief, justify=justify, no_wrap=True)

    for group in groups:
        jobs: list[JobClass] = list(group.classes()) if delays else ["all"]
        for row, (name, members) in enumerate(zip(_label_rows(group.label, len(jobs), width), jobs, strict=True)):
            # A label may hold square brackets, which rich would read as markup.
            cells: list[str | Text] = [Text(name)] + [members] * classes
            if delays:
                cells += _delays(group, members, spread=costs)
            elif costs:
                cells.append(plus_minus(group.half_width_s(members)))
            if costs:
                cells += _costs(group) if row == 0 else [""] * len(BRIEF)
            table.add_row(*cells, style="" if members == "all" else "dim")
    return table


def _delays(group: RunGroup, jobs: JobClass, *, spread: bool) -> list[str]:
    delay = group.delay_s(jobs)

    if delay is None:
        return [f"{NOTHING:>{NUMBER_WIDTH}}"] * (len(STATISTICS) + spread)
    cells = [aligned_duration(getattr(delay, name)) for name in STATISTICS.values()]

    if spread:
        cells.insert(MEAN_PLACE + 1, plus_minus(group.half_width_s(jobs)))
    return cells


def plus_minus(half_width_s: float | None) -> str:
    """Half the width of an interval of durations; a dash where there is none."""
    return f"{NOTHING:>{NUMBER_WIDTH}}" if half_width_s is None else aligned_duration(half_width_s)


def _costs(group: RunGroup) -> list[str]:
    return [_aligned(cost).cell(group.runs) for cost in BRIEF]


def _aligned(cost: SummaryColumn[RunSummary]) -> SummaryColumn[RunSummary]:
    return cost._replace(text=aligned_duration) if cost.text is duration else cost


def _label_rows(label: str, count: int, width: int) -> list[str]:
    """A label spread over the rows of its group."""
    lines = _label_lines(label, width)
    lines += [""] * (count - len(lines))
    return [*lines[: count - 1], "\n".join(lines[count - 1 :])]


def _label_lines(label: str, width: int) -> list[str]:
    """A label; in a narrow terminal broken after its marks, where it reads well."""
    return [shortened(label)] if width >= WIDE else broken_label(shortened(label), LABEL_WIDTH)


def _section_table(section: Section, width: int) -> Table:
    table = _new_table(section.title)
    table.add_column("architecture", no_wrap=width < WIDE, overflow="fold", min_width=12)
    for place, head in enumerate(section.heads):
        table.add_column(head, justify="left" if place < section.words else "right")
    for label, *cells in section.rows:
        table.add_row(Text("\n".join(_label_lines(label, width))), *(Text(shortened(cell)) for cell in cells))
    return table


def _best_table(setting: str, ranking: Sequence[Best], width: int) -> Table:
    table = _new_table(
        "Who is lowest at what"
        + f", {shortened(setting)}" * bool(setting)
        + " (=: not told apart from the lowest, corrected for all pairs)"
    )
    table.add_column("jobs", no_wrap=True)
    table.add_column("quantity", min_width=12)
    for name in ("lowest", "next"):
        table.add_column(name, overflow="fold", min_width=8)
        table.add_column("mean", justify="right", no_wrap=True)

    room = LABEL_WIDTH if width < WIDE else (width - BEST_COLUMNS) // 2

    def listed(labels: Sequence[str], sign: str = "") -> str:
        broken = (broken_label(shortened(label), room - len(sign)) for label in labels)
        lines = [(sign if not place else " " * len(sign), line) for b in broken for place, line in enumerate(b)]
        return "\n".join(margin + line for margin, line in lines)

    jobs_before = ""
    for ranked in ranking:
        lowest = Text(listed([ranked.label]), style="bold")
        if ranked.level:
            lowest.append("\n" + listed(ranked.level, "= "), style="not bold")
        mean, next_mean = ranked.amounts
        cells = lowest, mean, Text(listed(ranked.next) or NOTHING), next_mean
        table.add_row(ranked.jobs if ranked.jobs != jobs_before else "", ranked.quantity, *cells)
        jobs_before = ranked.jobs
    return table


def _against_table(title: str, differences: Sequence[ComparedMeans], width: int) -> Table:
    """A line per other architecture and class of jobs, which are compared with one architecture."""
    table = _new_table(title)
    table.add_column("architecture", no_wrap=width < WIDE, overflow="fold", min_width=12)

    quantities, lines = by_quantity(differences)
    members: dict[str, list[str]] = {}
    for _, b, jobs in lines:
        members.setdefault(b, []).append(jobs)
    classes = len({jobs for _, _, jobs in lines}) > 1
    if classes:
        table.add_column("jobs", no_wrap=True)

    for quantity in quantities:
        table.add_column(
            quantity.removesuffix(" delay").removeprefix("mean util").replace("isation", "util."),
            justify="right",
            overflow="fold",
        )

    names = {
        (b, jobs): name
        for b, all_jobs in members.items()
        for name, jobs in zip(_label_rows(b, len(all_jobs), width), all_jobs, strict=True)
    }

    for (_, b, jobs), comparisons in lines.items():
        cells = [Text(against(d), style="" if d.difference.is_shown else "dim") if d else "" for d in comparisons]
        table.add_row(Text(names[b, jobs]), *[jobs] * classes, *cells)
    return table


def _difference_table(title: str, differences: Sequence[ComparedMeans], width: int) -> Table:
    table = _new_table(title)

    columns = comparison_columns(differences)
    classes = len({compared.jobs for compared in differences}) > 1
    if classes:
        table.add_column("jobs", no_wrap=True)

    quantity, *numbers, verdict = [columns[n] for n in (WIDE_COMPARISON if width >= WIDE else NARROW_COMPARISON)]
    table.add_column(quantity[0], no_wrap=True)
    for head, _ in numbers:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column(verdict[0], overflow="fold")

    jobs_before = ""
    for compared in differences:
        jobs = [compared.jobs if compared.jobs != jobs_before else ""] * classes
        cells = [text(compared) for _, text in (quantity, *numbers)]
        style = "bold" if compared.difference.is_shown else "dim"
        table.add_row(*jobs, *cells, Text(verdict[1](compared), style=style))
        jobs_before = compared.jobs
    return table
