"""A short storm over a federation of real processes; `make chaos` makes it ten minutes."""

from __future__ import annotations

from pathlib import Path

from tests.live.chaos import Chaos, report
from tests.live.conftest import Server

SECONDS = 25.0
SEED = 3


def test_nothing_is_lost_and_nothing_succeeds_twice(mortal_broker: Server, open_folder: Path) -> None:
    """Every kind of fault once, then some at random."""
    told: list[str] = []
    verdict = Chaos(open_folder, mortal_broker, SEED, told.append).run(SECONDS)
    assert verdict.accepted > SECONDS / 2
    assert not verdict.wrong, "\n".join([*told, report(verdict)])
