"""The names of `import volery` are these, typed, described on a page, and cost next to nothing to import."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import volery as vo
from volery.lab import surface

FUNCTIONS = ("architecture", "cluster", "compare", "load", "simulate", "trace")
CLASSES = ("ClusterSource", "Comparison", "Design", "Picture", "Simulation", "TraceSource")
ERRORS = ("InputError", "LostRunError")
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "python.md"
CPU_S_MAX = 0.3


def test_the_public_names_are_these() -> None:
    public = {*FUNCTIONS, *CLASSES, *ERRORS}
    assert set(vo.__all__) == {name for name in vars(surface) if not name.startswith("_")} == public
    assert set(dir(vo)) == public | {"__version__"}
    with pytest.raises(AttributeError, match="no attribute 'comparison'"):
        vo.comparison  # type: ignore[attr-defined]  # noqa: B018 - it is not there


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_has_a_type_and_a_meaning(name: str) -> None:
    function = getattr(vo, name)
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    text = inspect.getdoc(function) or ""
    for argument in signature.parameters.values():
        assert argument.annotation is not inspect.Parameter.empty
        assert re.search(rf"^    (\w+, )*{argument.name}(, \w+)*: ", text, re.MULTILINE), argument.name


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_the_page_names_every_function_and_every_property(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"`vo.{name}" in page or f"`{name}`" in page
    public = getattr(vo, name)
    if inspect.isclass(public):
        members = [member for member in vars(public) if not member.startswith("_")]
        assert [member for member in members if f"`.{member}" not in page] == []


@pytest.mark.parametrize(
    "words",
    [
        "from volery import study",
        "import volery.study, sys; sys.exit('pyarrow' in sys.modules)",  # a run without tables does not load it
        "from volery.lab.surface import trace",
    ],
)
def test_modules_of_the_package_can_be_imported_first(words: str) -> None:
    subprocess.run([sys.executable, "-c", words], check=True)


def test_the_import_costs_next_to_nothing() -> None:
    words = "import time; began = time.process_time(); import volery as vo; print(time.process_time() - began)"
    spent = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout
    assert float(spent) < CPU_S_MAX
    libraries = "('numpy', 'pyarrow', 'rich', 'matplotlib')"
    words = f"import sys, volery; print([name for name in {libraries} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout == "[]\n"
