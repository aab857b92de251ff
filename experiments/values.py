"""The values of an experiment: one row per run and per input, with all metrics that claims and tables use.

Verdicts follow from these rows alone, so that a record that keeps them can be judged again without a run or a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from experiments.claims import Claim, Judgement
from experiments.closed_forms import parse_analysis
from experiments.experiment import Experiment
from experiments.judgement import UNFINISHED, Lookup, Missing, Scope, Values, judge
from experiments.measures import STAGE_COSTS, check_metric
from volery.statistics import InterimLook

FACTS: Final = (
    "delay_s.p50",
    "delay_s.mean",
    "delay_s.p90",
    "delay_s.p99",
    "delay_s.max",
    "short.delay_s.p99",
    "long.delay_s.p99",
    "utilisation_mean",
    "messages_per_task",
    "unsatisfiable_tasks",
    "counters.inconsistencies",
    "counters.external_placements",
    "counters.update_entries",
)
"""Kept of every run, beside what claims use, unless the experiment names columns of its own."""
INPUT_FACTS: Final = (
    "load.mean",
    "load.median",
    "load.p99",
    "constraint_load.highest.p99",
    "constraint_load.average.p99",
    "conflicts.waiting.mean",
    "conflicts.waiting.max",
    "conflicts.collisions.mean",
    "conflicts.collisions.max",
)
"""Kept of every input that was measured."""
DIGITS: Final = 10
"""Significant digits of a kept value; verdicts are drawn from the kept values, at once and later."""
COUNTERS: Final = "counters."

Place = tuple[str, str, str]
"""Architecture with its reading, workload, population."""
Kept = float | tuple[float, ...] | None
"""Of one run: a value, one per repetition where stages were timed, or None where the run has no such thing."""


class RunDigest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finished run.

    Args:
        of, workload, population, seed: architecture with its reading, and where it ran.
        digest: Hash of what happened to every task.
        key: Hash of all that the run depends on; empty in a record of the former rules.
        values: one per metric of the table.
        cpu_s: processor time of the run, to a tenth of a second; 0 in a record of the first rules.
    """

    of: str
    workload: str
    population: str
    seed: int
    digest: str
    key: str = ""
    values: tuple[Kept, ...] = ()
    cpu_s: float = 0.0


class InputValues(msgspec.Struct, frozen=True):
    """One measured input: where, the key of all that it depends on, and one value per input metric of the table."""

    workload: str
    population: str
    seed: int
    key: str
    values: tuple[float | None, ...]


class Absent(msgspec.Struct, frozen=True):
    """A place that was not run: a file is not here."""

    workload: str
    population: str
    why: str


class ValueTable(msgspec.Struct, frozen=True, kw_only=True):
    """All values of an experiment.

    Args:
        metrics, input_metrics: Metrics of the values, in their order.
    """

    metrics: tuple[str, ...]
    input_metrics: tuple[str, ...]
    runs: tuple[RunDigest, ...]
    inputs: tuple[InputValues, ...]
    absent: tuple[Absent, ...] = ()

    def lookup(self, experiment: Experiment, reading: str) -> Lookup:
        """A lookup for claims, under a reading of the architectures that have several."""
        runs = _by_place(self.runs)
        inputs: dict[tuple[str, str], list[InputValues]] = {}
        for row in self.inputs:
            inputs.setdefault((row.workload, row.population), []).append(row)
        missing = {(absent.workload, absent.population): Missing(absent.why) for absent in self.absent}

        def recorded_values(metric: str, label: str, workload: str, population: str) -> Values | Missing:
            if (workload, population) in missing:
                return missing[workload, population]
            if label:
                has_readings = isinstance(experiment.architectures[label], dict)
                of = full_label(label, reading if has_readings else "")
                rows = runs.get((of, workload, population), [])
                return self._of_runs(experiment, metric, label, rows) if rows else Missing(UNFINISHED)
            measured = inputs.get((workload, population), [])
            if not measured:
                return Missing("the input was not measured")
            return self._of_inputs(experiment, metric, measured)

        return recorded_values

    def _of_runs(self, experiment: Experiment, metric: str, label: str, rows: Sequence[RunDigest]) -> Values | Missing:
        if metric not in self.metrics:
            return Missing(f"{metric} was not recorded; run the experiment again")
        place = self.metrics.index(metric)
        values_by_seed = {row.seed: row.values[place] for row in rows}
        if metric.startswith(f"{STAGE_COSTS}."):
            return _repetitions(experiment, values_by_seed)
        values = {}
        for seed, value in values_by_seed.items():
            value = 0.0 if value is None and metric.startswith(COUNTERS) else value
            if not isinstance(value, float):
                return Missing(f"{rows[0].workload} has no {metric}")
            values[seed] = value
        return Values(values, is_random=label not in experiment.unseeded)

    def _of_inputs(self, experiment: Experiment, metric: str, rows: Sequence[InputValues]) -> Values | Missing:
        if metric not in self.input_metrics:
            return Missing(f"{metric} was not recorded; run the experiment again")
        place = self.input_metrics.index(metric)
        values = {row.seed: row.values[place] for row in rows}
        measured_values = {seed: value for seed, value in values.items() if value is not None}
        if len(measured_values) < len(values):
            return Missing(f"{rows[0].workload} has no {metric}")
        return Values(measured_values, is_random=rows[0].workload in experiment.drawn_workloads)

    def judgements(
        self, experiment: Experiment, looks: Sequence[InterimLook], seeds: Sequence[int]
    ) -> tuple[Judgement, ...]:
        """Every claim, under every reading."""
        scope = Scope(
            [workload.label for workload in experiment.workload],
            [population.label for population in experiment.population],
            seeds,
            looks,
            experiment.stand_ins,
        )
        return tuple(
            judgement
            for claim in experiment.claim
            for reading in experiment.readings(claim)
            for judgement in judge(claim, scope, self.lookup(experiment, reading), reading=reading)
        )


def full_label(label: str, reading: str) -> str:
    """The name of an architecture under a reading in tables."""
    return f"{label} ({reading})" if reading else label


def _by_place(rows: Iterable[RunDigest]) -> dict[Place, list[RunDigest]]:
    rows_by_place: dict[Place, list[RunDigest]] = {}
    for row in rows:
        rows_by_place.setdefault((row.of, row.workload, row.population), []).append(row)
    return rows_by_place


def _repetitions(experiment: Experiment, kept: Mapping[int, Kept]) -> Values | Missing:
    """Timed repetitions: one per seed, or all of them of the one run of what draws nothing."""
    measured = [repetition for values in kept.values() for repetition in (values if isinstance(values, tuple) else ())]
    if len(measured) < len(experiment.seeds):
        return Missing("its stages were not measured")
    return Values(dict(zip(experiment.seeds, measured, strict=False)))


def kept_metrics(experiment: Experiment) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The metrics of runs and those of inputs that a record keeps: those of claims, columns and tables."""
    named = [metric for claim in experiment.claim for metric in claim_metrics(claim)]
    of_input = [metric for metric in named if check_metric(metric, experiment.name)]
    facts = (experiment.columns or FACTS) if experiment.table else ()
    of_runs = [metric for metric in named if metric not in of_input]
    return tuple(dict.fromkeys((*facts, *of_runs))), tuple(dict.fromkeys((*INPUT_FACTS, *of_input)))


def claim_metrics(claim: Claim) -> list[str]:
    """The metrics that a claim is judged on, those of its closed form among them."""
    metrics = [side.metric for side in claim.sides]
    if isinstance(claim.right, str):
        metrics += parse_analysis(claim.right, claim.id).measured.values()
    return metrics


def rounded(number: float | None) -> float | None:
    """A value with as many digits as are kept."""
    return None if number is None else float(f"{number:.{DIGITS}g}")
