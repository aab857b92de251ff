"""The defects that a trace may have, and how a batch of rows is looked at for those that a row shows by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from volery.core.errors import InputError, suggestion
from volery.core.model import SECOND

Mask = NDArray[np.bool_]

RUNTIME_MAX_US: Final = 10 * 365 * 86_400 * SECOND
"""No task of a public trace has run ten years."""
FACTORS: Final = (60.0, 1_000.0, 1_000_000.0)
"""What lies between seconds and minutes, milliseconds and microseconds."""
FACTOR_TOLERANCE: Final = 0.01


class Rule(NamedTuple):
    """A defect.

    Attributes:
        name: for `--repair`.
        meaning: what a row that has it is.
        actions: what may be done about it; `keep` says that it is no defect here.
    """

    name: str
    meaning: str
    actions: tuple[str, ...]


RULES: Final = {
    rule.name: rule
    for rule in (
        Rule("missing-id", "a row without the id of its job or task", ("drop", "keep")),
        Rule("end-before-start", "a task that ends before it starts or is submitted", ("drop", "null", "keep")),
        Rule("deadline-before-submission", "a job due before it is submitted", ("drop", "null", "keep")),
        Rule("negative-runtime", "a task that runs less than no time", ("drop", "null", "keep")),
        Rule("zero-runtime", "a task that runs no time", ("drop", "null", "keep")),
        Rule("unit-suspicion", "a time or share that looks like another unit", ("drop", "null", "keep")),
        Rule("duplicate", "a task whose ids stand above already", ("drop", "keep")),
        Rule("unknown-parent", "a task that waits for one that is not in its job", ("drop", "cut", "keep")),
        Rule("cycle", "a task that waits for itself by way of its parents", ("drop", "cut", "keep")),
        Rule("unsorted", "a row submitted before the row above it", ("sort", "keep")),
        Rule("clock-origin", "a first submission that is not at 0", ("shift", "keep")),
    )
}
NULLED: Final = {
    "end-before-start": ("start_us", "end_us"),
    "deadline-before-submission": ("deadline_us",),
    "negative-runtime": ("runtime_us",),
    "zero-runtime": ("runtime_us",),
}
"""What the action `null` makes unknown; of a suspicious row, the suspicious columns."""
SHARES: Final = ("cpu_share", "memory_share", "disk_share")


def choices(words: list[str]) -> dict[str, str]:
    """`RULE=ACTION`, each by its rule.

    Raises:
        InputError: a rule or an action does not exist, or a rule stands there twice.
    """
    chosen: dict[str, str] = {}
    for word in words:
        name, _, action = word.partition("=")
        if name not in RULES:
            raise InputError("--repair", f"{name!r} is no rule{suggestion(name, RULES)}")
        if action not in RULES[name].actions:
            raise InputError("--repair", f"{word!r}: {name} is repaired by {', '.join(RULES[name].actions)}")
        if name in chosen:
            raise InputError("--repair", f"{name!r} stands there twice; leave one out")
        chosen[name] = action
    return chosen


def _mask(values: Any) -> Mask:
    """What is unknown is no defect."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _missing_id(batch: pa.RecordBatch) -> Mask:
    return _mask(pc.or_(pc.is_null(batch.column("job")), pc.is_null(batch.column("task"))))


def _end_before_start(batch: pa.RecordBatch) -> Mask:
    begin = pc.coalesce(batch.column("start_us"), batch.column("submit_us"))
    return _mask(pc.less(batch.column("end_us"), begin))


def _deadline_before_submission(batch: pa.RecordBatch) -> Mask:
    return _mask(pc.less(batch.column("deadline_us"), batch.column("submit_us")))


def _negative_runtime(batch: pa.RecordBatch) -> Mask:
    return _mask(pc.less(batch.column("runtime_us"), 0))


def _zero_runtime(batch: pa.RecordBatch) -> Mask:
    return _mask(pc.equal(batch.column("runtime_us"), 0))


def suspicious(batch: pa.RecordBatch) -> dict[str, Mask]:
    """Column -> rows: runtimes of ten years or 60, 1,000 or a million times end minus start, and shares above 1."""
    runtime = batch.column("runtime_us")
    odd = _mask(pc.greater(runtime, RUNTIME_MAX_US))
    lasted = pc.cast(pc.subtract(batch.column("end_us"), batch.column("start_us")), pa.float64())
    ratio = np.asarray(pc.divide(pc.cast(runtime, pa.float64()), lasted).to_numpy(zero_copy_only=False), dtype=float)
    for factor in FACTORS:
        odd |= np.abs(ratio / factor - 1) < FACTOR_TOLERANCE
        odd |= np.abs(ratio * factor - 1) < FACTOR_TOLERANCE
    return {"runtime_us": odd} | {name: _mask(pc.greater(batch.column(name), 1.0)) for name in SHARES}


def _unit_suspicion(batch: pa.RecordBatch) -> Mask:
    return np.asarray(np.logical_or.reduce(list(suspicious(batch).values())), dtype=np.bool_)


def nulled(rule: str, batch: pa.RecordBatch) -> dict[str, Mask]:
    """What the action `null` makes unknown: column -> rows."""
    return suspicious(batch) if rule == "unit-suspicion" else dict.fromkeys(NULLED[rule], ROW_RULES[rule](batch))


ROW_RULES: Final[dict[str, Callable[[pa.RecordBatch], Mask]]] = {
    "missing-id": _missing_id,
    "end-before-start": _end_before_start,
    "deadline-before-submission": _deadline_before_submission,
    "negative-runtime": _negative_runtime,
    "zero-runtime": _zero_runtime,
    "unit-suspicion": _unit_suspicion,
}
