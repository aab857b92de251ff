"""A short storm over a federation of real processes; `make chaos` makes it ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.live.chaos.judging import report
from tests.live.chaos.run import Chaos

from volery.architectures import lookup
from volery.core.model import SECOND
from volery.faults import draw_schedule

SEED = 29


@pytest.mark.parametrize("seconds", [20, pytest.param(90, marks=pytest.mark.slow)])
def test_nothing_is_lost_and_nothing_succeeds_twice(broker_program: str, open_folder: Path, seconds: int) -> None:
    """Faults against masters, nodes, supervisors and the API; in 90 seconds every kind once."""
    told: list[str] = []
    schedule = draw_schedule(lookup("megha"), SEED, seconds * SECOND)
    run = Chaos(open_folder, broker_program, schedule, told.append).play()
    assert len(run.accepted) == len(schedule.jobs) > seconds
    assert not run.wrong, "\n".join([*told, report(run)])
