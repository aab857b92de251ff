"""The page of measures: every number of a run, with its unit and its formula, from the structs that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_type_hints

import msgspec

from volery.cli.reference.structs import args, cell, kind, structs_in, summary
from volery.look.markdown import table

UNITS: Final = {
    "per_cpu_s": "1/s",
    "us": "us",
    "s": "s",
    "mb": "MB",
    "h": "h",
    "hours": "h",
}
"""Ends of names, and what they say; the longest that fits counts."""
COUNTS: Final = "count"
INTRODUCTION: Final = (
    "What `--json` and `summary.json` say of each run. Dots lead inside: `delay_s.p99`, `allocation_s.total.mean`. "
    "[Metrics](../metrics.md) explains the definitions and where they come from."
)
OF_COUNTERS: Final = (
    "Keys of `counters`. Which of them a run has depends on its design. What is measured is told as NAME_count, "
    "NAME_mean and NAME_max."
)


def measures() -> Iterator[str]:
    """All measures of a run, by the struct that holds them."""
    from volery.metrics import RunSummary
    from volery.study.counters import COUNTED, MEASURED

    yield from ("# Measures", "", INTRODUCTION, "")
    holders: list[type[msgspec.Struct]] = [RunSummary, *structs_in(RunSummary)]
    for struct in holders:
        yield from (f"## {struct.__name__}", "", cell(summary(struct)), "")
        yield from table(("key", "unit", "type", "definition"), _rows(struct))
    yield from ("## counters", "", OF_COUNTERS, "")
    for title, known in (("What is added up over a run", COUNTED), ("What is measured", MEASURED)):
        yield from table((title, "meaning"), [(f"`{name}`", said) for name, said in known.items()])


def _rows(struct: type[msgspec.Struct]) -> Iterator[tuple[str, ...]]:
    told, hints = args(struct), get_type_hints(struct)
    for name in struct.__struct_fields__:
        yield f"`{name}`", unit(name, hints[name]), kind(hints[name]), cell(told.get(name, "")).replace("None", "null")


def unit(name: str, hint: Any) -> str:
    """What the name ends in; whole numbers count something, and other numbers have none."""
    ends = (end for end in sorted(UNITS, key=len, reverse=True) if name.endswith(f"_{end}"))
    found = next(ends, None)
    if found is not None:
        return UNITS[found]
    return COUNTS if hint is int and name != "seed" else ""
