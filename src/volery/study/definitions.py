"""The digest of designs and policies that a program defines itself, in a notebook or a script.

No file of a package holds them, so they count by what they are: a function by its instructions, constants and defaults,
a class by its members, and both by all that they name in turn, in the user's own modules, too. Comments and line
numbers do not count. Other objects count by what pickling would keep of them, read in the same way.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import importlib
import importlib.util
import os
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

GLOBALS: Final = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
"""Instructions that read a name of the module."""
NO_MEMBERS: Final = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__slots__"})
NO_PREFIXES: Final = ("__struct", "__annot", "__static_", "__firstlineno", "_abc_")
"""Members of a class, and beginnings of their names, that say nothing about its results, or are read apart."""
WRAPPED: Final = ("__func__", "fget", "fset", "fdel", "func", "attrname")
"""Attributes of descriptors that wrap a function."""
STRUCT_MEMBERS: Final = ("__struct_fields__", "__struct_defaults__", "__annotations__")
INSTALLED: Final = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
INSTALLERS: Final = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages wherever they are: a user's own, or those of the system."""
PLAIN: Final = frozenset({int, float, complex, str, bytes, bool, type(None), type(...)})
"""Types whose text is all that they are; a subclass may have methods."""
IMMUTABLE_TYPE: Final = 1 << 8
"""Flag of types of compiled modules, which count by name (CPython, Py_TPFLAGS_IMMUTABLETYPE)."""
PICKLE_PROTOCOL: Final = 4

_uncompared: ContextVar[dict[int, tuple[Any, str]] | None] = ContextVar("uncompared", default=None)


class SessionCode(NamedTuple):
    """The digest of definitions, and the modules of this package that they name."""

    digest: str
    modules: frozenset[str]


@contextmanager
def one_call() -> Iterator[None]:
    """Let an object that cannot be compared be itself while the context lasts; it is another in the next one."""
    token = _uncompared.set({})
    try:
        yield
    finally:
        _uncompared.reset(token)


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
        if type(value) in PLAIN:
            self._add(repr(value))
        elif id(value) in self._places:
            self._add(f"again {self._places[id(value)]}")
        else:
            self._places[id(value)] = len(self._places)
            self._objects.append(value)
            self._add(type(value).__name__)
            if not self._read_collection(value):
                self._read_new(value)

    def _add(self, text: str) -> None:
        self.sha.update(text.encode("utf-8", "surrogatepass") + b"\0")

    def _read_collection(self, value: Any) -> bool:
        """Add a collection; False for anything else, subclasses of collections with code of their own among it."""
        kind = type(value)
        if kind in (list, tuple):
            elements = list(value)
        elif kind in (set, frozenset):
            elements = sorted(value, key=_name_of)
        elif kind in (dict, MappingProxyType):
            elements = [part for item in value.items() for part in item]
        else:
            return False

        self._add(str(len(elements)))
        for element in elements:
            self.read(element)
        return True

    def _read_new(self, value: Any) -> None:
        match value:
            case ModuleType():
                self._read_module(value)
            case type():
                self._read_class(value)
            case FunctionType():
                self._read_function(value)
            case CodeType():  # a forward reference in an annotation holds one
                self.read(self._read_code(value, ""))
            case staticmethod() | classmethod() | property() | functools.cached_property():
                self.read([type(value), *(getattr(value, name, None) for name in WRAPPED)])
            case msgspec.Struct():
                fields = [getattr(value, name, None) for name in value.__struct_fields__]
                self.read([type(value), fields, getattr(value, "__dict__", None)])
            case TypeVar():
                self._add(value.__name__)
            case _:
                self._read_other(value)

    def _read_module(self, module: ModuleType) -> None:
        if not self._is_installed(module.__name__):
            members = {name: member for name, member in vars(module).items() if not name.startswith("__")}
            self.read(dict(sorted(members.items())))

    def _is_installed(self, module: str) -> bool:
        """True for a module of an installed package, of which the name counts; those of this package are noted."""
        path: str | None = getattr(sys.modules.get(module), "__file__", None)
        self._add(module)

        if module.partition(".")[0] == "volery":
            self.modules.add(module)
            return True
        if module == "__main__" or path is None:
            return module in sys.builtin_module_names
        return _is_below_installed(path)

    def _read_class(self, kind: type) -> None:
        self._add(kind.__qualname__)
        if kind.__flags__ & IMMUTABLE_TYPE:
            self._add(str(kind.__module__))
            return
        if self._is_installed(kind.__module__) and _is_reachable(kind, kind.__module__):
            return

        self.read([type(kind), *kind.__bases__])
        for name, member in sorted(vars(kind).items()):
            is_slot = type(member).__name__ in ("member_descriptor", "getset_descriptor")
            if name not in NO_MEMBERS and not name.startswith(NO_PREFIXES) and not is_slot:
                self._add(name)
                self.read(member)

        for name in STRUCT_MEMBERS:
            self.read(getattr(kind, name, None))

    def _read_function(self, function: FunctionType) -> None:
        """Add a function with what it holds; the code of an installed one is its name, also where it wraps another."""
        self._add(function.__qualname__)
        module = function.__globals__.get("__name__", "")  # functools.wraps gives __module__ of what is wrapped
        is_installed = self._is_installed(module)
        if is_installed and _is_reachable(function, module):
            return

        self.read([function.__defaults__, function.__kwdefaults__, vars(function)])
        for cell in function.__closure__ or ():
            self.read(_content_of(cell))
        if is_installed:
            self._add(function.__code__.co_qualname)
            return
        for name in self._read_code(function.__code__, function.__globals__.get("__package__") or ""):
            if name in function.__globals__:
                self._add(name)
                self.read(function.__globals__[name])

    def _read_code(self, code: CodeType, package: str) -> list[str]:
        """Add instructions, constants and imports; the names that they read of the module."""
        self.sha.update(code.co_code + b"\0" + code.co_exceptiontable)
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        self._add(repr((code.co_names, code.co_varnames, code.co_freevars, counts)))
        steps = list(dis.get_instructions(code))
        names = {step.argval: None for step in steps if step.opname in GLOBALS}

        for place, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                # The compiler loads the level and the names right before.
                level, members = (earlier.argval for earlier in steps[place - 2 : place])
                self._read_import("." * level + step.argval, members or (), package)

        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                names |= dict.fromkeys(self._read_code(constant, package))
            else:
                self.read(constant)
        return list(names)

    def _read_import(self, name: str, members: tuple[str, ...], package: str) -> None:
        """Add a module that a function imports, its packages, and its members that are modules."""
        try:
            name = importlib.util.resolve_name(name, package)
        except ImportError:
            self._add(f"no module {name}")
            return
        parts = name.split(".")
        modules = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        for module in [*modules, *(f"{name}.{member}" for member in members)]:
            if (own_module := _own_module(module)) is not None:
                self.read(own_module)
            elif module in modules:
                self._is_installed(module)

    def _read_other(self, value: Any) -> None:
        """Add an object by what pickling would keep of it: the function that makes it, arguments, state, items."""
        self.read(type(value))
        if type(value).__module__ == "msgspec._core" and hasattr(value, "factory"):
            self.read(value.factory)
            return
        try:
            reduce = copyreg.dispatch_table.get(type(value))
            parts: Any = reduce(value) if reduce else value.__reduce_ex__(PICKLE_PROTOCOL)
            if not isinstance(parts, str):
                maker, arguments, *state = parts
                self.read([maker, arguments, *(list(part) if isinstance(part, Iterator) else part for part in state)])
            elif "__wrapped__" in getattr(value, "__dict__", {}):
                self.read(vars(value))
            elif self._is_installed(getattr(value, "__module__", None) or type(value).__module__):
                self._add(parts)
            else:
                self._add(_identity(value))
        except Exception:  # whatever it is, it cannot be compared: such a run is never taken for an earlier one
            self._add(_identity(value))


def _name_of(value: Any) -> str:
    return f"{getattr(value, '__module__', '')} {getattr(value, '__qualname__', repr(value))}"


def _identity(value: Any) -> str:
    """A text that no other object has, nor the same one in another call: its state may have moved."""
    identities = _uncompared.get()
    text = f"{os.getpid()} {time.time_ns()} {id(value)}"
    return text if identities is None else identities.setdefault(id(value), (value, text))[1]


def _is_below_installed(path: str) -> bool:
    return not INSTALLERS.isdisjoint(Path(path).parts) or any(Path(path).is_relative_to(folder) for folder in INSTALLED)


def _is_reachable(value: Any, module: str) -> bool:
    """True if the module has it under its own name; a closure, or a class made by a call, is not reachable."""
    place: Any = sys.modules.get(module)
    for name in value.__qualname__.split("."):
        place = getattr(place, name, None)
    return place is value


def _content_of(cell: Any) -> Any:
    """The content of a closure's cell; an ellipsis before it is filled."""
    try:
        return cell.cell_contents
    except ValueError:
        return ...


def _own_module(name: str) -> ModuleType | None:
    """A module of the user by its name; it is imported, as the function that names it will do."""
    if name not in sys.modules:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return None
        if spec is None or spec.origin is None or not Path(spec.origin).is_file() or _is_below_installed(spec.origin):
            return None
        try:
            importlib.import_module(name)
        except Exception:  # it fails when the function imports it, too, and the error is shown there
            return None
    return sys.modules[name]
