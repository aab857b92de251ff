"""Pickles of functions, arguments and results, made with cloudpickle: code that travels by value keeps its file name.

Cloudpickle 3.1.3 and newer drop the name, and with it every source line of a traceback.
"""

from __future__ import annotations

import io
import pickle
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any, ClassVar, Final

import cloudpickle

_Reduced = tuple[Callable[..., CodeType], tuple[Any, ...]]
_reduced: Final[Callable[[CodeType], _Reduced]] = cloudpickle.Pickler.dispatch_table[CodeType]
_NAMELESS: Final = "<dynamic-code>"


def _with_name(code: CodeType) -> _Reduced:
    """As cloudpickle reduces code, with the file name that it may have replaced; any version can load that."""
    build, arguments = _reduced(code)
    name = build(*arguments).co_filename
    if name == code.co_filename:
        return build, arguments
    return build, tuple(code.co_filename if isinstance(it, str) and it == name else it for it in arguments)


class _CodePickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    dispatch_table: ClassVar = ChainMap({CodeType: _with_name}, *cloudpickle.Pickler.dispatch_table.maps)


def dumps(content: object) -> bytes:
    """Pickle as cloudpickle does."""
    with io.BytesIO() as file:
        _CodePickler(file).dump(content)
        return file.getvalue()


class _CodeUnpickler(pickle.Unpickler):
    """Names code that plain cloudpickle has pickled after the file of its module."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return _make_function if found is cloudpickle.cloudpickle._make_function else found


def _make_function(code: CodeType, module: dict[str, Any], *others: object) -> Any:
    file = module.get("__file__")
    return cloudpickle.cloudpickle._make_function(_named(code, file) if file else code, module, *others)


def _named(code: CodeType, file: str) -> CodeType:
    """The code, and all functions inside, with a file name where they have none."""
    constants = tuple(_named(it, file) if isinstance(it, CodeType) else it for it in code.co_consts)
    return code.replace(co_consts=constants, co_filename=file if code.co_filename == _NAMELESS else code.co_filename)


def loads(pickled: bytes) -> Any:
    """The content of a pickle; this runs whatever code its maker wants."""
    return _CodeUnpickler(io.BytesIO(pickled)).load()
