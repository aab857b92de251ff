"""The reference architecture as data (Andreadis et al., SC18, section III)."""

from __future__ import annotations

from collections import Counter

from volery.core.stages import STAGES, Stage


def test_there_are_33_stages_in_five_groups() -> None:
    assert set(STAGES) == set(Stage)
    groups = Counter(stage.value[0] for stage in Stage)
    assert groups == {"J": 7, "T": 12, "M": 6, "B": 1, "R": 7}


def test_every_stage_has_a_name_of_its_own() -> None:
    assert len({description.name for description in STAGES.values()}) == len(STAGES)


def test_transfer_stages_are_those_that_hand_tasks_over() -> None:
    assert {stage for stage, said in STAGES.items() if said.mode == "transfer"} == {Stage.T4, Stage.M6, Stage.B}
