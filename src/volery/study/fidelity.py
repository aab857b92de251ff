"""Fidelity of a model: the lab's starts of the jobs of a log against the starts that the log states.

Only a model that repeats the record can tell what another scheduler would have changed. The bars have their reasons in
docs/decisions/0077.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from volery.core.errors import InputError
from volery.core.model import NEVER, SECOND
from volery.core.omissions import Omissions
from volery.core.trace import Trace
from volery.metrics.arrays import Longs, view
from volery.statistics import kendall_tau
from volery.study.plan import plan
from volery.study.runner import compare_spec, run_alone
from volery.study.runs import Execution, resources_of_file, window_in
from volery.study.watcher import Watcher
from volery.workload.starts import recorded_starts

WAITED_MIN: Final = 100
TAU_MIN: Final = 0.8
TAU_MARGIN: Final = 0.1
TAU_FULL: Final = 0.95
"""Above it no other order is left to be told from the recorded one."""
WAIT_FACTOR_MAX: Final = 1.5
PLAIN_FIFO: Final = "pipeline:T3=strict"


class StartAgreement(msgspec.Struct, frozen=True):
    """Agreement of a design's starts with the recorded ones.

    Args:
        design: Label of the design.
        tau: Kendall's tau-b of the starts in whole seconds, over the pairs of jobs that waited together in the record.
        median_s, p95_s: Median and 95th percentile of the absolute errors of starts of jobs that waited, seconds.
        mean_wait_s: Mean wait of all jobs, seconds.
    """

    design: str
    tau: float
    median_s: float
    p95_s: float
    mean_wait_s: float


class Fidelity(msgspec.Struct, frozen=True):
    """A model and plain FIFO against a record.

    Args:
        jobs: Count of jobs with a recorded start.
        waited: Count of those that started more than a second after their submission.
        mean_wait_s: Mean wait of the jobs in the record, seconds.
        shortfalls: Reasons for which a comparison is not worth making; none: it is.
        left_out: Omissions of the reader.
    """

    jobs: int
    waited: int
    mean_wait_s: float
    model: StartAgreement
    plain_fifo: StartAgreement
    shortfalls: tuple[str, ...]
    left_out: Omissions | None


def fidelity(
    design: str,
    setting: Mapping[str, Any],
    seed: int = 0,
    place: Callable[[str], str] = str,
    watcher: Watcher | None = None,
) -> Fidelity:
    """Hold a model of a cluster's scheduler, and plain FIFO, against the recorded starts of its log.

    Args:
        design: the model as `NAME:parameter=value,...`.
        setting: value per field of `Setting`; jobs whose tasks run only together start whole unless `gangs` says else.
        seed: seed of all random streams.
        place: maps a field's name to the caller's name of it, for error messages.

    Raises:
        InputError: something given is wrong, the log states no starts, no job of it waited, or a job never starts in
            the lab.
    """
    setting = {**setting, "gangs": setting.get("gangs") or "whole"}
    studies = [compare_spec([name], setting, [seed], place) for name in (design, PLAIN_FIFO)]
    run = plan(studies[0])[0].spec
    log = recorded_starts(run.trace, run.columns, run.jobs, run.only, resources_of_file(run), has_gangs=run.has_gangs)

    arrival_us, recorded_us = view(log.arrival_us), view(log.deadline_us)
    counted = recorded_us != NEVER
    window = window_in(run, log)
    if window is not None:
        counted &= window.holds(arrival_us)
    waited_count = int(np.count_nonzero((recorded_us - arrival_us)[counted] > SECOND))
    if not waited_count:
        problem = f"no job of {counted.sum():,} waited for more than a second, so that any scheduler starts them alike"
        raise InputError(place("trace"), f"{problem}; give the log of a busier time")

    starts_us = {"record": recorded_us}
    for study in studies:
        _, execution = run_alone(study, watcher)
        starts_us[study.choices()[0].label] = _starts_us(execution, log, place)
    record, model, *other = (
        _agreement(label, start_us[counted], recorded_us[counted], arrival_us[counted])
        for label, start_us in starts_us.items()
    )
    plain_fifo = other[0] if other else model  # where the model is plain FIFO itself
    measured = int(counted.sum()), waited_count, record.mean_wait_s, model, plain_fifo
    return Fidelity(*measured, _shortfalls(*measured[1:]), execution.inputs.facts.left_out)


def _starts_us(execution: Execution, log: Trace, place: Callable[[str], str]) -> Longs:
    """The start of each job in a run: that of its last task.

    Raises:
        InputError: the run has other arrivals than the log, or a job of it never starts.
    """
    trace, starts_us = execution.inputs.trace, view(execution.records.start_us)
    if trace.arrival_us != log.arrival_us:
        problem = "arrivals are not those of the log, whose starts count; leave load and arrivals as they are"
        raise InputError(place("trace"), problem)
    first_tasks = view(trace.first)[:-1]
    if never := int(np.count_nonzero(np.minimum.reduceat(starts_us, first_tasks) == NEVER)):
        problem = f"{never:,} of {trace.job_count:,} jobs, which ran in the record, never start in the lab; give "
        raise InputError(place("workers"), f"{problem}the machines of the log, and a model that has its partitions")
    return np.maximum.reduceat(starts_us, first_tasks)


def _agreement(design: str, start_us: Longs, recorded_us: Longs, arrival_us: Longs) -> StartAgreement:
    waited = recorded_us - arrival_us > SECOND
    errors_us = np.abs(start_us - recorded_us)[waited]
    # Jobs are in order of submission: those behind a job that were submitted before its start waited beside it.
    together = np.searchsorted(arrival_us[waited], recorded_us[waited])
    return StartAgreement(
        design,
        kendall_tau(recorded_us[waited] // SECOND, start_us[waited] // SECOND, together),
        float(np.median(errors_us)) / SECOND,
        float(np.percentile(errors_us, 95, method="inverted_cdf")) / SECOND,
        float((start_us - arrival_us).mean()) / SECOND,
    )


def _shortfalls(waited: int, mean_wait_s: float, model: StartAgreement, plain_fifo: StartAgreement) -> tuple[str, ...]:
    """The bars that are missed, each as a reason for which a comparison is not worth making."""
    least_tau, factor = min(plain_fifo.tau + TAU_MARGIN, TAU_FULL), WAIT_FACTOR_MAX
    are_waits_near = mean_wait_s / factor <= model.mean_wait_s <= mean_wait_s * factor
    bars = {
        f"too few jobs waited: {waited}, and less than {WAITED_MIN} show no order": waited >= WAITED_MIN,
        f"the order of starts is not explained: tau is {model.tau:.2f}, below {TAU_MIN}": model.tau >= TAU_MIN,
        f"the order of submission explains as much: tau is {model.tau:.2f}, and {plain_fifo.tau:.2f} of plain FIFO "
        f"({TAU_MARGIN} more, or {TAU_FULL}, shows that the model's rules are the cluster's)": model.tau >= least_tau,
        f"waits are off by more than a factor of {factor}: {model.mean_wait_s:,.1f} s on average, and "
        f"{mean_wait_s:,.1f} s in the record": are_waits_near,
    }
    return tuple([reason for reason, is_met in bars.items() if not is_met])
