"""Refused placements over time, on facts written by hand and in runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from volery.conformance.cases import trace_of
from volery.core.events import Transaction
from volery.core.model import SECOND
from volery.core.moments import Moments
from volery.core.records import Records
from volery.metrics import refused_tasks
from volery.study import compare

BEGINS_US = np.array([1, 2, 3]) * SECOND


def records() -> Records:
    return Records(trace_of("t", [0], [[SECOND]]))


def tried(ended_us: int, refused: int) -> Transaction:
    return Transaction("scheduler/0", "batch", 0, 0, 1, 1, refused, 0, 0, ended_us)


def test_refusals_fall_into_the_interval_of_their_moment_and_none_is_lost() -> None:
    found = records()
    kept = found.moments["inconsistencies"] = Moments()
    for now, amount in ((SECOND, 1), (2 * SECOND - 1, 2), (2 * SECOND, 4), (0, 8), (9 * SECOND, 16)):
        kept.note(now, amount)
    assert refused_tasks(found, BEGINS_US).tolist() == [11, 4, 16]


def test_conflicts_of_transactions_count_when_their_outcome_is_known() -> None:
    found = records()
    found.transactions += [tried(2 * SECOND, 3), tried(3 * SECOND, 0)]
    assert refused_tasks(found, BEGINS_US).tolist() == [0, 3, 0]
    found.transactions.pop(0)
    assert refused_tasks(found, BEGINS_US).tolist() == [0, 0, 0], "attempts without a conflict are known to have none"


def test_a_design_that_refuses_nothing_has_no_numbers() -> None:
    assert np.isnan(refused_tasks(records(), BEGINS_US)).all()
    assert refused_tasks(records(), BEGINS_US[:0]).size == 0


def test_what_a_folder_keeps_sums_to_the_counter_of_the_run(tmp_path: Path) -> None:
    found = compare("megha:gms=3,lms=3", "pigeon", trace="syn:30x20", workers=35, folder=tmp_path)
    table = parquet.read_table(tmp_path / "utilisation.parquet", columns=["label", "refused_tasks"])
    labels, refused = table["label"].to_numpy(), table["refused_tasks"].to_numpy()
    counted = found.runs[0].counters["inconsistencies"]
    assert counted > 0
    assert refused[labels == "megha:gms=3,lms=3"].sum() == pytest.approx(counted)
    assert np.isnan(refused[labels == "pigeon"]).all()
