"""The recording of the demonstration: seven jobs of three users on eighteen machines, one of which crashes."""

from __future__ import annotations

import pytest

from volery.playback.recording import Recording
from volery.playback.traced_runs import demonstration


@pytest.fixture(scope="session")
def recording() -> Recording:
    traced = demonstration()
    return Recording(traced.log, traced.source)
