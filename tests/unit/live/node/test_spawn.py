"""A process starts with its mark and processors; behind its gate it becomes the program only when the gate opens."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from volery.live.node.descendants import MARK_LIMIT
from volery.live.node.spawn import Spawners, StartGate, demand_program, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and affinity are those of Linux")


def test_a_process_has_its_mark_and_this_process_keeps_its_own() -> None:
    before = resource.getrlimit(MARK_LIMIT)
    script = f"import resource; print(resource.getrlimit({MARK_LIMIT})[0])"
    child = started([sys.executable, "-c", script], mark=4321, stdout=subprocess.PIPE)
    assert child.communicate()[0] == b"4321\n"
    assert resource.getrlimit(MARK_LIMIT) == before


def test_a_process_runs_on_its_processors_and_this_process_on_all() -> None:
    all_cpus = os.sched_getaffinity(0)
    script = "import os; print(*os.sched_getaffinity(0))"
    spawners = Spawners()
    child = spawners.start(None, [sys.executable, "-c", script], [min(all_cpus)], stdout=subprocess.PIPE)
    assert child.communicate()[0].split() == [b"%d" % min(all_cpus)]
    assert os.sched_getaffinity(0) == all_cpus
    spawners.close()


@pytest.mark.parametrize("memory_mb", [0, 64])
def test_a_process_waits_at_its_gate_and_then_becomes_its_program(tmp_path: Path, memory_mb: int) -> None:
    given = tmp_path / "stdin"
    given.write_text("read this")
    gate = StartGate(given, memory_mb)
    script = "import resource, sys; print(sys.stdin.read(), resource.getrlimit(resource.RLIMIT_DATA)[0])"
    words = gate.words([sys.executable, "-c", script])
    child = subprocess.Popen(words, stdin=gate.outside, stdout=subprocess.PIPE)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.05)
    gate.open()
    said, _ = child.communicate()
    gate.close()
    limit = memory_mb << 20 if memory_mb else resource.getrlimit(resource.RLIMIT_DATA)[0]
    assert said.decode().split() == ["read", "this", str(limit)]


def test_a_process_whose_gate_closes_never_becomes_its_program(tmp_path: Path) -> None:
    gate = StartGate()
    child = subprocess.Popen(gate.words(["touch", str(tmp_path / "made")]), stdin=gate.outside)
    gate.close()
    assert child.wait() != 0
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("mode", "error"), [(None, FileNotFoundError), (0o644, PermissionError), (0o755, None)])
def test_a_program_that_cannot_be_executed_is_refused_before_the_shell_starts(
    tmp_path: Path, mode: int | None, error: type[OSError] | None
) -> None:
    if mode is not None:
        (tmp_path / "program").write_text("#!/bin/sh\n")
        (tmp_path / "program").chmod(mode)
    if error is None:
        demand_program("./program", tmp_path, {})
        return
    with pytest.raises(error) as caught:
        demand_program("./program", tmp_path, {})
    assert caught.value.filename == "./program"
