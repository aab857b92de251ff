"""Tags where messages are lost, repeated and late: constraints hold."""

from __future__ import annotations

import pytest

from volery.architectures import lookup
from volery.faults import Failure, draw, run_scenario
from volery.faults.scenario import TAGGED
from volery.policies.tags import TagIndex

STORMS = 36
SEEDS = [seed for seed in range(STORMS) if seed % TAGGED[0] in TAGGED[1]]


def test_storms_with_tags_are_drawn_and_weathered() -> None:
    architecture = lookup("omega")
    for seed in SEEDS:
        scenario = draw(architecture, seed)
        assert scenario.parameters["tags"]
        assert any(job.tags for job in scenario.jobs)
        run_scenario(architecture, scenario)


def test_storms_find_a_count_of_tags_that_allows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TagIndex, "allows", lambda self, machine, tags: True)
    monkeypatch.setattr(TagIndex, "allowed", lambda self, tags: -1)
    omega = lookup("omega")

    def all_storms() -> None:
        for seed in SEEDS:
            run_scenario(omega, draw(omega, seed))

    with pytest.raises(Failure, match="tag constraint"):
        all_storms()
