"""Example messages of any type, made from its annotations, to send them through the codec."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from volery.core.model import Message

SIMPLE: Final[Mapping[Any, tuple[Any, ...]]] = {
    int: (0, 7, (1 << 63) - 1),
    str: ("", "gm/2"),
    bytes: (b"", b"\x00\xff\x10"),
    bool: (True, False),
    float: (0.0, 1.5),
    type(None): (None,),
}


def examples(hint: Any) -> list[Any]:
    """Some values of a type; a struct's k-th example has the k-th example of each field.

    Raises:
        TypeError: the type cannot be in a message, because it is mutable or not known to the codec.
    """
    if hint in SIMPLE:
        return list(SIMPLE[hint])
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return list(parts)
    if origin is tuple:
        inner = examples(parts[0])
        return [(), tuple(inner)] if len(parts) == 2 and parts[1] is ... else [tuple(examples(p)[0] for p in parts)]
    if origin is Union or type(hint).__name__ == "UnionType":
        return [value for part in parts for value in examples(part)]
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if not hint.__struct_config__.frozen:
            raise TypeError(f"{hint.__name__} is not frozen; a message that was sent is never changed")
        hints = get_type_hints(hint)
        columns = [examples(hints[field]) for field in hint.__struct_fields__]
        count = max((len(column) for column in columns), default=1)
        return [hint(*(column[k % len(column)] for column in columns)) for k in range(count)]
    raise TypeError(f"{hint} cannot be in a message: use numbers, text, bytes, frozen structs and tuples of those")


def decoder(types: frozenset[type[Message]]) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a transport that carries all these types.

    Raises:
        TypeError: two of them have the same tag.
    """
    union = functools.reduce(operator.or_, sorted(types, key=lambda kind: (kind.__module__, kind.__name__)))
    return msgspec.msgpack.Decoder(union)
