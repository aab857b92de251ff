"""The pictures of an experiment: those of `volery.report.plots` where they fit, and the paper's own kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from experiments.experiment import Workload
from experiments.measures import LOAD_STATISTICS, SETTLED, InputMeasures
from experiments.reproduction import Reproduction
from experiments.values import full_label
from volery.core.model import SECOND
from volery.metrics import ConstraintLoad
from volery.metrics.arrays import Floats
from volery.metrics.demand import runnable_tasks
from volery.metrics.distribution import Histogram
from volery.report import plots
from volery.report.axes import AnalysisLine, analysis_curves
from volery.report.pictures import stage_times
from volery.report.plots import Series
from volery.study.runs import read_inputs

CURVE_POINTS: Final = 400
BINNED: Final = {
    "task_response": ("response_bins", "task_response_s", "task response time (s)"),
    "makespan": ("makespan_bins", "makespan_s", "makespan of a job (s)"),
}
"""By picture, the histogram and the distribution of `WorkflowSummary` that it draws, and its axis."""


def draw(reproduction: Reproduction) -> Iterator[tuple[str, str]]:
    """Yield the file name and the SVG text of every picture that there is something to draw for."""
    of_experiment = {
        "utilisation_ratio": _utilisation_ratio,
        "stage_times": _stage_times,
        "conflicts": _conflicts,
        "analysis": _analysis,
        "slowdown": _slowdowns,
    }
    for kind in reproduction.experiment.pictures:
        if kind in of_experiment:
            pictures = {f"{kind}.svg": of_experiment[kind](reproduction)}
        else:
            workloads = reproduction.experiment.workload
            pictures = {
                f"{kind}_{workload.label}.svg": _of_workload(reproduction, workload, kind) for workload in workloads
            }
        yield from ((name, picture) for name, picture in pictures.items() if picture)


def _stage_times(reproduction: Reproduction) -> str:
    """The last run of every architecture on the first workload and population."""
    experiment = reproduction.experiment
    place = (experiment.workload[0].label, experiment.population[0].label)
    runs = [runs[-1].key for of, runs in reproduction.planned.runs.items() if of[1:] == place]
    profiles = [reproduction.stages[key].profile for key in runs if key in reproduction.stages]
    return stage_times(profiles, title=f"{experiment.figure}: {place[0]}") if profiles else ""


def _of_workload(reproduction: Reproduction, workload: Workload, kind: str) -> str:
    title = f"{reproduction.experiment.figure}: {workload.label}, {workload.workers:,} workers"
    if kind == "constraint_load":
        loads = _mean_loads(reproduction, workload)
        return plots.constraint_load_bars(loads, title=title) if loads else ""
    if kind == "demand":
        return _demand(reproduction, workload, title)
    if kind == "delay_cdf":
        series = _series(reproduction, workload, "jobs", "delay_s")
        return plots.delay_cdf(series, title=title) if series else ""
    if kind in BINNED:
        return _violins(reproduction, workload, kind, title)
    series = _series(reproduction, workload, "curve", "utilisation")
    return _utilisation_cdf(series, title) if series else ""


def _demand(reproduction: Reproduction, workload: Workload, title: str) -> str:
    """Slots that the workload requires over time, if every task started on arrival; one line per seed."""
    runs = reproduction.planned.inputs.get((workload.label, reproduction.experiment.population[0].label), [])
    if not runs:
        return ""
    inputs = [read_inputs(run.spec) for run in runs]
    spans = [runnable_tasks(inputs_of_seed.trace, inputs_of_seed.cluster)[:2] for inputs_of_seed in inputs]
    divisor, unit = plots.time_unit(max(int(end.max(initial=0)) for _, end in spans) / SECOND)
    with plots.style():
        figure, axes = plots.new_figure(len(runs), title)
        for place, (run, (begin, end)) in enumerate(zip(runs, spans, strict=True)):
            times = np.linspace(0, end.max(initial=0), CURVE_POINTS)
            slots = np.searchsorted(np.sort(begin), times, "right") - np.searchsorted(np.sort(end), times, "right")
            axes.step(
                times / SECOND / divisor,
                slots,
                where="post",
                color=plots.colour(place),
                linestyle=plots.dash(place),
                label=f"seed {run.spec.seed}",
            )
        axes.axhline(inputs[0].cluster.slot_count, color=plots.colour(len(runs)), linewidth=1, label="slots")
        axes.set_xlabel(f"time since the first arrival ({unit})")
        axes.set_ylabel("slots that tasks require")
        axes.set_ylim(bottom=0)
        return plots.svg_text(figure, 2)


def _violins(reproduction: Reproduction, workload: Workload, kind: str, title: str) -> str:
    """Distributions of the first seed side by side, each with a bar at its mean; workflows alone have them."""
    bins, mean, axis = BINNED[kind]
    shown: list[tuple[str, Histogram, float]] = []
    for label, reading, _ in reproduction.experiment.variants():
        of = full_label(label, reading)
        place = (of, workload.label, reproduction.experiment.population[0].label)
        for summary in reproduction.summaries(reproduction.planned.runs.get(place, [])[:1]):
            histogram = getattr(summary.workflows, bins, None)
            if summary.workflows is not None and histogram is not None:
                shown.append((of, histogram, getattr(summary.workflows, mean).mean))
    if not shown:
        return ""
    with plots.style():
        figure, axes = plots.new_figure(0, title)
        for place_, (_, histogram, middle) in enumerate(reversed(shown)):
            edges = np.linspace(0, histogram.most, len(histogram.counts) + 1)
            high = np.array([*histogram.counts, histogram.counts[-1]]) / (2.2 * max(histogram.counts))
            axes.fill_between(edges, place_ - high, place_ + high, step="post", color=plots.colour(0), linewidth=0)
            axes.plot([middle, middle], [place_ - 0.4, place_ + 0.4], color=plots.colour(1), linewidth=2)
        axes.set_yticks(range(len(shown)), [plots.literal(of) for of, _, _ in reversed(shown)])
        axes.set_xlabel(f"{axis}; the bar is at the mean")
        axes.grid(visible=False, axis="y")
        return plots.svg_text(figure, 0)


def _series(reproduction: Reproduction, workload: Workload, part: str, column: str) -> list[Series]:
    """One sample per finished run; jobs that were not measured are left out."""
    series = []
    for label, reading, _ in reproduction.experiment.variants():
        of = full_label(label, reading)
        places = [(of, workload.label, population.label) for population in reproduction.experiment.population]
        runs = [
            run
            for place in places
            for run in reproduction.planned.runs.get(place, [])
            if run.key in reproduction.finished
        ]
        counted_column = "jrt_s" if column == "delay_s" else column  # a delay may be negative where machines are fast
        tables = (reproduction.store.columns(run.key, part) for run in runs)
        samples = tuple(columns[column][columns[counted_column] >= 0] for columns in tables)
        if samples:
            series.append(Series(of, samples))
    return series


def _measured(reproduction: Reproduction, workload: Workload) -> list[InputMeasures]:
    places = [(workload.label, population.label) for population in reproduction.experiment.population]
    return [measures for place in places for measures in reproduction.measured.get(place, [])]


def _mean_loads(reproduction: Reproduction, workload: Workload) -> list[ConstraintLoad]:
    """Load per constraint, averaged over seeds and populations."""
    inputs = _measured(reproduction, workload)
    numbers = sorted({load.constraint for measures in inputs for load in measures.loads})
    means = []
    for number in numbers:
        seed_loads = [load for measures in inputs for load in measures.loads if load.constraint == number]
        statistics = (sum(getattr(load, name) for load in seed_loads) / len(seed_loads) for name in LOAD_STATISTICS)
        means.append(ConstraintLoad(number, *statistics))
    return means


def _utilisation_cdf(series: Sequence[Series], title: str) -> str:
    with plots.style():
        figure, axes = plots.new_figure(len(series), title)
        for place, line in enumerate(series):
            ordered = np.sort(np.concatenate(line.per_seed))
            share = np.arange(1, ordered.size + 1) / ordered.size
            points = np.unique(np.linspace(0, ordered.size - 1, CURVE_POINTS).astype(np.int64))
            axes.plot(
                100 * ordered[points],
                100 * share[points],
                color=plots.colour(place),
                linestyle=plots.dash(place),
                label=plots.literal(line.label),
            )
        axes.set_xlabel("utilisation is at most (%)")
        axes.set_ylabel("share of the time (%)")
        axes.set_ylim(0, 102)
        return plots.svg_text(figure, 1)


def _utilisation_ratio(reproduction: Reproduction) -> str:
    """Mean utilisation of each architecture over that of the first, as bars per workload."""
    workloads = list(reproduction.experiment.workload)
    labels = [full_label(label, reading) for label, reading, _ in reproduction.experiment.variants()]
    means = {
        (of, workload.label): _mean_utilisation(reproduction, of, workload.label)
        for of in labels
        for workload in workloads
    }
    shown = [workload.label for workload in workloads if all(means[of, workload.label] for of in labels)]
    if not shown:
        return ""
    with plots.style():
        figure, axes = plots.new_figure(
            len(labels), f"{reproduction.experiment.figure}: mean utilisation over that of {labels[0]}"
        )
        places, width = np.arange(len(shown)), 0.8 / len(labels)
        for number, of in enumerate(labels):
            ratios = [means[of, workload] / means[labels[0], workload] for workload in shown]
            axes.bar(
                places + (number - (len(labels) - 1) / 2) * width,
                ratios,
                width,
                color=plots.colour(number),
                label=plots.literal(of),
            )
        axes.set_xticks(places, shown)
        axes.set_ylabel("ratio of mean utilisations")
        axes.grid(visible=False, axis="x")
        return plots.svg_text(figure, 1)


def _slowdowns(reproduction: Reproduction) -> str:
    """Slowdowns of short jobs against the number of workers: means over seeds, with bars from the least to the most."""
    experiment = reproduction.experiment
    labels = [full_label(label, reading) for label, reading, _ in experiment.variants()]
    percentiles = ("p50", "p90", "p99")
    with plots.style():
        figure, axes = plots.new_figure(len(labels) * len(percentiles), f"{experiment.figure}: slowdown of short jobs")
        for number, of in enumerate(labels):
            for row, percentile in enumerate(percentiles):
                points = []
                for workload in experiment.workload:
                    runs = reproduction.planned.runs.get((of, workload.label, experiment.population[0].label), [])
                    found = [x for x in reproduction.values(f"short.slowdown.{percentile}", runs) if x is not None]
                    if found:
                        points.append((workload.workers, sum(found) / len(found), min(found), max(found)))
                if not points:
                    return ""
                workers, means, least, most = np.array(sorted(points)).T
                bars = np.maximum([means - least, most - means], 0.0)
                style = {"color": plots.colour(number), "linestyle": plots.dash(row), "marker": "o", "capsize": 2}
                axes.errorbar(workers, means, bars, label=plots.literal(f"{of}, {percentile}"), **style)
        axes.set_yscale("log")
        axes.set_xlabel("workers")
        axes.set_ylabel("times the longest task")
        return plots.svg_text(figure, 1)


def _mean_utilisation(reproduction: Reproduction, of: str, workload: str) -> float:
    runs = [
        run
        for population in reproduction.experiment.population
        for run in reproduction.planned.runs.get((of, workload, population.label), [])
    ]
    values = [summary.utilisation_mean for summary in reproduction.summaries(runs)]
    return sum(values) / len(values) if values else 0.0


def _analysis(reproduction: Reproduction) -> str:
    """Simulation beside theory, one line per claim that compares them."""
    panels: dict[str, list[AnalysisLine]] = {}
    claims = {claim.id: claim for claim in reproduction.experiment.claim if isinstance(claim.right, str)}
    for judgement in reproduction.judgements():
        if judgement.claim not in claims:
            continue
        expected, simulated = [], []
        for case in judgement.cases:
            if case.left is None or case.right is None:
                continue
            several = isinstance(reproduction.experiment.architectures[case.left.of], dict)
            of = full_label(case.left.of, judgement.reading if several else "")
            runs = reproduction.planned.runs[of, case.left.on, case.population]
            loads = [load for load in reproduction.values(f"{SETTLED}.load", runs) if load is not None]
            load = sum(loads) / len(loads)
            expected.append((load, case.right.mean))
            simulated.append((load, case.left.mean))
        if expected:
            line = AnalysisLine(judgement.claim, tuple(sorted(expected)), tuple(sorted(simulated)))
            panels.setdefault(claims[judgement.claim].left.metric, []).append(line)
    title = f"{reproduction.experiment.figure}: analysis (lines), simulation (circles)"
    return analysis_curves(panels, title=title) if panels else ""


def _conflicts(reproduction: Reproduction) -> str:
    """Conflicts per second, mean and 99th percentile, in both readings, per workload."""
    shown: dict[str, list[Any]] = {}
    for workload in reproduction.experiment.workload:
        inputs = [conflicts.conflicts for conflicts in _measured(reproduction, workload) if conflicts.conflicts]
        if inputs:
            shown[workload.label] = inputs
    if not shown:
        return ""
    with plots.style():
        figure, axes = plots.new_figure(4, f"{reproduction.experiment.figure}: conflicts per second")
        places, bars = (
            np.arange(len(shown)),
            [("waiting", "mean"), ("waiting", "p99"), ("collisions", "mean"), ("collisions", "p99")],
        )
        for number, (kind, statistic) in enumerate(bars):
            heights: Floats = np.array(
                [
                    sum(getattr(conflicts[kind], statistic) for conflicts in inputs) / len(inputs)
                    for inputs in shown.values()
                ]
            )
            axes.bar(
                places + (number - 1.5) * 0.2, heights, 0.2, color=plots.colour(number), label=f"{kind}, {statistic}"
            )
        axes.set_xticks(places, list(shown))
        axes.set_ylabel("tasks per second")
        axes.grid(visible=False, axis="x")
        return plots.svg_text(figure, 1)
