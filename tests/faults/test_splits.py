"""A leader that its partner has deposed unnoticed launches nothing on machines that began anew."""

from __future__ import annotations

from typing import Any

import pytest
from tests.faults.splits import split

from volery.architectures import lookup
from volery.faults import run_scenario

SEEDS = 40
NAMES = [("pigeon", {"candidates": 0}), ("pigeon", {"candidates": 3}), ("pigeonc", {"candidates": 0}), ("megha", {})]
KEPT = [("pigeon", 378), ("pigeonc", 206), ("pigeonc", 270), ("central", 189), ("megha-2021", 95)]
"""Splits that have failed once; all but the second: a new leader reported an attempt that the former one had lost."""


@pytest.mark.parametrize(("name", "parameters"), NAMES, ids=["pigeon", "candidates", "pigeonc", "megha"])
def test_the_design_weathers_splits(name: str, parameters: dict[str, Any]) -> None:
    for seed in range(SEEDS):
        run_scenario(lookup(name), split(lookup(name), seed, **parameters))


@pytest.mark.parametrize(("name", "seed"), KEPT)
def test_a_split_that_has_failed_once_fails_no_more(name: str, seed: int) -> None:
    fixed = {"candidates": 0} if name.startswith("pigeon") else {}
    run_scenario(lookup(name), split(lookup(name), seed, **fixed))
