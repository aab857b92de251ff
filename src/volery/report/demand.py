"""The demand of a workload before any scheduler decides: load per constraint, and scheduling conflicts over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from volery.look.html import EMPTY, Markup, joined, paragraph
from volery.look.text import digits
from volery.metrics import ConstraintLoad
from volery.metrics.columns import Floats
from volery.report.page import TableRow, table
from volery.report.parquet import columns_of, names_of
from volery.report.schema import CONFLICTS, CONSTRAINT_LOAD

KINDS: Final = ("waiting", "collisions")
STATISTICS: Final = ("mean", "p50", "p95", "p99")
CONFLICTS_NOTE: Final = (
    "How many tasks are in each other's way at the beginning of each second, before any scheduler has a say: tasks are "
    "taken to start on arrival, and no delay is carried over into later seconds (IoT 2023, figure 5, which leaves open "
    "what exactly it counts, so that there are two). Waiting: tasks that no schedule can run at once with the others, "
    "even if all may switch to other machines (a lower bound). Collisions: each task draws one of the slots that it "
    "fits, and this is the expected number that find theirs taken."
)
CONFLICT_HEADS: Final = ("workload", "kind", "mean", "median", "p95", "p99", "max")


class LoadTable(msgspec.Struct, frozen=True):
    """Load per constraint of one workload on one cluster, averaged over what was drawn under each seed."""

    title: str
    loads: list[ConstraintLoad]


class ConflictTable(msgspec.Struct, frozen=True, eq=False):
    """Conflicts per second of one workload on one cluster, in the intervals of the seed that lasts longest.

    Args:
        title: of workload and cluster, where a study has several.
        begin_s, end_s: of each interval.
        mean, largest: kind ("waiting" or "collisions") -> per interval; means over the seeds, the largest of any.
        over: kind -> mean, median, p95, p99 (means over the seeds) and maximum of all seconds.
    """

    title: str
    begin_s: Floats
    end_s: Floats
    mean: dict[str, Floats]
    largest: dict[str, Floats]
    over: dict[str, tuple[float, ...]]


def read_loads(folder: Path) -> list[LoadTable]:
    """Load per constraint, as far as the folder has it.

    Raises:
        InputError: when its table is damaged.
    """
    path = folder / CONSTRAINT_LOAD
    if not path.exists():
        return []
    columns = columns_of(path, ("constraint", "mean", "median", "p95", "p99", *_of_setting(path)))
    return [LoadTable(title, _mean_loads(columns, rows)) for title, rows in _settings(columns)]


def _mean_loads(columns: dict[str, Any], rows: Any) -> list[ConstraintLoad]:
    numbers = columns["constraint"][rows].astype(np.int64)
    statistics: dict[str, Floats] = {name: columns[name][rows] for name in ("mean", "median", "p95", "p99")}
    return [
        ConstraintLoad(int(c), *(float(values[numbers == c].mean()) for values in statistics.values()))
        for c in np.unique(numbers)
    ]


def read_conflicts(folder: Path) -> list[ConflictTable]:
    """Conflicts over time, as far as the folder has them.

    Raises:
        InputError: when their table is damaged.
    """
    path = folder / CONFLICTS
    if not path.exists():
        return []
    values = [name for kind in KINDS for name in (kind, f"{kind}_max", *(f"{kind}_{one}" for one in STATISTICS))]
    columns = columns_of(path, ("seed", "begin_s", "end_s", *values, *_of_setting(path)))
    return [_conflict_table(title, columns, rows) for title, rows in _settings(columns)]


def _conflict_table(title: str, columns: dict[str, Any], rows: Any) -> ConflictTable:
    seeds = [rows & (columns["seed"] == seed) for seed in np.unique(columns["seed"][rows])]
    longest = max(seeds, key=lambda one: float(columns["end_s"][one].max()))
    begin, end = columns["begin_s"][longest], columns["end_s"][longest]
    places = [np.searchsorted(columns["begin_s"][one], begin, side="right") - 1 for one in seeds]

    def at(name: str) -> Any:
        """Per seed, what stands where each interval begins; nothing before its workload begins or after it ends."""
        found = []
        for one, place in zip(seeds, places, strict=True):
            active = (place >= 0) & (begin < columns["end_s"][one].max())
            found.append(np.where(active, columns[name][one][np.maximum(place, 0)], 0.0))
        return np.array(found)

    def over(kind: str) -> tuple[float, ...]:
        means = (float(np.mean([columns[f"{kind}_{name}"][one][0] for one in seeds])) for name in STATISTICS)
        return *means, float(columns[f"{kind}_max"][rows].max())

    return ConflictTable(
        title,
        begin,
        end,
        {kind: at(kind).mean(axis=0) for kind in KINDS},
        {kind: at(f"{kind}_max").max(axis=0) for kind in KINDS},
        {kind: over(kind) for kind in KINDS},
    )


def _of_setting(path: Path) -> list[str]:
    return sorted({"trace", "workers", "load"} & set(names_of(path)))


def _settings(columns: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Workload and cluster, with a mask of their rows."""
    rows = len(next(iter(columns.values())))
    titles = np.array([
        " on ".join(
            ([str(columns["trace"][i])] if "trace" in columns else [])
            + ([f"{int(columns['workers'][i]):,} workers"] if "workers" in columns else [])
        )
        + (f" at load {columns['load'][i]:g}" if "load" in columns else "")
        for i in range(rows)
    ])  # fmt: skip
    for title in dict.fromkeys(titles.tolist()):
        yield title, titles == title


def conflict_table(conflicts: Sequence[ConflictTable]) -> Markup:
    """Conflicts per second in numbers."""
    if not conflicts:
        return EMPTY

    def rows() -> Iterator[TableRow]:
        for one in conflicts:
            for kind in KINDS:
                first = kind == KINDS[0]
                yield TableRow([one.title if first else "", kind, *map(digits, one.over[kind])], "first" * first)

    return joined((paragraph(CONFLICTS_NOTE), table(CONFLICT_HEADS, rows(), text_columns=2)))
