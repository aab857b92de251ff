"""The recorded runs hold what the page says of them, and the page says what the results hold."""

from __future__ import annotations

import pytest

from parity.comparison import FIFO_TAU_MOST, LOAD_LEAST, TAU_LEAST, WAITED_LEAST
from parity.page import PAGE, page
from parity.records import recorded
from parity.results import Result, read_results, results
from parity.scenarios import SCENARIOS

ROWS = read_results()
SEEDS = {1, 2, 3, 4, 5}


def test_the_page_is_that_of_the_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(ROWS), "python -m parity page writes it"


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_its_seeds(name: str) -> None:
    assert {row.seed for row in ROWS if row.scenario == name} == SEEDS
    assert {record.seed for record in recorded(name)} == SEEDS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.scenario}-{row.seed}")
def test_every_run_keeps_the_conditions(row: Result) -> None:
    assert row.conditions.load >= LOAD_LEAST
    assert row.conditions.waited >= WAITED_LEAST
    assert row.fifo.tau < FIFO_TAU_MOST or row.scenario == "fifo"


def test_a_recorded_run_of_first_come_first_served_is_replayed_within_the_bounds() -> None:
    (row,) = results(recorded("fifo")[:1])
    assert row.lab.tau >= TAU_LEAST
    assert row.lab.median_s <= 2


@pytest.mark.parametrize("name", ["backfill", "preemption"])
def test_the_design_explains_what_a_plain_fifo_does_not(name: str) -> None:
    (row,) = results(recorded(name)[:1])
    assert row.lab.tau >= 0.7
    assert row.lab.tau > row.fifo.tau + 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_results_are_those_of_the_records(name: str) -> None:
    assert results(recorded(name)) == [row for row in ROWS if row.scenario == name], "python -m parity page"
