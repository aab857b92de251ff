"""Parameters of architectures as axes of a study: `"sparrow.probe_ratio" = [1, 2, 3]` under [axes]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from volery import architectures
from volery.core.errors import InputError, suggestion

if TYPE_CHECKING:
    from volery.study.spec import ArchitectureChoice, Value

Place = Callable[[str, int | None], str]


def split_parameters(axes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Axes of settings, and axes of parameters by `design.parameter`; TOML reads an unquoted dot as a table."""
    plain: dict[str, Any] = {}
    swept: dict[str, Any] = {}
    for name, values in axes.items():
        if "." in name:
            swept[name] = values
        elif isinstance(values, dict):
            swept |= {f"{name}.{parameter}": inner for parameter, inner in values.items()}
        else:
            plain[name] = values
    return plain, swept


def check_parameters(
    chosen: Sequence[ArchitectureChoice], swept: Mapping[str, tuple[Value, ...]], place: Place
) -> dict[str, tuple[Value, ...]]:
    """The axes, once every value fits a parameter of a design of the study that is not given otherwise.

    Raises:
        InputError: naming the place of the axis or value that is wrong.
    """
    designs = list(dict.fromkeys(choice.name for choice in chosen))
    for axis, values in swept.items():
        design, _, parameter = axis.partition(".")
        if design not in designs:
            raise InputError(
                place(axis, None), f"no architecture {design!r} in this study{suggestion(design, designs)}"
            )
        given = [choice.label for choice in chosen if choice.name == design and parameter in choice.parameters]
        if given:
            raise InputError(place(axis, None), f"is given by {given[0]!r} as well; leave one out")
        architecture = architectures.lookup(design)
        for i, value in enumerate(values):
            try:
                architectures.configure(architecture, {parameter: value})
            except InputError as error:
                unknown = parameter not in architecture.defaults.__struct_fields__
                raise InputError(place(axis, None if unknown else i), error.problem) from None
    return dict(swept)
