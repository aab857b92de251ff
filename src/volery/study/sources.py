"""The digest of what sources of the package mean, and the closure of what they import.

Parsing some 140 sources takes longer than a small run, so that what they mean is kept in `$XDG_CACHE_HOME/volery` (by
default `~/.cache/volery`), by inode, size and the times of the last change of content and of state. A source that has
just been changed is read: another change within the same tick of the clock would leave its times as they are.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import os
import time
import tokenize
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import msgspec

PACKAGE: Final = Path(__file__).parent.parent
INDEX: Final = "volery.architectures"
"""Names all designs and is part of none."""
SETTLED_NS: Final = 2_000_000_000
"""Age from which the times of a file tell any later change: file systems round them, some to two seconds."""

Stamp = tuple[int, int, int, int]
"""Inode, size, and the times of the last change of content and of state in nanoseconds."""


class ParsedSource(msgspec.Struct, frozen=True, array_like=True):
    """A source as it was parsed.

    Args:
        stamp: State of its file.
        imports: Modules of the package that it imports.
        meaning: It without comments, docstrings and blank lines, the same under every Python.
    """

    stamp: Stamp
    imports: tuple[str, ...]
    meaning: bytes


class SourceCache:
    """Sources that were parsed, by path, in a file that all processes share.

    Args:
        path: The file. One that cannot be read or written, or that another version has written, is no error: then
            sources are parsed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = _stamp(Path(__file__))
        self._is_changed = False
        self._sources: dict[str, ParsedSource] = {}

        with suppress(OSError, msgspec.MsgspecError):
            writer, sources = msgspec.msgpack.decode(path.read_bytes(), type=tuple[Stamp, dict[str, ParsedSource]])
            if writer == self._writer:
                self._sources = sources

    def parsed(self, path: Path) -> ParsedSource:
        """A source.

        Raises:
            OSError: It cannot be read.
            SyntaxError: It is no Python.
        """
        stamp = _stamp(path)
        source = self._sources.get(str(path))
        is_settled = time.time_ns() - max(stamp[2:]) >= SETTLED_NS
        if source is not None and source.stamp == stamp and is_settled:
            return source

        source = _parsed(path, stamp)
        if is_settled:
            self._sources[str(path)] = source
            self._is_changed = True
        return source

    def write(self) -> None:
        """Keep what was parsed since it was read, for other processes."""
        if not self._is_changed:
            return
        self._is_changed = False

        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=self._path.parent, delete=False) as file:
                file.write(msgspec.msgpack.encode((self._writer, self._sources)))
            Path(file.name).replace(self._path)


@functools.cache
def _cache() -> SourceCache:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "volery"
    return SourceCache(folder / f"sources-{hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:16]}.msgpack")


def sources_digest(roots: set[str], foreign: set[Path]) -> str:
    """SHA-256 over the closure of modules, and over files that are not ours with what of ours they import."""
    for path in foreign:
        roots |= set(_source(path).imports)

    sha = hashlib.sha256()
    for path in [*sorted(closure(roots)), *sorted(foreign)]:
        inside = path.is_relative_to(PACKAGE)
        name = path.relative_to(PACKAGE).as_posix() if inside else path.name
        meaning = _source(path).meaning if path.suffix == ".py" else path.read_bytes()
        sha.update(name.encode() + b"\0" + meaning + b"\0")

    _cache().write()
    return sha.hexdigest()


def changed_since(time_s: float) -> bool:
    """True if a source of the package is younger than this time, in seconds since the epoch."""
    return any(path.stat().st_mtime > time_s for path in PACKAGE.rglob("*.py"))


def closure(modules: set[str]) -> set[Path]:
    """The files of these modules, of all of ours that they import, and the number tables beside them."""
    files: set[Path] = set()
    pending = sorted(modules)
    while pending:
        module = pending.pop()
        path = _file(module)
        # The index of designs imports all of them: with it a change to any design would change the keys of all runs.
        if path is None or path in files or module == INDEX:
            continue

        files.add(path)
        if path.name == "__init__.py":
            files.update(table for table in path.parent.glob("data/*") if table.is_file())
        pending += _source(path).imports
    return files


@functools.cache
def _file(module: str) -> Path | None:
    """The file of a module of the package; None for the name of something in a module."""
    place = PACKAGE.joinpath(*module.split(".")[1:])
    return next((path for path in (place / "__init__.py", place.with_suffix(".py")) if path.is_file()), None)


@functools.lru_cache(maxsize=512)
def _source(path: Path) -> ParsedSource:
    """A source as this process has first seen it."""
    return _cache().parsed(path)


def _stamp(path: Path) -> Stamp:
    state = path.stat()
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _parsed(path: Path, stamp: Stamp) -> ParsedSource:
    content = path.read_bytes()
    statements = list(_statements(ast.parse(content)))
    imports = tuple(name for name in _names(statements) if name.split(".")[0] == "volery")

    # Comments and docstrings are no part of the meaning: a change to them keeps the keys of finished runs.
    lines = content.decode().splitlines()
    for token in tokenize.tokenize(io.BytesIO(content).readline) if b"#" in content else ():
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]

    for node in statements:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False):
            text = node.body[0]
            lines[text.lineno - 1 : text.end_lineno] = [""] * ((text.end_lineno or text.lineno) - text.lineno + 1)

    return ParsedSource(stamp, imports, "\n".join(line.rstrip() for line in lines if line.strip()).encode())


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The module and all its statements; expressions hold neither imports nor docstrings."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            pending += getattr(node, field, ())


def _names(statements: Iterable[ast.AST]) -> Iterator[str]:
    """Modules that a source imports, and their packages, whose `__init__` runs first."""
    for node in statements:
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for module in modules:
            parts = module.split(".")
            yield from (".".join(parts[:count]) for count in range(2, len(parts) + 1))
