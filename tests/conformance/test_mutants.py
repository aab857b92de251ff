"""A check that cannot fail is a defect: each broken design is rejected by the check that it was made for."""

from __future__ import annotations

import pytest
from tests.conformance import (
    mutants_cancelling,
    mutants_features,
    mutants_flock,
    mutants_flows,
    mutants_gangs,
    mutants_order,
    mutants_protocol,
    mutants_results,
    mutants_rigid,
    mutants_safety,
    mutants_sharing,
    mutants_tags,
    mutants_vectors,
)
from tests.conformance.mutation import MUTANTS, UNSPOILED

from volery.conformance import CHECKS, NonconformanceError

ROOMS = (
    mutants_cancelling,
    mutants_features,
    mutants_flock,
    mutants_flows,
    mutants_gangs,
    mutants_order,
    mutants_protocol,
    mutants_results,
    mutants_rigid,
    mutants_safety,
    mutants_sharing,
    mutants_tags,
    mutants_vectors,
)


OF_ENTRIES = ("check_labels_do_not_matter", "check_same_seed_same_digest")
"""Costly, and independent of the wiring."""


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_is_rejected(name: str) -> None:
    rejected_by, design = MUTANTS[name]
    with pytest.raises(NonconformanceError, match=f"{name} fails {rejected_by}") as failure:
        CHECKS[rejected_by](design)
    unsound = ("AttributeError", "NameError", "KeyError", "IndexError", "missing", "unexpected keyword")
    assert not any(word in str(failure.value) for word in unsound), "the mutant itself must be sound"


@pytest.mark.parametrize("check", sorted({*CHECKS} - {*OF_ENTRIES}))
def test_what_most_mutants_are_made_of_is_accepted(check: str) -> None:
    """Else they were rejected for their wiring, and not for their fault."""
    CHECKS[check](UNSPOILED)


def test_every_check_rejects_some_mutant() -> None:
    assert set(CHECKS) == {rejected_by for rejected_by, _ in MUTANTS.values()}


def test_every_room_of_mutants_is_here() -> None:
    assert {design.build.__module__ for _, design in MUTANTS.values()} == {room.__name__ for room in ROOMS}
