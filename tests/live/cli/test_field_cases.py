"""The federation's field cases, where they are beside this repository: each program ends with status 0."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

CASES = Path(__file__).resolve().parents[4] / "shared" / "cases" / "live"
PROGRAMS = sorted(path.name for path in CASES.glob("[0-9]*.py") if path.name < "13")
"""The thirteenth shows a mechanism of Python alone."""
SKIPPED, LIMIT_S = 77, 900
ACCOUNT = "nobody" if os.geteuid() == 0 else None

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CASES.is_dir(), reason="the field cases (../shared/cases/live) are not here"),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A new folder of the account that runs the case, below no folder of somebody else."""
    path = Path(tempfile.mkdtemp(prefix="volery-case-"))
    if ACCOUNT is not None:
        shutil.chown(path, ACCOUNT)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    """The variables of a case: an interpreter that its account may execute, and the command `volery` for it."""
    paths = ":".join(path for path in sys.path if path.endswith(("site-packages", "src")))
    system = f"/usr/bin/python3.{sys.version_info.minor}"
    for program, path in ((sys.executable, ""), (system, paths)):
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "TMPDIR": str(folder), "HOME": str(folder)}
        words = [program, "-c", "import volery.cli.main"]
        try:
            tried = subprocess.run(words, env=variables, cwd="/", user=ACCOUNT, capture_output=True)
        except OSError:
            continue
        if tried.returncode == 0:
            command = folder / "volery"
            command.write_text(f'#!/bin/sh\nexec {program} -m volery.cli.main "$@"\n')
            command.chmod(0o755)
            return {**variables, "VOLERY": str(command), "PYTHON": program}
    pytest.skip(f"no interpreter of this version, with what Volery needs, is within reach of {ACCOUNT}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_field_case_ends_with_status_0(name: str, environment: dict[str, str], folder: Path) -> None:
    words = [environment["PYTHON"], "-B", str(CASES / name)]
    ended = subprocess.run(
        words, env=environment, cwd=CASES, user=ACCOUNT, capture_output=True, text=True, timeout=LIMIT_S
    )
    if ended.returncode == SKIPPED:
        pytest.skip(ended.stdout.strip() or "a program that it needs is not here")
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
