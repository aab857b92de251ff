"""Options and order of the test run."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("volery", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("volery")
"""How long an example takes says how busy the machine is; a failure prints what reproduces it."""

LONGEST = ("tests/live/", "tests/conformance/")
"""Folders whose tests wait for processes, or take longest: they begin, so that none is alone at the end."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scripts", action="store_true", help="write the transcripts of tests/scripts anew; review the diff"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_collection_finish() -> None:
    """Leave all tests out of later collections of garbage: each run of the lab asks for one."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave out what the tests of a file have cached, too."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def loop_that_ships(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of live processes run on the event loop of these, threads of theirs and `asyncio.run` included."""
    if "live" not in request.path.parts:
        yield
        return
    from volery.live.clock import new_event_loop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.events, "new_event_loop", new_event_loop)
        yield
