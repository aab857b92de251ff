"""Rows of tables in which each cell is the mean of one quantity over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from volery.metrics import RunSummary
from volery.report.groups import RunGroup

Part = TypeVar("Part")
Column = tuple[Callable[[Part], float], Callable[[float], str]]
"""A quantity of what a run tells, and how it is written."""


def having(
    groups: Sequence[RunGroup], part: Callable[[RunSummary], Part | None]
) -> Iterator[tuple[RunGroup, list[Part]]]:
    """The groups with runs that have such a part, and these parts by seed."""
    for group in groups:
        found = [one for one in map(part, group.runs) if one is not None]
        if found:
            yield group, found


def cells(found: Sequence[Part], columns: Sequence[Column[Part]]) -> list[str]:
    """Each quantity's mean over the parts, of which there is at least one."""
    return [written(sum(map(of, found)) / len(found)) for of, written in columns]


def rows(
    groups: Sequence[RunGroup], part: Callable[[RunSummary], Part | None], columns: Sequence[Column[Part]]
) -> list[list[str]]:
    """Label and cells of the groups with runs that have such a part."""
    return [[group.label, *cells(found, columns)] for group, found in having(groups, part)]
