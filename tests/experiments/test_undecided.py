"""The claims that more seeds may decide, with the CPU time of their next look."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.experiments.test_ledger import any_record
from tests.experiments.test_reproduction import TEXT

from experiments.claims import (
    REPRODUCED,
    UNDECIDABLE,
    UNDECIDED,
    ClaimCase,
    Judgement,
    Quantity,
    Verdict,
)
from experiments.experiment import Experiment, names, read_experiment
from experiments.ledger import read_ledger
from experiments.records import Record
from experiments.undecided import cheapest_first, planned_looks, undecided_claims
from experiments.values import RunDigest

FOLDER = Path(__file__).parents[2] / "experiments"


def case(verdict: Verdict, seeds: int, *of: str) -> ClaimCase:
    left, right = ([Quantity(label, "w", 1.0, 1.0, 1.0) for label in of] + [None])[:2]
    return ClaimCase("w", "drawn", verdict, left, right, seeds=seeds)


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    (tmp_path / "small.toml").write_text(TEXT, encoding="utf-8")
    return read_experiment(tmp_path, "small")


def record(*judgements: Judgement, cpu_s: float = 2.0, seeds: int = 2) -> Record:
    runs = tuple(
        RunDigest(of, "w", "drawn", seed, "digest", cpu_s=cpu_s)
        for of in ("m", "p (exact)", "p (published-code)")
        for seed in range(seeds)
    )
    return msgspec.structs.replace(any_record(), judgements=judgements, digests=runs)


def test_the_next_look_costs_the_runs_that_each_side_lacks(experiment: Experiment) -> None:
    open_claim = Judgement("three-hops", "published-code", UNDECIDED, "why", (case(UNDECIDED, 2, "m", "p"),))
    [found] = undecided_claims(experiment, record(open_claim))
    looks = [look.seeds for look in planned_looks(experiment, 30)]
    assert found.next_seeds == next(look for look in looks if look > 2)
    assert (found.claim, found.reading, found.seeds) == ("small/three-hops", "published-code", 2)
    assert found.cpu_s == 2 * 2.0 * (found.next_seeds - 2)
    drawn_already = record(open_claim, seeds=found.next_seeds)
    [found] = undecided_claims(experiment, drawn_already)
    assert found.cpu_s == 0.0


def test_beyond_the_last_look_twice_as_many_seeds_are_planned(experiment: Experiment) -> None:
    open_claim = Judgement("impossible", "", UNDECIDED, "why", (case(UNDECIDED, 30, "m"),))
    [found] = undecided_claims(experiment, record(open_claim, seeds=30))
    assert 30 < found.next_seeds <= 60


def test_only_cases_that_are_open_cost_and_what_is_decided_or_undecidable_is_left_out(experiment: Experiment) -> None:
    cases = (case(REPRODUCED, 2, "p"), case(UNDECIDED, 2, "m"))
    [found] = undecided_claims(
        experiment,
        record(
            Judgement("three-hops", "exact", UNDECIDED, "why", cases),
            Judgement("impossible", "", UNDECIDABLE, "trace is not here", ()),
            Judgement("everywhere", "", REPRODUCED, "", (case(REPRODUCED, 2, "m"),)),
            Judgement("gone", "", UNDECIDED, "the claim is dropped", (case(UNDECIDED, 2, "m"),)),
        ),
    )
    assert found.cpu_s == 2.0 * (found.next_seeds - 2)


def test_without_runs_nothing_tells_the_time_and_such_claims_come_last(experiment: Experiment) -> None:
    open_claim = Judgement("impossible", "", UNDECIDED, "why", (case(UNDECIDED, 2, "m"),))
    [unknown] = undecided_claims(experiment, msgspec.structs.replace(record(open_claim), digests=()))
    [cheap] = undecided_claims(experiment, record(open_claim, cpu_s=0.1))
    [dear] = undecided_claims(experiment, record(open_claim, cpu_s=10.0))
    assert unknown.cpu_s is None
    assert cheapest_first([unknown, dear, cheap]) == [cheap, dear, unknown]


def test_the_listed_claims_of_this_repository_are_those_that_its_records_leave_open() -> None:
    ledger = read_ledger(FOLDER)
    judged = [one for record in ledger.records.values() if record is not None for one in record.judgements]
    assert len(ledger.undecided()) == sum(judgement.verdict == UNDECIDED for judgement in judged)
    assert {experiment.name for experiment, _ in ledger.undecided()} <= set(names(FOLDER))
