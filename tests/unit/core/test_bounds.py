"""Parameters have bounds, defaults and descriptions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from volery.core.bounds import TIME_MAX_US, Count, Parameters, check_finite, param
from volery.core.errors import InputError


class Example(Parameters, frozen=True):
    """Some parameters."""

    count: Count = param(3, "of something")
    share: float = param(0.5, "of it all", gt=0, le=1)
    plain: bool = False


class Longer(Example, frozen=True):
    """One parameter more."""

    name: str | None = param(None, "its name")


def test_defaults_descriptions_and_bounds_reach_the_schema() -> None:
    assert Longer() == Longer(count=3, share=0.5, plain=False, name=None)
    properties: dict[str, Any] = msgspec.json.schema(Longer)["$defs"]["Longer"]["properties"]
    assert properties["count"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 10**9,
        "description": "of something",
        "default": 3,
    }
    assert properties["share"]["exclusiveMinimum"] == 0
    assert properties["plain"] == {"type": "boolean", "default": False}
    assert properties["name"]["description"] == "its name"


@pytest.mark.parametrize("given", [{"count": -1}, {"share": 0}, {"share": 1.5}, {"counts": 1}])
def test_what_is_out_of_bounds_or_unknown_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given, Longer)


def test_an_unknown_bound_is_refused_where_it_is_declared() -> None:
    with pytest.raises(TypeError):
        param(1, "of something", at_least=0)


def test_a_class_that_is_not_parameters_is_refused() -> None:
    with pytest.raises(TypeError, match="unsafe"):

        class Plain(msgspec.Struct, frozen=True):
            count: int = param(1, "of something")


@pytest.mark.parametrize("value", [float("inf"), float("nan"), TIME_MAX_US + 1, (1, {"a": -float("inf")})])
def test_a_number_without_end_or_beyond_a_time_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="does not fit"):
        check_finite("here", value)


def test_finite_numbers_and_texts_pass() -> None:
    check_finite("here", (1, 2.5, {"a": -TIME_MAX_US}, "inf", None))
