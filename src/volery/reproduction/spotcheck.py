"""Spot checks: some runs of an experiment, run again by the code as it is now, against the digests of its record.

Most changes to the code are meant to change no result. Equal digests of runs that are spread over an experiment are
evidence for that, in minutes instead of hours; a single other digest refutes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.reproduction.experiments import Experiment
from volery.reproduction.ledger import Check, Record
from volery.reproduction.reproduce import plan_experiment
from volery.reproduction.seeds import redrawn
from volery.reproduction.values import RunDigest
from volery.study.plan import PlannedRun
from volery.study.pool import check_places, each_outcome
from volery.study.sources import code_digest
from volery.study.watcher import Watcher


class SpotCheck(msgspec.Struct, frozen=True):
    """The result of a check of recorded runs.

    Args:
        experiment: its name.
        runs: how many were run again.
        recorded: how many the record holds.
        differing: those that came out otherwise, as recorded.
    """

    experiment: str
    runs: int
    recorded: int
    differing: tuple[RunDigest, ...]


AFFORDABLE_CPU_S: Final = 120.0
"""What a single run may cost that stands for its experiment, where there is a choice (CPU seconds)."""


def spread(record: Record, count: int) -> list[RunDigest]:
    """Take `count` recorded runs, evenly spread over all of them."""
    total = len(record.digests)
    count = min(count, total)
    return [record.digests[total * i // count] for i in range(count)]


def affordable(record: Record) -> RunDigest:
    """The first recorded run that costs no more than `AFFORDABLE_CPU_S`, else the cheapest one."""
    cheap = (run for run in record.digests if run.cpu_s <= AFFORDABLE_CPU_S)
    return next(cheap, None) or min(record.digests, key=lambda run: run.cpu_s)


def spot_check(
    experiment: Experiment,
    record: Record | None,
    count: int,
    *,
    traces: Path,
    runs: Sequence[RunDigest] = (),
    processes: int = 1,
    dask: str | None = None,
    watcher: Watcher | None = None,
) -> SpotCheck:
    """Run recorded runs again.

    Args:
        experiment, record: the experiment and its record.
        count: how many runs, evenly spread over all recorded ones.
        traces: folder of the traces.
        runs: these instead.
        processes, dask, watcher: as in `volery.study.pool`.

    Raises:
        InputError: there is no record with runs, a run is no part of the experiment, or its input is not here.
        LostRunError: when a run's process died.
    """
    check_places(processes, dask)
    place = f"experiment {experiment.name}"
    if record is None or not record.digests:
        raise InputError(place, f"has no recorded run; `volery reproduce {experiment.name}` runs it")
    planned = plan_experiment(experiment, traces, redrawn(experiment, record))
    known = {(*at, run.spec.seed): run for at, runs in planned.runs.items() for run in runs}
    chosen: dict[str, tuple[RunDigest, PlannedRun]] = {}
    for expected in runs or spread(record, count):
        run = known.get((expected.of, expected.workload, expected.population, expected.seed))
        if run is None:
            raise InputError(
                place, f"{expected.of} on {expected.workload} is no part of it now, or its trace is not here"
            )
        chosen[run.key] = (expected, run)
    differing = []
    with closing(each_outcome([run for _, run in chosen.values()], processes, watcher, dask)) as outcomes:
        for run, outcome in outcomes:
            expected, _ = chosen[run.key]
            if outcome.summary.digest != expected.digest:
                differing.append(expected)
    return SpotCheck(experiment.name, len(chosen), len(record.digests), tuple(differing))


def checked_record(experiment: Experiment, record: Record, found: SpotCheck) -> Record:
    """The record with a check that found no difference; as it was where the code is still the one that made it."""
    assert not found.differing, "a check that refutes a record does not confirm it"
    code = code_digest(*experiment.architecture_names())
    if code == record.code_sha256:
        return record
    return msgspec.structs.replace(record, checked=Check(code, datetime.now(UTC).date().isoformat(), found.runs))
