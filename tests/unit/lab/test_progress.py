"""Progress is drawn on a terminal's standard error, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress

import msgspec
import pytest

from volery.lab.progress import LiveProgress
from volery.sim import Progress
from volery.study import RunOutcome, TraceFacts, compare_spec
from volery.study.plan import plan

WORDS = [sys.executable, "-m", "volery.cli.main", "compare", "megha", "--trace", "syn:50x2000", "--workers", "200"]


def drawn_and_printed(*more: str) -> tuple[str, str]:
    ours, theirs = pty.openpty()
    try:
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
        lab = subprocess.Popen([*WORDS, *more], stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment)
        os.close(theirs)
        drawn = b""
        with suppress(OSError):  # Linux ends a terminal that nobody holds any more with EIO
            while block := os.read(ours, 1 << 16):
                drawn += block
        printed, _ = lab.communicate()
        assert lab.returncode == 0
        return drawn.decode(), printed
    finally:
        os.close(ours)


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_terminal_sees_every_run_and_how_many_there_are(processes: str) -> None:
    drawn, printed = drawn_and_printed("--seeds", "2", "-p", processes)
    for text in ("megha, seed 0", "megha, seed 1", "/2,000 jobs", "s simulated", "tasks/s", "ETA", "2/2 runs"):
        assert text in drawn
    assert "all runs" not in printed
    assert "median" in printed


@pytest.mark.slow
def test_json_comes_without_progress() -> None:
    drawn, printed = drawn_and_printed("--json")
    assert drawn == ""
    assert printed.startswith("{")


def test_runs_that_share_label_and_seed_are_followed_apart() -> None:
    """An experiment runs one architecture on several workloads under the same seeds, two at a time."""
    (first,) = plan(compare_spec(("megha",), {"trace": "syn:5x6", "workers": 50}, 1))
    second = msgspec.structs.replace(first, key="another")
    with LiveProgress(silent=False) as watcher:
        watcher.expected(2)
        for run in (first, second):
            watcher.started(run)
            watcher.sized(run, TraceFacts("t", "", 6, 30))
        watcher.ended(first, RunOutcome(*[None] * 4))  # type: ignore[arg-type]  # it is not looked at
        watcher.moved(second, Progress(0, 3, 15))
        watcher.ended(second, RunOutcome(*[None] * 4))  # type: ignore[arg-type]  # as above
