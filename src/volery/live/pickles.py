"""Pickles of functions, arguments and results, made with cloudpickle: code that travels by value keeps its file name.

Cloudpickle 3.1.3 and newer drop the name, and with it every source line of a traceback.
"""

from __future__ import annotations

import io
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any, ClassVar, Final

import cloudpickle

_Reduced = tuple[Callable[..., CodeType], tuple[Any, ...]]
_reduced: Final[Callable[[CodeType], _Reduced]] = cloudpickle.Pickler.dispatch_table[CodeType]


def _with_name(code: CodeType) -> _Reduced:
    """As cloudpickle reduces code, with the file name that it may have replaced; any version can load that."""
    build, arguments = _reduced(code)
    written_name = build(*arguments).co_filename
    if written_name == code.co_filename:
        return build, arguments

    return build, tuple(code.co_filename if argument == written_name else argument for argument in arguments)


class _CodePickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    dispatch_table: ClassVar = ChainMap({CodeType: _with_name}, *cloudpickle.Pickler.dispatch_table.maps)


def dumps(content: object) -> bytes:
    """Pickle as cloudpickle does."""
    with io.BytesIO() as file:
        _CodePickler(file).dump(content)
        return file.getvalue()
