"""The table of machines that come and go."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.report.samples import sample_run

from volery.metrics import ProvisioningSummary, RunSummary
from volery.report.groups import group_runs
from volery.report.provisioning import PROVISIONING_NOTE, provisioning_rows
from volery.report.tables import plain

ONE = ProvisioningSummary(4, 3, 10.0, 5.0, 12.0, 48.0, 40.0, 15.0, 3.5, 3.0, 0.02, 0.15, 0.1, 0.4, 0.05, 0.6)


def elastic(cost: float, seed: int = 0) -> RunSummary:
    return msgspec.structs.replace(sample_run(seed=seed), provisioning=msgspec.structs.replace(ONE, cost=cost))


def test_means_over_the_seeds() -> None:
    ((label, *cells),) = provisioning_rows(group_runs([elastic(40.0), elastic(56.0, seed=1)]))
    assert label == "megha"
    assert cells == ["10.0", "5.00", "12.0", "48.0", "3.00", "3.50", "3.00", "2.0 %", "15.0 %", "5.0 %", "60.0 %"]


@pytest.mark.parametrize("width", [80, 140])
def test_it_stands_among_the_tables(width: int) -> None:
    text = plain([elastic(48.0)], width=width)
    assert "48.0" in text.partition("Provisioning")[2]
    assert PROVISIONING_NOTE[:40] in text


def test_runs_whose_machines_are_always_on_have_none() -> None:
    assert provisioning_rows(group_runs([sample_run()])) == []
    assert "Provisioning" not in plain([sample_run()])
