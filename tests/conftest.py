"""Options of the test run."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("volery", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("volery")
"""How long an example takes says how busy the machine is; a failure prints what reproduces it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scripts", action="store_true", help="write the transcripts of tests/scripts anew; review the diff"
    )
