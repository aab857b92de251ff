"""Description of a workload: sizes, durations, load over time, short and long jobs, workflows, and oddities."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from volery.core.bounds import SECONDS_MAX
from volery.core.errors import InputError
from volery.core.limits import LimitSummary
from volery.core.model import SECOND, Cluster
from volery.core.omissions import Omissions, machine_unit
from volery.core.trace import Trace
from volery.core.workflows import comes_in_parts, critical_paths_us, ends_us, has_workflows, job_bounds, levels
from volery.workload.arrays import Integers, Reals, unlike_means, view
from volery.workload.clusters import load_cluster
from volery.workload.limits import bounded_durations_us
from volery.workload.load import Basis, basis, offered_load, processors_alone
from volery.workload.tr import Reading

PICTURE_FORMATS = ("png", "svg", "pdf")
BLOCKS = " ▁▂▃▄▅▆▇█"


class JobClass(msgspec.Struct, frozen=True):
    """The short or the long jobs of a trace; shares are of all jobs, tasks and work."""

    jobs: int
    tasks: int
    task_seconds: float
    job_share: float
    task_share: float
    work_share: float


class Oddities(msgspec.Struct, frozen=True):
    """Counts of oddities of a trace; those that only a file shows are None for other traces.

    Args:
        equal_arrivals: jobs that arrive together with the one before them.
        zero_durations: tasks that take no time.
        wrong_means: jobs whose stated mean differs from that of their durations by more than 0.1 %.
        unsorted_rows: rows that arrive before the row above them (they are sorted on reading).
        blank_lines: lines without a word.
        first_arrival_s: the file's own earliest arrival; here it is 0.
    """

    equal_arrivals: int
    zero_durations: int
    wrong_means: int
    unsorted_rows: int | None = None
    blank_lines: int | None = None
    first_arrival_s: float | None = None


class ConstraintUse(msgspec.Struct, frozen=True):
    """Placement constraints of the tasks, and whether the machines satisfy them.

    Args:
        constraints_per_task: on average.
        unconstrained_tasks: tasks that run anywhere.
        frequency: per constraint, the share of tasks that need it.
        unsatisfiable_tasks: tasks that no machine of the cluster can run.
        eligible_share: share of the machines that can run a task, averaged over tasks.
    """

    constraints_per_task: float
    unconstrained_tasks: int
    frequency: tuple[float, ...]
    unsatisfiable_tasks: int
    eligible_share: float


class WorkflowShape(msgspec.Struct, frozen=True):
    """The jobs in which some task waits for another.

    Args:
        jobs: number of jobs with tasks that wait.
        tasks: number of the tasks of these jobs.
        waits: pairs of a task and one that it waits for.
        depth_mean, depth_max: tasks of the longest chain, by count.
        width_mean, width_max: the most tasks that stand equally far from the beginning of their job, by count.
        critical_path_mean_s, critical_path_max_s: duration of the longest chain, by time.
    """

    jobs: int
    tasks: int
    waits: int
    depth_mean: float
    depth_max: int
    width_mean: float
    width_max: int
    critical_path_mean_s: float
    critical_path_max_s: float


class TraceDescription(msgspec.Struct, frozen=True):
    """The figures of `volery trace describe`.

    Args:
        task_seconds: durations of all tasks together.
        span_s: last arrival minus first.
        workers: number of machines that the load is taken over.
        resource: that work, load and demand are counted in: the one of which the tasks ask for the largest share of
            the machines; empty: slots.
        offered: amount of the resource that the machines have together.
        work: amounts of the resource that tasks ask for, times their durations, in the unit `work_unit`.
        load: work over what the machines could do during the span; None when all jobs arrive at once.
        peak_demand: the most that would be in use at once if each task started on arrival, or with the end of its
            parents. This and `offered` are in the unit of `work`, without the seconds.
        short, long: classes of jobs; the estimate of a long one is above the cutoff; None without a cutoff.
        workflows: None where no task waits for another.
        left_out: omissions of a run from the file, by effect and reason; None for other traces.
        unheeded_resources: resources that tasks of the file ask for, and that do not count.
        limits: limits of the file, and the tasks that are longer than theirs; None where it states none.
    """

    name: str
    digest: str
    jobs: int
    tasks: int
    fanout_mean: float
    fanout_max: int
    duration_mean_s: float
    duration_p50_s: float
    duration_p99_s: float
    duration_max_s: float
    task_seconds: float
    span_s: float
    workers: int
    resource: str
    offered: float
    work: float
    work_unit: str
    load: float | None
    peak_demand: float
    cutoff_s: float | None
    short: JobClass | None
    long: JobClass | None
    oddities: Oddities
    workflows: WorkflowShape | None = None
    left_out: Omissions | None = None
    unheeded_resources: tuple[str, ...] = ()
    limits: LimitSummary | None = None


class LoadCurve(NamedTuple):
    """Load over time in equal intervals.

    Attributes:
        time_s: beginning of each interval, and end of the last one.
        arriving: per interval, work that arrives in it over what the machines can do in it.
        running: per interval, the mean of what would be in use if each task started on arrival, over what there is.
    """

    time_s: Reals
    arriving: Reals
    running: Reals


def describe(
    trace: Trace,
    workers: int,
    cutoff_s: float | None = None,
    reading: Reading | None = None,
    cluster: Cluster | None = None,
) -> TraceDescription:
    """The figures of a trace.

    Args:
        workers: machines of one slot, or processor, that the load is taken over.
        cutoff_s: jobs whose estimate is above it are long.
        reading: facts that the reader noticed, if the trace came from a file.
        cluster: the machines in place of `workers`.

    Raises:
        InputError: no workers, or a negative cutoff.
    """
    if cutoff_s is not None and not 0 <= cutoff_s <= SECONDS_MAX:  # nor is NaN
        raise InputError("cutoff", f"{cutoff_s} is no cutoff; give seconds from 0 to {SECONDS_MAX}")

    machines = cluster or _machines(trace, workers)
    counted = basis(trace, machines)

    first, duration_us = view(trace.first), view(trace.duration_us)
    fanout = np.diff(first)
    task_seconds = float(duration_us.sum(dtype=np.float64)) / SECOND
    p50, p99 = (float(p) / SECOND for p in np.percentile(duration_us, (50, 99)))
    is_long = view(trace.estimate_us) > round((cutoff_s or 0) * SECOND)

    work_us = _work_us(trace, counted)
    unit, scale = machine_unit((counted.resource,) if counted.resource else ())  # slots are whole units, too

    return TraceDescription(
        name=trace.name,
        digest=trace.digest(),
        jobs=trace.job_count,
        tasks=trace.task_count,
        fanout_mean=trace.task_count / trace.job_count,
        fanout_max=int(fanout.max()),
        duration_mean_s=task_seconds / trace.task_count,
        duration_p50_s=p50,
        duration_p99_s=p99,
        duration_max_s=int(duration_us.max()) / SECOND,
        task_seconds=task_seconds,
        span_s=(trace.arrival_us[-1] - trace.arrival_us[0]) / SECOND,
        workers=len(machines.constraints),
        resource=counted.resource,
        offered=counted.offered * scale,
        work=float(work_us.sum()) * scale / SECOND,
        work_unit=unit,
        load=offered_load(trace, machines),
        peak_demand=_peak_demand(trace, counted) * scale,
        cutoff_s=cutoff_s,
        short=None if cutoff_s is None else _job_class(trace, work_us, ~is_long),
        long=None if cutoff_s is None else _job_class(trace, work_us, is_long),
        oddities=_oddities(trace, reading),
        workflows=_shape(trace) if has_workflows(trace) else None,
        left_out=reading.left_out if reading else None,
        unheeded_resources=reading.unheeded if reading else (),
        limits=reading.limits if reading else None,
    )


def _machines(trace: Trace, workers: int) -> Cluster:
    return processors_alone(trace, workers, None) if trace.resources else load_cluster(workers)


def _work_us(trace: Trace, counted: Basis) -> Reals:
    """Per job, what its tasks ask for times their durations."""
    return np.add.reduceat(bounded_durations_us(trace) * counted.asked.astype(np.float64), view(trace.first)[:-1])


def _shape(trace: Trace) -> WorkflowShape:
    depths_of_tasks = levels(trace)
    paths_us = critical_paths_us(trace)

    depths = []
    widths = []
    lengths_us = []
    tasks = 0
    for job, (low, high) in enumerate(job_bounds(trace)):
        if trace.parent_first[low] < trace.parent_first[high]:
            counts = np.bincount(view(depths_of_tasks)[low:high])
            depths.append(len(counts))
            widths.append(int(counts.max()))
            lengths_us.append(paths_us[job])
            tasks += high - low

    count = len(depths)
    return WorkflowShape(
        jobs=count,
        tasks=tasks,
        waits=len(trace.parents),
        depth_mean=sum(depths) / count,
        depth_max=max(depths),
        width_mean=sum(widths) / count,
        width_max=max(widths),
        critical_path_mean_s=sum(lengths_us) / count / SECOND,
        critical_path_max_s=max(lengths_us) / SECOND,
    )


def _job_class(trace: Trace, work_us: Reals, member: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> JobClass:

    first = view(trace.first)
    durations_s = np.add.reduceat(view(trace.duration_us), first[:-1]) / SECOND
    jobs, tasks = int(member.sum()), int(np.diff(first)[member].sum())

    total_work, work = float(work_us.sum()), float(work_us[member].sum())
    return JobClass(
        jobs,
        tasks,
        float(durations_s[member].sum()),
        jobs / trace.job_count,
        tasks / trace.task_count,
        work / total_work if total_work else 0.0,
    )


def _oddities(trace: Trace, reading: Reading | None) -> Oddities:
    arrival_us, duration_us = view(trace.arrival_us), view(trace.duration_us)
    return Oddities(
        equal_arrivals=int(np.count_nonzero(np.diff(arrival_us) == 0)),
        zero_durations=int(np.count_nonzero(duration_us == 0)),
        wrong_means=int(np.count_nonzero(unlike_means(trace))),
        unsorted_rows=reading.unsorted_rows if reading else None,
        blank_lines=reading.blank_lines if reading else None,
        first_arrival_s=reading.first_arrival_s if reading else None,
    )


def describe_constraints(trace: Trace, cluster: Cluster) -> ConstraintUse | None:
    """The fit of the tasks' constraints to the machines; None when no task has any."""
    if not trace.constraints:
        return None
    masks, counts = np.unique(view(trace.constraints), return_counts=True)

    machines, machine_counts = np.unique(np.array(cluster.constraints, dtype=np.int64), return_counts=True)
    eligible = np.array([int(machine_counts[(machines & mask) == mask].sum()) for mask in masks.tolist()])
    bits = 1 << np.arange(max(1, int(masks.max()).bit_length()), dtype=np.int64)
    use = ((masks[:, None] & bits) != 0).T @ counts

    tasks = trace.task_count
    return ConstraintUse(
        constraints_per_task=float(use.sum()) / tasks,
        unconstrained_tasks=int(counts[masks == 0].sum()),
        frequency=tuple(float(n) / tasks for n in use),
        unsatisfiable_tasks=int(counts[eligible == 0].sum()),
        eligible_share=float(eligible @ counts) / (tasks * len(cluster.constraints)),
    )


class _Moments(NamedTuple):
    """Times, in order, at which so many units are taken or given back."""

    at_us: Integers
    units: Integers


def _begins(trace: Trace, counted: Basis) -> _Moments:
    """The starts of tasks if each started as soon as it may; of jobs that come whole, all tasks at once."""
    if comes_in_parts(trace):
        begins = np.repeat(view(trace.arrival_us), np.diff(view(trace.first)))
        return _in_order(begins + view(ends_us(trace)) - view(trace.duration_us), counted.asked)
    return _Moments(view(trace.arrival_us), np.add.reduceat(counted.asked, view(trace.first)[:-1]))


def _ends(trace: Trace, counted: Basis) -> _Moments:
    """The ends of tasks if each started as soon as it may."""
    ends = np.repeat(view(trace.arrival_us), np.diff(view(trace.first)))
    return _in_order(ends + view(ends_us(trace) if comes_in_parts(trace) else trace.duration_us), counted.asked)


def _in_order(at_us: Integers, units: Integers) -> _Moments:
    order = np.argsort(at_us, kind="stable")
    return _Moments(at_us[order], units[order])


def _peak_demand(trace: Trace, counted: Basis) -> int:
    """Demand only grows at a start, so the largest value after one is the peak."""
    begins = _begins(trace, counted)
    ends = _ends(trace, counted)
    given_back = np.concatenate(([0], np.cumsum(ends.units)))[np.searchsorted(ends.at_us, begins.at_us, side="right")]
    # of one instant: tasks of zero length have ended before the last of them counts
    return max(0, int((np.cumsum(begins.units) - given_back).max()))


def load_curve(trace: Trace, workers: int, points: int = 200, cluster: Cluster | None = None) -> LoadCurve:
    """Load over the arrival span (or until the last task ends, if all jobs arrive at once), exact in each interval.

    Args:
        workers: machines of one slot, or processor, that the load is taken over.
        cluster: the machines instead.
    """
    counted = basis(trace, cluster or _machines(trace, workers))
    begins = _begins(trace, counted)
    ends = _ends(trace, counted)
    span_us = trace.arrival_us[-1] or int(ends.at_us[-1]) or SECOND
    edges = np.linspace(0, span_us, points + 1)
    arrival_us = view(trace.arrival_us).astype(np.float64)
    arriving = np.histogram(arrival_us, edges, weights=_work_us(trace, counted))[0]
    done_us = _served_until(edges, begins) - _served_until(edges, ends)
    capacity_us = np.diff(edges) * counted.offered
    return LoadCurve(edges / SECOND, arriving / capacity_us, np.maximum(np.diff(done_us), 0) / capacity_us)


def _served_until(edges: Reals, moments: _Moments) -> Reals:
    """Per edge, the sum over the units of earlier moments of the time since them."""
    unit_counts = np.concatenate(([0.0], np.cumsum(moments.units)))
    total = np.concatenate(([0.0], np.cumsum(moments.units * moments.at_us.astype(np.float64))))

    at = np.searchsorted(moments.at_us, edges, side="right")
    return np.asarray(unit_counts[at] * edges - total[at])


def draw_load_curve(curve: LoadCurve, title: str, path: Path) -> None:
    """Write the picture; the same curve gives the same bytes.

    Raises:
        InputError: the ending is not .png, .svg or .pdf, or the file cannot be written.
    """
    if path.suffix.removeprefix(".") not in PICTURE_FORMATS:
        raise InputError(str(path), "a picture's name must end in .png, .svg or .pdf")

    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    hours = curve.time_s[-1] > 3 * 3600
    time = curve.time_s / 3600 if hours else curve.time_s

    with mpl.rc_context({"svg.hashsalt": "volery", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()

        # a burst of work may be twenty times what the machines can do; it must not flatten what runs
        top = 130 * max(1.0, float(curve.running.max()))
        cut = " (cut off at the top)" if float(curve.arriving.max()) * 100 > top else ""
        axes.stairs(curve.arriving * 100, time, fill=True, color="#c8d8e8", label=f"arriving work{cut}")
        axes.stairs(curve.running * 100, time, color="#1f4e79", label="running, if every task started on arrival")
        axes.axhline(100, color="#b03030", linewidth=1, linestyle="--", label="all full")

        axes.set_xlabel("time since the first arrival (h)" if hours else "time since the first arrival (s)")
        axes.set_ylabel("load (% of the machines)")
        axes.set_title(title)
        axes.set_xlim(0, time[-1])
        axes.set_ylim(0, top)
        figure.legend(loc="outside lower center", ncols=3, frameon=False)

        dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
        try:
            figure.savefig(path, dpi=120, metadata=dated[path.suffix.removeprefix(".")])
        except OSError as error:
            raise InputError(
                str(path), f"cannot be written ({error.strerror or error}); choose another place"
            ) from None


def sparkline(curve: LoadCurve) -> str:
    """The running load as one row of blocks; the highest interval fills its block."""
    top = float(curve.running.max())
    if top <= 0:
        return BLOCKS[0] * len(curve.running)
    return "".join(BLOCKS[round(float(load) / top * (len(BLOCKS) - 1))] for load in curve.running)
