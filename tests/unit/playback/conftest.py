"""The recording of the demonstration: seven jobs of three users on eighteen machines, one of which crashes."""

from __future__ import annotations

import pytest

from volery.playback.recording import Recording, source_of
from volery.playback.traced_runs import TracedRun, demonstration


@pytest.fixture(scope="session")
def traced() -> TracedRun:
    return demonstration()


@pytest.fixture(scope="session")
def recording(traced: TracedRun) -> Recording:
    return Recording(traced.log, source_of("how Megha works", "18 machines", traced.cluster, traced.deployment))
