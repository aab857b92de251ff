"""Ctrl-C in the middle: what is finished is kept and shown, and the same command goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEADLINE_S = 60.0
SEEDS = 200
"""Far more than can finish before the signal comes."""


def listen() -> None:
    """Hear Ctrl-C even where the tests run in the background of a shell, which makes its children deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("processes", [1, 2])
def test_finished_runs_survive_ctrl_c(tmp_path: Path, processes: int) -> None:
    words = ["compare", "megha", "--trace", "syn:200x100", "--workers", "500", "--seeds", str(SEEDS)]
    lab = subprocess.Popen(
        [sys.executable, "-m", "volery.cli.main", *words, "-o", str(tmp_path), "-p", str(processes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listen,
    )
    deadline = time.monotonic() + DEADLINE_S
    while len(list((tmp_path / "runs").glob("*.json"))) < 2:
        assert lab.poll() is None, lab.communicate()
        assert time.monotonic() < deadline, "no run has finished"
        time.sleep(0.02)
    lab.send_signal(signal.SIGINT)
    out, err = lab.communicate(timeout=DEADLINE_S)
    assert lab.returncode == 130
    assert "Traceback" not in err
    assert f"of {SEEDS} runs are finished; interrupted." in out
    assert "median" in out

    kept = json.loads((tmp_path / "manifest.json").read_text())["runs"]
    assert 2 <= len(kept) < SEEDS
    assert len(json.loads((tmp_path / "summary.json").read_text())["runs"]) == len(kept)
    assert f"{len(kept)} of {SEEDS} runs" in out
    leftovers = [path.name for path in (tmp_path / "runs").iterdir() if path.name.startswith(".")]
    assert leftovers == []
