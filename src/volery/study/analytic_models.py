"""Lab runs of the models whose closed forms stand in `volery.theory`, measured under the names of these forms."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from volery.core.errors import InputError
from volery.metrics.windows import SettledWindow, SteadyState, settle
from volery.study.runs import RunOutcome, execute
from volery.study.spec import RunSpec, Value

Model = Literal["mm1", "mmc", "pigeon", "sparrow", "choices", "delay"]
ALL_SHORT: Final[dict[str, Value]] = {"cutoff_s": 1e9}
"""The closed forms know one class of jobs."""
WARM_UP: Final = 0.3
"""The share of a run that is its warm-up, in time."""
GROUPS_PER_TASK: Final = 3
"""Groups share the moments at which jobs arrive, so that their queues are not independent as equation 3 has it: the
fewer groups for a job's tasks, the more jobs that wait nowhere."""
SPARROW_WORKERS_PER_TASK: Final = 100
"""The number of workers at which a job's probes and tasks hardly change the share of idle workers."""
CHOICES_WORKERS: Final = 1_000
"""The number of servers: the fixed point is that of infinitely many, and the deviation shrinks as 1 / workers."""
MILLISECONDS: Final = 1_000


class AnalysisPoint(msgspec.Struct, frozen=True):
    """The parameters of a closed form.

    Args:
        workers: Servers of the queue, or workers of a group of Pigeon.
        choices: Probes per task.
    """

    load: float
    workers: int
    fanout: int
    mean_ms: float
    choices: int


def simulate_point(model: Model, point: AnalysisPoint, tasks: int, seed: int) -> dict[str, float]:
    """The measures that the model's closed forms predict, under the names of the `volery theory` table.

    Args:
        tasks: Least number of tasks; jobs are simulated whole.
        seed: Seed of the workload and of the components.

    Raises:
        InputError: nothing arrives, or too few tasks for a run beyond its warm-up.
        ValueError: the analysis of delay has points of its own, see `simulate_delay`.
    """
    if model == "delay":
        raise ValueError("give a DelayPoint to simulate_delay")
    if point.load <= 0:
        raise InputError("--load", "nothing arrives at load 0; simulate a load above it")

    if model in ("mm1", "mmc"):
        servers = 1 if model == "mm1" else point.workers
        steady = _run(point, "oracle", {}, servers, 1, tasks, seed)
        wait_ms = MILLISECONDS * steady.delay_s
        if model == "mm1":
            return {"wait_ms": wait_ms, "response_ms": wait_ms + point.mean_ms}
        return {"waits": 1 - steady.never_waits, "wait_ms": wait_ms}

    if model == "sparrow":
        workers = SPARROW_WORKERS_PER_TASK * point.fanout
        steady = _run(point, "sparrow", {"probe_ratio": point.choices}, workers, point.fanout, tasks, seed)
        return {"job_never_waits": steady.never_waits}

    if model == "choices":
        parameters: dict[str, Value] = {"late_binding": False, "sampling": "per-task", "probe_ratio": point.choices}
        steady = _run(point, "sparrow", parameters, CHOICES_WORKERS, 1, tasks, seed)
        wait_ms = MILLISECONDS * steady.delay_s
        return {"response_ms": wait_ms + point.mean_ms, "wait_ms": wait_ms}

    return _pigeon(point, tasks, seed)


def _pigeon(point: AnalysisPoint, tasks: int, seed: int) -> dict[str, float]:
    # Without reserved workers and weights a group is the queue of the closed form.
    parameters: dict[str, Value] = {"reserved": 0, "weight": 0, "groups": 1, **ALL_SHORT}
    task = _run(point, "pigeon", parameters, point.workers, 1, tasks, seed)

    groups = GROUPS_PER_TASK * point.fanout
    job = _run(point, "pigeon", parameters | {"groups": groups}, groups * point.workers, point.fanout, tasks, seed)
    return {
        "task_never_waits": task.never_waits,
        "task_wait_ms": MILLISECONDS * task.delay_s,
        "job_never_waits_equal_tasks": job.never_waits,
        "job_not_delayed_exponential_tasks": job.never_delayed,
    }


def _run(
    point: AnalysisPoint,
    architecture: str,
    parameters: dict[str, Value],
    workers: int,
    fanout: int,
    tasks: int,
    seed: int,
) -> SteadyState:
    jobs = -(-tasks // fanout)
    mean_s = point.mean_ms / MILLISECONDS
    trace = f"poisson:load={point.load},workers={workers},fanout={fanout},mean={mean_s!r},jobs={jobs}"

    run = RunSpec(trace=trace, workers=workers, architecture=architecture, parameters=parameters, seed=seed, delay_us=0)
    outcome = execute(run)
    return settle(outcome.jobs, outcome.curve, SettledWindow(warm_up_s=WARM_UP * _span_s(outcome)), architecture)


def _span_s(outcome: RunOutcome) -> float:
    submit_s = outcome.jobs["submit_s"]
    return float(submit_s[-1] - submit_s[0])


class DelayPoint(msgspec.Struct, frozen=True):
    """The parameters of the analysis of delay scheduling.

    Args:
        workers, slots: Machines, and the tasks that each runs at once.
        jobs, fanout: Equal jobs that arrive together, and the tasks of each.
        skips: Opportunities that a job lets pass.
    """

    workers: int
    slots: int
    jobs: int
    fanout: int
    skips: int
    replicas: int
    mean_ms: float


def simulate_delay(point: DelayPoint, tasks: int, seed: int) -> dict[str, float]:
    """Locality, and the mean wait for it per launch, under the names of the `volery theory` table.

    Args:
        tasks: Least number of tasks, over as many runs as that takes.
        seed: Seed of the first run; the others have the next numbers.
    """
    runs = -(-tasks // (point.jobs * point.fanout))
    shape = f"{point.fanout}x{point.jobs},gap=0,duration={point.mean_ms / MILLISECONDS!r},spread=0.1"
    run = RunSpec(
        trace=f"hdfs:{shape},workers={point.workers},replicas={point.replicas}",
        workers=point.workers,
        slots=point.slots,
        architecture="hfs",
        parameters={"delay": "skips", "node_skips": point.skips, "rack_skips": 0},
        delay_us=0,
    )

    near = wait_us = 0.0
    for k in range(runs):
        summary = execute(msgspec.structs.replace(run, seed=seed + k)).summary
        near += summary.locality.node if summary.locality is not None else 0.0
        wait_us += summary.counters["locality_wait_us_mean"]

    return {"locality": near / runs, "wait_ms": wait_us / runs / MILLISECONDS}
