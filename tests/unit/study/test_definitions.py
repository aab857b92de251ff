"""What a program defines itself has a digest of what it is: the same for the same definitions, another for others."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from volery.study import definitions
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


NAMED = {
    "a cached function": "import functools\n@functools.cache\ndef NAME(): return {}\n",
    "a cached function with a size": "import functools\n@functools.lru_cache(maxsize=2)\ndef NAME(): return {}\n",
    "a bound method": "class C:\n    def m(self): return {}\nNAME = C().m\n",
    "a bound method's object": "class C:\n    def __init__(self): self.a = {}\n"
    "    def m(self): return self.a\nNAME = C().m\n",
    "a function in a namespace": "import types\nNAME = types.SimpleNamespace(f=lambda: {})\n",
    "a function in a dict subclass": "class D(dict):\n    pass\nNAME = D(f=lambda: {})\n",
    "a method of a dict subclass": "class D(dict):\n    def m(self): return {}\nNAME = D()\n",
    "a method of a named tuple": "import typing\nclass T(typing.NamedTuple):\n    a: int\n    def m(self): return {}\n"
    "NAME = T(1)\n",
    "a method of a metaclass": "class M(type):\n    def m(cls): return {}\nclass NAME(metaclass=M):\n    pass\n",
    "a method of an enum": "import enum\nclass E(enum.Enum):\n    A = 1\n    def m(self): return {}\nNAME = E.A\n",
    "a value of an enum": "import enum\nclass E(enum.Enum):\n    A = {}\nNAME = E.A\n",
    "a method of a number": "class N(int):\n    def m(self): return {}\nNAME = N(5)\n",
    "a method of a text": "class N(str):\n    def m(self): return {}\nNAME = N('a')\n",
    "a factory of a field": "import msgspec\nclass NAME(msgspec.Struct):\n"
    "    a: list = msgspec.field(default_factory=lambda: [{}])\n",
    "a factory of a dataclass": "import dataclasses\n@dataclasses.dataclass\nclass NAME:\n"
    "    a: list = dataclasses.field(default_factory=lambda: [{}])\n",
    "a function that wraps an installed one": "import functools, math\n@functools.wraps(math.gcd)\n"
    "def NAME(*_): return {}\n",
    "a function that wraps one of Python": "import functools, textwrap\n@functools.wraps(textwrap.dedent)\n"
    "def NAME(*_): return {}\n",
    "a function behind an installed wrapper": "import contextlib\n@contextlib.contextmanager\ndef NAME(): yield {}\n",
    "a function in an attribute of one": "def NAME(): return NAME.f()\nNAME.f = lambda: {}\n",
    "a partial function": "import functools\ndef f(): return {}\nNAME = functools.partial(f)\n",
    "a class made by a call": "import types\nNAME = types.new_class('X', (), {{}}, lambda space: space.update(a={}))\n",
    "a dataclass made by a call": "import dataclasses\n"
    "NAME = dataclasses.make_dataclass('X', ['a'], namespace=dict(m=lambda self: {}))\n",
    "a class in a table": "class C:\n    a = {}\nNAME = [dict(c=(C,))]\n",
    "a nested function": "def make():\n    def inner(): return {}\n    return inner\nNAME = make()\n",
    "an array": "import numpy\nNAME = numpy.array([{}])\n",
    "a random source": "import numpy\nNAME = numpy.random.default_rng({})\n",
    "a table": "import pyarrow\nNAME = pyarrow.table(dict(a=[{}]))\n",
    "a pattern": "import re\nNAME = re.compile('a{}')\n",
}
"""Texts that define NAME, with a place for what differs."""
USE = "class Coldest:\n    def select(self): return NAME\n"


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED.keys())
def test_what_a_name_stands_for_counts_whatever_holds_it(text: str) -> None:
    assert digest(text.format(1) + USE) == digest(text.format(1) + USE) != digest(text.format(2) + USE)


def test_a_change_of_what_a_try_protects_changes_the_digest() -> None:
    text = "class Coldest:\n    def select(self):\n        try:\n            a()\n{}"
    text += "        except ValueError:\n            c()\n{}"
    protected = text.format("            b()\n", "")
    assert digest(protected) != digest(text.format("", "        else:\n            b()\n"))


def test_functions_of_volery_and_of_python_count_by_name() -> None:
    text = "import numpy, os\nfrom volery.core.errors import suggestion\n"
    text += "NAME = [suggestion, os.path.join, numpy.add, len]\n"
    assert digest(text + USE) == digest(text + USE)


@pytest.mark.parametrize(
    "line", ["import my_late", "from my_late import MOST", "import my_late as other", "from my_late import *"]
)
def test_a_module_that_a_function_imports_counts(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = f"class Coldest:\n    def select(self):\n        {line}\n        return 1\n"
    text = f"{line}\n{USE.replace('NAME', 'MOST')}" if line.endswith("*") else text

    def digest_of(rules: str) -> str:
        monkeypatch.delitem(sys.modules, "my_late", raising=False)
        (tmp_path / "my_late.py").write_text(rules)
        importlib.invalidate_caches()
        return digest(text)

    assert digest_of("MOST = 3") == digest_of("MOST = 3") != digest_of("MOST = 4")


def test_a_folder_beside_an_installed_one_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "INSTALLED", ("/opt/python",))
    assert definitions._is_below_installed("/opt/python/a.py")
    assert not definitions._is_below_installed("/opt/python-of-mine/a.py")
    assert definitions._is_below_installed("/home/me/.local/lib/python3.11/site-packages/numpy/__init__.py")
    assert definitions._is_below_installed("/usr/lib/python3/dist-packages/numpy/__init__.py")


def test_what_cannot_be_compared_is_itself_within_one_call() -> None:
    namesake = {"R5": cell("NAME = (value for value in ())\n" + USE)}
    with definitions.one_call():
        digest_in_call = session_code(namesake).digest
        assert session_code(namesake).digest == digest_in_call
    with definitions.one_call():
        assert session_code(namesake).digest != digest_in_call
