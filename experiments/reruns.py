"""Runs an experiment again: with further seeds until its claims are decided, or some recorded runs as a spot check.

The seeds of the file are the first look. Each further look draws seeds for the runs of undecided claims alone; claims
that want for something else than seeds, and timed stages, draw none. All looks together keep the confidence of one
(see `volery.statistics.differences`).

Most changes to the code are meant to change no result. Equal digests of runs that are spread over an experiment are
evidence for that, in minutes instead of hours; a single other digest refutes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from experiments.claims import UNDECIDED, Judgement
from experiments.experiment import Experiment
from experiments.records import Check, Record, reusable, runs_sha256
from experiments.reproduction import Reproduction, plan_experiment, reproduce
from experiments.undecided import is_timed, places_of, planned_looks, seeds_of
from experiments.values import Place, RunDigest, ValueTable
from volery.core.errors import InputError
from volery.report.notes import limit_reached
from volery.study.plan import PlannedRun, code_digest
from volery.study.pool import check_places, each_outcome
from volery.study.spec import AutoSeeds
from volery.study.watcher import Watcher

Wanted = list[tuple[Judgement, frozenset[Place]]]
"""Undecided claims with the places whose runs may decide them."""


def reproduce_until_decided(
    experiment: Experiment,
    limits: AutoSeeds,
    *,
    folder: Path,
    traces: Path,
    processes: int = 1,
    dask: str | None = None,
    watcher: Watcher | None = None,
    recorded: ValueTable | None = None,
) -> Reproduction:
    """Run an experiment, and add seeds until every claim is decided, or the limits end it.

    Args:
        limits: Limits of the seeds per run of an undecided claim, those of the file among them.
        folder, traces, processes, dask, watcher, recorded: as for `experiments.reproduction.reproduce`.

    Raises:
        InputError: as `reproduce` does, or the file has more seeds than may be drawn.
        LostRunError: when a run's process died.
    """
    planned = planned_looks(experiment, limits.seeds_max)
    drawn: dict[Place, Sequence[int]] = {}
    reproduction = None
    undecided: Wanted = []

    for number, look in enumerate(planned):
        seeds = seeds_of(experiment, look.seeds)
        if reproduction is not None:
            places = _affordable(reproduction, undecided, look.seeds, limits.budget_s)
            if not places:
                break
            drawn |= dict.fromkeys(places, seeds)
        reproduction = reproduce(
            experiment,
            folder=folder,
            traces=traces,
            processes=processes,
            dask=dask,
            watcher=watcher,
            recorded=recorded,
            drawn=drawn,
        )
        reproduction.seeds, reproduction.looks = seeds, planned[: number + 1]
        undecided = [] if reproduction.interrupted else _undecided(experiment, reproduction)
        if not undecided:
            break

    assert reproduction is not None, "there is one look at least"
    reproduction.stopped = _end(reproduction, undecided, limits)
    return reproduction


def reproduce_again(experiment: Experiment, record: Record | None, **options: Any) -> Reproduction:
    """Run an experiment with its own seeds; seeds that were added for its record stay, where their runs are at hand.

    Args:
        record: the last one.
        options: as for `experiments.reproduction.reproduce`.

    Raises:
        InputError, LostRunError: as `reproduce` does.
    """
    recorded = reusable(experiment, record)
    drawn = redrawn(experiment, record)
    if record is not None and drawn:
        reproduction = reproduce(experiment, recorded=recorded, drawn=drawn, **{**options, "only_finished": True})
        if reproduction.complete:
            reproduction.seeds, reproduction.looks, reproduction.stopped = record.seeds, record.looks, record.stopped
            return reproduction
    return reproduce(experiment, recorded=recorded, **options)


def redrawn(experiment: Experiment, record: Record | None) -> dict[Place, tuple[int, ...]]:
    """Return all seeds of the places for which --seeds auto drew more than the file names."""
    recorded = record.table if record is not None and record.stopped else None
    if recorded is None:
        return {}
    seeds_by_place: dict[Place, list[int]] = {}
    for run in recorded.runs:
        seeds_by_place.setdefault((run.of, run.workload, run.population), []).append(run.seed)
    for row in recorded.inputs:
        seeds_by_place.setdefault(("", row.workload, row.population), []).append(row.seed)
    file_seeds = experiment.seeds
    grown = {place: tuple(seeds) for place, seeds in seeds_by_place.items() if len(seeds) > len(file_seeds)}
    return {place: seeds for place, seeds in grown.items() if seeds[: len(file_seeds)] == file_seeds}


def _undecided(experiment: Experiment, reproduction: Reproduction) -> Wanted:
    claims = {claim.id: claim for claim in experiment.claim}
    return [
        (judgement, frozenset(places_of(experiment, claims[judgement.claim], judgement)))
        for judgement in reproduction.judgements()
        if judgement.verdict == UNDECIDED and not is_timed(claims[judgement.claim])
    ]


def _affordable(reproduction: Reproduction, undecided: Wanted, count: int, budget_s: float | None) -> set[Place]:
    """The places to draw for: of all undecided claims, or of the cheapest ones that the rest of the budget pays."""
    if budget_s is None:
        return set().union(*(places for _, places in undecided))
    costs = {place: _cost_s(reproduction, place, count) for _, places in undecided for place in places}
    file_seeds = reproduction.experiment.seeds
    spent_s = sum(run.summary.cpu_s for run in reproduction.finished.values() if run.summary.seed not in file_seeds)
    affordable_places: set[Place] = set()
    for _, places in sorted(undecided, key=lambda claim: sum(costs[place] for place in claim[1])):
        if spent_s + sum(costs[place] for place in affordable_places | places) <= budget_s:
            affordable_places |= places
    return affordable_places


def _cost_s(reproduction: Reproduction, place: Place, count: int) -> float:
    """CPU seconds that the further runs of a place are expected to take, from the stored ones; 0 where none is."""
    runs = reproduction.planned.runs.get(place, [])
    return _run_s(reproduction, place) * max(0, count - len(runs))


def _run_s(reproduction: Reproduction, place: Place) -> float:
    """Mean CPU seconds of the stored runs of a place, or of all where it has none."""
    times = [summary.cpu_s for summary in reproduction.summaries(reproduction.planned.runs.get(place, []))]
    times = times or [stored.summary.cpu_s for stored in reproduction.finished.values()]
    return sum(times) / len(times) if times else 0.0


def _end(reproduction: Reproduction, undecided: Wanted, limits: AutoSeeds) -> str:
    if reproduction.interrupted:
        return "it was interrupted"
    if not undecided:
        return "every claim that seeds can decide is decided"
    if reproduction.looks[-1].seeds == limits.seeds_max:
        return limit_reached(limits.seeds_max)
    slowest = max(_run_s(reproduction, place) for _, places in undecided for place in places)
    claims = len({judgement.claim for judgement, _ in undecided})
    return (
        f"the budget of {limits.budget_s:g} CPU seconds does not pay the next look at {claims} undecided claims "
        f"(a run takes up to {slowest:.0f} s)"
    )


class SpotCheck(msgspec.Struct, frozen=True):
    """The result of a check of recorded runs.

    Args:
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


AGAIN_CPU_S: Final = 300.0
"""CPU seconds that one command may take which runs a record again; of a longer experiment it runs a part."""


def again(record: Record) -> str:
    """The command that runs a record again, or as much of it as some CPU minutes allow, with its runs and its time."""
    total = len(record.digests)
    costs = ((count, sum(run.cpu_s for run in spread(record, count))) for count in range(total, 0, -1))
    count, cpu_s = next((each for each in costs if each[1] <= AGAIN_CPU_S or each[0] == 1), (0, 0.0))
    runs = f"{count} of {total} runs" if count < total else f"{count} runs"
    command = f".venv/bin/python -m experiments check {record.experiment} --runs {count}"
    return f"`{command}` ({runs}, {cpu_s:.0f} CPU seconds)"


def one_of_each(record: Record) -> list[RunDigest]:
    """The cheapest recorded run of every architecture."""
    cheapest: dict[str, RunDigest] = {}
    for run in record.digests:
        if run.of not in cheapest or run.cpu_s < cheapest[run.of].cpu_s:
            cheapest[run.of] = run
    return list(cheapest.values())


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
        count: how many runs, evenly spread over all recorded ones.
        runs: these instead.
        processes, dask, watcher: as in `volery.study.pool`.

    Raises:
        InputError: there is no record with runs, a run is no part of the experiment, or its input is not here.
        LostRunError: when a run's process died.
    """
    check_places(processes, dask)
    place = f"experiment {experiment.name}"
    if record is None or not record.digests:
        raise InputError(place, f"has no recorded run; `python -m experiments run {experiment.name}` runs it")
    recorded_runs = runs or spread(record, count)
    checks = {run.key: (expected, run) for expected, run in _planned(experiment, record, recorded_runs, traces)}
    differing = []
    with closing(each_outcome([run for _, run in checks.values()], processes, watcher, dask)) as outcomes:
        for run, outcome in outcomes:
            expected, _ = checks[run.key]
            if outcome.summary.digest != expected.digest:
                differing.append(expected)
    return SpotCheck(experiment.name, len(checks), len(record.digests), tuple(differing))


def _planned(
    experiment: Experiment, record: Record, recorded_runs: Sequence[RunDigest], traces: Path
) -> list[tuple[RunDigest, PlannedRun]]:
    """Recorded runs, each with the run that the experiment's file and the code make of it now.

    Raises:
        InputError: a run is no part of the experiment, or its input is not here.
    """
    planned = plan_experiment(experiment, traces, redrawn(experiment, record))
    planned_runs = {(*at, run.spec.seed): run for at, runs in planned.runs.items() for run in runs}
    pairs = []
    for row in recorded_runs:
        run = planned_runs.get((row.of, row.workload, row.population, row.seed))
        if run is None:
            problem = f"{row.of} on {row.workload} is no part of it now, or its trace is not here"
            raise InputError(f"experiment {experiment.name}", problem)
        pairs.append((row, run))
    return pairs


def checked_record(experiment: Experiment, record: Record, spot: SpotCheck) -> Record:
    """The record with a check that found no difference; as it was where the code is still the one that made it."""
    assert not spot.differing, "a check that refutes a record does not confirm it"
    check = _check_by(experiment, spot)
    return record if check.code_sha256 == record.code_sha256 else msgspec.structs.replace(record, checked=check)


def _check_by(experiment: Experiment, spot: SpotCheck) -> Check:
    return Check(code_digest(*experiment.architecture_names()), datetime.now(UTC).date().isoformat(), spot.runs)


def carried_record(experiment: Experiment, record: Record, spot: SpotCheck, traces: Path) -> Record:
    """The record whose runs count as runs of the present code, so that further seeds cost their own runs alone.

    A key holds a digest of all sources that a run imports, and most changes to them change no result. A run of every
    architecture that came out as recorded is evidence for the others; the record says how many there were.

    Raises:
        InputError: the experiment's file names other runs now, or an input is not here.
    """
    if record.runs_sha256 != runs_sha256(experiment):
        problem = "its file names other runs than those recorded; `run` runs what is new"
        raise InputError(f"experiment {experiment.name}", problem)

    runs = tuple(
        msgspec.structs.replace(row, key=run.key) for row, run in _planned(experiment, record, record.digests, traces)
    )
    if runs == record.digests:
        return record
    return msgspec.structs.replace(record, digests=runs, carried=_check_by(experiment, spot))
