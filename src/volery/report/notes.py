"""Notes under the tables of a report: definitions, seeds, left-out work, load, estimates and windows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from volery.core.events import GANG_TASKS_REFUSED, TAG_TASKS_GIVEN_UP
from volery.core.omissions import Omissions
from volery.look.text import MINUS, PLUS_MINUS, confidence, duration, percent, shortened
from volery.metrics import RunSummary
from volery.report.axes import bare_label
from volery.report.groups import RunGroup, methods
from volery.report.schema import BUDGET, DECIDED, StudyEnd
from volery.statistics import CONFIDENCE

Kind = Callable[[RunSummary], Omissions | None]

JUDGED: Final = "median, mean and p99 delay of all jobs"
KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    ("Left out of the trace", lambda run: run.left_out),
    ("Never run", lambda run: run.never_ran),
    ("Run in one slot each", lambda run: run.in_one_slot),
)
LOAD_BY: Final = {
    "arrivals": "Load is set by the distances between arrivals: jobs and machines are the same at every load.",
    "machines": "Load is set by the number of machines, each with its constraints: jobs are the same at every load.",
}


def notes(groups: Sequence[RunGroup]) -> list[str]:
    """The notes below the tables: definitions, seeds, and work that was left out."""
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
    if abandoned := max(map(_abandoned, runs)):
        found.append(f"Tasks that schedulers gave up after too many attempts: up to {abandoned:,}.")
    if gangs := max(run.counters.get(GANG_TASKS_REFUSED, 0) for run in runs):
        found.append(f"Tasks of gangs that the empty cluster cannot hold at once, refused whole: up to {int(gangs):,}.")
    if tagged := max(run.counters.get(TAG_TASKS_GIVEN_UP, 0) for run in runs):
        found.append(f"Tasks given up because those near which they had to run had ended: up to {int(tagged):,}.")
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
    others = sum([run.counters.get(name, 0) for name in (GANG_TASKS_REFUSED, TAG_TASKS_GIVEN_UP)])
    return run.unsatisfiable_tasks - _abandoned(run) - int(others)


def _abandoned(run: RunSummary) -> int:
    """Tasks that schedulers gave up."""
    return 0 if run.transactions is None else run.transactions.abandoned_tasks


def ignorance_lines(groups: Sequence[RunGroup]) -> list[str]:
    """A line per group: which features of its workload the design ignored, and which the driver kept for it."""
    lines = []
    for group in groups:
        ignored = list(dict.fromkeys(feature for run in group.runs for feature in run.ignores))
        kept = list(dict.fromkeys(feature for run in group.runs for feature in run.kept_by_driver))
        told = [f"ignores {', '.join(ignored)}"] if ignored else []
        told += [f"leaves {', '.join(kept)} to the driver"] if kept else []
        told += ["does not declare what it heeds"] if any(not run.declares for run in group.runs) else []
        if told:
            lines.append(f"{shortened(group.label)}: of this workload it {'; '.join(told)}.")
    return lines


def measured_notes(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Notes on load, estimates and measurement windows; none where all is as in the trace."""
    for load_by in dict.fromkeys(run.load_by for run in runs if run.load_by):
        sizes = [run.workers for run in runs if run.load_by == load_by]
        counted = f" {min(sizes):,} to {max(sizes):,} machines." if load_by == "machines" else ""
        yield LOAD_BY[load_by] + counted
    for estimates in dict.fromkeys(run.estimates for run in runs if run.estimates != "mean"):
        yield f"Schedulers are told estimates of durations by the model {estimates}."
    windows = [run.window for run in runs if run.window is not None]
    if windows:
        begins, ends, jobs = ({getattr(one, name) for one in windows} for name in ("begin_s", "end_s", "jobs"))
        bounds = f"{_range(begins)} to {_range(ends)}"
        yield (
            f"Only jobs that were submitted from {bounds} count ({min(jobs):,}"
            + (f" to {max(jobs):,}" if len(jobs) > 1 else "")
            + " of a run), and utilisation is over that time; costs and counters are of the whole run."
        )


def _range(seconds: Collection[float]) -> str:
    low, high = duration(min(seconds)), duration(max(seconds))
    return low if low == high else f"{low} (up to {high})"


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
    """One kind of omission with its numbers, as "Never run: 3 of 10 jobs (30.0 %), 25.0 % of the machine time: ..."."""
    most = "up to " if several else ""
    return f"{name}: {most}{share(found)}: {reasons(found)}."


def share(found: Omissions) -> str:
    """The number of jobs or tasks that are left out, and their share of the machine time."""
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


def end_sentence(end: StudyEnd) -> str:
    """The number of seeds of a study that adds them, the looks at which they were judged, and the reason of the end."""
    counts = [str(look.seeds) for look in end.looks]
    at = f"one look at {counts[0]}" if len(counts) == 1 else f"looks at {', '.join(counts[:-1])} and {counts[-1]}"
    drawn = f"{_count(end.looks[-1].seeds, 'seed')} drawn ({at})"
    undecided = end.looks[-1].undecided
    if end.reason == DECIDED:
        return f"{drawn}: every comparison with {end.baseline} is decided."
    reason = limit_reached(end.seeds_max)
    if end.reason == BUDGET:
        reason = f"the budget of {end.budget_s:g} CPU seconds is used up"
    left = f"{undecided} of {_count(end.comparisons, 'comparison')} with {end.baseline}"
    return f"{drawn}: {reason}, and {left} {'is' if undecided == 1 else 'are'} not decided."


def limit_reached(seeds_max: int) -> str:
    """The end of a study or an experiment at its largest number of seeds."""
    return f"{seeds_max} seeds are the limit"


def end_rule(end: StudyEnd) -> str:
    """The comparisons that decide the end of a study, and the confidence of their intervals."""
    last = end.looks[-1]
    return (
        f"{JUDGED.capitalize()} decide. Each paired interval has {confidence(last.confidence)} "
        f"confidence at the last look, so that all looks together keep {confidence(CONFIDENCE)}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
