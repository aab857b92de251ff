"""Notes under the tables of a report: definitions, seeds, left-out work, load, estimates and windows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from volery.core.events import GANG_TASKS_REFUSED, TAG_TASKS_GIVEN_UP
from volery.core.omissions import CHANGED, EFFECTS, LEFT_OUT, REQUESTS, WAITS, Effect, Omissions
from volery.look.text import MINUS, PLUS_MINUS, confidence, duration, percent, shortened
from volery.metrics import RunSummary
from volery.report.axes import bare_label
from volery.report.groups import RunGroup, methods
from volery.report.schema import BUDGET, DECIDED, StudyEnd
from volery.statistics import CONFIDENCE

JUDGED: Final = "median, mean and p99 delay of all jobs"
TITLES: Final[dict[Effect, str]] = {
    LEFT_OUT: "Left out of the trace",
    WAITS: "Waits of the trace that are not heeded",
    REQUESTS: "Requests that the trace does not state",
    CHANGED: "Changed from the trace",
}
HISTORY_TITLES: Final = {effect: title.replace("trace", "trace of earlier runs") for effect, title in TITLES.items()}
NEVER_RUN: Final = "Never run"
IN_ONE_SLOT: Final = "Run in one slot each"
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
        subject = (
            "Nothing is random here" if len(alike) == len(groups) else f"Nothing is random under {', '.join(alike)}"
        )
        count += f" {subject}: {' to '.join(map(str, sorted({seeds[0], seeds[-1]})))} seeds gave the same run."

    runs = [run for group in groups for run in group.runs]
    ideal = "critical path" if any(run.workflows is not None for run in runs) else "longest task"
    lines = [f"Delay = job response time {MINUS} {ideal}. {count}"]

    if interval_methods := methods(group.interval_s("all") for group in groups):
        lines.append(f"{PLUS_MINUS}: half of the 95 % interval of the mean delay over seeds ({interval_methods}).")
    if abandoned := max(run.abandoned_tasks for run in runs):
        lines.append(f"Tasks that schedulers gave up after too many attempts: up to {abandoned:,}.")
    if gangs := max(run.counters.get(GANG_TASKS_REFUSED, 0) for run in runs):
        lines.append(f"Tasks of gangs that the empty cluster cannot hold at once, refused whole: up to {int(gangs):,}.")
    if tagged := max(run.counters.get(TAG_TASKS_GIVEN_UP, 0) for run in runs):
        lines.append(f"Tasks given up because those near which they had to run had ended: up to {int(tagged):,}.")

    if unsatisfiable := {run.unplaceable_tasks for run in runs} - {0}:
        low, high = min(unsatisfiable), max(unsatisfiable)
        lines.append(f"Tasks that no machine can run, left out: {low:,}" + (f" to {high:,}." if high > low else "."))
        lines += list(dict.fromkeys(f"For example {miss}." for run in runs for miss in run.misses))[:1]

    if cutoffs := sorted({run.cutoff_from_trace_s for run in runs if run.cutoff_from_trace_s is not None}):
        firsts = [group.runs[0] for group in groups if group.runs[0].cutoff_from_trace_s is not None]
        labels = dict.fromkeys(shortened(bare_label(run)) for run in firsts)
        shown = " to ".join(duration(cutoff) for cutoff in dict.fromkeys((cutoffs[0], cutoffs[-1])))
        lines.append(
            f"Cutoff of {', '.join(labels)}: {shown}, which the mean task of 90 % of the jobs does not exceed; "
            "--cutoff S sets another."
        )

    lines += omission_notes(groups)
    if names := list(dict.fromkeys(name for run in runs for name in run.unheeded_resources)):
        lines.append(f"Requests of {', '.join(names)} do not count; --resources, or --capacity, says which do.")
    lines += ignorance_lines(groups)
    lines += measured_notes(runs)

    if missing := max((run.window.jobs if run.window else run.jobs) - run.delay_s.count for run in runs):
        lines.append(f"Jobs without a measured delay (no task of theirs ran, or no answer came): up to {missing:,}.")
    return lines


def ignorance_lines(groups: Sequence[RunGroup]) -> list[str]:
    """A line per group: which features of its workload the design ignored, and which the driver kept for it."""
    lines = []
    for group in groups:
        ignored = list(dict.fromkeys(feature for run in group.runs for feature in run.ignores))
        left_features = list(dict.fromkeys(feature for run in group.runs for feature in run.kept_by_driver))

        clauses = [f"ignores {', '.join(ignored)}"] if ignored else []
        clauses += [f"leaves {', '.join(left_features)} to the driver"] if left_features else []
        clauses += ["does not declare what it heeds"] if any(not run.declares for run in group.runs) else []

        if clauses:
            lines.append(f"{shortened(group.label)}: of this workload it {'; '.join(clauses)}.")
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
        begins, ends, jobs = ({getattr(window, name) for window in windows} for name in ("begin_s", "end_s", "jobs"))
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
    """Sentences that come first.

    They state that rigid jobs are read as tasks, and what is omitted where that is more than 1 % of jobs, tasks, waits
    or machine time.
    """
    omissions = [_sentence(title, part, several) for title, part, several in _kinds(groups) if part.is_large]
    return [*_gang_lines(groups), *omissions]


def _gang_lines(groups: Sequence[RunGroup]) -> Iterator[str]:
    """The reading of jobs whose tasks run only together, where it is another than the trace's, and its reason."""
    if any(run.are_gangs_tasks for group in groups for run in group.runs):
        designs = dict.fromkeys(
            shortened(bare_label(group.runs[0])) for group in groups if not group.runs[0].starts_gangs
        )
        reason = f": {', '.join(designs)} start{'s' * (len(designs) == 1)} tasks one by one" if designs else ""
        yield f"Rigid jobs are read as one task each (as=task){reason}. --gangs hold lets their tasks hold and wait."


def omission_notes(groups: Sequence[RunGroup]) -> list[str]:
    """Sentences about smaller shares that are omitted, for below a table."""
    return [_sentence(title, part, several) for title, part, several in _kinds(groups) if not part.is_large]


def omission_warnings(omissions: Omissions) -> list[str]:
    """A sentence per effect on a trace, of those above 1 % of jobs, tasks, waits or machine time."""
    parts = [(TITLES[effect], omissions.of(effect)) for effect in EFFECTS]
    return [_sentence(title, part, False) for title, part in parts if part.is_large]


def _omissions_of(run: RunSummary) -> Iterator[tuple[str, Omissions | None]]:
    """The omissions of a run by title: of its trace and that of earlier runs by effect, and those of its own."""
    for titles, omissions in ((TITLES, run.left_out), (HISTORY_TITLES, run.history_left_out)):
        for effect in EFFECTS:
            yield titles[effect], None if omissions is None else omissions.of(effect)
    yield NEVER_RUN, run.never_ran
    yield IN_ONE_SLOT, run.in_one_slot


def _kinds(groups: Sequence[RunGroup]) -> list[tuple[str, Omissions, bool]]:
    """Per title the runs' largest omission, and whether runs differ in it; titles that no run needs are left out."""
    by_title: dict[str, list[Omissions]] = {}
    for group in groups:
        for run in group.runs:
            for title, part in _omissions_of(run):
                if part is not None and part.reasons:
                    by_title.setdefault(title, []).append(part)

    kinds = []
    for title in (*TITLES.values(), *HISTORY_TITLES.values(), NEVER_RUN, IN_ONE_SLOT):
        if parts := by_title.get(title):
            largest = max(parts, key=_size)
            kinds.append((title, largest, any(part != largest for part in parts)))
    return kinds


def _size(part: Omissions) -> tuple[float, int, int, int]:
    return part.machine_share, part.unmeasured, part.waits_omitted, part.tasks_omitted


def _sentence(title: str, part: Omissions, several: bool) -> str:
    """One kind of omission with its numbers, as "Never run: 3 of 10 jobs (30.0 %), 25.0 % of the machine time: ..."."""
    most = "up to " if several else ""
    return f"{title}: {most}{share(part)}: {reasons(part)}."


def share(part: Omissions) -> str:
    """The waits, jobs or tasks that are omitted, the jobs that have some, and the share of the machine time."""
    jobs = min(sum(omission.jobs for omission in part.reasons), part.jobs)
    is_exact = jobs <= max(
        [omission.jobs for omission in part.reasons], default=0
    )  # a job may have tasks of several reasons
    upper_bound = "" if is_exact else "at most "

    jobs_note = f" in {upper_bound}{jobs:,} of {part.jobs:,} jobs ({percent(jobs / part.jobs)})" if jobs else ""
    if part.waits_omitted:
        return f"{part.waits_omitted:,} of {part.waits:,} waits ({percent(part.waits_omitted / part.waits)}){jobs_note}"

    tasks = f"{part.tasks_omitted:,} of {part.tasks:,} tasks"
    if jobs * part.tasks <= part.tasks_omitted * part.jobs:
        jobs_note = ""  # the share of jobs adds nothing to that of tasks

    if part.jobs_left_out:
        counted = f"{part.jobs_left_out:,} of {part.jobs:,} jobs ({percent(part.jobs_left_out / part.jobs)})"
        counted += f", {tasks}" if part.tasks_omitted > part.jobs_left_out else ""
        counted += jobs_note if jobs > part.jobs_left_out else ""
    else:
        counted = f"{tasks} ({percent(part.tasks_omitted / part.tasks)}){jobs_note}"

    if not part.machine_share:
        return f"{counted}, none of the machine time" + (" that is known" if part.unmeasured else "")
    lower_bound = "at least " if part.unmeasured else ""
    return f"{counted}, {lower_bound}{percent(part.machine_share)} of the machine time"


def reasons(part: Omissions) -> str:
    """Why, with counts where there is more than one reason."""
    if len(part.reasons) == 1:
        return part.reasons[0].reason
    return "; ".join(
        f"{omission.tasks:,} task{'s' if omission.tasks > 1 else ''}: {omission.reason}" for omission in part.reasons
    )


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

    undecided_note = f"{undecided} of {_count(end.comparisons, 'comparison')} with {end.baseline}"
    return f"{drawn}: {reason}, and {undecided_note} {'is' if undecided == 1 else 'are'} not decided."


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
