"""The table of locality, and the lines that say what a design ignored."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.report.samples import sample_run

from volery.metrics import LocalitySummary
from volery.report.groups import group_runs
from volery.report.locality import ignorance_lines, locality_rows
from volery.report.tables import plain


@pytest.mark.parametrize("width", [80, 140])
def test_locality_has_a_table_with_means_over_the_seeds(width: int) -> None:
    found = [LocalitySummary(10, 0.5, 0.25, 0.25, 0.4), LocalitySummary(10, 0.7, 0.15, 0.15, 0.6)]
    runs = [msgspec.structs.replace(sample_run(seed=seed), locality=one) for seed, one in enumerate(found)]
    row = plain(runs, width=width).partition("Locality")[2].splitlines()[3].split()
    assert " ".join(row[-8:]) == "60.0 % 20.0 % 20.0 % 50.0 %"
    assert locality_rows(group_runs([sample_run()])) == []


def test_what_a_design_ignores_is_said_under_the_table() -> None:
    run = sample_run("megha:gms=2")
    assert ignorance_lines(group_runs([run])) == []
    told = msgspec.structs.replace(run, ignores=("users", "locality"), kept_by_driver=("dependencies",))
    line = "megha:gms=2: of this workload it ignores users, locality; leaves dependencies to the driver."
    assert ignorance_lines(group_runs([told])) == [line]
    assert line in plain([told], width=140)
    silent = msgspec.structs.replace(run, declares=False)
    assert ignorance_lines(group_runs([silent])) == ["megha:gms=2: of this workload it does not declare what it heeds."]
