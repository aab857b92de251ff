"""The trace doctor: the defects of a trace, counted, with their first lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volery.core.errors import InputError, suggestion
from volery.core.model import SECOND
from volery.core.omissions import Omissions
from volery.workload.arrays import Integers
from volery.workload.formats import format_of, read_source
from volery.workload.formats.source import Format, Noticed
from volery.workload.graph import PLACES_MAX, Broken, TaskGraph
from volery.workload.omissions import Mask, OmissionTally, Only, judge, true_mask
from volery.workload.replay import amounts_of, resources_of, weighed_of
from volery.workload.table import OMISSIONS

RUNTIME_MAX_US: Final = 10 * 365 * 86_400 * SECOND
"""No task of a public trace has run ten years."""
FACTORS: Final = (60.0, 1_000.0, 1_000_000.0)
"""Factors between seconds and minutes, milliseconds and microseconds."""
FACTOR_TOLERANCE: Final = 0.01


class DefectRule(NamedTuple):
    """A rule of the doctor: a kind of defect, and the repairs that it allows.

    Attributes:
        name: name for `--repair`.
        meaning: the row that has the defect, as a noun phrase.
        actions: repairs; `keep` means that it is no defect here.
    """

    name: str
    meaning: str
    actions: tuple[str, ...]


RULES: Final = {
    rule.name: rule
    for rule in (
        DefectRule("missing-id", "a row without the id of its job or task", ("drop", "keep")),
        DefectRule("end-before-start", "a task that ends before it starts or is submitted", ("drop", "null", "keep")),
        DefectRule("deadline-before-submission", "a job due before it is submitted", ("drop", "null", "keep")),
        DefectRule("zero-limit", "a job with a limit of 0 or less", ("drop", "null", "keep")),
        DefectRule("negative-runtime", "a task that runs less than no time", ("drop", "null", "keep")),
        DefectRule("zero-runtime", "a task that runs no time", ("drop", "null", "keep")),
        DefectRule("unit-suspicion", "a time or share that looks like another unit", ("drop", "null", "keep")),
        DefectRule("duplicate", "a task whose ids stand above already", ("drop", "keep")),
        DefectRule("unknown-parent", "a task that waits for one that is not in its job", ("drop", "cut", "keep")),
        DefectRule("cycle", "a task that waits for itself by way of its parents", ("drop", "cut", "keep")),
        DefectRule("unsorted", "a row submitted before the row above it", ("sort", "keep")),
        DefectRule("clock-origin", "a first submission that is not at 0", ("shift", "keep")),
    )
}
NULLED: Final = {
    "end-before-start": ("start_us", "end_us"),
    "deadline-before-submission": ("deadline_us",),
    "zero-limit": ("limit_us",),
    "negative-runtime": ("runtime_us",),
    "zero-runtime": ("runtime_us",),
}
"""Columns that the action `null` makes unknown; of a suspicious row, the suspicious columns."""
SHARES: Final = ("cpu_share", "memory_share", "disk_share")


class Defect(msgspec.Struct, frozen=True):
    """A defect of a trace.

    Args:
        rule: name of the rule.
        rows: number of rows that have the defect; 1 for `clock-origin`.
        first: the first of them, as `file:line`.
        actions: repairs that the rule allows.
        chosen: the repair; None: none was chosen.
    """

    rule: str
    meaning: str
    rows: int
    first: tuple[str, ...]
    actions: tuple[str, ...]
    chosen: str | None = None


class Diagnosis(msgspec.Struct, frozen=True):
    """The defects of a trace, the columns that are unknown, and the rows that a run would leave out.

    Args:
        source, format: the file that was read, and the name of its format.
        rows: number of rows of the trace.
        findings: defects in the order of the rules; those that no row has are left out.
        unknown: column -> rows without a value; columns with values in all rows are left out.
        noticed, remarks: counts and remarks of the reader.
        origin_us: the first submission; None where no row has one.
        left_out: rows that a run would leave out, by reason, without a count of jobs; None where there is no row.
    """

    source: str
    format: str
    rows: int
    findings: tuple[Defect, ...]
    unknown: dict[str, int]
    noticed: dict[str, int]
    remarks: tuple[str, ...]
    origin_us: int | None
    left_out: Omissions | None = None

    @property
    def unanswered(self) -> list[str]:
        """Rules that rows break and no repair was chosen for."""
        return [defect.rule for defect in self.findings if defect.chosen is None]


class Examiner:
    """Checks the rows of a trace, batch by batch, against all rules; `close` it in the end.

    Args:
        form: format of the trace, for the requests of its rows; None: rows that would be left out are not counted.
    """

    def __init__(self, form: Format | None = None, only: Only = "ran") -> None:
        self._form, self._only = form, only
        self._resources: tuple[str, ...] = ()
        self._weighed_resource = ""
        self._tally: OmissionTally | None = None

        self.graph = TaskGraph()
        self.rows = 0
        self.origin_us: int | None = None
        self.counts = dict.fromkeys(RULES, 0)
        self.unknown: dict[str, int] = {}

        self._lines: dict[str, list[int]] = {rule: [] for rule in RULES}
        self._last_us: int | None = None
        self._broken: Broken | None = None

    def close(self) -> None:
        """Remove the files of ids and edges."""
        self.graph.close()

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, checked."""
        for batch in batches:
            self.add(batch)
            yield batch

    def add(self, batch: pa.RecordBatch) -> None:
        lines = batch.column("line").to_numpy(zero_copy_only=False)
        for rule, look in ROW_RULES.items():
            self._count(rule, look(batch), lines)
        self._count("unsorted", self._unsorted(batch), lines)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self.unknown[name] = self.unknown.get(name, 0) + column.null_count
        self._count_left_out(batch)
        self.graph.add(batch, self.rows)
        self.rows += batch.num_rows

    def _count_left_out(self, batch: pa.RecordBatch) -> None:
        if self._form is None:
            return
        if self._tally is None:
            self._resources = resources_of(self._form, batch)
            self._weighed_resource = weighed_of(batch, self._resources)
            self._tally = OmissionTally(self._resources, by_job=False, weighed=self._weighed_resource)
        amounts = amounts_of(batch, self._resources)
        self._tally.add(batch, judge(batch, amounts, self._only, self._weighed_resource), amounts)

    def _count(self, rule: str, mask: Mask, lines: Integers) -> None:
        rows_found = np.flatnonzero(mask)
        self.counts[rule] += len(rows_found)

        places_left = PLACES_MAX - len(self._lines[rule])
        # a row of a table made elsewhere may have no line
        self._lines[rule] += [
            int(lines[k]) if lines[k] == lines[k] else self.rows + int(k) + 1 for k in rows_found[:places_left]
        ]

    def _unsorted(self, batch: pa.RecordBatch) -> Mask:
        column = batch.column("submit_us")
        known_rows = np.flatnonzero(pc.is_valid(column).to_numpy(zero_copy_only=False))
        values = column.drop_null().to_numpy()
        mask = np.zeros(batch.num_rows, dtype=np.bool_)

        if not len(values):
            return mask

        # The first row of a batch is compared with the last one of the batch before.
        values_before = np.concatenate(([values[0] if self._last_us is None else self._last_us], values[:-1]))
        mask[known_rows] = values < values_before

        lowest = int(values.min())
        self.origin_us = lowest if self.origin_us is None else min(lowest, self.origin_us)
        self._last_us = int(values[-1])
        return mask

    def broken(self) -> Broken:
        """Defects of ids and graphs; call it after the last row."""
        if self._broken is None:
            self._broken = self.graph.broken()
            for rule, rows in self._broken.rows.items():
                self.counts[rule] = len(rows)
            self.counts["clock-origin"] = int(self.origin_us not in (None, 0))
        return self._broken

    def found(self) -> dict[str, int]:
        """Rule -> rows that break it, without those that none does."""
        self.broken()
        return {rule: rows for rule, rows in self.counts.items() if rows}

    def findings(self, source: str, chosen_repairs: dict[str, str]) -> tuple[Defect, ...]:
        """The defects that were found, and the repairs that were chosen."""
        broken = self.broken()
        defects = []

        for rule, rows in self.found().items():
            if self._form is not None and rule in self._form.usual and rule not in chosen_repairs:
                continue
            if rule in broken.rows:
                first = tuple(f"{source}:{line}" for line in broken.lines[rule])
            elif rule == "clock-origin":
                first = (f"{source}: {(self.origin_us or 0) / 1e6:,.6f} s".replace(".000000", ""),)
            else:
                first = tuple(f"{source}:{line}" for line in self._lines[rule])

            rule_facts = RULES[rule]
            defects.append(Defect(rule, rule_facts.meaning, rows, first, rule_facts.actions, chosen_repairs.get(rule)))
        return tuple(defects)

    def _left_out(self) -> Omissions | None:
        """The counts of what a run would omit, with waits that are not resolved."""
        if self._tally is None:
            return None
        unresolved = self.broken().edges["unknown-parent"]
        self._tally.add_waits("", self.graph.waits, len(unresolved), self.counts["unknown-parent"])
        return self._tally.omissions()

    def diagnosis(self, path: Path, form: Format, noticed: Noticed, chosen_repairs: dict[str, str]) -> Diagnosis:
        unknown_rows = {name: rows for name, rows in self.unknown.items() if rows and name not in OMISSIONS}
        return Diagnosis(
            str(path),
            form.name,
            self.rows,
            self.findings(str(path), chosen_repairs),
            unknown_rows,
            dict(+noticed),
            form.remarks,
            self.origin_us,
            self._left_out(),
        )


def examine(
    path: Path,
    form: str | None = None,
    chosen_repairs: dict[str, str] | None = None,
    only: Only = "ran",
    columns: str | None = None,
) -> Diagnosis:
    """Check a trace of any format, in bounded memory.

    Args:
        form: name of its format; None: recognised by the content.
        columns: map of its columns, a TOML file or the name of a shipped one.

    Raises:
        InputError: it cannot be read.
    """
    trace_format = format_of(path, form, columns)
    noticed = Noticed()

    examiner = Examiner(trace_format, only)
    try:
        for batch in read_source(path, trace_format, noticed):
            examiner.add(batch)
        return examiner.diagnosis(path, trace_format, noticed, chosen_repairs or {})
    finally:
        examiner.close()


def choices(words: list[str]) -> dict[str, str]:
    """`RULE=ACTION`, each by its rule.

    Raises:
        InputError: a rule or an action does not exist, or a rule stands there twice.
    """
    actions: dict[str, str] = {}
    for word in words:
        name, _, action = word.partition("=")
        if name not in RULES:
            raise InputError("--repair", f"{name!r} is no rule{suggestion(name, RULES)}")
        if action not in RULES[name].actions:
            raise InputError("--repair", f"{word!r}: {name} is repaired by {', '.join(RULES[name].actions)}")

        if name in actions:
            raise InputError("--repair", f"{name!r} stands there twice; leave one out")
        actions[name] = action

    return actions


def _end_before_start(batch: pa.RecordBatch) -> Mask:
    begin = pc.coalesce(batch.column("start_us"), batch.column("submit_us"))
    return true_mask(pc.less(batch.column("end_us"), begin))


def suspicious(batch: pa.RecordBatch) -> dict[str, Mask]:
    """Column -> rows: runtimes of ten years or 60, 1,000 or a million times end minus start, and shares above 1."""
    runtime = batch.column("runtime_us")
    is_odd = true_mask(pc.greater(runtime, RUNTIME_MAX_US))

    lasted = pc.cast(pc.subtract(batch.column("end_us"), batch.column("start_us")), pa.float64(), safe=False)
    ratio = np.asarray(
        pc.divide(pc.cast(runtime, pa.float64(), safe=False), lasted).to_numpy(zero_copy_only=False), dtype=float
    )

    # Runtimes in minutes, milliseconds or microseconds that were read as seconds show by these factors.
    for factor in FACTORS:
        is_odd |= np.abs(ratio / factor - 1) < FACTOR_TOLERANCE
        is_odd |= np.abs(ratio * factor - 1) < FACTOR_TOLERANCE

    return {"runtime_us": is_odd} | {name: true_mask(pc.greater(batch.column(name), 1.0)) for name in SHARES}


def nulled(rule: str, batch: pa.RecordBatch) -> dict[str, Mask]:
    """Values that the action `null` makes unknown: column -> rows."""
    return suspicious(batch) if rule == "unit-suspicion" else dict.fromkeys(NULLED[rule], ROW_RULES[rule](batch))


ROW_RULES: Final[dict[str, Callable[[pa.RecordBatch], Mask]]] = {
    "missing-id": lambda batch: true_mask(pc.or_(pc.is_null(batch.column("job")), pc.is_null(batch.column("task")))),
    "end-before-start": _end_before_start,
    "deadline-before-submission": lambda batch: true_mask(
        pc.less(batch.column("deadline_us"), batch.column("submit_us"))
    ),
    "zero-limit": lambda batch: true_mask(pc.less_equal(batch.column("limit_us"), 0)),
    "negative-runtime": lambda batch: true_mask(pc.less(batch.column("runtime_us"), 0)),
    "zero-runtime": lambda batch: true_mask(pc.equal(batch.column("runtime_us"), 0)),
    "unit-suspicion": lambda batch: np.asarray(np.logical_or.reduce(list(suspicious(batch).values())), dtype=np.bool_),
}
