"""Errors that are the user's to mend."""

from __future__ import annotations

import importlib.util
import pickle
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from volery.architectures.quincy import ortools_solver
from volery.architectures.tetrisched import milp
from volery.cli.output import live_extra
from volery.core.errors import InputError, suggestion
from volery.live.frontend import job_tracer
from volery.study import pool


def test_an_input_error_names_place_and_problem_and_survives_a_process_boundary() -> None:
    error = InputError("trace.tr:17", "letters where a number belongs")
    assert str(error) == "trace.tr:17: letters where a number belongs"
    back = pickle.loads(pickle.dumps(error))
    assert (back.place, back.problem) == (error.place, error.problem)


def test_a_near_miss_is_guessed_and_anything_else_gets_the_list() -> None:
    known = ("megha", "pigeon", "oracle")
    assert suggestion("mega", known) == "; did you mean 'megha'?"
    assert suggestion("mega", ("omega", "megha")) == "; did you mean 'megha'?", "of equals the one that begins alike"
    assert suggestion("zzz", known) == "; known are megha, oracle, pigeon"


def missing_part(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a part of the package that needs what is not installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    federation: Any = SimpleNamespace(file=SimpleNamespace(telemetry="http://127.0.0.1:1"))
    none: Any = None
    match part:
        case "flow":
            ortools_solver.check_solver("T1.solver")
        case "solve":
            milp.check_solver("T1.solver")
        case "dask":
            monkeypatch.setitem(sys.modules, "dask", None)
            monkeypatch.setitem(sys.modules, "distributed", None)
            monkeypatch.delitem(sys.modules, "volery.study.dask_pool", raising=False)
            pool._elsewhere((), "a:1", none, bool)
        case "otel":
            monkeypatch.setitem(sys.modules, "volery.live.service.telemetry", None)
            monkeypatch.delattr("volery.live.service.telemetry", raising=False)  # another test may have loaded it
            job_tracer(federation, none)
        case _:
            with live_extra():
                raise ModuleNotFoundError(name="starlette")


@pytest.mark.parametrize("part", ["flow", "solve", "dask", "otel", "live"])
def test_what_is_not_installed_is_named_with_a_command_that_works_in_a_checkout(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=re.escape(f"`pip install -e '.[{part}]'` in the checkout")):
        missing_part(part, monkeypatch)
    assert (
        part
        in tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )


def test_no_message_names_a_package_that_no_index_has() -> None:
    source = Path(__file__).parents[3] / "src"
    assert not [path for path in source.rglob("*.py") if re.search(r"volery\[[a-z]", path.read_text(encoding="utf-8"))]
