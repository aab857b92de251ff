"""Every design of the registry once, by the first of its checks; `make check` runs it."""

from __future__ import annotations

import pytest
from tests.conformance.entries import entries

from volery.conformance import CHECKS

ONCE = "check_every_task_finishes_once"


@pytest.mark.parametrize("name", entries())
def test_the_design_finishes_every_task_once(name: str) -> None:
    CHECKS[ONCE](entries()[name])
