"""The digest of designs and policies that a program defines itself, in a notebook or a script.

No file of a package holds them, so they count by what they are: a function by its instructions, constants and defaults,
a class by its members, and both by all that they name in turn, in the user's own modules, too. Comments and line
numbers do not count.
"""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import pickle
import sys
import sysconfig
from collections.abc import Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

import msgspec

GLOBALS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
"""Instructions that read a name of the module."""
NO_MEMBERS: Final = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__slots__"})
NO_PREFIXES: Final = ("__struct", "__annot", "__static_", "__firstlineno", "_abc_")
"""Members of a class, and beginnings of their names, that say nothing about its results, or are read apart."""
WRAPPED: Final = ("__func__", "fget", "fset", "func", "args", "keywords")
"""Attributes of objects that wrap a function."""
STRUCT_MEMBERS: Final = ("__struct_fields__", "__struct_defaults__", "__annotations__")
INSTALLED: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
PLAIN: Final = (int, float, complex, str, bytes, bool, type(None), type(...), enum.Enum)


class SessionCode(NamedTuple):
    """The digest of definitions, and the modules of this package that they name."""

    digest: str
    modules: frozenset[str]


def session_code(definitions: Mapping[str, Any]) -> SessionCode:
    """The code of definitions by name."""
    reader = _CodeReader()
    reader.read(dict(sorted(definitions.items())))
    return SessionCode(reader.sha.hexdigest(), frozenset(reader.modules))


class _CodeReader:
    """Reads objects in a fixed order; one that comes again counts by its place.

    Attributes:
        sha: digest of all that was read.
        modules: modules of this package that were named.
    """

    def __init__(self) -> None:
        self.sha = hashlib.sha256()
        self.modules: set[str] = set()
        self._places: dict[int, int] = {}
        self._objects: list[Any] = []  # alive until the end: an identity is not given twice

    def read(self, value: Any) -> None:
        """Add one object and all that it names."""
        if isinstance(value, PLAIN):
            self._add(repr(value))
        elif id(value) in self._places:
            self._add(f"again {self._places[id(value)]}")
        else:
            self._places[id(value)] = len(self._places)
            self._objects.append(value)
            self._read_new(value)

    def _add(self, text: str) -> None:
        self.sha.update(text.encode() + b"\0")

    def _read_new(self, value: Any) -> None:
        self._add(type(value).__name__)
        match value:
            case list() | tuple():
                self._add(str(len(value)))
                for element in value:
                    self.read(element)
            case set() | frozenset():
                for element in sorted(value, key=_name_of):
                    self.read(element)
            case Mapping():
                for key, element in value.items():
                    self.read(key)
                    self.read(element)
            case ModuleType():
                if not self._is_installed(value.__name__):
                    members = {name: member for name, member in vars(value).items() if not name.startswith("__")}
                    self.read(dict(sorted(members.items())))
            case type():
                self._read_class(value)
            case FunctionType():
                self._read_function(value)
            case staticmethod() | classmethod() | property() | functools.cached_property() | functools.partial():
                self.read([getattr(value, name, None) for name in WRAPPED])
            case msgspec.Struct():
                self.read(type(value))
                self.read([getattr(value, name) for name in value.__struct_fields__])
            case _:
                self._read_other(value)

    def _is_installed(self, module: str) -> bool:
        """True for a module of an installed package, of which the name counts; those of this package are noted."""
        path: str | None = getattr(sys.modules.get(module), "__file__", None)
        self._add(module)

        if module.partition(".")[0] == "volery":
            self.modules.add(module)
            return True
        if module == "__main__" or path is None:
            return module in sys.builtin_module_names
        return path.startswith(INSTALLED)

    def _read_class(self, kind: type) -> None:
        self._add(kind.__qualname__)
        if self._is_installed(kind.__module__):
            return

        self.read(kind.__bases__)
        for name, member in sorted(vars(kind).items()):
            is_slot = type(member).__name__ in ("member_descriptor", "getset_descriptor")
            if name not in NO_MEMBERS and not name.startswith(NO_PREFIXES) and not is_slot:
                self._add(name)
                self.read(member)

        for name in STRUCT_MEMBERS:
            self._add(repr(getattr(kind, name, None)))

    def _read_function(self, function: FunctionType) -> None:
        self._add(function.__qualname__)
        if self._is_installed(function.__module__):
            return

        self.read([function.__defaults__, function.__kwdefaults__])
        for cell in function.__closure__ or ():
            self.read(cell.cell_contents)
        for name in self._read_code(function.__code__):
            if name in function.__globals__:
                self._add(name)
                self.read(function.__globals__[name])

    def _read_code(self, code: CodeType) -> list[str]:
        """Add instructions and constants; the names that they read of the module."""
        self.sha.update(code.co_code)
        self._add(repr((code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, code.co_kwonlyargcount)))
        names = {step.argval: None for step in dis.get_instructions(code) if step.opname in GLOBALS}

        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                names |= dict.fromkeys(self._read_code(constant))
            else:
                self.read(constant)
        return list(names)

    def _read_other(self, value: Any) -> None:
        self.read(type(value))
        try:
            self.sha.update(pickle.dumps(value))
        except Exception:  # whatever it is, it cannot be compared: such a run is never taken for an earlier one
            self._add(str(id(value)))


def _name_of(value: Any) -> str:
    return f"{getattr(value, '__module__', '')} {getattr(value, '__qualname__', repr(value))}"
