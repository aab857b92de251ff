"""Tables for the terminal: what each group of runs gave, and the paired differences between groups."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from volery.metrics import RunSummary
from volery.report.groups import Compared, JobClass, RunGroup, group_runs
from volery.report.units import MINUS, NOTHING, NUMBER_WIDTH, aligned_duration, digits, percent
from volery.report.verdict import amount, caution, interval, reading, signed

WIDE = 118
"""From this width on, delays and costs stand in one table."""
LABEL_WIDTH = 20
"""Of the architecture column in a narrow terminal: what six durations leave of 80 columns."""
STATISTICS = (("median", "p50"), ("mean", "mean"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99"), ("max", "max"))
COSTS = ("util.", "msg/task", "wall", "tasks/s")


def comparison(runs: Sequence[RunSummary], differences: Sequence[Compared] = (), *, width: int = 80) -> RenderableType:
    """The tables of `volery compare` and `volery show`.

    Args:
        runs: summaries, grouped by label; every number is a mean over the seeds of its group.
        differences: paired differences between groups.
        width: of the terminal in columns; a narrow one gets delays and costs in two tables.
    """
    groups = group_runs(runs)
    parts: list[RenderableType] = []
    if width >= WIDE:
        parts.append(_group_table(groups, width, delays=True, costs=True))
    else:
        parts += [_group_table(groups, width, delays=True), "", _group_table(groups, width, costs=True)]
    parts.append("")
    parts += [Text(note, style="dim") for note in [*notes(groups), "tasks/s: per CPU second."]]
    for (a, b), pair in itertools.groupby(differences, key=lambda compared: (compared.a, compared.b)):
        parts += ["", _difference_table(a, b, list(pair), width)]
    if differences:
        parts += [
            "",
            Text(f"Difference: a {MINUS} b, paired by seed, with a 95 % bootstrap interval over seeds.", style="dim"),
        ]
        if warning := caution(differences):
            parts.append(Text(warning, style="yellow"))
    return Group(*parts)


def print_comparison(console: Console, runs: Sequence[RunSummary], differences: Sequence[Compared] = ()) -> None:
    """Print the tables, fitted to the console's width."""
    console.print(comparison(runs, differences, width=console.width), highlight=False)


def plain(runs: Sequence[RunSummary], differences: Sequence[Compared] = (), *, width: int = 80) -> str:
    """The tables as text without colours, lines without trailing blanks."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        print_comparison(console, runs, differences)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def notes(groups: Sequence[RunGroup]) -> list[str]:
    """What a reader of the numbers must know: definition, seeds, what was left out."""
    seeds = sorted({len(group.runs) for group in groups})
    if seeds == [1]:
        count = "One seed."
    else:
        count = f"Every number is a mean over {' to '.join(str(n) for n in sorted({seeds[0], seeds[-1]}))} seeds."
    found = [f"Delay = job response time {MINUS} longest task. {count}"]
    runs = [run for group in groups for run in group.runs]
    if unsatisfiable := {run.unsatisfiable_tasks for run in runs} - {0}:
        low, high = min(unsatisfiable), max(unsatisfiable)
        found.append(f"Tasks that no machine can run, left out: {low:,}" + (f" to {high:,}." if high > low else "."))
        found += list(dict.fromkeys(f"For example {miss}." for run in runs for miss in run.misses))[:1]
    if missing := max(run.jobs - run.delay_s.count for run in runs):
        found.append(f"Jobs without a measured delay (no task of theirs ran, or no answer came): up to {missing:,}.")
    return found


def _new_table(title: str) -> Table:
    return Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)


def _group_table(groups: Sequence[RunGroup], width: int, *, delays: bool = False, costs: bool = False) -> Table:
    table = _new_table(" and ".join(["Delay"] * delays + ["Cost"] * costs).capitalize())
    table.add_column("architecture", no_wrap=width < WIDE, overflow="fold", min_width=12)
    classes = delays and any(len(list(group.classes())) > 1 for group in groups)
    if classes:
        table.add_column("jobs", no_wrap=True)
    if delays:
        for name, _ in STATISTICS:
            table.add_column(f"{name:>{NUMBER_WIDTH}}", no_wrap=True)
    if costs:
        for name in COSTS:
            table.add_column(name, justify="left" if name == "wall" else "right", no_wrap=True)
    for group in groups:
        jobs: list[JobClass] = list(group.classes()) if delays else ["all"]
        for row, (name, members) in enumerate(zip(_label_rows(group.label, len(jobs), width), jobs, strict=True)):
            # A label may hold square brackets, which rich would read as markup.
            cells: list[str | Text] = [Text(name)] + [members] * classes
            if delays:
                cells += _delays(group, members)
            if costs:
                cells += _costs(group) if row == 0 else [""] * len(COSTS)
            table.add_row(*cells, style="" if members == "all" else "dim")
    return table


def _delays(group: RunGroup, jobs: JobClass) -> list[str]:
    delay = group.delay_s(jobs)
    if delay is None:
        return [f"{NOTHING:>{NUMBER_WIDTH}}"] * len(STATISTICS)
    return [aligned_duration(getattr(delay, name)) for _, name in STATISTICS]


def _costs(group: RunGroup) -> list[str]:
    return [
        percent(group.mean(lambda run: run.utilisation_mean)),
        digits(group.mean(lambda run: run.messages_per_task)),
        aligned_duration(group.mean(lambda run: run.wall_s)),
        f"{group.mean(lambda run: run.tasks_per_cpu_s):,.0f}",
    ]


def _label_rows(label: str, count: int, width: int) -> list[str]:
    """A label spread over the rows of its group; in a narrow terminal broken after its marks, where it reads well."""
    lines = [label] if width >= WIDE else _broken(label)
    lines += [""] * (count - len(lines))
    return [*lines[: count - 1], "\n".join(lines[count - 1 :])]


def _broken(label: str) -> list[str]:
    lines = [""]
    for piece in re.findall(r"[^:,=\s]*[:,=\s]*", label):
        if lines[-1] and len(lines[-1] + piece.rstrip()) > LABEL_WIDTH:
            lines.append("")
        for at in range(0, len(piece), LABEL_WIDTH):
            lines[-1] += piece[at : at + LABEL_WIDTH]
            if at + LABEL_WIDTH < len(piece):
                lines.append("")
    return lines


def _difference_table(a: str, b: str, differences: Sequence[Compared], width: int) -> Table:
    table = _new_table(f"a = {a}, b = {b}")
    classes = len({compared.jobs for compared in differences}) > 1
    if classes:
        table.add_column("jobs", no_wrap=True)
    table.add_column("quantity", no_wrap=True)
    if width >= WIDE:
        table.add_column("a", justify="right", no_wrap=True)
        table.add_column("b", justify="right", no_wrap=True)
    table.add_column("difference", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    before = ""
    for compared in differences:
        unit, difference = compared.unit, compared.difference
        cells = [compared.jobs if compared.jobs != before else ""] * classes + [compared.quantity]
        if width >= WIDE:
            cells += [amount(compared.a_mean, unit), amount(compared.b_mean, unit)]
        cells += [signed(difference.mean, unit), interval(difference, unit)]
        table.add_row(*cells, Text(reading(compared), style="bold" if difference.is_shown else "dim"))
        before = compared.jobs
    return table
