"""Parameters and their bounds: every number that users give has a least and a most, stated where it is declared.

The largest time is 1e9 s (31 years): it stays far from the 64 bits of a microsecond count, sums included. The smallest
period is a millisecond: with a shorter one a simulated second would be millions of heartbeats. Infinity and NaN are
within no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec

from volery.core.errors import InputError

T = TypeVar("T")

SECONDS_MAX: Final = 1e9
PERIOD_MIN_S: Final = 1e-3
TIME_MAX_US: Final = 10**15
"""The same in microseconds."""
DELAY_MAX_US: Final = 10**8
"""Longest delay of a message, and of serving one: 100 s. The delays along a path are added up in 32 bits."""
MACHINES_MAX: Final = 10**7
"""Machines of a cluster, and slots of a machine."""
SEEDS_MAX: Final = 1_000_000
"""Seeds of a study."""
COUNT_MAX: Final = 10**9
COMPONENTS_MAX: Final = 10_000
"""Components of one role of a deployment: each is an object with state of its own."""
RATIO_MAX: Final = 1e6
PROBES_MAX: Final = 1000
"""Probes per task."""
ROUNDS_MAX: Final = 10_000
"""Rounds that a design repeats for one task or job."""

Seconds = Annotated[float, msgspec.Meta(ge=0, le=SECONDS_MAX)]
"""A time that may be zero."""
Period = Annotated[float, msgspec.Meta(ge=PERIOD_MIN_S, le=SECONDS_MAX)]
"""A time from one event to the next, seconds."""
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1000 * SECONDS_MAX)]
Microseconds = Annotated[float, msgspec.Meta(ge=0, le=float(TIME_MAX_US))]
WholeMicroseconds = Annotated[int, msgspec.Meta(ge=0, le=TIME_MAX_US)]
Components = Annotated[int, msgspec.Meta(ge=1, le=COMPONENTS_MAX)]
OptionalComponents = Annotated[int, msgspec.Meta(ge=0, le=COMPONENTS_MAX)]
"""0: as many as the design chooses."""
Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
PositiveCount = Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=RATIO_MAX)]
PositiveRatio = Annotated[float, msgspec.Meta(ge=1e-6, le=RATIO_MAX)]
"""A factor or a share; a smaller one would be zero in the integers that it becomes."""


class _Described(msgspec.Struct):
    """Mutable: as a default of any other struct msgspec refuses it."""

    default: Any
    meta: msgspec.Meta


def param(default: T, description: str, **bounds: Any) -> T:
    """A field of `Parameters`: its default, its description for users, and bounds as of msgspec.Meta."""
    return cast(T, _Described(default, msgspec.Meta(description=description, **bounds)))


class _ParametersMeta(msgspec.StructMeta):
    """Moves what `param` returns to where msgspec looks for it: a default, and an annotation."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> type[Any]:
        for field, value in namespace.items():
            if isinstance(value, _Described):
                namespace[field] = value.default
                namespace["__annotations__"][field] = Annotated[namespace["__annotations__"][field], value.meta]
        return super().__new__(mcls, name, bases, namespace, **options)


class Parameters(msgspec.Struct, metaclass=_ParametersMeta, frozen=True, forbid_unknown_fields=True):
    """Base of parameters that users set by name."""


def check_finite(place: str, value: Any) -> None:
    """Raise InputError for a number without end or beyond 64 bits, also within a tuple or a mapping.

    Raises:
        InputError: at the place.
    """
    if isinstance(value, (tuple, list, Mapping)):
        for element in value.values() if isinstance(value, Mapping) else value:
            check_finite(place, element)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(place, f"{value!r} does not fit: a parameter is a finite number")
    elif isinstance(value, int) and abs(value) > TIME_MAX_US:
        raise InputError(place, f"{value!r} does not fit: a whole number is at most {TIME_MAX_US:,}")
