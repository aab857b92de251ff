"""The same program under two names: comparisons of the two find no difference more often than chance may."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.comparison import compare
from tests.examples.installed import install

from volery.statistics import HIGHER, LOWER

STUDIES, SEEDS, LEAST = 100, 3, 93
TRACE = "poisson:load=0.7,workers=20,fanout=4,mean=1,jobs=60"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install("twin", tmp_path, monkeypatch)


def study(number: int) -> dict[str, str]:
    """The verdict on each quantity of one study; no two studies share a seed."""
    seeds = range(SEEDS * number, SEEDS * (number + 1))
    results = compare("sparrow", "twin", trace=TRACE, workers=20, seeds=seeds)
    assert results.on_days_like_this == [], "every seed draws the workload"
    return {one.quantity: one.difference.verdict for one in results.differences}


@pytest.mark.slow
def test_the_twin_draws_at_random_on_its_own() -> None:
    verdicts = study(0)
    assert "identical" not in verdicts.values()
    assert len(verdicts) == 4


@pytest.mark.slow
def test_at_least_93_of_100_studies_find_no_difference_between_a_design_and_its_twin() -> None:
    told_apart = Counter(
        quantity
        for number in range(STUDIES)
        for quantity, verdict in study(number).items()
        if verdict in (LOWER, HIGHER)
    )
    assert max(told_apart.values()) <= STUDIES - LEAST, told_apart
