"""Rows of a mapped file as columns of texts, a part of the file at a time, with the line of each row.

Texts with a separator (CSV, TSV, the output of `sacct -P`), lines of JSON, one JSON document, parquet, lines of
`KEY=value` pairs, and ClassAds. Other forms are readers of their own in `READERS`.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from volery.core.errors import InputError, suggestion
from volery.workload.files import numbered_lines
from volery.workload.formats.columns.maps import ColumnMap, TableSource
from volery.workload.formats.source import Noticed, document, parquet_parts
from volery.workload.table import BATCH_ROWS

JOINED_LINES_MAX: Final = 1000
"""A field that goes on for longer has lost its end."""
WAYS_MAX: Final = 2000
"""Ways to share separators among columns that are tried for a row."""
SPILLED: Final = "rows of which a {} holds separators"
JOINED: Final = "rows of which a {} holds line ends"
UNDECODED: Final = "lines with bytes that are no UTF-8"
REPEATED_ATTRIBUTES: Final = "attributes that an ad has twice, of which the last counts"
REPEATED_KEYS: Final = "lines that have a key twice, of which the last counts"

AD_LINE: Final = re.compile(r"([A-Za-z_]\w*) = (\S.*)")
"""An attribute of a ClassAd as `condor_history -long` writes it."""
AD_END: Final = "***"
"""Beginning of the line behind each ClassAd in a history file of HTCondor."""
AD_LITERAL: Final = re.compile(r"[+-]?\.?\d[\w.+-]*|true|false|undefined|error", re.IGNORECASE)

CLOCKS: Final = ("submit", "start", "end")
CLOCK_LIKE: Final = re.compile(r"(?!(?:\d+-)?\d+(?::\d+)+$)[\d\s:./,TZ+-]*")
"""Texts that may be times; a duration as 1-02:03:04 is none."""

Row = tuple[int, Sequence[str | None]]
"""The line of a row, and its fields in the order of the names."""


class Chunk(NamedTuple):
    """Rows of a file.

    Attributes:
        lines: per row, the number of its first line, or of the row where the file has no lines.
        columns: name -> texts of the rows; None where a row has no such value.
    """

    lines: Sequence[int]
    columns: dict[str, Any]


Reader = Callable[[Path, ColumnMap, Noticed], Iterator[Chunk]]


def chunks(names: Sequence[str], rows: Iterable[Row], present: Iterable[str]) -> Iterator[Chunk]:
    """Rows as columns, 65,536 at a time.

    Args:
        names: names of the fields of a row.
        present: names of the columns that are wanted; what is not among `names` is left out.
    """
    places = {name: place for place, name in enumerate(names)}
    wanted_places = {name: places[name] for name in present if name in places}

    iterator = iter(rows)
    while (chunk := _chunk(list(itertools.islice(iterator, BATCH_ROWS)), wanted_places)) is not None:
        yield chunk


def _chunk(part: Sequence[Row], places: Mapping[str, int]) -> Chunk | None:
    """Rows as columns, after which nothing holds the rows; None: there are none."""
    if not part:
        return None
    lines, texts = zip(*part, strict=True)
    columns = list(zip(*texts, strict=True))
    return Chunk(lines, {name: pa.array(columns[place], pa.string()) for name, place in places.items()})


def check_names(path: Path, column_map: ColumnMap, names: Iterable[str]) -> None:
    """Refuse a file without a column that the map reads, or without any for a target that it needs.

    Raises:
        InputError: the message names the column, and the like that there are.
    """
    present = set(names)
    for target, entries in column_map.columns.items():
        if column_map.source.lacks and target not in column_map.source.needs:
            continue
        lacking = [entry.column for entry in entries if entry.column not in present]
        if len(lacking) == len(entries) or (lacking and not column_map.source.lacks):
            fix = column_map.fix or f"mend columns.{target} of the map"
            problem = f"has no column {lacking[0]!r}, which gives {target}{suggestion(lacking[0], present)}; {fix}"
            raise InputError(str(path), problem)

    for rule in column_map.filter:
        if rule.column not in present and not column_map.source.lacks:
            problem = f"has no column {rule.column!r} for the filter of the map{suggestion(rule.column, present)}"
            raise InputError(str(path), problem)


def text_chunks(path: Path, column_map: ColumnMap, noticed: Noticed) -> Iterator[Chunk]:
    """The rows of a text with a separator.

    Raises:
        InputError: a row has another number of fields, a quoted field has no end, or a column is named twice.
    """
    source = column_map.source
    rows = _quoted_rows(path, source, noticed) if source.quotes else _plain_rows(path, source, noticed)
    names: Sequence[str] = source.names
    first, head = next(rows, (0, ()))
    words = [str(word).strip() for word in head]

    # Of a table whose names are known, too, there are copies with a header.
    if not names or set(source.header or names) <= set(words):
        names = words
        twice = [name for name, name_count in Counter(names).items() if name and name_count > 1]
        if twice:
            raise InputError(f"{path}:{first}", f"names the column {twice[0]!r} twice; keep one")
    elif words:
        rows = itertools.chain([(first, head)], rows)

    check_names(path, column_map, names)
    yield from chunks(names, _of_width(path, rows, names, column_map, noticed), column_map.source_names)


def _texts(path: Path, noticed: Noticed, comment: str = "") -> Iterator[tuple[int, str]]:
    for number, line in numbered_lines(path):
        if comment and line.startswith(comment.encode()):
            continue
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if "\ufffd" in text:
            noticed[UNDECODED] += 1
        yield number, text


def _quoted_rows(path: Path, source: TableSource, noticed: Noticed) -> Iterator[Row]:
    """Rows of a text in which `"` encloses fields; a field may go on over several lines.

    Raises:
        InputError: a quoted field has no end, or is longer than any value.
    """
    reader = csv.reader((text + "\n" for _, text in _texts(path, noticed)), delimiter=source.separator, strict=True)
    first = 1
    try:
        for words in reader:
            if any(words):
                yield first, words
            first = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}:{first}", f"is no row of a table: {error}; mend the quotes") from None


def _plain_rows(path: Path, source: TableSource, noticed: Noticed) -> Iterator[Row]:
    """Rows of a text without quotes; a row that is too short goes on in the next line, where a column may hold that."""
    width = 0
    pending: list[str] = []
    began = joined_lines = 0

    for number, text in _texts(path, noticed, source.comment):
        words = text.split(source.separator or None)
        width = width or len(source.names) or len(words)

        # A line that is a row by itself does not belong to the short one above it.
        if pending and (len(words) >= width or joined_lines > JOINED_LINES_MAX or not source.spill):
            yield began, pending
            pending = []
        if pending:
            words = [*pending[:-1], f"{pending[-1]}\n{words[0]}", *words[1:]]
        elif not text:
            continue
        else:
            began, joined_lines = number, 0

        if len(words) < width:
            pending = words
            joined_lines += 1
            continue
        yield began, words
        pending = []

    if pending:
        yield began, pending


def _of_width(
    path: Path, rows: Iterator[Row], names: Sequence[str], column_map: ColumnMap, noticed: Noticed
) -> Iterator[Row]:
    """The rows with as many fields as there are names; columns that may hold separators take what is too many.

    Raises:
        InputError: a row has another number of fields.
    """
    source, width = column_map.source, len(names)
    spill = [name for name in source.spill if name in names]
    places = [(name, names.index(name)) for name in spill]
    clocks = [names.index(entry.column) for target in CLOCKS for entry in column_map.given(target)
              if entry.column in names]  # fmt: skip

    for line, words in rows:
        too_many = len(words) - width
        if too_many and (too_many < 0 or not spill):
            raise InputError(f"{path}:{line}", f"has {len(words)} fields where {width} are expected; mend the row")
        if too_many:
            words = _spilled(list(map(str, words)), names, spill, clocks, source)
        for name, place in places:
            text = str(words[place])
            noticed[SPILLED.format(name)] += source.separator in text
            noticed[JOINED.format(name)] += "\n" in text
        yield line, words


def _spilled(
    words: list[str], names: Sequence[str], spill: Sequence[str], clocks: Sequence[int], source: TableSource
) -> list[str]:
    """The fields of a row with too many: of the ways to share what is too many, the first in which times are times."""
    too_many = len(words) - len(names)
    first_way: list[str] | None = None

    for shares in itertools.islice(_ways(too_many, len(spill)), WAYS_MAX):
        extra = dict(zip(spill, shares, strict=True))
        row, at = [], 0
        for name in names:
            end = at + 1 + extra.get(name, 0)
            row.append(source.separator.join(words[at:end]))
            at = end
        first_way = first_way or row
        if all(row[place] in source.missing or CLOCK_LIKE.fullmatch(row[place]) for place in clocks):
            return row
    return first_way or words


def _ways(count: int, columns: int) -> Iterator[tuple[int, ...]]:
    """The ways to share so many separators among columns: first all to one, then the more to the left the sooner."""
    for place in range(columns):
        yield tuple(count if column == place else 0 for column in range(columns))
    for bars in itertools.combinations(range(count + columns - 2, -1, -1), columns - 1):
        bounds = [count + columns - 1, *bars, -1]
        shares = tuple(high - low - 1 for high, low in itertools.pairwise(bounds))[::-1]
        if max(shares) < count:
            yield shares


def pair_chunks(path: Path, column_map: ColumnMap, noticed: Noticed) -> Iterator[Chunk]:
    """The rows of a text of `KEY=value` pairs, separated by blanks; values may hold blanks, and line ends, too."""
    names = column_map.source.names
    check_names(path, column_map, names)
    return chunks(names, _pair_rows(path, names, noticed), column_map.source_names)


def _pair_rows(path: Path, names: Sequence[str], noticed: Noticed) -> Iterator[Row]:
    """Rows, each of which begins at a line that begins with the first key.

    Raises:
        InputError: the first line begins otherwise, or a row has no end.
    """
    keys = re.compile(rf"(?:^| )({'|'.join(map(re.escape, names))})=")
    pending: list[str] = []
    began = 0

    def row() -> Row:
        pieces = keys.split("\n".join(pending).rstrip())
        values = dict(zip(pieces[1::2], pieces[2::2], strict=True))
        noticed[REPEATED_KEYS] += len(values) < len(pieces) // 2
        noticed[JOINED.format("value")] += any("\n" in text.strip() for text in values.values())
        return began, [values.get(name) for name in names]

    for number, text in _texts(path, noticed):
        if text.startswith(f"{names[0]}="):
            if pending:
                yield row()
            pending, began = [], number
        elif text.strip() and (not pending or len(pending) > JOINED_LINES_MAX):
            raise InputError(f"{path}:{number}", f"does not begin with {names[0]}=, as a row does; mend the row")
        if pending or text.strip():
            pending.append(text)
    if pending:
        yield row()


def value_at(row: Any, keys: str) -> Any:
    """The value of a JSON object below keys with dots between them; a key may hold dots itself; None: there is none."""
    if isinstance(row, dict) and keys in row:
        return row[keys]
    head, dot, further_keys = keys.partition(".")
    while dot and not (isinstance(row, dict) and head in row):
        if isinstance(row, list):
            place = int(head) if head.isdigit() else len(row)
            return value_at(row[place], further_keys) if place < len(row) else None
        inner, dot, further_keys = further_keys.partition(".")
        head = f"{head}.{inner}"
    return value_at(row[head], further_keys) if dot else None


def text_of(value: Any) -> str | None:
    """A JSON value as text: scalars as they are written, others as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _json_chunks(path: Path, column_map: ColumnMap, objects: Iterable[tuple[int, Any]]) -> Iterator[Chunk]:
    """Objects as columns; keys that no object of the first part has are refused."""
    names = column_map.source_names

    def rows() -> Iterator[Row]:
        for number, row in objects:
            yield number, [text_of(value_at(row, name)) for name in names]

    for place, chunk in enumerate(chunks(names, rows(), names)):
        if place == 0:
            present = [name for name in names if chunk.columns[name].null_count < len(chunk.lines)]
            check_names(path, column_map, present)
        yield chunk


def json_line_chunks(path: Path, column_map: ColumnMap, noticed: Noticed) -> Iterator[Chunk]:
    """The rows of a file with a JSON object per line.

    Raises:
        InputError: a line is no object.
    """

    def objects() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, text in _texts(path, noticed):
            if not text.strip():
                continue
            try:
                yield number, msgspec.json.decode(text, type=dict[str, Any])
            except (msgspec.MsgspecError, RecursionError) as error:
                raise InputError(
                    f"{path}:{number}", f"is no object of JSON: {error}; mend or delete the line"
                ) from None

    return _json_chunks(path, column_map, objects())


def ad_chunks(path: Path, column_map: ColumnMap, noticed: Noticed) -> Iterator[Chunk]:
    """The rows of a text of ClassAds, an attribute a line, with a blank line behind each (HTCondor manual).

    Raises:
        InputError: a line is no attribute.
    """

    def ads() -> Iterator[tuple[int, dict[str, str]]]:
        ad: dict[str, str] = {}
        began = 1
        for number, text in _texts(path, noticed):
            attribute = AD_LINE.fullmatch(text.strip())
            if attribute is not None:
                began = began if ad else number
                noticed[REPEATED_ATTRIBUTES] += attribute[1] in ad
                ad[attribute[1]] = ad_value(attribute[2])
            elif text.strip() and not text.startswith(AD_END):
                raise InputError(f"{path}:{number}", f"{text[:40]!r} is no attribute as Name = value; mend the line")
            elif ad:
                yield began, ad
                ad = {}
        if ad:
            yield began, ad

    return _json_chunks(path, column_map, ads())


def ad_value(text: str) -> str:
    """The text of a value of a ClassAd; an expression becomes `/Expr(...)/`, as in the JSON output of HTCondor."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text if AD_LITERAL.fullmatch(text) else f"/Expr({text})/"


def json_chunks(path: Path, column_map: ColumnMap, _noticed: Noticed) -> Iterator[Chunk]:
    """The rows of one JSON document: the list below `rows`, or the document itself.

    Raises:
        InputError: there is no such list.
    """
    content = document(path, object, "JSON document")
    keys = column_map.source.rows
    rows = value_at(content, keys) if keys else content
    if not isinstance(rows, list):
        raise InputError(
            str(path), f"has no list {'below ' + keys if keys else 'of rows'}; mend source.rows of the map"
        )
    return _json_chunks(path, column_map, enumerate(rows, start=1))


def parquet_chunks(path: Path, column_map: ColumnMap, _noticed: Noticed) -> Iterator[Chunk]:
    """The rows of a parquet file, or of a folder of its parts.

    Raises:
        InputError: it cannot be read, or a column is no text, number or time.
    """
    first = 1
    for part in parquet_parts(path):
        try:
            with pq.ParquetFile(part) as file:
                present = file.schema_arrow.names
                check_names(part, column_map, present)
                names = [name for name in column_map.source_names if name in present]

                for batch in file.iter_batches(BATCH_ROWS, columns=names):
                    texts = {name: _cast(batch.column(name), f"{part}:{first}", name) for name in names}
                    yield Chunk(range(first, first + batch.num_rows), texts)
                    first += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            problem = (str(error).splitlines() or [""])[0]
            raise InputError(f"{part}:{first}", f"cannot be read: {problem}; fetch it again") from None


def _cast(values: pa.Array, place: str, name: str) -> pa.Array:
    """The values of a parquet column as texts.

    Raises:
        InputError: it holds lists, objects, or bytes that are no text.
    """
    try:
        return pc.cast(values, pa.string())
    except pa.ArrowException:
        problem = f"the column {name!r} is {values.type}, no text, number or time; map another, or write it as text"
        raise InputError(place, problem) from None


READERS: Final[Mapping[str, Reader]] = {
    "text": text_chunks,
    "json-lines": json_line_chunks,
    "json": json_chunks,
    "parquet": parquet_chunks,
    "pairs": pair_chunks,
    "ads": ad_chunks,
}
"""Readers by the forms that maps write."""
