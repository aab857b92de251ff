"""Traces without names, for others to read: users, groups, partitions and ids become keyed hashes in a trace table.

A hash is the beginning of HMAC-SHA256 (RFC 2104) over the kind of the name and the name: who has the key can compute
the hash of a name that he knows, and nobody else can tell whether a name that he guesses is the right one.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

import volery
from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.workload.convert import shifted
from volery.workload.files import numbered_lines
from volery.workload.formats import format_of, read_source
from volery.workload.formats.columns import SHIPPED
from volery.workload.formats.own import far_of, limits_of
from volery.workload.formats.source import Noticed
from volery.workload.table import SCHEMA, VERSION, TableManifest, table_output

KEY_DIGITS_MIN: Final = 32
"""Hexadecimal digits of the shortest key; a guess of 128 bits is hopeless."""
KEY_DIGITS: Final = 64
HASH_DIGITS: Final = 16
"""Hexadecimal digits of a hash: of ten million names two are alike once in 370,000 traces."""
NAMED: Final = ("user", "group", "partition")
"""Columns of names, of which there are few."""
IDS: Final = ("job", "task", "parents", "constraints")
"""Columns of ids, of which there are many; a parent is the id of a task."""
OTHERS: Final = "notices of the map of columns, whose words are left out"
STAYS: Final = ("times", "requests", "numbers of tasks", "states", "priorities", "the order of rows")
DAY_US: Final = 86_400 * SECOND
DAYS_MAX: Final = 20_000


class Pseudonyms(msgspec.Struct, frozen=True):
    """The result of an anonymisation.

    Args:
        rows: Rows of the table.
        names: Column -> number of its distinct names.
        shift_days: Days by which all times are later than in the source.
        stays: Facts that are as in the source.
    """

    rows: int
    names: dict[str, int]
    shift_days: int
    stays: tuple[str, ...] = STAYS


def new_key() -> str:
    """A key of 256 random bits, in hexadecimal digits."""
    return secrets.token_hex(KEY_DIGITS // 2)


def read_key(path: Path) -> str:
    """The key in the first line of a file.

    Raises:
        InputError: the file cannot be read, or its first line is no key.
    """
    _, line = next(numbered_lines(path))
    key = line.decode("utf-8", "replace").strip().lower()
    if len(key) < KEY_DIGITS_MIN or set(key) - set("0123456789abcdef"):
        problem = f"holds no key: {KEY_DIGITS_MIN} hexadecimal digits or more; without --key one is made and printed"
        raise InputError(f"{path}:1", problem)
    return key


def anonymise(
    source: Path,
    output: Path,
    key: str,
    *,
    form: str | None = None,
    columns: str | None = None,
    shift_days: int = 0,
    force: bool = False,
) -> Pseudonyms:
    """Write a trace as a table in which names and ids are keyed hashes.

    Ids of tasks that are numbers stay, and so does what is null. The manifest names neither source nor digest, and of
    a map of columns that is not shipped no word: neither its name and remarks, nor reasons of filters, nor columns.

    Args:
        source: a file of any format, or a folder of parquet parts.
        key: hexadecimal digits; the same key gives a name the same hash in every trace.
        form, columns: name of the format, or map of the columns; None: recognised by the content.
        shift_days: days by which all times become later; a multiple of 7 keeps the days of the week.

    Raises:
        InputError: the source is wrong, the shift is too large, or the output cannot be written.
    """
    # A trace begins at 0 or later: what lay before would be left out.
    if not 0 <= shift_days <= DAYS_MAX:
        raise InputError("--shift-days", f"{shift_days} days are no shift; give from 0 to {DAYS_MAX}")

    source_format = format_of(source, form, columns)
    noticed = Noticed()
    hashes = _Hashes(bytes.fromhex(key + "0" * (len(key) % 2)))
    batches: Iterator[pa.RecordBatch] = map(hashes.hashed, read_source(source, source_format, noticed))
    if shift_days:
        batches = shifted(batches, -shift_days * DAY_US)

    with table_output(output, force=force) as table:
        for batch in batches:
            table.add(batch)
        is_own = columns is not None and columns not in SHIPPED
        form_name, remarks = ("columns", ()) if is_own else (source_format.name, source_format.remarks)
        notices = dict(+Noticed({OTHERS: noticed.total()} if is_own else noticed))
        remarks = (*remarks, f"{', '.join((*NAMED, *IDS))} are keyed hashes")
        manifest = TableManifest(VERSION, "", "", form_name, f"volery {volery.__version__}", remarks)
        counts = {"noticed": notices, "rows_read": table.rows, "rows": table.rows}
        meaning = {"far_permille": far_of(source, source_format), "limits": limits_of(source, source_format)}
        table.finish(msgspec.structs.replace(manifest, **counts, **meaning))

    names = {name: len(texts) for name, texts in hashes.names.items() if texts}
    return Pseudonyms(table.rows, names, shift_days)


class _Hashes:
    """Hashes of the names in a table.

    Attributes:
        names: column -> hash of each of its names, where these are few.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.names: dict[str, dict[str, str]] = {name: {} for name in NAMED}

    def hashed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with hashes in place of names."""
        columns = dict(zip(SCHEMA.names, batch.columns, strict=True))
        for name in (*NAMED, *IDS):
            if columns[name].null_count < batch.num_rows:
                columns[name] = self._column(name, columns[name])
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=SCHEMA)

    def _column(self, name: str, texts: Any) -> Any:
        kind = "task" if name == "parents" else name
        memo = self.names.get(name, {})
        if pa.types.is_list(texts.type):
            lists = [words and [self._hash(kind, word, memo) for word in words] for words in texts.to_pylist()]
            return pa.array(lists, texts.type)
        encoded = pc.dictionary_encode(texts)
        hashes = [self._hash(kind, text, memo) for text in encoded.dictionary.to_pylist()]
        return pa.array(hashes, pa.string()).take(encoded.indices)

    def _hash(self, kind: str, text: str, memo: dict[str, str]) -> str:
        # The number of a task within its job names nobody.
        if kind == "task" and text.isascii() and text.isdigit():
            return text
        if text not in memo:
            memo[text] = hmac.digest(self._key, f"{kind}\0{text}".encode(), "sha256").hex()[:HASH_DIGITS]
        return memo[text]
