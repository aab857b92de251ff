"""The right side of a claim as theory gives it: a call of a closed form of `volery.theory`, as text in an experiment.

    pigeon_task_wait(group_workers=50, load=settled.load, task_mean=0.1)

An argument is a number, or the path of a metric: then the run's own value is put in, seed by seed. Simulation and
analysis are compared at the load that was in fact there, and the chance of the arrivals falls out of the comparison.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from volery import theory
from volery.core.errors import InputError, suggestion

FORMS = {
    name: form
    for name, form in vars(theory).items()
    if inspect.isfunction(form) and form.__module__ == theory.__name__ and not name.startswith("_")
}


class Analysis(msgspec.Struct, frozen=True):
    """A closed form with its arguments.

    Args:
        form: its name in `volery.theory`.
        numbers: arguments that are given.
        measured: arguments that a run gives: name -> metric.
    """

    form: str
    numbers: dict[str, float]
    measured: dict[str, str]

    def expected(self, measures: Mapping[str, float]) -> float:
        """The expectation of theory for a run with these measures, by metric."""
        measured_arguments = {name: measures[metric] for name, metric in self.measured.items()}
        form: Callable[..., float] = FORMS[self.form]
        return form(**self.numbers, **measured_arguments)


def parse_analysis(text: str, place: str) -> Analysis:
    """Read a call.

    Raises:
        InputError: at `place`, when it is no call of a closed form with arguments that it takes.
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        call = None
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args):
        raise InputError(place, f"{text!r} is not FORM(name=value, ...)")
    if call.func.id not in FORMS:
        raise InputError(place, f"no closed form {call.func.id!r}{suggestion(call.func.id, FORMS)}")
    numbers: dict[str, float] = {}
    measured: dict[str, str] = {}
    for keyword in call.keywords:
        value: Any = keyword.value
        if keyword.arg is not None and isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            numbers[keyword.arg] = value.value
        elif keyword.arg is not None and isinstance(value, ast.Attribute):
            measured[keyword.arg] = ast.unparse(value)
        else:
            raise InputError(place, f"{ast.unparse(keyword)!r} is neither a number nor the path of a metric")
    try:
        inspect.signature(FORMS[call.func.id]).bind(**numbers, **measured)
    except TypeError as error:
        raise InputError(place, f"{call.func.id}: {error}") from None
    return Analysis(call.func.id, numbers, measured)
