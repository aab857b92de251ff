"""Gangs with deadlines, without, and with machines that they prefer: mixes after TetriSched's (EuroSys 2016).

Published are the shares of jobs with a deadline and of GPU and MPI jobs (as recalled). Everything else is ours: gangs
of 1 to 24 tasks, run times of 20 s to 5 min where a job prefers to run, twice that elsewhere, and deadlines of 1.2 to 4
run times after the arrival. GPU jobs prefer machines with GPUs, MPI jobs to have all tasks in a rack, whichever. The
machines are those of the constraint model `gpu-racks`.
"""

from __future__ import annotations

import re
from array import array
from typing import Final

import msgspec
import numpy as np

from volery.core.errors import InputError, suggestion
from volery.core.model import NEVER, Preference
from volery.core.trace import Trace
from volery.workload.columns import Integers, Reals, column, generator, microseconds
from volery.workload.constraints import GPU, RACKS
from volery.workload.distributions import exponential
from volery.workload.spec import Spec


class Mix(msgspec.Struct, frozen=True):
    """A published mix.

    Args:
        deadlines: share of the jobs that have one.
        heterogeneous: half of the jobs prefer GPUs, half one rack; otherwise all are as fast anywhere.
    """

    deadlines: float
    heterogeneous: bool


MIXES: Final = {
    "gr-slo": Mix(1.0, False),
    "gr-mix": Mix(0.52, False),
    "gs-mix": Mix(0.70, False),
    "gs-het": Mix(0.75, True),
}
SIZES: Final = (1, 2, 4, 8, 12, 16, 24)
RUN_MEAN_S: Final = 60.0
RUN_MIN_S: Final = 20.0
RUN_MAX_S: Final = 300.0
SLACK_MIN: Final = 1.2
SLACK_MAX: Final = 4.0
"""A deadline is so many run times on preferred machines after the arrival."""
SLOWER: Final = 2.0
EXAMPLE: Final = "PRESET, for example gangs:gs-het,load=0.8"


def gangs(text: str, seed: int) -> Trace:
    """`gangs`: the load on `workers` machines is `load` exactly, if every job runs where it prefers to.

    Args:
        text: the spec: a mix, `jobs`, `load`, `workers`, `slower` (how many times longer jobs take where they do not
            prefer to run), `error` (percent by which estimates are above, or with a minus below, the truth).
        seed: of the run.

    Raises:
        InputError: the spec is wrong; the message names the key.
    """
    spec = Spec(text, ("jobs", "load", "workers", "slower", "error"), word=EXAMPLE)
    if spec.word not in MIXES:
        raise InputError(text, f"{spec.word!r} is not a mix{suggestion(spec.word, MIXES)}")
    mix, jobs = MIXES[spec.word], spec.count("jobs", 400, least=2)
    u = generator(seed, "workload/jobs").random((jobs, 5))
    sizes = np.array(SIZES)[np.floor(u[:, 0] * len(SIZES)).astype(np.int64)]
    run_s = np.clip(RUN_MIN_S + exponential(u[:, 1]) * (RUN_MEAN_S - RUN_MIN_S), RUN_MIN_S, RUN_MAX_S)
    run_us = microseconds(run_s)
    work_s = float((run_s * sizes).sum())
    span_s = work_s / (spec.positive("load", 0.8, most=100) * spec.count("workers", 256))
    arrival_us = _arrivals(generator(seed, "workload/arrivals").random(jobs), span_s)
    slack = SLACK_MIN + u[:, 2] * (SLACK_MAX - SLACK_MIN)
    due_us = arrival_us + np.rint(run_us * slack).astype(np.int64)
    preferences = _preferences(mix, spec.positive("slower", SLOWER, most=100))
    return Trace(
        text,
        column(arrival_us),
        column(np.concatenate(([0], np.cumsum(sizes)))),
        column(np.repeat(run_us, sizes)),
        column(np.maximum(np.rint(run_us * (1 + _error(spec) / 100)).astype(np.int64), 1)),
        deadline_us=column(np.where(_first(u[:, 3], mix.deadlines), due_us, NEVER)),
        preferences=preferences,
        preference=array("H", _first(u[:, 4], 0.5).astype(int).tolist() if len(preferences) > 1 else []),
    )


def _preferences(mix: Mix, slower: float) -> tuple[Preference, ...]:
    if not mix.heterogeneous:
        return ()
    percent = max(100, round(100 * slower))
    return Preference(0, RACKS, percent), Preference(GPU, 0, percent)


def _first(u: Reals, share: float) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """A mask of the smallest draws, exactly this share of them."""
    return np.asarray(np.argsort(np.argsort(u, kind="stable"), kind="stable") < round(share * len(u)))


def _arrivals(u: Reals, span_s: float) -> Integers:
    """Poisson arrivals from 0 to the end of the span."""
    gaps = exponential(u)
    at = np.cumsum(gaps) - gaps[0]
    return microseconds(at * (span_s / at[-1]))


def _error(spec: Spec) -> float:
    text = spec.text_of("error", "0")
    if not re.fullmatch(r"-?[0-9]{1,4}(\.[0-9]+)?", text) or float(text) <= -100:
        raise spec.refusal("error", f"{text!r} is no percentage above -100; for example error=-20")
    return float(text)
