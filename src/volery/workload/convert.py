"""Conversion of any trace into the canonical table, with the chosen repairs; the manifest lists them."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

import volery
from volery.core.errors import InputError
from volery.workload.doctor import RULES, Examiner
from volery.workload.formats import format_of, read_source
from volery.workload.formats.own import far_of
from volery.workload.formats.source import Noticed, parquet_parts
from volery.workload.omissions import Only, finished_rows
from volery.workload.repairs import LATEST, Mender, in_order, sample_of, shifted
from volery.workload.table import SCHEMA, VERSION, Repair, TableManifest, TableWriter, read_table, table_output

BLOCK_BYTES: Final = 1 << 20


def convert(
    source: Path,
    output: Path,
    *,
    form: str | None = None,
    chosen: dict[str, str] | None = None,
    parents: bool = True,
    submissions: bool = True,
    only: Only = "ran",
    far_permille: tuple[int, int] | None = None,
    force: bool = False,
) -> TableManifest:
    """Write a trace as a canonical table, in bounded memory; the table is there whole or not at all.

    Args:
        source: a file of any format, or a folder of parquet parts.
        output: the table.
        form: name of the format; None: recognised by the content.
        chosen: rule of the doctor -> action.
        parents: whether to keep what tasks wait for; without, they and the submissions of tasks are unknown.
        submissions: whether to keep when each task was submitted; without, they are unknown.
        only: "finished" leaves out rows whose status is another; "ran" keeps all.
        far_permille: what distance from their input costs tasks, see `TableManifest`; None: as the source states.
        force: replace the output if it exists.

    Raises:
        InputError: the source is wrong (the message names the line), or the output cannot be written.
    """
    found, noticed = format_of(source, form), Noticed()
    chosen = {rule: (chosen or {})[rule] for rule in RULES if rule in (chosen or {})}
    base = TableManifest(
        VERSION, source.name, digest_of(source), found.name, f"volery {volery.__version__}", found.remarks
    )
    base = msgspec.structs.replace(base, far_permille=far_permille or far_of(source, found))
    batches: Iterator[pa.RecordBatch] = read_source(source, found, noticed)
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
    with table_output(output, force=force) as table, closing(Examiner()) as before:
        examined = before.watch(batches)
        if set(chosen.values()) <= {"keep"}:
            for batch in examined:
                table.add(batch)
            repairs, left = _done(chosen, before), before.found()
        else:
            with tempfile.TemporaryDirectory(prefix=".volery-", dir=output.parent) as folder:
                repairs, left = _repaired(examined, before, chosen, table, Path(folder))
        manifest = msgspec.structs.replace(
            base, noticed=dict(+noticed), rows_read=before.rows, rows=table.rows, found=before.found(),
            repairs=repairs, left=left,
        )  # fmt: skip
        table.finish(manifest)
    return manifest


def _done(chosen: dict[str, str], before: Examiner) -> tuple[Repair, ...]:
    found = before.found()
    return tuple(Repair(rule, action, found[rule]) for rule, action in chosen.items() if rule in found)


def _repaired(
    batches: Iterable[pa.RecordBatch], before: Examiner, chosen: dict[str, str], table: TableWriter, folder: Path
) -> tuple[tuple[Repair, ...], dict[str, int]]:
    """Three passes: what is broken is known after the first, what is left and its earliest time after the second."""
    raw, middle = folder / "raw", folder / "mended"
    with table_output(raw) as kept:
        for batch in batches:
            kept.add(batch)
    mender, samples = Mender(chosen, before.broken()), [np.zeros(0, np.int64)]
    with table_output(middle) as mended:
        for batch in mender.mended(read_table(raw)):
            samples.append(sample_of(batch))
            mended.add(batch)
    raw.unlink()
    times = np.concatenate(samples)
    last = read_table(middle)
    if chosen.get("unsorted") == "sort":
        last = in_order(last, times, mended.rows, folder)
    if chosen.get("clock-origin") == "shift" and (times < LATEST).any():
        last = shifted(last, int(times.min()))
    with closing(Examiner()) as after:
        for batch in after.watch(last):
            table.add(batch)
        return _done(chosen, before), after.found()


def _without(names: set[str], batch: pa.RecordBatch) -> pa.RecordBatch:
    for name in sorted(names):
        place = SCHEMA.get_field_index(name)
        batch = batch.set_column(place, SCHEMA.field(place), pa.nulls(batch.num_rows, SCHEMA.field(place).type))
    return batch


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
