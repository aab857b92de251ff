"""The cases from the field (../shared/cases/live), against the program of this checkout: each ends with status 0."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.live.conftest import RUN_AS

CASES = Path(__file__).parents[3] / "shared" / "cases" / "live"
FILES = sorted(path for path in CASES.glob("[0-9][0-9]_*.py") if not path.name.startswith("13_"))
"""The 13th shows a mechanism of Python alone."""
CASE_S = 600
SKIPPED = 77


def can_be_run_by_all(path: Path) -> bool:
    folders = path.resolve().parents
    return bool(path.stat().st_mode & 0o1) and all(folder.stat().st_mode & 0o1 for folder in folders)


@pytest.mark.whole
@pytest.mark.skipif(not FILES, reason="the cases (../shared/cases) are not here")
@pytest.mark.parametrize("case", FILES, ids=lambda path: path.stem)
def test_a_case_from_the_field_ends_as_it_should(case: Path) -> None:
    if RUN_AS and not can_be_run_by_all(Path(sys.executable)):
        pytest.skip(f"{RUN_AS} may not execute {sys.executable}")
    environment = {**os.environ, "VOLERY": str(Path(sys.executable).parent / "volery"), "PYTHON": sys.executable}
    if RUN_AS:
        environment["RUN_AS"] = RUN_AS
    ran = subprocess.run(
        [sys.executable, case.name], cwd=CASES, env=environment, capture_output=True, text=True, timeout=CASE_S,
        check=False,
    )  # fmt: skip
    if ran.returncode == SKIPPED:
        pytest.skip(ran.stdout.strip())
    assert ran.returncode == 0, ran.stdout + ran.stderr
