"""Ctrl-C or a kill in the middle: what is finished is kept, and the same command goes on to the same digests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from volery.study import load_results, read_study, run_study

DEADLINE_S = 60.0
SEEDS = 200
"""Far more than can finish before the signal comes."""
STUDY = """
[workload]
trace = "syn:100x150"
workers = 300
[axes]
architectures = ["megha", "sparrow"]
seeds = [0, 1, 2]
"""


def listen() -> None:
    """Hear Ctrl-C even where the tests run in the background of a shell, which makes its children deaf to it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_killed_study_goes_on_to_the_digests_of_an_undisturbed_one(tmp_path: Path) -> None:
    file, killed = tmp_path / "study.toml", tmp_path / "killed"
    file.write_text(STUDY)
    command = [sys.executable, "-m", "volery.cli.main", "run", str(file), "-p", "2", "--json"]
    lab = subprocess.Popen([*command, "-o", str(killed)], stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + DEADLINE_S
    while len(list((killed / "runs").glob("*.json"))) < 2:
        assert lab.poll() is None, "it has ended before it was killed"
        assert time.monotonic() < deadline, "no run has finished"
        time.sleep(0.01)
    os.killpg(lab.pid, signal.SIGKILL)  # the runs' processes are in its group
    lab.wait()
    kept = {path.stem for path in (killed / "runs").glob("*.json")}
    assert 2 <= len(kept) < 6

    resumed = subprocess.run([*command, "-o", str(killed)], capture_output=True, check=True, timeout=DEADLINE_S)
    whole = run_study(read_study(file))
    assert [run["digest"] for run in json.loads(resumed.stdout)["runs"]] == [run.digest for run in whole.runs]
    assert load_results(killed).planned == len(whole.runs) == 6
    names = {path.stem for path in (killed / "runs").iterdir()}
    assert kept <= names
    assert not any(name.startswith(".") for name in names), "the half-written is swept away"
