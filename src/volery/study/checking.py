"""Values of studies, checked against their declared types."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from volery.core.errors import InputError, suggestion


def checked_value(value: Any, kind: Any, place: str) -> Any:
    """The value as its declared type; an InputError at `place` when it is not one."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(bare) is Literal and isinstance(value, str) and value not in get_args(bare):
        raise InputError(place, f"there is no {value!r}{suggestion(value, get_args(bare))}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(place, f"expected a finite number, not {value}")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem = str(error).partition(" - at ")[0].replace("`", "")
        raise InputError(place, f"{problem[:1].lower()}{problem[1:]}, not {value!r}") from None
