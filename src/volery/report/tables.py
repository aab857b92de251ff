"""Tables for the terminal: what each group of runs gave, and the paired differences between groups."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from volery.core.events import GANG_TASKS_REFUSED
from volery.metrics import RunSummary
from volery.report.axes import bare_label
from volery.report.best import Best, best, written
from volery.report.groups import Compared, JobClass, RunGroup, broken_label, group_runs, methods, shortened
from volery.report.locality import LOCALITY_HEADS, LOCALITY_NOTE, ignorance_lines, locality_rows
from volery.report.measured import measured_notes
from volery.report.omissions import omission_notes, warnings
from volery.report.planning import (
    DEADLINE_HEADS,
    DEADLINE_NOTE,
    GUARANTEE_HEADS,
    GUARANTEE_NOTE,
    PLAN_HEADS,
    PLAN_NOTE,
    deadline_rows,
    guarantee_rows,
    plan_rows,
)
from volery.report.preemption import PREEMPTION_HEADS, PREEMPTION_NOTE, preemption_rows, return_notes
from volery.report.provisioning import PROVISIONING_HEADS, PROVISIONING_NOTE, provisioning_rows
from volery.report.ratios import RATIO_HEADS, RATIO_NOTE, ratio_rows
from volery.report.transactions import TRANSACTION_HEADS, TRANSACTION_NOTE, abandoned_tasks, transaction_rows
from volery.report.units import MINUS, NOTHING, NUMBER_WIDTH, aligned_duration, confidence, digits, duration, percent
from volery.report.verdict import (
    ON_DAYS,
    PAIRS_TOLD_WHOLE,
    against,
    amount,
    caution,
    confidence_of,
    effect,
    interval,
    is_of_one_seed,
    over_seeds,
    reading,
    rule,
)
from volery.report.work import HEADS, NOTE, Work, is_counted, work
from volery.report.workflows import WORKFLOW_HEADS, WORKFLOW_NOTE, workflow_rows

WIDE = 118
"""From this width on, delays and costs stand in one table."""
LABEL_WIDTH = 20
"""Of the architecture column in a narrow terminal: what six durations leave of 80 columns."""
BEST_COLUMNS = 46
"""What the ranking takes beside its two columns of labels."""
STATISTICS = (("median", "p50"), ("mean", "mean"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99"), ("max", "max"))
MEAN_PLACE = 1
"""Of the mean among these."""
PLUS_MINUS = "\u00b1"
COSTS = ("util.", "msg/task", "wall", "tasks/s")


def comparison(
    runs: Sequence[RunSummary],
    differences: Sequence[Compared] = (),
    on_days: Sequence[Compared] | None = None,
    *,
    width: int = 80,
    baseline: str = "",
) -> RenderableType:
    """The tables of `volery compare` and `volery show`.

    Args:
        runs: summaries, grouped by label; every number is a mean over the seeds of its group.
        differences: paired differences between groups, over seeds.
        on_days: comparisons of single runs, job by job; None where that is not known.
        width: of the terminal in columns; a narrow one gets delays and costs in two tables.
        baseline: label of the architecture that ratios are taken to; empty: there is no such table.
    """
    groups = group_runs(runs)
    parts: list[RenderableType] = [Text(line, style="bold yellow") for line in warnings(groups)]
    if width >= WIDE:
        parts.append(_group_table(groups, width, delays=True, costs=True))
    else:
        parts += [_group_table(groups, width, delays=True), "", _group_table(groups, width, costs=True)]
    told = [*notes(groups), "tasks/s: per CPU second."]
    if baseline and (ratios := ratio_rows(groups, baseline)):
        heads = ("jobs", *RATIO_HEADS)
        parts += ["", _row_table(f"Ratio to {shortened(baseline)}", heads, 1, ratios, width)]
        told.append(RATIO_NOTE)
    counted = work(groups)
    if is_counted(counted):
        parts += ["", _work_table(counted, width)]
        told.append(NOTE)
    if decided := transaction_rows(groups):
        parts += ["", _row_table("Decisions of the schedulers", TRANSACTION_HEADS, 1, decided, width)]
        told.append(TRANSACTION_NOTE)
    if due := deadline_rows(groups):
        parts += ["", _plain_table("Deadlines", DEADLINE_HEADS, due, width)]
        told.append(DEADLINE_NOTE)
    if guaranteed := guarantee_rows(groups):
        parts += ["", _plain_table("Guarantees", GUARANTEE_HEADS, guaranteed, width)]
        told.append(GUARANTEE_NOTE)
    if planned := plan_rows(groups):
        parts += ["", _plain_table("Plans", PLAN_HEADS, planned, width)]
        told.append(PLAN_NOTE)
    if near := locality_rows(groups):
        parts += ["", _plain_table("Locality", LOCALITY_HEADS, near, width)]
        told.append(LOCALITY_NOTE)
    if had := provisioning_rows(groups):
        parts += ["", _plain_table("Provisioning", PROVISIONING_HEADS, had, width)]
        told.append(PROVISIONING_NOTE)
    if lost := preemption_rows(groups):
        parts += ["", _row_table("Preempted tasks", PREEMPTION_HEADS, 2, lost, width)]
        told += [PREEMPTION_NOTE, *return_notes(groups)]
    if flowing := workflow_rows(groups):
        parts += ["", _plain_table("Workflows", WORKFLOW_HEADS, flowing, width)]
        told.append(WORKFLOW_NOTE)
    parts += ["", *(Text(note, style="dim") for note in told)]
    for setting, ranking in itertools.groupby(best(groups, confidence_of(differences)), key=lambda one: one.setting):
        parts += ["", _best_table(setting, list(ranking), width)]
    if not (on_days and is_of_one_seed(differences)):
        parts += _difference_tables(differences, over_seeds(on_days), width)
    parts += _difference_tables(on_days or (), ON_DAYS, width)
    if warning := caution(differences, on_days):
        parts += ["", Text(warning, style="yellow")]
    return Group(*parts)


def print_comparison(
    console: Console,
    runs: Sequence[RunSummary],
    differences: Sequence[Compared] = (),
    on_days: Sequence[Compared] | None = None,
    baseline: str = "",
) -> None:
    """Print the tables, fitted to the console's width."""
    found = comparison(runs, differences, on_days, width=console.width, baseline=baseline)
    console.print(found, highlight=False)


def plain(
    runs: Sequence[RunSummary],
    differences: Sequence[Compared] = (),
    on_days: Sequence[Compared] | None = None,
    *,
    width: int = 80,
) -> str:
    """The tables as text without colours, lines without trailing blanks."""
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False, markup=False)
    with console.capture() as capture:
        print_comparison(console, runs, differences, on_days)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def notes(groups: Sequence[RunGroup]) -> list[str]:
    """What a reader of the numbers must know: definition, seeds, what was left out."""
    seeds = sorted({len(group.runs) for group in groups})
    if seeds == [1]:
        count = "One seed."
    else:
        count = f"Every number is a mean over {' to '.join(str(n) for n in sorted({seeds[0], seeds[-1]}))} seeds."
    if alike := [shortened(group.label) for group in groups if group.is_alike]:
        which = "Nothing is random here" if len(alike) == len(groups) else f"Nothing is random under {', '.join(alike)}"
        count += f" {which}: {' to '.join(map(str, sorted({seeds[0], seeds[-1]})))} seeds gave the same run."
    runs = [run for group in groups for run in group.runs]
    ideal = "critical path" if any(run.workflows is not None for run in runs) else "longest task"
    found = [f"Delay = job response time {MINUS} {ideal}. {count}"]
    if how := methods(group.interval_s("all") for group in groups):
        found.append(f"{PLUS_MINUS}: half of the 95 % interval of the mean delay over seeds ({how}).")
    if abandoned := max(map(abandoned_tasks, runs)):
        found.append(f"Tasks that schedulers gave up after too many attempts: up to {abandoned:,}.")
    if gangs := max(run.counters.get(GANG_TASKS_REFUSED, 0) for run in runs):
        found.append(f"Tasks of gangs that the empty cluster cannot hold at once, refused whole: up to {int(gangs):,}.")
    if unsatisfiable := {_fit_nowhere(run) for run in runs} - {0}:
        low, high = min(unsatisfiable), max(unsatisfiable)
        found.append(f"Tasks that no machine can run, left out: {low:,}" + (f" to {high:,}." if high > low else "."))
        found += list(dict.fromkeys(f"For example {miss}." for run in runs for miss in run.misses))[:1]
    if taken := sorted({run.cutoff_from_trace_s for run in runs if run.cutoff_from_trace_s is not None}):
        firsts = [group.runs[0] for group in groups if group.runs[0].cutoff_from_trace_s is not None]
        labels = dict.fromkeys(shortened(bare_label(run)) for run in firsts)
        shown = " to ".join(duration(cutoff) for cutoff in dict.fromkeys((taken[0], taken[-1])))
        found.append(
            f"Cutoff of {', '.join(labels)}: {shown}, which the mean task of 90 % of the jobs does not exceed; "
            "--cutoff S sets another."
        )
    found += omission_notes(groups)
    found += ignorance_lines(groups)
    found += measured_notes(runs)
    if missing := max((run.window.jobs if run.window else run.jobs) - run.delay_s.count for run in runs):
        found.append(f"Jobs without a measured delay (no task of theirs ran, or no answer came): up to {missing:,}.")
    return found


def _fit_nowhere(run: RunSummary) -> int:
    """Tasks that fit no machine: neither given up nor of an impossible gang."""
    return run.unsatisfiable_tasks - abandoned_tasks(run) - int(run.counters.get(GANG_TASKS_REFUSED, 0))


def _difference_tables(differences: Sequence[Compared], chance: str, width: int) -> list[RenderableType]:
    """A table per pair while they are few; else one per first architecture, a line per other and class of jobs.

    Args:
        differences: that are of one kind.
        chance: in a few words, which chance they are about.
        width: of the terminal in columns.
    """
    if not differences:
        return []
    pairs: dict[tuple[str, str], list[Compared]] = {}
    for compared in differences:
        pairs.setdefault((compared.a, compared.b), []).append(compared)
    parts: list[RenderableType] = []
    if len(pairs) <= PAIRS_TOLD_WHOLE:
        for (a, b), pair in pairs.items():
            parts += ["", _difference_table(f"a = {shortened(a)}, b = {shortened(b)}, {chance}", pair, width)]
    else:
        for a in dict.fromkeys(a for a, _ in pairs):
            others = {b: pair for (first, b), pair in pairs.items() if first == a}
            parts += ["", _against_table(f"Against {shortened(a)}, {chance}", others, width)]
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
        for place, (name, _) in enumerate(STATISTICS):
            table.add_column(f"{name:>{NUMBER_WIDTH}}", no_wrap=True)
            if place == MEAN_PLACE and costs:
                table.add_column(PLUS_MINUS, no_wrap=True)
    if costs and not delays:
        table.add_column(f"{PLUS_MINUS} mean", no_wrap=True)
    if costs:
        for name in COSTS:
            table.add_column(name, justify="left" if name == "wall" else "right", no_wrap=True)
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
                cells += _costs(group) if row == 0 else [""] * len(COSTS)
            table.add_row(*cells, style="" if members == "all" else "dim")
    return table


def _delays(group: RunGroup, jobs: JobClass, *, spread: bool) -> list[str]:
    delay = group.delay_s(jobs)
    if delay is None:
        return [f"{NOTHING:>{NUMBER_WIDTH}}"] * (len(STATISTICS) + spread)
    found = [aligned_duration(getattr(delay, name)) for _, name in STATISTICS]
    if spread:
        found.insert(MEAN_PLACE + 1, plus_minus(group.half_width_s(jobs)))
    return found


def plus_minus(half_width_s: float | None) -> str:
    """Half the width of an interval of durations; a dash where there is none."""
    return f"{NOTHING:>{NUMBER_WIDTH}}" if half_width_s is None else aligned_duration(half_width_s)


def _costs(group: RunGroup) -> list[str]:
    return [
        percent(group.mean(lambda run: run.utilisation_mean)),
        digits(group.mean(lambda run: run.messages_per_task)),
        aligned_duration(group.mean(lambda run: run.wall_s)),
        f"{group.mean(lambda run: run.tasks_per_cpu_s):,.0f}",
    ]


def _label_rows(label: str, count: int, width: int) -> list[str]:
    """A label spread over the rows of its group."""
    lines = _label_lines(label, width)
    lines += [""] * (count - len(lines))
    return [*lines[: count - 1], "\n".join(lines[count - 1 :])]


def _label_lines(label: str, width: int) -> list[str]:
    """A label; in a narrow terminal broken after its marks, where it reads well."""
    return [shortened(label)] if width >= WIDE else broken_label(shortened(label), LABEL_WIDTH)


def _work_table(counted: Sequence[Work], width: int) -> Table:
    table = _new_table("Work of the schedulers")
    table.add_column("architecture", no_wrap=width < WIDE, overflow="fold", min_width=12)
    for head in HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    for one in counted:
        table.add_row(Text("\n".join(_label_lines(one.label, width))), *one.cells)
    return table


def _row_table(title: str, heads: Sequence[str], words: int, rows: Sequence[Sequence[str]], width: int) -> Table:
    """`rows`: label and cells; the first `words` of these are words, the others numbers."""
    table = _new_table(title)
    table.add_column("architecture", no_wrap=width < WIDE, overflow="fold", min_width=12)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < words else "right")
    for label, *cells in rows:
        table.add_row(Text("\n".join(_label_lines(label, width))), *(Text(shortened(cell)) for cell in cells))
    return table


def _plain_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    table = _new_table(title)
    table.add_column("architecture", no_wrap=width < WIDE, overflow="fold", min_width=12)
    for head in heads:
        table.add_column(head, justify="right")
    for label, *cells in rows:
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
        return "\n".join(before + line for before, line in lines)

    before = ""
    for one in ranking:
        lowest = Text(listed([one.label]), style="bold")
        if one.level:
            lowest.append("\n" + listed(one.level, "= "), style="not bold")
        after = written(one.next_mean, one.unit) if one.next else NOTHING
        cells = lowest, written(one.mean, one.unit), Text(listed(one.next) or NOTHING), after
        table.add_row(one.jobs if one.jobs != before else "", one.quantity, *cells)
        before = one.jobs
    return table


def _against_table(title: str, pairs: Mapping[str, Sequence[Compared]], width: int) -> Table:
    """How the others stand to one architecture."""
    table = _new_table(title)
    table.add_column("architecture", no_wrap=width < WIDE, overflow="fold", min_width=12)
    quantities = list(dict.fromkeys(compared.quantity for pair in pairs.values() for compared in pair))
    classes = len({compared.jobs for pair in pairs.values() for compared in pair}) > 1
    if classes:
        table.add_column("jobs", no_wrap=True)
    for quantity in quantities:
        table.add_column(
            quantity.removesuffix(" delay").removeprefix("mean util").replace("isation", "util."),
            justify="right",
            overflow="fold",
        )
    for b, pair in pairs.items():
        jobs = list(dict.fromkeys(compared.jobs for compared in pair))
        for name, members in zip(_label_rows(b, len(jobs), width), jobs, strict=True):
            found = {compared.quantity: compared for compared in pair if compared.jobs == members}
            cells = [
                Text(against(found[q]), style="" if found[q].difference.is_shown else "dim") if q in found else ""
                for q in quantities
            ]
            table.add_row(Text(name), *[members] * classes, *cells)
    return table


def _difference_table(title: str, differences: Sequence[Compared], width: int) -> Table:
    table = _new_table(title)
    classes = len({compared.jobs for compared in differences}) > 1
    if classes:
        table.add_column("jobs", no_wrap=True)
    table.add_column("quantity", no_wrap=True)
    if width >= WIDE:
        table.add_column("a", justify="right", no_wrap=True)
        table.add_column("b", justify="right", no_wrap=True)
    table.add_column(f"b / a, b {MINUS} a", justify="right", no_wrap=True)
    table.add_column(f"{confidence(confidence_of(differences))} interval", justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    before = ""
    for compared in differences:
        unit, difference = compared.unit, compared.difference
        cells = [compared.jobs if compared.jobs != before else ""] * classes + [compared.quantity]
        if width >= WIDE:
            cells += [amount(compared.a_mean, unit), amount(compared.b_mean, unit)]
        cells += [effect(compared), interval(difference, unit)]
        table.add_row(*cells, Text(reading(compared), style="bold" if difference.is_shown else "dim"))
        before = compared.jobs
    return table
