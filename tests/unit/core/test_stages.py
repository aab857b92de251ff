"""The reference architecture as data (Andreadis et al., SC18, section III)."""

from __future__ import annotations

from collections import Counter

from volery.core.stages import BY_GROUP, MODE_IN_TEXT, POLICIES, STAGES, Stage


def test_there_are_33_stages_in_five_groups() -> None:
    assert set(STAGES) == set(Stage)
    groups = Counter(stage.value[0] for stage in Stage)
    assert groups == {"J": 7, "T": 12, "M": 6, "B": 1, "R": 7}


def test_every_stage_has_a_name_of_its_own() -> None:
    assert len({description.name for description in STAGES.values()}) == len(STAGES)


def test_transfer_stages_are_those_that_hand_tasks_over() -> None:
    assert {stage for stage, said in STAGES.items() if said.mode == "transfer"} == {Stage.T4, Stage.M6, Stage.B}


def test_groups_hold_every_stage_once_and_the_broker_is_managed() -> None:
    """Table VI counts B with the M stages, seven columns."""
    assert sorted(stage for stages in BY_GROUP.values() for stage in stages) == sorted(Stage)
    assert {group: len(stages) for group, stages in BY_GROUP.items()} == {"J": 7, "T": 12, "M": 7, "R": 7}
    assert all(stage.group == group for group, stages in BY_GROUP.items() for stage in stages)


def test_modes_of_the_papers_text_are_kept() -> None:
    assert {stage: STAGES[stage].mode for stage in MODE_IN_TEXT} == {
        Stage.J1: "input",
        Stage.R1: "input",
        Stage.J4: "iteration",
        Stage.T3: "iteration",
        Stage.M2: "decision",
        Stage.M6: "transfer",
    }
    assert POLICIES[Stage.T2] == ("SRTF", "FIFO", "RANDOM")
