"""Readers of trace formats: their interface, and the heads, rows and numbers that they share."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from volery.core.errors import InputError
from volery.core.limits import Limits
from volery.core.model import SECOND
from volery.workload.files import numbered_lines
from volery.workload.table import TaskRow
from volery.workload.tr import SECONDS_MAX

HEAD_LINES: Final = 50
DOCUMENT_LINES: Final = 500
HEAD_LINE_BYTES: Final = 1 << 20
QUOTED_LINES_MAX: Final = 1000
"""A quoted field that goes on for longer has lost its end."""
INSTANCES_MAX: Final = 10_000_000
AMOUNT_END: Final = 1e15
PRIORITY_END: Final = 1 << 31
PARQUET_MAGIC: Final = b"PAR1"
SQLITE_MAGIC: Final = b"SQLite format 3\0"

JSON_KEY: Final = re.compile(r'"(\w+)"\s*:')

UNKNOWN_STATUS: Final = "rows of a status that the format does not have, taken for unknown"

T = TypeVar("T")
K = TypeVar("K", str, int)
Noticed = Counter[str]
"""Oddities that a reader passed over or could not decide, with their counts."""


class Head(NamedTuple):
    """The beginning of a file, from which its format is recognised.

    Attributes:
        lines: first lines as text, without blank ones; empty for binary files.
        columns: names of the columns of a parquet file.
    """

    path: Path
    start: bytes
    lines: tuple[str, ...] = ()
    columns: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """The first line as names of columns."""
        return frozenset(fields(self.lines[0])) if self.lines else frozenset()


def always(_: Path) -> bool:
    """True of every file."""
    return True


class Format(NamedTuple):
    """A format of traces; it gives rows or, where the source has columns, batches.

    Attributes:
        name: name for `--format`.
        title: name of the format in messages.
        remarks: known oddities of the format.
        processors: number of processors of the file's machine, where its head states them.
        columns: names of columns, or keys of a document, that a file has; empty: rows have no names.
        like: likeness of a line to a row or a comment, 0 to 1; None: lines alone do not show it.
        limits: use of the limits by a run that is not told otherwise: logs of work that ran are replayed as they ran.
        has_gangs: tells of a file whether rows of it may be jobs whose tasks run only together; None: never.
        usual: rules of the doctor that such files break by their nature, so that it is no defect of one.
    """

    name: str
    title: str
    fits: Callable[[Head], bool]
    rows: Callable[[Path, Noticed], Iterator[TaskRow]] | None = None
    batches: Callable[[Path, Noticed], Iterator[pa.RecordBatch]] | None = None
    remarks: tuple[str, ...] = ()
    processors: Callable[[Head], int | None] | None = None
    columns: frozenset[str] = frozenset()
    like: Callable[[str], float] | None = None
    limits: Limits = "ignore"
    has_gangs: Callable[[Path], bool] | None = None
    usual: tuple[str, ...] = ()


def parquet_parts(path: Path) -> list[Path]:
    """A parquet file itself, or those of a folder in order of their names; `tasks.parquet` may be a folder in it."""
    if not path.is_dir():
        return [path]
    inner = path / "tasks.parquet" if (path / "tasks.parquet").exists() else path
    return sorted(inner.glob("*.parquet")) if inner.is_dir() else [inner]


def head_of(path: Path) -> Head:
    """The head of a file, or of the first part of a folder.

    Raises:
        InputError: it cannot be read.
    """
    parts = parquet_parts(path)
    if not parts:
        raise InputError(str(path), "is a folder without parquet files; name a file")

    try:
        with parts[0].open("rb") as file:
            start = file.read(16)
    except FileNotFoundError:
        raise InputError(str(path), "no such file; check the path") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror}); check its permissions") from None

    if start.startswith(PARQUET_MAGIC):
        try:
            return Head(path, start, columns=frozenset(pq.read_schema(parts[0]).names))
        except (OSError, pa.ArrowInvalid):
            raise InputError(str(path), "is a damaged parquet file; fetch it again") from None

    if start == SQLITE_MAGIC:
        return Head(path, start)

    lines: list[str] = []
    for _, line in numbered_lines(path):
        text = line[:HEAD_LINE_BYTES].decode("utf-8", "replace").strip()
        lines += [text] if text else []
        # A document may be printed with a value in each line.
        if len(lines) == (DOCUMENT_LINES if lines and lines[0][0] in "{[" else HEAD_LINES):
            break

    return Head(path, lines[0][:16].encode() if lines else b"", tuple(lines))


def fields(line: str, separator: str = ",") -> list[str]:
    """The fields of a line, without blanks around them; one field where it is no row of a table at all.

    Args:
        separator: the character between fields; empty: blanks.
    """
    if not separator:
        return line.split()
    try:
        return [word.strip() for word in next(csv.reader([line], delimiter=separator))]
    except csv.Error:
        return [line]


@contextmanager
def place(path: Path, number: int, title: str) -> Iterator[None]:
    """Name the line of what is wrong in a row.

    Raises:
        InputError: instead of an error in a number.
    """
    try:
        yield
    except (ValueError, OverflowError, IndexError, KeyError, msgspec.MsgspecError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}:{number}", f"is no row of {title}: {error}; mend or delete the row") from None


def table_rows(
    path: Path, names: Sequence[str], *, header: frozenset[str] = frozenset(), separator: str = ","
) -> Iterator[tuple[int, dict[str, str]]]:
    """Line and fields by name of each row of a table of text; a quoted field may go on over several lines.

    Args:
        names: names of the columns, where the file has no header.
        header: names that a header holds at least; empty: there is never a header.

    Raises:
        InputError: a row has another number of fields, a quoted field has no end, or a column is named twice.
    """
    text = ""
    began = 0
    number = 0
    first_row = True
    for number, line in numbered_lines(path):
        text, began = text + line.decode("utf-8", "replace").rstrip("\r\n"), began or number
        # A quote that is still open: the field goes on in the next line.
        if text.count('"') % 2 and number - began < QUOTED_LINES_MAX:
            text += " "
            continue
        if text.count('"') % 2:
            break

        complete_row, first, text, began = text, began, "", 0
        if not complete_row.strip():
            continue

        words = fields(complete_row, separator)
        if first_row:
            first_row = False
            if header and header <= set(words):
                names = words
                if repeated_names := [name for name, name_count in Counter(words).items() if name and name_count > 1]:
                    raise InputError(f"{path}:{first}", f"names the column {repeated_names[0]!r} twice; keep one")
                continue

        if len(words) != len(names):
            raise InputError(
                f"{path}:{first}", f"has {len(words)} fields where {len(names)} are expected; mend the row"
            )

        yield first, dict(zip(names, words, strict=True))
    if text:
        raise InputError(f"{path}:{began}", "a quoted field that begins here has no end; mend the row")


def real(text: str) -> float:
    """A number as programs write it, with an exponent too, and nan; Python alone also reads 1_0 and other digits.

    Raises:
        ValueError: it is none.
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} is no number")
    return float(text)


def microseconds(text: str | float, unit: float = SECOND) -> int:
    """A time of the source in microseconds; it may be negative, which the doctor reports.

    Args:
        unit: microseconds in a unit of the time.

    Raises:
        ValueError: it is no number, or over 63 years.
    """
    if isinstance(text, str) and unit == 1 and text.isascii() and text.lstrip("-").isdigit():
        value = int(text)
    else:
        value_us = (real(text) if isinstance(text, str) else text) * unit
        if not abs(value_us) <= SECONDS_MAX * SECOND:  # no number at all, too
            raise ValueError(f"{str(text)!r} is no time up to {SECONDS_MAX} s")
        value = round(value_us)

    if abs(value) > SECONDS_MAX * SECOND:
        raise ValueError(f"{text!r} is no time up to {SECONDS_MAX} s")
    return value


class Clock(tzinfo):
    """A local time of the United States: clocks go ahead in March and back in November, by the rule since 2007.

    Args:
        name: names of its standard and its summer time.
        hours: hours of standard time ahead of UTC.
    """

    def __init__(self, name: tuple[str, str], hours: int) -> None:
        self._names = name
        self._standard = timedelta(hours=hours)

    def utcoffset(self, moment_shown: datetime | None) -> timedelta:
        return self._standard + self.dst(moment_shown)

    def dst(self, moment_shown: datetime | None) -> timedelta:
        """An hour in summer time; of the hour that occurs twice in November, `fold` 1 is the second."""
        if moment_shown is None:
            return timedelta()

        wall_time = moment_shown.replace(tzinfo=None, fold=0)
        summer_begins, summer_ends = _sunday(moment_shown.year, 3, 8), _sunday(moment_shown.year, 11, 1)
        is_summer = summer_begins <= wall_time < (summer_ends - HOUR if moment_shown.fold else summer_ends)
        return HOUR if is_summer else timedelta()

    def tzname(self, moment_shown: datetime | None) -> str:
        return self._names[bool(self.dst(moment_shown))]


HOUR: Final = timedelta(hours=1)
PACIFIC: Final = Clock(("PST", "PDT"), -8)
NAMED_ZONES: Final = {"UTC": 0, "GMT": 0, "PST": -8, "PDT": -7}
"""Hours ahead of UTC of the zones that tables name behind a time."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SPACED_OFFSET: Final = re.compile(r"\s+(?=[+-]\d\d:?\d\d$|Z$)")


def _sunday(year: int, month: int, day: int) -> datetime:
    """Two o'clock of the first Sunday from a day on."""
    from_day = datetime(year, month, day, 2)
    return from_day + timedelta(days=6 - from_day.weekday())


def moment(text: str, clock: tzinfo = UTC, after_us: int | None = None) -> int:
    """A date with a time of the source, in microseconds since 1970; an offset or a zone behind it counts.

    Args:
        clock: clock of a time without either. A time that it shows twice is the first that is not before `after_us`.
        after_us: the time of the event before it, where that is known.

    Raises:
        ValueError: it is no date with a time.
    """
    words, _, zone = text.strip().rpartition(" ")
    is_named = zone in NAMED_ZONES

    try:
        parsed = datetime.fromisoformat(words if is_named else _SPACED_OFFSET.sub("", text.strip()))
    except ValueError:
        zones = f"Z, -07:00 or {', '.join(NAMED_ZONES)} behind it"
        raise ValueError(f"{text!r} is no date with a time, as 2017-10-09 07:00:00, perhaps with {zones}") from None

    if is_named:
        parsed = parsed.replace(tzinfo=timezone(timedelta(hours=NAMED_ZONES[zone])))
    return epoch_us(parsed, clock, after_us)


def epoch_us(shown: datetime, clock: tzinfo, after_us: int | None = None) -> int:
    """A date with a time in microseconds since 1970.

    Args:
        clock, after_us: see `moment`.
    """
    if shown.tzinfo is None:
        shown = shown.replace(tzinfo=clock)

    at_us = _since_epoch(shown)
    # Of an hour that occurs twice the second is meant, if the first lies before the event before.
    if after_us is not None and at_us < after_us:
        at_us = _since_epoch(shown.replace(fold=1))

    return at_us


def _since_epoch(moment_at: datetime) -> int:
    return (moment_at - EPOCH) // timedelta(microseconds=1)


def is_number(text: str) -> bool:
    """True for what `real` reads."""
    try:
        real(text)
    except ValueError:
        return False
    return True


def known(text: str) -> str | None:
    """The field, or None where it is empty."""
    return text or None


def looked_up(table: Mapping[K, str], key: K, noun: str) -> str:
    """The word of ours for a word or number of the source.

    Raises:
        ValueError: the source has no such word.
    """
    if key not in table:
        raise ValueError(f"{key!r} is no {noun}; there are {', '.join(map(str, table))}")
    return table[key]


def amount(text: str, scale: float = 1.0) -> float | None:
    """A requested amount, times a scale; None where the field is empty.

    Raises:
        ValueError: it is no number, or negative.
    """
    if not text:
        return None
    value = real(text) * scale
    if not 0 <= value < AMOUNT_END:
        raise ValueError(f"{text!r} is no amount from 0")
    return value


def priority(text: str) -> int | None:
    """A priority as the source counts; None where the field is empty.

    Raises:
        ValueError: it is no whole number, or too large for 31 bits.
    """
    if not text:
        return None
    value = real(text)
    if not abs(value) < PRIORITY_END or value != int(value):
        raise ValueError(f"{text!r} is no priority: a whole number below {PRIORITY_END}")
    return int(value)


def count(text: str) -> int:
    """A number of equal tasks; a row of none is left out where rows are judged.

    Raises:
        ValueError: it is no whole number from 0 to ten million.
    """
    value = real(text)
    if not 0 <= value <= INSTANCES_MAX or value != int(value):
        raise ValueError(f"{text!r} is no number of instances from 0 to {INSTANCES_MAX}")
    return int(value)


def span(start_us: int | None, end_us: int | None) -> int | None:
    """End minus start; None where either is unknown, or where they contradict each other."""
    return None if start_us is None or end_us is None or end_us < start_us else end_us - start_us


def table_format(
    name: str,
    title: str,
    row: Callable[[dict[str, str], int, Noticed], TaskRow],
    *,
    names: Sequence[str] = (),
    header: frozenset[str] = frozenset(),
    separator: str = ",",
    fits: Callable[[Head], bool] | None = None,
    remarks: tuple[str, ...] = (),
    like: Callable[[str], float] | None = None,
    has_gangs: Callable[[Path], bool] | None = None,
) -> Format:
    """The format of a table of text in which every row is a row of ours.

    Args:
        name, title, remarks, like, has_gangs: see `Format`.
        row: makes the row of the fields by name and the number of the line.
        names, header, separator: see `table_rows`.
        fits: see `Format`; None: the first line names the columns of `header`.
    """

    def rows(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
        for number, words in table_rows(path, names, header=header, separator=separator):
            with place(path, number, title):
                row_made = row(words, number, noticed)
            yield row_made

    fits = fits or (lambda head: head.names() >= header)
    return Format(name, title, fits, rows=rows, remarks=remarks, columns=header, like=like, has_gangs=has_gangs)


def row_like(kinds: str, separator: str = ",") -> Callable[[str], float]:
    """A function that gives the share of a line's fields that are of their kind; 0 where it has more or fewer.

    Args:
        kinds: kind of each field, `n` for a number, `w` for a word, `.` for either; each may be empty.
    """

    def like(line: str) -> float:
        words = fields(line, separator)
        are_numbers = [is_number(word) for word in words]

        if len(words) != len(kinds) or not any(are_numbers):
            return 0.0
        checked_fields = zip(kinds, words, are_numbers, strict=True)
        return sum(not word or kind in (".", "n" if is_n else "w") for kind, word, is_n in checked_fields) / len(kinds)

    return like


def document(path: Path, kind: type[T], described: str) -> T:
    """A file that is one JSON document.

    Raises:
        InputError: it is none of that kind.
    """
    text = b"\n".join(line.rstrip(b"\n") for _, line in numbered_lines(path))

    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise InputError(str(path), f"is no {described}: {error}; fetch it again") from None
