"""Options of the test run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("volery", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("volery")
"""How long an example takes says how busy the machine is; a failure prints what reproduces it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scripts", action="store_true", help="write the transcripts of tests/scripts anew; review the diff"
    )


@pytest.fixture(scope="module", autouse=True)
def loop_that_ships(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of live processes run on the event loop of these, threads of theirs and `asyncio.run` included."""
    if "live" not in request.path.parts:
        yield
        return
    from volery.live.loop import new_event_loop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.events, "new_event_loop", new_event_loop)
        yield
