"""Options of the test run, its three tiers, and what each test costs."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("volery", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("volery")
"""How long an example takes says how busy the machine is; a failure prints what reproduces it."""

COSTS = Path(__file__).parent / "costs.txt"
WHOLE_S = 1.0
"""CPU seconds from which `make conformance` alone runs a test, unless it is marked essential."""
QUICK_S = 0.2
"""CPU seconds below which `make check` runs a test of these places."""
QUICK = ("tests/unit/", "tests/experiments/", "tests/scripts/", "tests/test_tidy.py", "tests/test_docs.py")
ONCE = "test_the_design_keeps_the_contract["
"""Every design once, by the first of its checks."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-scripts", action="store_true", help="write the transcripts of tests/scripts anew; review the diff"
    )
    parser.addoption("--costs", type=Path, help="append the CPU seconds of each test to this file, as JSON lines")


def costs() -> dict[str, float]:
    """CPU seconds of the tests that take `QUICK_S` or more, by name; `make costs` measures them."""
    lines = COSTS.read_text(encoding="utf-8").splitlines()
    return {name: float(seconds) for seconds, _, name in (line.partition(" ") for line in lines)}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is `whole` or `quick` by its cost, and begin with the files that take longest."""
    known = costs()
    of_file: defaultdict[Path, float] = defaultdict(float)
    for item in items:
        cost = known.get(item.nodeid, 0.0)
        if cost >= WHOLE_S and item.get_closest_marker("essential") is None:
            item.add_marker(pytest.mark.whole)
        once = ONCE in item.nodeid and item.nodeid.endswith("check_every_task_finishes_once]")
        if once or (cost < QUICK_S and item.nodeid.startswith(QUICK) and not item.get_closest_marker("whole")):
            item.add_marker(pytest.mark.quick)
        of_file[item.path] += cost
    items.sort(key=lambda item: -of_file[item.path])


def pytest_collection_finish() -> None:
    """Leave all tests out of later collections of garbage: each run of the lab asks for one."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave out what the tests of a file have cached, too."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test, with the processes that it waited for."""
    before = sum(os.times()[:4])
    yield
    if (file := item.config.getoption("--costs")) is not None:
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps([item.nodeid, sum(os.times()[:4]) - before]) + "\n")


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
