"""A short storm over a federation of real processes; `make chaos` makes it ten minutes."""

from __future__ import annotations

from pathlib import Path

from tests.live.chaos.judging import report
from tests.live.chaos.run import Chaos

from volery.architectures import lookup
from volery.core.model import SECOND
from volery.faults import draw_schedule

SECONDS = 90
SEED = 29


def test_nothing_is_lost_and_nothing_succeeds_twice(broker_program: str, open_folder: Path) -> None:
    """Every kind of fault once, against masters, nodes, supervisors and the API."""
    told: list[str] = []
    schedule = draw_schedule(lookup("megha"), SEED, SECONDS * SECOND)
    run = Chaos(open_folder, broker_program, schedule, told.append).play()
    assert len(run.accepted) == len(schedule.jobs) > SECONDS
    assert not run.wrong, "\n".join([*told, report(run)])
