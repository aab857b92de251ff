"""The spec strings of synthetic workloads: `kind:word,key=value,...`, with errors that name the key."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from volery.core.errors import InputError, suggestion

TASKS_MAX: Final = 100_000_000
"""A trace of more tasks would need over 3 GB for its columns and the records of a run."""


class Spec:
    """A spec string taken apart.

    Args:
        text: whole string, for example `poisson:load=0.8,workers=1000`.
        word: form of the part before the keys, for example `TASKSxJOBS`, or "" where there is none.

    Raises:
        InputError: a key is unknown or given twice, or the leading word is missing or out of place.
    """

    def __init__(self, text: str, keys: Sequence[str], word: str = "") -> None:
        self.text = text
        self.kind, _, listed = text.partition(":")
        parts = [part.strip() for part in listed.split(",") if part.strip()]
        self.word = parts.pop(0) if word and parts and "=" not in parts[0] else ""
        if word and not self.word:
            raise InputError(text, f"lacks its first part; write {self.kind}:{word}")

        self._values: dict[str, str] = {}
        for part in parts:
            key, equals, value = (piece.strip() for piece in part.partition("="))

            if not equals:
                raise InputError(text, f"{part!r} is not of the form key=value; keys are {', '.join(keys)}")
            if key not in keys:
                raise InputError(f"{self.kind}:{key}", f"no such key{suggestion(key, keys)}")
            if key in self._values:
                raise InputError(f"{self.kind}:{key}", "is given twice; keep one")
            self._values[key] = value

    def text_of(self, key: str, default: str) -> str:
        """The value of a key as it stands."""
        return self._values.get(key, default)

    def refusal(self, key: str, problem: str) -> InputError:
        """An error that names the key."""
        return InputError(f"{self.kind}:{key}", problem)

    def check_size(self, tasks: int) -> None:
        """Refuse a workload that would not fit into memory.

        Raises:
            InputError: more than `TASKS_MAX` tasks.
        """
        if tasks > TASKS_MAX:
            raise InputError(
                self.text, f"would have {tasks} tasks; at most {TASKS_MAX} are possible: ask for fewer jobs or tasks"
            )

    def positive(self, key: str, default: float, most: float = 1e9) -> float:
        """A number above 0 and up to `most`.

        Raises:
            InputError: the value is no such number.
        """
        return self._number(key, default, lambda number: 0 < number <= most, f"a number above 0 and up to {most:g}")

    def at_least_zero(self, key: str, default: float, most: float = 1e9) -> float:
        """A number from 0 up to `most`.

        Raises:
            InputError: the value is no such number.
        """
        return self._number(key, default, lambda number: 0 <= number <= most, f"a number from 0 to {most:g}")

    def _number(self, key: str, default: float, fits: Callable[[float], bool], allowed: str) -> float:
        value = self._values.get(key)
        if value is None:
            return default

        try:
            number = float(value)
        except ValueError:
            number = math.nan

        if not fits(number):
            raise self.refusal(key, f"{value!r} is not {allowed}; for example {key}={default:g}")
        return number

    def count(self, key: str, default: int, least: int = 1, most: int = 100_000_000) -> int:
        """A whole number from `least` to `most`.

        Raises:
            InputError: the value is no such number.
        """
        return self.parsed_count(key, self._values.get(key, str(default)), least, most)

    def parsed_count(self, key: str, value: str, least: int = 1, most: int = 100_000_000) -> int:
        """A whole number from `least` to `most`, from text that belongs to a key.

        Raises:
            InputError: the text is no such number.
        """
        if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
            raise self.refusal(key, f"{value!r} is not a whole number from {least} to {most}")
        return int(value)
