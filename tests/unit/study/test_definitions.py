"""What a program defines itself has a digest of what it is: the same for the same definitions, another for others."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from volery.study.definitions import session_code

CELL = '''
from random import Random

from volery.architectures.pipeline.policies import Candidates, Policy, View, Waiting

LIMIT = 3
NAMES = frozenset({"ann", "bob", "eve", "dan"})


def first(machines):
    return [machine for machine in machines][:LIMIT]


class Base(Policy, frozen=True):
    """A text that says nothing."""

    look_at: int = 7

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int:
        return min(first(machines), key=lambda machine: (machine in {"a", "b", "c"}, self.weight * machine))

    @property
    def weight(self):
        return 2


class Coldest(Base, frozen=True):
    """The other text."""

    names = NAMES
'''


def cell(text: str = CELL, name: str = "Coldest") -> Any:
    """What a cell of a notebook leaves behind; no source of it can be found."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(text, namespace)
    return namespace[name]


def digest(text: str = CELL) -> str:
    return session_code({"R5": cell(text)}).digest


def test_the_same_definitions_have_the_same_digest() -> None:
    assert digest() == digest()
    assert digest(CELL.replace("A text that says nothing.", "Another.").replace("LIMIT = 3", "LIMIT = 3  # few")) == (
        digest()
    )
    assert digest("import sys\nunused = object()\n" + CELL) == digest(), "what is not named does not count"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("look_at: int = 7", "look_at: int = 8"),
        ("look_at: int", "look_on: int"),
        ("[:LIMIT]", "[LIMIT:]"),
        ("return 2", "return 3"),
        ('"c"}', '"d"}'),
        ('"dan"', '"don"'),
        ("names = NAMES", "names = NAMES, 1"),
        ("Coldest(Base, frozen", "Coldest(Policy, frozen"),
    ],
)
def test_a_change_of_anything_that_is_named_changes_the_digest(old: str, new: str) -> None:
    assert CELL.count(old) == 1
    assert digest(CELL.replace(old, new)) != digest()


def test_the_order_of_sets_does_not_count(tmp_path: Path) -> None:
    script = tmp_path / "cell.py"
    script.write_text(
        CELL + "\nfrom volery.study.definitions import session_code\nprint(session_code({'R5': Coldest}).digest)"
    )
    found = {
        subprocess.run(
            [sys.executable, script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "77")
    }
    assert len(found) == 1


def test_modules_of_ours_are_found_and_those_of_the_user_count_as_cells_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = CELL.replace("def first(", "def unused(").replace("min(first(", "min(my_rules.first(")

    def digest_of(rules: str) -> str:
        monkeypatch.delitem(sys.modules, "my_rules", raising=False)
        (tmp_path / "my_rules.py").write_text(rules)
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return digest("import my_rules\n" + text)

    rules = "import os\nfrom re import *\nMOST = 3\ndef first(machines):\n    return list(machines)[:MOST]\n"
    assert digest_of(rules) == digest_of(f"# a comment\n{rules}") != digest_of(rules.replace("MOST = 3", "MOST = 4"))
    assert "volery.architectures.pipeline.policies.policy" in session_code({"R5": cell()}).modules


def test_what_cannot_be_compared_is_never_the_same() -> None:
    text = CELL.replace("LIMIT = 3", "LIMIT = (value for value in ())")
    assert digest(text) != digest(text)
