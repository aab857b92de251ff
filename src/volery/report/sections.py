"""The tables of a report that some studies have and others lack: one list, for the terminal and for the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from volery.core.model import SECOND
from volery.look.text import NOTHING, digits, duration, shortened
from volery.metrics import RunSummary
from volery.report.columns import (
    BRIEF_STATISTICS,
    DEADLINES,
    DECISIONS,
    DEVIATION,
    DEVICES,
    GANGS,
    GUARANTEES,
    LIMITS,
    LOCALITY,
    LOSSES,
    PLANS,
    PROVISIONING,
    WORK,
    WORKFLOWS,
    Part,
    SummaryColumn,
    cells,
    heads,
)
from volery.report.groups import RunGroup, by_setting

Rows = list[list[str]]
"""Label and cells; a row without a label continues the one before."""

LOSSES_MAX: Final = 20
"""The number of losses that are shown per architecture, the largest first; `--json` has all."""
QUEUES: Final = ("queued_tasks", "queued_reservations")
"""Counters of queues: of tasks at a scheduler or master, of reservations in a worker's own queue."""

NOTES: Final = {
    "Ratio": "Ratio: a statistic of delay over that of the baseline in the same setting, both means over seeds.",
    "Work of the schedulers": (
        "Per task: messages, probes, stolen probes. Queue: tasks that wait at a scheduler when a job arrives, or "
        "reservations at the worker that starts a job. Blocked: mean time of a task behind long ones at its worker."
    ),
    "Decisions of the schedulers": (
        "Busyness: share of time in which a scheduler decides, median over ten periods (days in long runs) \u00b1 "
        "median absolute deviation; wasted: for attempts with a conflict; no room: beside it, for attempts that found "
        "none. Conflicts: attempts with one per successful one. First try, placed: mean wait from submission to the "
        "first attempt, and until all tasks were placed. Given up: jobs."
    ),
    "Deadlines": (
        "Deadlines: jobs that have one, the share of them that were answered by then, the longest time to an answer "
        "as a share of the time to the deadline, and response times of the others."
    ),
    "Guarantees": (
        "Guarantees: slots that were guaranteed to jobs with a deadline, over time; the oracle guarantees a job its "
        "work / its time to the deadline, rounded up, until its deadline. Above it: share of the guarantees above the "
        "oracle's."
    ),
    "Plans": (
        "Plans: problems that schedulers solved apart from their messages, and processor time of each on one core. "
        "Variables and rows: the most of any integer program; gap: mean over those that a solver was asked about."
    ),
    "Limits": (
        "Limits: jobs with a wall-clock limit, those with a task that exceeded it, and the tasks that were ended at it "
        "(none if limits are ignored). Bounded slowdown: response time / the larger of ideal and 10 s, at least 1."
    ),
    "Devices": (
        "Devices: all, those that no task had, and those of them in pieces, means over time: idle devices that a task "
        "drawn from the workload could not be given (Weng et al., ATC 2023)."
    ),
    "Locality": (
        "Locality: share of the tasks that ran on a machine that holds their input, in a rack that does, elsewhere. "
        "By job: mean over jobs of the share of their tasks on such a machine."
    ),
    "Gangs": (
        "Gangs: jobs whose tasks run only together, those that ran, and tasks of the largest. Held: gangs whose "
        "launched members held machines while others of them waited, the time of machines that they held, and its "
        "share of the time of all machines. Machines, racks: those on which a gang of several tasks ran, on average; "
        "share of these gangs in one rack."
    ),
    "Provisioning": (
        "Provisioning: hours for which machines were provisioned, ran something, and were paid for. Supply, demand: "
        "processors, or slots, on average: of machines that are on, and asked for by tasks that are ready or run. "
        "Missing, too much: of all that could be there, on average (under- and over-provisioning accuracy), and the "
        "shares of time with less, or more, than was asked for."
    ),
    "Preempted tasks": (
        "Preempted: means over the seeds of the tasks that one user lost to another, and of the time that they had "
        "run in vain."
    ),
    "Workflows": (
        "Workflows: means over tasks or jobs, then over seeds. Schedule length: job makespan / critical path. Job "
        "waiting: until the first task starts."
    ),
}
"""Below each table, by its title."""


class SchedulerWork(msgspec.Struct, frozen=True):
    """The work of the schedulers of one architecture, means over its seeds; None where the design does not report it.

    Args:
        messages_per_task, probes_per_task, stolen_probes_per_task: counts / tasks.
        queue: the unit of `queue_mean` and `queue_max`: "tasks" or "reservations".
        queue_mean: mean of the lengths that were seen: as a job arrives, or as a worker starts the first task of one.
        queue_max: mean over the seeds of the largest.
        blocked_s_per_task: time that tasks waited behind long ones at their workers (head-of-line blocking) / tasks.
    """

    label: str
    messages_per_task: float
    probes_per_task: float | None
    stolen_probes_per_task: float | None
    queue: str
    queue_mean: float | None
    queue_max: float | None
    blocked_s_per_task: float | None

    @property
    def cells(self) -> list[str]:
        """The cells of a table row as text, under `WORK`."""
        counts = [self.messages_per_task, self.probes_per_task, self.stolen_probes_per_task]
        counts += [self.queue_mean, self.queue_max]
        blocked = self.blocked_s_per_task
        written = [NOTHING if count is None else digits(count) for count in counts]
        return [*written, NOTHING if blocked is None else duration(blocked)]


class Section(msgspec.Struct, frozen=True):
    """A table of a report with its notes.

    Args:
        heads: heads of the columns after the label.
        rows: label and cells; a row without a label continues the one before.
        words: number of columns after the label that hold words; the others hold numbers.
    """

    title: str
    heads: Sequence[str]
    rows: Rows
    notes: Sequence[str]
    words: int = 0


def sections(groups: Sequence[RunGroup], baseline: str = "") -> list[Section]:
    """The sections that have rows, in the order of a report.

    Args:
        groups: groups of the study; a cell is a mean over the seeds of its group.
        baseline: label, without its setting, of the architecture that ratios are taken to; empty: no ratios.
    """
    compared = ratios(groups, baseline) if baseline else []

    all_sections = [
        Section(f"Ratio to {shortened(baseline)}", ("jobs", *BRIEF_STATISTICS), compared, [NOTES["Ratio"]], 1),
        _section("Work of the schedulers", WORK, _work_rows(groups)),
        _section("Decisions of the schedulers", ("jobs", *heads(DECISIONS)), decisions(groups), words=1),
        _section("Deadlines", heads(DEADLINES), table_rows(groups, lambda run: run.deadlines, DEADLINES)),
        _section("Guarantees", heads(GUARANTEES), table_rows(groups, lambda run: run.allotments, GUARANTEES)),
        _section("Plans", heads(PLANS), table_rows(groups, _planned, PLANS)),
        _section("Limits", heads(LIMITS), table_rows(groups, lambda run: run if run.limits else None, LIMITS)),
        _section("Devices", heads(DEVICES), table_rows(groups, lambda run: run.devices, DEVICES)),
        _section("Locality", heads(LOCALITY), table_rows(groups, lambda run: run.locality, LOCALITY)),
        _section("Gangs", heads(GANGS), table_rows(groups, lambda run: run.gangs, GANGS)),
        _section("Provisioning", heads(PROVISIONING), table_rows(groups, lambda run: run.provisioning, PROVISIONING)),
        _section("Preempted tasks", LOSSES, losses(groups), *returns(groups), words=2),
        _section("Workflows", heads(WORKFLOWS), table_rows(groups, lambda run: run.workflows, WORKFLOWS)),
    ]

    return [section for section in all_sections if section.rows]


def _section(title: str, heads: Sequence[str], rows: Rows, *warnings: str, words: int = 0) -> Section:
    return Section(title, heads, rows, [NOTES[title], *warnings], words)


def ratios(groups: Sequence[RunGroup], baseline: str) -> Rows:
    """Delays of all others as ratios to those of the baseline, per class of jobs, setting by setting."""
    rows = []
    for setting, members in by_setting(groups):
        own = f"{baseline} [{setting}]" if setting else baseline
        base = next((group for group in members if group.label == own), None)

        # A setting without a finished run of the baseline has no ratios.
        for group in members if base is not None else ():
            if group is base or base is None:
                continue

            for place, jobs in enumerate(group.classes()):
                delay, base_delay = group.delay_s(jobs), base.delay_s(jobs)
                names = BRIEF_STATISTICS.values()
                delays = [_ratio(getattr(delay, name, None), getattr(base_delay, name, None)) for name in names]
                rows.append([group.label if not place else "", jobs, *delays])
    return rows


def _ratio(value: float | None, base: float | None) -> str:
    return NOTHING if value is None or not base or base < 0 or value < 0 else digits(value / base)


def work(groups: Sequence[RunGroup]) -> list[SchedulerWork]:
    """The work of the schedulers, one entry per group, in their order."""
    return [_work(group) for group in groups]


def _work(group: RunGroup) -> SchedulerWork:
    queue = _queue(group)
    blocked_us = _per_task(group, "blocked_us")
    return SchedulerWork(
        group.label,
        group.mean(lambda run: run.messages_per_task),
        _per_task(group, "probes"),
        _per_task(group, "stolen_probes"),
        queue.removeprefix("queued_"),
        _mean(group, f"{queue}_mean"),
        _mean(group, f"{queue}_max"),
        None if blocked_us is None else blocked_us / SECOND,
    )


def _work_rows(groups: Sequence[RunGroup]) -> Rows:
    """The cells of `SchedulerWork`; no rows where no group reports more than messages."""
    groups_work = work(groups)
    # Messages alone stand in the table of costs already.
    if all(scheduler_work.probes_per_task is None and not scheduler_work.queue for scheduler_work in groups_work):
        return []
    return [[scheduler_work.label, *scheduler_work.cells] for scheduler_work in groups_work]


def _queue(group: RunGroup) -> str:
    return next((name for name in QUEUES if any(f"{name}_count" in run.counters for run in group.runs)), "")


def _per_task(group: RunGroup, counter: str) -> float | None:
    """A counter / tasks; a seed under which it was never raised counts as zero where another raised it."""
    if not any(counter in run.counters for run in group.runs):
        return None
    return group.mean(lambda run: run.counters.get(counter, 0.0) / run.tasks if run.tasks else 0.0)


def _mean(group: RunGroup, counter: str) -> float | None:
    values = [run.counters[counter] for run in group.runs if counter in run.counters]
    return sum(values) / len(values) if values else None


def decisions(groups: Sequence[RunGroup]) -> Rows:
    """Busyness and waits under `DECISIONS`, a row per type of job."""
    rows = []

    for group, runs in _having(groups, lambda run: run.transactions):
        for name in sorted({name for run in runs for name in run.workloads}):
            waits = [run.workloads[name] for run in runs if name in run.workloads]
            busyness, *other_cells = cells(DECISIONS, waits)
            rows.append([group.label, name, f"{busyness} \u00b1 {DEVIATION.cell(waits)}", *other_cells])
    return rows


def _planned(run: RunSummary) -> RunSummary | None:
    """The run, where its design asks a solver."""
    return run if run.compute_s is not None and "plan_jobs_count" in run.counters else None


def losses(groups: Sequence[RunGroup]) -> Rows:
    """Tasks and time that one user lost to another, the largest loss of each group first."""
    rows = []
    for group in groups:
        tasks: dict[tuple[str, str], int] = defaultdict(int)
        wasted_s: dict[tuple[str, str], float] = defaultdict(float)

        for run in group.runs:
            for loss in run.preemption.losses if run.preemption is not None else ():
                tasks[loss.loser, loss.winner] += loss.tasks
                wasted_s[loss.loser, loss.winner] += loss.wasted_s

        for pair in sorted(tasks, key=lambda pair: (-wasted_s[pair], pair))[:LOSSES_MAX]:
            names = [name or "(no name)" for name in pair]
            count = len(group.runs)
            rows.append([group.label, *names, digits(tasks[pair] / count), duration(wasted_s[pair] / count)])
    return rows


def returns(groups: Sequence[RunGroup]) -> list[str]:
    """A warning for each group in which places went back to users who had lost them."""
    regained = {
        group.label: sum(run.preemption.taken_back for run in group.runs if run.preemption is not None)
        for group in groups
    }

    return [
        f"{shortened(label)}: {count} places went back to users who had lost them before."
        for label, count in regained.items()
        if count
    ]


def table_rows(
    groups: Sequence[RunGroup], part: Callable[[RunSummary], Part | None], columns: Sequence[SummaryColumn[Part]]
) -> Rows:
    """The groups with runs that have a part of the summary, and the cells of these columns."""
    return [[group.label, *cells(columns, parts)] for group, parts in _having(groups, part)]


def _having(
    groups: Sequence[RunGroup], part: Callable[[RunSummary], Part | None]
) -> Iterator[tuple[RunGroup, list[Part]]]:
    """The groups with runs that have such a part, and these parts by seed."""
    for group in groups:
        parts = [part_of_run for part_of_run in map(part, group.runs) if part_of_run is not None]
        if parts:
            yield group, parts
