"""Repairs of a trace: rows dropped, values made unknown, edges cut, rows sorted, the clock begun at 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volery.workload.columns import Integers
from volery.workload.doctor import ROW_RULES, nulled
from volery.workload.graph import Broken
from volery.workload.omissions import Mask
from volery.workload.table import BATCH_ROWS, SCHEMA

BUCKET_ROWS: Final = 4 * BATCH_ROWS
SAMPLES: Final = 64
"""Per batch, of the times of submission."""
CLOCKS: Final = ("submit_us", "start_us", "end_us", "deadline_us", "task_submit_us")
LATEST: Final = np.iinfo(np.int64).max
"""Rows without a submission come last."""


class Mender:
    """Repairs rows by the chosen actions: drops, nulls and cuts.

    Args:
        chosen: rule -> action.
        broken: what is wrong with ids and graphs.
    """

    def __init__(self, chosen: dict[str, str], broken: Broken) -> None:
        self._chosen = chosen
        self._rows = broken.rows
        self._cuts = {
            rule: {(int(row), int(parent)) for row, parent in edges}
            for rule, edges in broken.edges.items()
            if chosen.get(rule) == "cut"
        }

    def mended(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that are left, mended; batches may be shorter."""
        first = 0
        for batch in batches:
            yield self._mend(batch, first)
            first += batch.num_rows

    def _mend(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        keep = np.ones(batch.num_rows, dtype=np.bool_)
        unknown: list[tuple[str, Mask]] = []
        for rule, action in self._chosen.items():
            if action not in ("drop", "null", "cut"):
                continue
            mask = ROW_RULES[rule](batch) if rule in ROW_RULES else self._of_graph(rule, first, batch.num_rows)
            if action == "drop":
                keep &= ~mask
            elif action == "null":
                unknown += nulled(rule, batch).items()
        for name, mask in unknown:
            place = SCHEMA.get_field_index(name)
            values = pc.if_else(pa.array(mask), pa.scalar(None, SCHEMA.field(place).type), batch.column(name))
            batch = batch.set_column(place, SCHEMA.field(place), values)
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
        parents, jobs = batch.column("parents").to_pylist(), batch.column("job").to_pylist()
        for k, names in enumerate(parents):
            if first + k in hit:
                parents[k] = [name for name in names if (first + k, hash((jobs[k], name))) not in cuts]
        place = SCHEMA.get_field_index("parents")
        return batch.set_column(place, SCHEMA.field(place), pa.array(parents, SCHEMA.field(place).type))


def shifted(batches: Iterable[pa.RecordBatch], origin_us: int) -> Iterator[pa.RecordBatch]:
    """The rows on a clock that is 0 at the origin."""
    for batch in batches:
        moved = batch
        for name in CLOCKS:
            place = SCHEMA.get_field_index(name)
            moved = moved.set_column(place, SCHEMA.field(place), pc.subtract(batch.column(name), origin_us))
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
        batches: the rows.
        samples: of their times of submission.
        rows: about how many there are.
        folder: for what is not in memory.
    """
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
