"""The claims that more seeds may decide: where their runs are, and the CPU time of their next look.

A claim is "not decided" where its values leave it open, and "not decidable" where something else than values is
missing. The CPU time is an estimate: the mean of the recorded runs of each place, times the seeds that it lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from experiments.claims import EVERY, UNDECIDED, Claim, ClaimCase, Judgement
from experiments.experiment import Experiment, claim_id
from experiments.measures import STAGE_COSTS
from experiments.records import Record
from experiments.values import Place, RunDigest, claim_metrics, full_label
from volery.core.errors import InputError
from volery.statistics import SEEDS_MIN, InterimLook, looks

SEEDS_MAX: Final = 30
"""The seeds up to which looks are planned where no other number was given; doubled where they were drawn already."""


class UndecidedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement that more seeds may decide.

    Args:
        claim: Id in the whole lab book.
        reading: Reading of the architectures, where they have several.
        stand_in: whether its cases are those on stand-ins.
        seeds: fewest values of a case that is open.
        next_seeds: values of a case at the next look; equal to `seeds` where stages are timed, which draw no seeds.
        cpu_s: CPU seconds of the runs that the next look lacks; None of timed stages, and without runs.
        why: what the values leave open.
    """

    claim: str
    reading: str
    stand_in: bool
    seeds: int
    next_seeds: int
    cpu_s: float | None
    why: str


def seeds_of(experiment: Experiment, count: int) -> tuple[int, ...]:
    """The first so many seeds: those of the file, then the numbers above them."""
    above = max(experiment.seeds) + 1
    return (*experiment.seeds, *range(above, above + max(0, count - len(experiment.seeds))))[:count]


def planned_looks(experiment: Experiment, seeds_max: int) -> tuple[InterimLook, ...]:
    """The looks, with a confidence each; after a single seed nothing can be decided and nothing is spent.

    Raises:
        InputError: the file has more seeds than may be drawn.
    """
    first = max(SEEDS_MIN, len(experiment.seeds))
    if seeds_max < first:
        raise InputError(
            "--seeds-max", f"{seeds_max} is below the first look of {experiment.name}; give {first} or more"
        )
    plan = looks(first, seeds_max)
    alone = (InterimLook(1),) if len(experiment.seeds) == 1 else ()
    return alone + tuple(InterimLook(count, plan.confidence_at(count)) for count in plan.counts)


def undecided_claims(experiment: Experiment, record: Record) -> Iterator[UndecidedClaim]:
    """The judgements of a record that more seeds may decide, with the CPU time of their next look."""
    claims = {claim.id: claim for claim in experiment.claim}
    rows: dict[Place, list[RunDigest]] = {}
    for row in record.digests:
        rows.setdefault((row.of, row.workload, row.population), []).append(row)
    for judgement in record.judgements:
        claim = claims.get(judgement.claim)
        if claim is None or judgement.verdict != UNDECIDED:
            continue
        seeds = min(case.seeds for case in judgement.cases if case.verdict == UNDECIDED)
        next_seeds = seeds if is_timed(claim) else _next_look(experiment, seeds)
        yield UndecidedClaim(
            claim=claim_id(experiment.name, claim.id),
            reading=judgement.reading,
            stand_in=judgement.stand_in,
            seeds=seeds,
            next_seeds=next_seeds,
            cpu_s=None if is_timed(claim) else _cpu_s(rows, set(places_of(experiment, claim, judgement)), next_seeds),
            why=judgement.why,
        )


def cheapest_first(undecided: Iterable[UndecidedClaim]) -> list[UndecidedClaim]:
    """In the order of the CPU time of their next looks; those of which nothing tells it come last."""
    return sorted(undecided, key=lambda claim: (claim.cpu_s is None, claim.cpu_s or 0.0, claim.claim, claim.reading))


def _next_look(experiment: Experiment, seeds: int) -> int:
    """The seeds of the first planned look that has more than these."""
    seeds_max = max(SEEDS_MAX, SEEDS_MIN, len(experiment.seeds))
    while seeds_max <= seeds:
        seeds_max *= 2
    return next(look.seeds for look in planned_looks(experiment, seeds_max) if look.seeds > seeds)


def _cpu_s(rows: Mapping[Place, Sequence[RunDigest]], places: Collection[Place], seeds: int) -> float | None:
    """CPU seconds of the runs that these places lack; of a place without a recorded run, by the mean of all runs."""
    every_run_s = _mean_s(row for place_rows in rows.values() for row in place_rows)
    total_s = 0.0
    for place in places:
        place_rows = rows.get(place, ())
        run_s = _mean_s(place_rows)
        run_s = every_run_s if run_s is None else run_s
        if run_s is None:
            return None
        total_s += run_s * max(0, seeds - len(place_rows))
    return round(total_s, 1)


def _mean_s(rows: Iterable[RunDigest]) -> float | None:
    """Mean CPU seconds of some runs; None where there is none."""
    times = [row.cpu_s for row in rows]
    return sum(times) / len(times) if times else None


def is_timed(claim: Claim) -> bool:
    """Return true if a claim is about stages that are timed, which are repeated and draw no seeds."""
    return any(metric.startswith(f"{STAGE_COSTS}.") for metric in claim_metrics(claim))


def places_of(experiment: Experiment, claim: Claim, judgement: Judgement) -> list[Place]:
    """The places whose runs may decide a judgement: those of its open cases."""
    places = []
    for case in judgement.cases:
        if case.verdict == UNDECIDED:
            populations = [case.population]
            if case.population == EVERY:
                populations = list(claim.populations) or [machines.label for machines in experiment.population]
            places += [place for population in populations for place in _sides(experiment, judgement, case, population)]
    return places


def _sides(experiment: Experiment, judgement: Judgement, case: ClaimCase, population: str) -> list[Place]:
    places = []
    for side in (case.left, case.right):
        if side is None or not side.on or side.of in experiment.unseeded:
            continue
        has_readings = isinstance(experiment.architectures.get(side.of), dict)
        places.append((full_label(side.of, judgement.reading if has_readings else ""), side.on, population))
    return places
