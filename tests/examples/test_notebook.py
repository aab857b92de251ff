"""The notebook of ten cells runs, and its runs have the digests of a command and of a study file."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.examples.installed import EXAMPLES
from tests.unit.cli.conftest import Command, command  # noqa: F401 - fixture of commands

NOTEBOOK = EXAMPLES / "own_table.ipynb"
STUDY = """
[workload]
trace = "own-table.parquet"
workers = 30
slots = 2
[axes]
architectures = ["megha", "hawk"]
load = [0.3, 0.9]
"""


def cells() -> list[str]:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def executed(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[Any]]:
    """The names that the notebook leaves behind, and the value of the last line of each cell, as a kernel has it."""
    main: Any = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    values = []

    for number, text in enumerate(cells(), start=1):
        tree, value = ast.parse(text), None
        last = tree.body[-1]
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, f"<cell {number}>", "exec"), main.__dict__)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), main.__dict__)
        values.append(value)
    return main.__dict__, values


def test_the_notebook_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    command: Command,  # noqa: F811 - fixture of commands
) -> None:
    """Five CPU seconds, since sixty runs are what it shows: five designs, four loads, seeds by need."""
    monkeypatch.chdir(tmp_path)
    names, values = executed(monkeypatch)
    assert len(values) == 10

    results = names["results"]
    assert len({label for label, _ in results.digests}) == 5 * 4
    assert all(part in values[3]._repr_html_() for part in ("megha [load=0.3]", "oracle [load=0.9]", "Against megha"))
    assert values[4]._repr_svg_().startswith("<svg")
    assert r"\begin{tabular}{lrrrr}" in results.to_latex("mean-delay-all-over-load")
    assert values[6].num_rows > 0
    assert set(names["own"].digests) == {("pipeline:R5=coldest", 0), ("pipeline", 0)}
    assert values[9].num_rows == 5

    (tmp_path / "study.toml").write_text(STUDY)
    capfd.readouterr()  # what the cells have printed
    runs = command("run", "study.toml", "--json").json["runs"]
    assert {(run["label"], run["seed"]): run["digest"] for run in runs}.items() <= results.digests.items()
    words = ("--trace", "own-table.parquet", "--workers", "30", "--slots", "2", "--load", "0.9", "--json")
    (run,) = command("compare", "megha", *words).json["runs"]
    assert run["digest"] == results.digests["megha [load=0.9]", 0]
