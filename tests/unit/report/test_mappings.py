"""The fourteen published mappings against what the paper prints, and what is made of declarations and classes."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import pytest

from volery import architectures
from volery.core.stages import BY_GROUP, MODE_IN_TEXT, POLICIES, STAGES, Group, Stage
from volery.report import mappings
from volery.report.mappings import CLASSES, MARKS, RATINGS, MappingRow, PublishedMapping

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "stages.md"
SCHEDULERS = mappings.paper().scheduler
CUT = {("Condor", "M"): 28, ("Quincy", "R"): 28, ("Firmament", "M"): 28, ("Apollo", "J"): 85}
"""Where table II prints less than the rounded mean of the symbols in tables IV to VII."""


def goes_into(printed: str, cells: str) -> bool:
    """Whether the symbols of a row, in order, can stand in its cells."""
    reached = {0}
    for cell in cells:
        if cell == ".":
            continue
        taken = {at + 1 for at in reached if at < len(printed) and cell in (printed[at], "?")}
        reached = taken | reached if cell == "?" else taken
    return len(printed) in reached


@pytest.mark.parametrize(
    ("printed", "cells", "fits"),
    [("F~", "F~", True), ("F~", "?.?", True), ("F~", "~F", False), ("F~", "F..", False), ("F", "F~", False)],
)
def test_symbols_go_into_cells_in_order(printed: str, cells: str, fits: bool) -> None:
    assert goes_into(printed, cells) == fits


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda found: found.name)
@pytest.mark.parametrize("group", BY_GROUP)
def test_cells_hold_what_the_rows_of_the_paper_print(scheduler: PublishedMapping, group: Group) -> None:
    cells = scheduler.cells[group]
    assert len(cells) == len(BY_GROUP[group])
    assert set(cells) <= set(MARKS)
    assert goes_into(scheduler.printed[group], cells)


def test_percentages_are_those_of_table_ii_but_for_four_that_it_cuts() -> None:
    differences = {}
    for scheduler, row in zip(SCHEDULERS, mappings.from_paper(), strict=True):
        for group in BY_GROUP:
            assert abs(row.percent[group] - scheduler.percent[group]) < 1
            if mappings.whole(row.percent[group]) != scheduler.percent[group]:
                differences[scheduler.name, group] = scheduler.percent[group]
    assert differences == CUT
    assert len(mappings.cut()) == len(CUT)


def _rated(scheduler: PublishedMapping) -> float:
    """The mean match over all 33 stages, in per cent; the printed symbols suffice for it."""
    return 100 * sum({"F": 1.0, "~": 0.5}[mark] for marks in scheduler.printed.values() for mark in marks) / len(Stage)


def test_the_text_of_section_iv_c_against_the_tables() -> None:
    """docs/reference/stages.md has the sentences and verdicts: one of them, on scheduler management, differs."""
    rated = {scheduler.name: _rated(scheduler) for scheduler in SCHEDULERS}
    assert {name for name, percent in rated.items() if percent > 50} == {"Apollo", "Condor", "Dryad", "Borg"}
    least = sorted(rated, key=rated.__getitem__)[:4]
    assert set(least) == {"Triana", "Sparrow", "Autopilot", "Askalon"}
    assert least[0] == "Askalon", "the least of all is not among the three of the text"
    managing = [scheduler for scheduler in SCHEDULERS if scheduler.printed["M"]]
    assert len(managing) == 7, "half of them, not less than half"
    assert len([scheduler for scheduler in managing if "F" in scheduler.printed["M"]]) == 6, "without partial matches"
    assert max(scheduler.percent["R"] for scheduler in SCHEDULERS) == 71
    assert {scheduler.name for scheduler in SCHEDULERS if scheduler.selected == "FFFF"} == {"Condor", "Apollo"}
    means = {scheduler.name: sum(scheduler.percent.values()) / 4 for scheduler in SCHEDULERS}
    assert means["Borg"] == 50, "by the mean of the four groups Borg would not be over 50 %"


def test_the_four_stages_of_table_ii_agree_with_the_cells() -> None:
    for scheduler, row in zip(SCHEDULERS, mappings.from_paper(), strict=True):
        marks = (row.marks[stage] for stage in (Stage.T1, Stage.T2, Stage.R4, Stage.R5))
        assert goes_into(scheduler.selected, "".join(mappings.SYMBOLS[mark] for mark in marks)), scheduler.name


def test_classes_have_the_sizes_that_the_paper_gives() -> None:
    assert [len(mappings.of_class(name)) for name in CLASSES] == [8, 6, 7, 7]


@pytest.mark.parametrize("name", CLASSES)
def test_means_of_tables_iii_and_viii_lie_within_what_the_cells_allow(name: str) -> None:
    """Printed with rounding, some cut: 35 for 2.5 of 7."""
    rows, means, printed = mappings.of_class(name), mappings.class_means(name), mappings.paper().means[name]
    assert set(means) == set(Stage)
    assert len(printed) == 10
    for stage, (low, high) in means.items():
        least, most = mappings.mean_bounds(rows, stage)
        slack = 1.0 if stage in printed else 0.01
        assert least - slack < low <= high < most + slack, stage


def test_the_text_on_borg_is_kept() -> None:
    """Section IV-B: partial for ranks without a said order and for reclamation without detail."""
    borg = next(row for row in mappings.from_paper() if row.name == "Borg")
    assert {stage: borg.marks[stage] for stage in (Stage.J3, Stage.T12, Stage.R7)} == dict.fromkeys(
        (Stage.J3, Stage.T12, Stage.R7), "partial"
    )
    full = (Stage.T6, Stage.T9, Stage.T10, Stage.T11, Stage.R3, Stage.R4, Stage.R5)
    assert {borg.marks[stage] for stage in full} == {"full"}
    assert borg.marks[Stage.R1] == borg.marks[Stage.R6] == "undetermined", "one of the two has it"


def test_undetermined_cells_are_bounded_by_the_symbols_left_over() -> None:
    askalon = next(row for row in mappings.from_paper() if row.name == "Askalon")
    assert askalon.bounds[Stage.T1] == (0.0, 50.0), "two partial matches for nine cells"
    assert askalon.bounds[Stage.J1] == (100.0, 100.0)


@pytest.mark.parametrize("name", architectures.REGISTRY)
def test_a_design_is_rated_by_what_it_declares(name: str) -> None:
    entry = architectures.lookup(name)
    row = mappings.declared(entry)
    for group, stages in BY_GROUP.items():
        ratings = [RATINGS[entry.stages[stage].extent] if stage in entry.stages else 0.0 for stage in stages]
        assert row.percent[group] == pytest.approx(sum(ratings) / len(stages))
    assert not row.published
    assert "undetermined" not in row.marks.values()


def test_presets_do_not_inherit_what_they_leave_out() -> None:
    stages = {name: architectures.lookup(name).stages for name in architectures.REGISTRY}
    assert Stage.T12 in stages["hawk"]
    assert Stage.T12 not in stages["eagle"], "Eagle does not steal"
    assert Stage.T12 not in stages["phoenix"]
    assert Stage.R2 in stages["pigeon"]
    assert Stage.R2 not in stages["pigeonc"], "no reserved workers"
    assert Stage.M5 in stages["megha"]
    assert Stage.M5 not in stages["central"], "one Local Master"
    assert stages["megha"][Stage.T11].when == "reliable=true"
    assert stages["megha-2021"][Stage.T11].when == "reliable=true"


def test_recovery_is_declared_by_those_that_bear_crashes_of_machines() -> None:
    for name in architectures.REGISTRY:
        entry = architectures.lookup(name)
        assert (Stage.T11 in entry.stages) == ("crash:node" in entry.conformance.tolerates), name


@pytest.mark.parametrize("name", architectures.REGISTRY)
def test_settings_that_stages_need_are_accepted_and_not_the_default(name: str) -> None:
    entry = architectures.lookup(name)
    for found in entry.stages.values():
        parameter, equals, value = found.when.partition("=")
        assert not equals or architectures.configure(entry, {parameter: value}) != entry.defaults


def _line(row: MappingRow) -> str:
    symbols = " | ".join(f"`{row.symbols(group)}`" for group in BY_GROUP)
    percent = ", ".join(str(mappings.whole(row.percent[group])) for group in BY_GROUP)
    return f"| {row.name} | {symbols} | {percent} |"


def test_the_reference_page_says_what_the_code_says() -> None:
    """A line that differs is named: put it into docs/reference/stages.md."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = [*(mappings.declared(architectures.lookup(name)) for name in architectures.REGISTRY), *mappings.from_paper()]
    wanted = [_line(row) for row in rows]
    for stage, said in STAGES.items():
        mode = said.mode if stage in MODE_IN_TEXT else f"{said.mode}*"
        policies = ", ".join(POLICIES.get(stage, ())) or "-"
        state = "yes" if said.stateful else "no"
        wanted.append(f"| {stage.value} | {said.name} | {mode} | {said.takes} | {said.gives} | {state} | {policies} |")
    assert [line for line in wanted if line not in lines] == []
    text = " ".join(lines)
    undetermined = sum(list(row.marks.values()).count("undetermined") for row in rows)
    assert f"{undetermined} of the {14 * len(Stage)} cells stay undetermined" in text
    assert all(difference in text for difference in mappings.cut())


def test_every_stage_stands_in_one_box_and_has_a_square_per_scheduler() -> None:
    assert sorted(chain(*mappings.COLUMNS)) == sorted(Stage)
    rows = [
        next(row for row in mappings.from_paper() if row.name == "Borg"),
        mappings.declared(architectures.lookup("borg")),
    ]
    drawn = mappings.stages_svg(rows)
    words = [each.text or "" for each in ElementTree.fromstring(drawn).iter() if each.tag.endswith("text")]
    assert all(any(word.startswith(f"{stage.value} ") for word in words) for stage in Stage)
    for mark, shown in (("partial", "~"), ("undetermined", "?"), ("full", "✓")):
        assert words.count(shown) == 1 + sum(row.marks[stage] == mark for row in rows for stage in Stage)
