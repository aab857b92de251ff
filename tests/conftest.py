"""Options of the test run."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scripts", action="store_true", help="write the transcripts of tests/scripts anew; review the diff"
    )
