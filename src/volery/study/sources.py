"""The code that a result depends on: the sources that its run imports, without their comments.

A stored result is kept as long as these sources mean the same. They are followed through imports, so that a scheduler
added next to another leaves the other's results alone, and compared without comments and docstrings, so that better
words do not cost hours of computing.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from volery import architectures
from volery.study.spec import StudySpec

PACKAGE: Final = Path(__file__).parent.parent
WORKLOAD: Final = "volery.workload"
INPUT_ROOTS: Final = (WORKLOAD, "volery.metrics")
RUN_ROOTS: Final = ("volery.sim",)
INDEX: Final = "volery.architectures"
"""Names all designs and is part of none."""


def study_digest(study: StudySpec) -> str:
    """`code_digest` of a study's architectures."""
    return code_digest(*sorted({choice.name for choice in study.architectures}))


@functools.lru_cache(maxsize=64)
def code_digest(*names: str) -> str:
    """SHA-256 over the sources that results of these architectures depend on, foreign ones included.

    Args:
        names: registered architectures; none: what depends on traces and machines alone.

    Raises:
        InputError: an architecture is unknown.
    """
    roots, foreign = {*INPUT_ROOTS, *(RUN_ROOTS if names else ())}, set()
    for name in names:
        build = architectures.lookup(name).build
        if build.__module__.startswith("volery."):
            roots.add(build.__module__)
        else:
            foreign.add(Path(inspect.getfile(build)))
    return _digest(roots, foreign)


@functools.lru_cache(maxsize=1)
def inputs_code_digest() -> str:
    """SHA-256 over the sources that make traces and machines."""
    return _digest({WORKLOAD}, set())


def changed_since(time_s: float) -> bool:
    """True if a source of the package is younger than this time, in seconds since the epoch."""
    return any(path.stat().st_mtime > time_s for path in PACKAGE.rglob("*.py"))


def _digest(roots: set[str], foreign: set[Path]) -> str:
    """SHA-256 over the closure of modules, and over files that are not ours with what of ours they import."""
    for path in foreign:
        roots |= set(_imported(path))
    sha = hashlib.sha256()
    for path in [*sorted(_closure(roots)), *sorted(foreign)]:
        inside = path.is_relative_to(PACKAGE)
        name = path.relative_to(PACKAGE).as_posix() if inside else path.name
        sha.update(name.encode() + b"\0" + _meaning(path) + b"\0")
    return sha.hexdigest()


def _closure(modules: set[str]) -> set[Path]:
    """The files of these modules, of all of ours that they import, and the number tables beside them."""
    found: set[Path] = set()
    pending = sorted(modules)
    while pending:
        module = pending.pop()
        path = _file(module)
        if path is None or path in found or module == INDEX:
            continue
        found.add(path)
        if path.name == "__init__.py":
            found.update(table for table in path.parent.glob("data/*") if table.is_file())
        pending += _imported(path)
    return found


def _file(module: str) -> Path | None:
    """The file of a module of the package; None for the name of something in a module."""
    place = PACKAGE.joinpath(*module.split(".")[1:])
    return next((path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()), None)


@functools.lru_cache(maxsize=512)
def _imported(path: Path) -> tuple[str, ...]:
    return tuple(name for name in _names(ast.parse(path.read_bytes())) if name.split(".")[0] == "volery")


def _names(tree: ast.Module) -> Iterator[str]:
    """Modules that a source imports, and their packages, whose `__init__` runs first."""
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for module in modules:
            parts = module.split(".")
            yield from (".".join(parts[:count]) for count in range(2, len(parts) + 1))


@functools.lru_cache(maxsize=512)
def _meaning(path: Path) -> bytes:
    """A source without comments, docstrings and blank lines, the same under every Python; other files as they are."""
    content = path.read_bytes()
    if path.suffix != ".py":
        return content
    lines = content.decode().splitlines()
    for token in tokenize.tokenize(io.BytesIO(content).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            text = node.body[0]
            lines[text.lineno - 1 : text.end_lineno] = [""] * ((text.end_lineno or text.lineno) - text.lineno + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip()).encode()
