"""Conversion of any trace into the canonical table, with the chosen repairs; the manifest lists them.

Repairs drop rows, make values unknown, cut edges, sort rows, and begin the clock at 0.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import volery
from volery.core.errors import InputError
from volery.workload.arrays import Integers
from volery.workload.doctor import ROW_RULES, RULES, Examiner, nulled
from volery.workload.formats import format_of, read_source
from volery.workload.formats.own import far_of
from volery.workload.formats.source import Noticed, parquet_parts
from volery.workload.graph import Broken
from volery.workload.omissions import Mask, Only, finished_rows
from volery.workload.table import (
    BATCH_ROWS,
    SCHEMA,
    VERSION,
    Repair,
    TableManifest,
    TableWriter,
    read_table,
    table_output,
)

BLOCK_BYTES: Final = 1 << 20


def convert(
    source: Path,
    output: Path,
    *,
    form: str | None = None,
    columns: str | None = None,
    chosen_repairs: dict[str, str] | None = None,
    parents: bool = True,
    submissions: bool = True,
    only: Only = "ran",
    far_permille: tuple[int, int] | None = None,
    force: bool = False,
) -> TableManifest:
    """Write a trace as a canonical table, in bounded memory; the table is there whole or not at all.

    Args:
        source: a file of any format, or a folder of parquet parts.
        form: name of the format; None: recognised by the content.
        columns: map of the columns, a TOML file or the name of a shipped one.
        chosen_repairs: rule of the doctor -> action.
        parents: true keeps the tasks that others wait for; without, they and the submissions of tasks are unknown.
        submissions: true keeps the time of submission of each task; without, it is unknown.
        only: "finished" leaves out rows whose status is another; "ran" keeps all.
        far_permille: the cost of distance from the input, see `TableManifest`; None: as the source states.

    Raises:
        InputError: the source is wrong (the message names the line), or the output cannot be written.
    """
    source_format = format_of(source, form, columns)
    noticed = Noticed()
    chosen_repairs = {rule: (chosen_repairs or {})[rule] for rule in RULES if rule in (chosen_repairs or {})}

    base = TableManifest(
        VERSION,
        source.name,
        digest_of(source),
        source_format.name,
        f"volery {volery.__version__}",
        source_format.remarks,
    )
    base = msgspec.structs.replace(base, far_permille=far_permille or far_of(source, source_format))
    batches: Iterator[pa.RecordBatch] = read_source(source, source_format, noticed)
    left_out = {name for name, keep in (("parents", parents), ("task_submit_us", submissions and parents)) if not keep}

    if left_out:
        batches = (_without(left_out, batch) for batch in batches)
        remarks = [f"{name} were left out on request" for name in sorted(left_out)]
        base = msgspec.structs.replace(base, remarks=(*base.remarks, *remarks))

    if only == "finished":
        batches = (finished_rows(batch) for batch in batches)
        base = msgspec.structs.replace(
            base, remarks=(*base.remarks, "rows that did not finish were left out on request")
        )

    with table_output(output, force=force) as table, closing(Examiner()) as examiner:
        examined = examiner.watch(batches)

        # Nothing is changed: one pass is enough, and what was found stays.
        if set(chosen_repairs.values()) <= {"keep"}:
            for batch in examined:
                table.add(batch)
            repairs = _done(chosen_repairs, examiner)
            defects_left = examiner.found()
        else:
            with tempfile.TemporaryDirectory(prefix=".volery-", dir=output.parent) as folder:
                repairs, defects_left = _repaired(examined, examiner, chosen_repairs, table, Path(folder))

        manifest = msgspec.structs.replace(
            base,
            noticed=dict(+noticed),
            rows_read=examiner.rows,
            rows=table.rows,
            found=examiner.found(),
            repairs=repairs,
            left=defects_left,
        )
        table.finish(manifest)

    return manifest


def _done(chosen_repairs: dict[str, str], examiner: Examiner) -> tuple[Repair, ...]:
    defects = examiner.found()
    return tuple(Repair(rule, action, defects[rule]) for rule, action in chosen_repairs.items() if rule in defects)


def _repaired(
    batches: Iterable[pa.RecordBatch],
    examiner: Examiner,
    chosen_repairs: dict[str, str],
    table: TableWriter,
    folder: Path,
) -> tuple[tuple[Repair, ...], dict[str, int]]:
    """Three passes: what is broken is known after the first, what is left and its earliest time after the second."""
    raw, middle = folder / "raw", folder / "mended"
    with table_output(raw) as raw_table:
        for batch in batches:
            raw_table.add(batch)

    mender = Mender(chosen_repairs, examiner.broken())
    # An empty sample first: a trace without rows has no other.
    samples = [np.zeros(0, np.int64)]
    with table_output(middle) as mended:
        for batch in mender.mended(read_table(raw)):
            samples.append(sample_of(batch))
            mended.add(batch)
    raw.unlink()

    times = np.concatenate(samples)
    last = read_table(middle)
    if chosen_repairs.get("unsorted") == "sort":
        last = in_order(last, times, mended.rows, folder)
    if chosen_repairs.get("clock-origin") == "shift" and (times < LATEST).any():
        last = shifted(last, int(times.min()))

    with closing(Examiner()) as last_examiner:
        for batch in last_examiner.watch(last):
            table.add(batch)
        return _done(chosen_repairs, examiner), last_examiner.found()


def _without(names: set[str], batch: pa.RecordBatch) -> pa.RecordBatch:
    for name in sorted(names):
        batch = _with_column(batch, name, pa.nulls(batch.num_rows, SCHEMA.field(name).type))
    return batch


def _with_column(batch: pa.RecordBatch, name: str, values: Any) -> pa.RecordBatch:
    place = SCHEMA.get_field_index(name)
    return batch.set_column(place, SCHEMA.field(place), values)


def digest_of(path: Path) -> str:
    """SHA-256 of a file's bytes, or of those of a folder's parts one after another.

    Raises:
        InputError: it cannot be read.
    """
    sha = hashlib.sha256()
    for part in parquet_parts(path):
        try:
            with part.open("rb") as file:
                while block := file.read(BLOCK_BYTES):
                    sha.update(block)
        except OSError as error:
            raise InputError(str(part), f"cannot be read ({error.strerror}); check its permissions") from None
    return sha.hexdigest()


BUCKET_ROWS: Final = 4 * BATCH_ROWS
SAMPLES: Final = 64
"""Per batch, of the times of submission."""
CLOCKS: Final = ("submit_us", "start_us", "end_us", "deadline_us", "task_submit_us")
LATEST: Final = np.iinfo(np.int64).max
"""Rows without a submission come last."""


class Mender:
    """Repairs rows by the chosen actions: drops, nulls and cuts."""

    def __init__(self, chosen_repairs: dict[str, str], broken: Broken) -> None:
        self._chosen = chosen_repairs
        self._rows = broken.rows
        self._cuts = {
            rule: {(int(row), int(parent)) for row, parent in edges}
            for rule, edges in broken.edges.items()
            if chosen_repairs.get(rule) == "cut"
        }

    def mended(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that are left, mended; batches may be shorter."""
        first = 0
        for batch in batches:
            yield self._mend(batch, first)
            first += batch.num_rows

    def _mend(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:

        keep = np.ones(batch.num_rows, dtype=np.bool_)
        unknown_masks: list[tuple[str, Mask]] = []
        for rule, action in self._chosen.items():
            if action not in ("drop", "null", "cut"):
                continue
            mask = ROW_RULES[rule](batch) if rule in ROW_RULES else self._of_graph(rule, first, batch.num_rows)
            if action == "drop":
                keep &= ~mask
            elif action == "null":
                unknown_masks += nulled(rule, batch).items()

        for name, mask in unknown_masks:
            unset = pa.scalar(None, SCHEMA.field(name).type)
            batch = _with_column(batch, name, pc.if_else(pa.array(mask), unset, batch.column(name)))

        if self._cuts:
            batch = self._cut(batch, first)
        return batch if keep.all() else batch.filter(pa.array(keep))

    def _of_graph(self, rule: str, first: int, count: int) -> Mask:
        rows = self._rows[rule]
        low, high = np.searchsorted(rows, (first, first + count))
        mask = np.zeros(count, dtype=np.bool_)
        mask[rows[low:high] - first] = True
        return mask

    def _cut(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        cuts = set().union(*self._cuts.values())
        hit = {row for row, _ in cuts}
        parents = batch.column("parents").to_pylist()
        jobs = batch.column("job").to_pylist()
        for k, names in enumerate(parents):
            if first + k in hit:
                parents[k] = [name for name in names if (first + k, hash((jobs[k], name))) not in cuts]
        return _with_column(batch, "parents", pa.array(parents, SCHEMA.field("parents").type))


def shifted(batches: Iterable[pa.RecordBatch], origin_us: int) -> Iterator[pa.RecordBatch]:
    """The rows on a clock that is 0 at the origin."""
    for batch in batches:
        moved = batch
        for name in CLOCKS:
            moved = _with_column(moved, name, pc.subtract(batch.column(name), origin_us))
        yield moved


def _submissions(batch: pa.RecordBatch | pa.Table) -> Integers:
    return np.asarray(pc.fill_null(batch.column("submit_us"), LATEST).to_numpy(), dtype=np.int64)


def sample_of(batch: pa.RecordBatch) -> Integers:
    """Some of a batch's times of submission, evenly spread by rank."""
    times = np.sort(_submissions(batch))
    return times[:: max(1, len(times) // SAMPLES)]


def in_order(batches: Iterable[pa.RecordBatch], samples: Integers, rows: int, folder: Path) -> Iterator[pa.RecordBatch]:
    """The rows by submission, stably; those that are near each other are sorted together, the others lie on disk.

    Args:
        samples: a sample of their times of submission.
        folder: folder for the buckets that are not in memory.
    """
    # Each bucket is sorted in memory; bounds from a sample make them of about equal size.
    buckets = max(1, -(-rows // BUCKET_ROWS))
    ranks = np.arange(1, buckets) * len(samples) // buckets
    bounds = np.sort(samples)[ranks]
    paths = [folder / f"bucket-{k}" for k in range(buckets)]

    with ExitStack() as stack:
        writers = [stack.enter_context(pa.OSFile(str(path), "wb")) for path in paths]
        streams = [stack.enter_context(pa.ipc.new_stream(writer, SCHEMA)) for writer in writers]
        for batch in batches:
            bucket = np.searchsorted(bounds, _submissions(batch), side="right")
            for k in np.unique(bucket).tolist():
                streams[k].write_batch(batch.filter(pa.array(bucket == k)))

    for path in paths:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stream:
            table = stream.read_all()
        path.unlink()
        order = np.argsort(_submissions(table), kind="stable")
        yield from table.take(pa.array(order)).combine_chunks().to_batches(BATCH_ROWS)
