"""Pickled functions keep the names of their files, so that tracebacks show source lines under every cloudpickle."""

from __future__ import annotations

import linecache
import pickle
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pytest

from volery.live import pickles

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def outer() -> None:
    def inner() -> None:
        raise ValueError("of the inner one")

    inner()


class Owner:
    def method(self) -> None:
        raise ValueError("of the method")

    @property
    def attribute(self) -> None:
        raise ValueError("of the property")


@dataclass
class Checked:
    size: int

    def __post_init__(self) -> None:
        raise ValueError("of the dataclass")


def text_of(function: Callable[[], Any]) -> str:
    """The traceback of a function without the frame of this one."""
    with pytest.raises(ValueError, match="of the") as raised:
        function()
    return "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (outer, 'raise ValueError("of the inner one")'),
        (lambda: outer(), "lambda: outer()"),
        (Owner().method, 'raise ValueError("of the method")'),
        (lambda: Owner().attribute, 'raise ValueError("of the property")'),
        (lambda: Checked(1), 'raise ValueError("of the dataclass")'),
    ],
)
def test_a_function_by_value_shows_its_source_lines(function: Callable[[], Any], line: str) -> None:
    text = text_of(pickle.loads(pickles.dumps(function)))
    assert line in text
    assert "<dynamic-code>" not in text


def test_code_that_was_made_of_a_text_keeps_the_name_of_the_text() -> None:
    name = "<a cell of a notebook>"
    lines = ["def f():\n", "    raise ValueError('of the cell')\n"]
    linecache.cache[name] = (1, None, lines, name)
    space: dict[str, Any] = {"__name__": "__main__", "__file__": __file__}
    exec(compile("".join(lines), name, "exec"), space)
    text = text_of(pickle.loads(pickles.dumps(space["f"])))
    assert f'File "{name}", line 2, in f\n    raise ValueError(' in text


def test_what_is_pickled_here_needs_nothing_of_this_package_to_come_back() -> None:
    assert b"volery.live" not in pickles.dumps(eval("lambda x: x + 1"))
    assert cloudpickle.loads(pickles.dumps(lambda x: x + 1))(1) == 2
