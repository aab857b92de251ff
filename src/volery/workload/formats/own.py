"""The formats that Volery writes: the `.tr` of the probe-based simulators, and the canonical table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from volery.core.errors import InputError
from volery.core.limits import Limits
from volery.workload.files import numbered_lines
from volery.workload.formats.source import Format, Head, Noticed, is_number, microseconds, place
from volery.workload.table import (
    AS_NEAR,
    RACK_WISHES,
    STATUSES,
    VERSION,
    TaskRow,
    columns_of,
    is_table,
    manifest_of,
    read_table,
    states_gangs,
)
from volery.workload.tr import JOB_FIELDS, has_its_durations


def fits_tr(head: Head) -> bool:
    return bool(head.lines) and all(has_its_durations(line.split()) for line in head.lines)


def like_tr(line: str) -> bool:
    """Numbers, of which the second is a whole one that is near the number of the others."""
    words = line.split()
    if len(words) <= JOB_FIELDS or not all(map(is_number, words)) or not words[1].isdigit():
        return False
    return abs(len(words) - JOB_FIELDS - int(words[1])) <= 1


def read_tr(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    """The tasks of a `.tr` file: jobs are numbered by line, tasks by their place in it.

    Raises:
        InputError: a row is wrong; the message names the line.
    """
    for number, line in numbered_lines(path):
        words = line.decode("utf-8", "replace").split()
        if not words:
            noticed["blank lines"] += 1
            continue

        with place(path, number, ".tr"):
            if not has_its_durations(words):
                raise ValueError(f"it has {len(words) - JOB_FIELDS} durations where field 2 says {words[1:2]}")
            submit, estimate = microseconds(words[0]), microseconds(words[2])
            runtimes = [microseconds(word) for word in words[JOB_FIELDS:]]

        for task, runtime in enumerate(runtimes):
            yield TaskRow(
                job=str(number),
                task=str(task),
                submit_us=submit,
                runtime_us=runtime,
                estimate_us=estimate,
                parents=[],
                line=number,
            )


def _none_of(words: Iterable[str]) -> Callable[[pa.Array], pa.Array]:
    allowed = pa.array([*words, None])
    return lambda column: pc.invert(pc.is_in(column, value_set=allowed))


def _below_zero(column: pa.Array) -> pa.Array:
    return pc.less(column, 0)


WRONG_VALUES: Final[tuple[tuple[str, Callable[[pa.Array], pa.Array], str], ...]] = (
    ("status", _none_of(STATUSES), f"one of {', '.join(STATUSES)}, or null"),
    ("gang_rack", _none_of(RACK_WISHES), f"one of {', '.join(RACK_WISHES)}, or null"),
    ("estimate_us", _below_zero, "0 or more, or null"),
)
"""Columns with the values that are refused, and those that are right; a run would take them for others in silence."""


def fits_table(head: Head) -> bool:
    return bool(head.columns) and head.path.is_file() and is_table(head.path)


def _read_table(path: Path, noticed: Noticed) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in read_table(path):
        for name, is_wrong, right in WRONG_VALUES:
            if (at := pc.index(is_wrong(batch.column(name)), True).as_py()) >= 0:
                wrong = batch.column(name)[at].as_py()
                raise InputError(f"{path}:{rows + at + 1}", f"{name} is {wrong!r}; it is {right}")
        rows += batch.num_rows
        noticed["rows read from a canonical table"] += batch.num_rows
        yield batch


TR: Final = Format(
    "tr",
    ".tr",
    fits_tr,
    rows=read_tr,
    like=like_tr,
    remarks=("jobs have no id: they are numbered by line; the estimate is the mean as the row states it",),
)


def far_of(path: Path, form: Format) -> tuple[int, int]:
    """Slowdown of tasks far from their input, in thousandths; only a canonical table states one."""
    return manifest_of(path).far_permille if form is TABLE else AS_NEAR


def limits_of(path: Path, form: Format) -> Limits:
    """The use of limits by a run that is not told otherwise; a canonical table states what its source was."""
    return manifest_of(path).limits if form is TABLE else form.limits


TABLE: Final = Format(
    "table",
    "canonical table",
    fits_table,
    batches=_read_table,
    has_gangs=states_gangs,
    columns=frozenset(columns_of(VERSION).names),
)
