"""A proposed map of columns, from the names and the first rows of a table; a person edits it.

A name places a column ("submitted_at" is a submission), and the values must be of the target's kind. Units come from
the ends of names (`mem_gib`, `limit_h`); a guess is marked as one, and columns that no target takes are listed.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from volery.core.errors import InputError
from volery.workload.files import numbered_lines
from volery.workload.formats.columns.maps import TARGETS
from volery.workload.formats.columns.records import text_of
from volery.workload.formats.columns.values import CLOCK, MEMORY
from volery.workload.formats.source import Head, document, fields, is_number, moment, parquet_parts

PAGE: Final = "docs/how-to/read-a-table.md"
SAMPLE_ROWS: Final = 1000
SHOWN: Final = 3
"""Values of a column that a comment shows."""
TWO_PARTS: Final = re.compile(r"\d+:\d+(?:\.\d+)?")
"""Durations that may be minutes with seconds, or hours with minutes."""
SEPARATORS: Final = (",", ";", "\t", "|")
MOMENT: Final = "(time|at|date|ts|timestamp)?"
NAMES: Final = {
    "job": r"(job|batch|run|request|workload|vm|pod)?(id|uuid|number|no|key|hash)|job(name)?",
    "submit": rf"(time)?(submit(ted)?|submission|creat(e|ed|ion)|arriv(e|ed|al)|enqueued?|queued){MOMENT}",
    "start": rf"(time)?(start(ed)?|begin|began|begun|launch(ed)?){MOMENT}",
    "end": rf"(time)?(end(ed)?|finish(ed)?|complet(e|ed|ion)|stop(ped)?){MOMENT}",
    "wait": r"(wait(ing)?|queu(e|ing)|pending)(time|duration)?",
    "limit": r"(time|wall(time|clock)?|req(uested)?)?limit|(req(uested)?|max)(wall|run)?time|(wall)?timereq(uested)?",
    "runtime": r"(run|wall|execution|elapsed|used)(time|duration)?|duration|elapsedraw",
    "nodes": r"(n|num|no|req|alloc)?(nodes?|machines?|hosts?)(count|num)?",
    "tasks": r"(n|num|no)?(tasks|instances|inst|replicas|workers|pods|procs|processes)(count|num)?|instnum",
    "cores": r"(n|num|no|req|alloc|plan)?(cores?|cpus?|vcpus?|vcores?|processors|slots)(count|num|req)?",
    "devices": r"(n|num|no|req|alloc|plan)?(gpus?|devices?|accelerators?)(count|num|req)?",
    "memory": r"(req|alloc|plan|max)?(mem|memory|ram)(req|size)?",
    "user": r"(user|owner|who|submitter)(id|name)?",
    "group": r"(group|account|project|team|department|vc|tenant)(id|name)?",
    "partition": r"(partition|queue|pool|cluster|class)(id|name)?",
    "priority": r"prio(rity)?",
    "state": r"(job|final|exit|end)?(state|status)",
    "dependency": r"depend(s|ency|encies|son)|parents?|precedingjob",
}
"""Names of columns without signs and units, of each target."""
UNIT_ENDS: Final = {
    "us": "us", "usec": "us", "ms": "ms", "msec": "ms", "s": "s", "sec": "s", "secs": "s", "seconds": "s", "min": "min",
    "mins": "min", "minutes": "min", "h": "h", "hr": "h", "hrs": "h", "hours": "h", "d": "d", "days": "d",
    "b": "B", "bytes": "B", "kb": "KiB", "mb": "MiB", "gb": "GiB", "tb": "TiB", "kib": "KiB", "mib": "MiB",
    "gib": "GiB", "tib": "TiB", "milli": "milli", "percent": "percent", "pct": "percent",
}  # fmt: skip
"""Units by the last word of a name; a kB of a scheduler is 1,024 bytes more often than 1,000."""
TIME_FORMATS: Final = (
    "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M",
    "%d/%m/%Y %H:%M", "%m/%d/%Y %I:%M:%S %p", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%d-%b-%Y %H:%M:%S",
    "%d %b %Y %H:%M:%S", "%a %b %d %H:%M:%S %Y",
)  # fmt: skip
STATE_WORDS: Final = {
    "finished": r"complet|succe|finish|pass|done|^ok$|^cd$|^exited$|^0$",
    "lost": r"node.?fail|lost|boot.?fail",
    "evicted": r"preempt|evict|requeue",
    "failed": r"fail|error|oom|memory|abort|crash",
    "killed": r"cancel|kill|terminat|timeout|deadline|stop|delet",
    "running": r"run|active|executing",
    "waiting": r"pend|queu|wait|submit|held|hold|idle|new",
}
LARGE_TIMES: Final = ((1e17, "us"), (1e14, "us"), (1e11, "ms"))
"""Numbers from which on a time counts in such units; below, in seconds."""
NEEDED: Final = ("job", "submit", "end")


class Table(NamedTuple):
    """The beginning of a table.

    Attributes:
        source: lines of `[source]` that describe the file.
        columns: name -> values of the first rows that have one.
    """

    source: list[str]
    columns: dict[str, list[str]]


class Proposal(msgspec.Struct, frozen=True):
    """A proposed map.

    Args:
        text: map as TOML, with comments.
        placed: target -> column.
        unplaced: columns that no target takes.
        lacking: targets without a column.
    """

    text: str
    placed: dict[str, str]
    unplaced: tuple[str, ...]
    lacking: tuple[str, ...]


def propose(path: Path, head: Head) -> Proposal:
    """A map for a table.

    Raises:
        InputError: the file is no table.
    """
    table = beginning(path, head)
    placed: dict[str, str] = {}
    lines: dict[str, str] = {}

    for target in NAMES:
        for name, values in table.columns.items():
            stem, unit = _stem(name)
            if target in placed or name in placed.values() or not re.fullmatch(NAMES[target], stem):
                continue
            if (entry := _entry(target, name, values, unit)) is not None:
                placed[target] = name
                lines[target] = entry
    unplaced = tuple(name for name in table.columns if name not in placed.values())
    lacking = tuple(target for target in TARGETS if target not in placed and target in NAMES)

    states = _states(table.columns[placed["state"]]) if "state" in placed else []
    text = _text(path, table, lines, states, unplaced, lacking)
    return Proposal(text, placed, unplaced, lacking)


def _text(
    path: Path,
    table: Table,
    lines: dict[str, str],
    states: list[str],
    unplaced: Sequence[str],
    lacking: Sequence[str],
) -> str:
    needed = [target for target in NEEDED if target not in lines]
    if "end" in needed and "runtime" in lines:
        needed.remove("end")
    if "submit" in needed and "start" in lines:
        needed.remove("submit")

    parts = [
        f"# A proposal for {_shown(path.name)}, from the names of its columns and its first rows. Check and edit it;",
        f"# then: volery trace doctor {_shown(path.name)} --columns FILE.toml  (keys: {PAGE})",
        "",
        "[source]",
        *table.source,
        "",
        "[columns]",
        *lines.values(),
        *[f'# {target} = "?"  # needed, and no column looks like it' for target in needed],
    ]
    if unplaced:
        shown = [f"{_shown(name)} ({_examples(table.columns[name])})" for name in unplaced]
        parts += ["", "# Columns without a target:", *[f"#   {text}" for text in shown]]
    if further := [target for target in lacking if target not in needed]:
        parts.append(f"# Targets without a column: {', '.join(further)}")
    return "\n".join([*parts, *([""] if states else []), *states, ""])


def beginning(path: Path, head: Head) -> Table:
    """The first rows of a file.

    Raises:
        InputError: it is no table.
    """
    if head.columns:
        file = pq.ParquetFile(parquet_parts(path)[0])
        batch = next(file.iter_batches(SAMPLE_ROWS), None)
        columns = {} if batch is None else {name: batch.column(name) for name in batch.schema.names}
        flat = {name: values for name, values in columns.items() if not pa.types.is_nested(values.type)}
        return Table(
            ['form = "parquet"'],
            {name: _valid(pc.cast(values, pa.string()).to_pylist()) for name, values in flat.items()},
        )
    if head.lines and head.lines[0][:1] in ("{", "["):
        return _json_beginning(path, head)
    return _text_beginning(path, head)


def _valid(values: Iterable[str | None]) -> list[str]:
    return [value.strip() for value in values if value is not None and value.strip()]


def _json_beginning(path: Path, head: Head) -> Table:
    """The first rows of lines of objects, or of the first list of objects in a document.

    Raises:
        InputError: there are none.
    """
    with suppress(msgspec.MsgspecError, RecursionError):
        rows = [msgspec.json.decode(line, type=dict[str, Any]) for line in head.lines]
        if len(rows) > 1:
            return Table(['form = "json-lines"'], _flattened(rows))

    content: Any = document(path, object, "JSON document")
    lists = content if isinstance(content, dict) else {"": content}
    for keys, rows in lists.items():
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            source = ['form = "json"', *([f"rows = {_quoted(keys)}"] if keys else [])]
            return Table(source, _flattened(rows[:SAMPLE_ROWS]))
    raise InputError(str(path), f"holds no list of objects that could be rows; {PAGE} shows the forms that are read")


def _flattened(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """The scalars of objects by their keys, with dots between those of nested ones."""
    columns: dict[str, list[str]] = {}

    def add(row: dict[str, Any], prefix: str) -> None:
        for key, value in row.items():
            if isinstance(value, dict):
                add(value, f"{prefix}{key}.")
            elif not isinstance(value, list):
                columns.setdefault(prefix + key, []).extend(_valid([text_of(value)]))

    for row in rows:
        add(row, "")
    return columns


def _text_beginning(path: Path, head: Head) -> Table:
    """The first rows of a text; the separator is the one that cuts most lines into equally many fields."""

    def widths(separator: str) -> tuple[int, int]:
        counts = [len(fields(line, separator)) for line in head.lines]
        common = max(counts, key=counts.count)
        return (counts.count(common), common) if common > 1 else (0, 0)

    separator = max(SEPARATORS, key=widths) if head.lines else ","
    if not head.lines or widths(separator) == (0, 0):
        problem = f"is no table with a separator (, ; tab or |), and no JSON; {PAGE} shows the forms that are read"
        raise InputError(f"{path}:1", problem)

    lines = (line.decode("utf-8", "replace").rstrip("\r\n") + "\n" for _, line in numbered_lines(path))
    reader = csv.reader(itertools.islice(lines, SAMPLE_ROWS), delimiter=separator)
    try:
        rows = [row for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        problem = f"is no row of a table: {error}; mend the quotes"
        raise InputError(f"{path}:{reader.line_num}", problem) from None
    if not rows:
        raise InputError(f"{path}:1", f"holds separators alone; {PAGE} shows the forms that are read")
    names = [name.strip() for name in rows[0]]
    source = [f"separator = {json.dumps(separator)}"]

    if any(map(is_number, names)) or len({*names}) < len(names):
        names = [f"column{number}" for number in range(1, len(names) + 1)]
        source.append(f"names = {_listed(names)}  # the file has no header line; give the columns names")
    else:
        rows = rows[1:]

    texts = {name: _valid(row[place] for row in rows if len(row) > place) for place, name in enumerate(names) if name}
    if separator != "," and any(re.fullmatch(r"-?\d+,\d+", value) for values in texts.values() for value in values):
        source.append('decimal = ","')
    source.append('zone = "UTC"  # of times that state none: name the zone of the clock, as "Europe/Berlin"')
    return Table(source, texts)


def _stem(name: str) -> tuple[str, str]:
    """The last part of a name in small letters, without signs and unit; and the unit that it ends in."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(".")[2]).lower()
    words = [word for word in re.split(r"[^a-z0-9]+", spaced) if word]
    unit = UNIT_ENDS.get(words[-1], "") if len(words) > 1 else ""
    return "".join(words[:-1] if unit else words), unit


def _entry(target: str, name: str, values: Sequence[str], unit: str) -> str | None:
    """The line of a target; None where the values are not of its kind."""
    kind = TARGETS[target]
    guess = ""
    extra: dict[str, str] = {}

    if kind == "time":
        time_keys, guess = _time_keys(values, unit)
        if time_keys is None:
            return None
        extra = time_keys
    elif kind in ("duration", "cores", "memory"):
        texts = CLOCK if kind == "duration" else MEMORY if kind == "memory" else None
        are_numbers = all(is_number(value.replace(",", ".")) for value in values)
        if not are_numbers and not (texts and all(texts.fullmatch(value) for value in values)):
            return None
        if are_numbers and kind != "cores":
            extra = {"unit": unit or ("s" if kind == "duration" else "MiB")}
            guess = "" if unit else "; the unit is a guess"
        elif kind == "duration" and any(TWO_PARTS.fullmatch(value) for value in values):
            extra = {"unit": "h"} if unit == "h" else {}
            guess = f"; {'hours:minutes' if unit == 'h' else 'minutes:seconds'} is a guess"
        elif unit in ("milli", "percent"):
            extra = {"unit": unit}
    elif kind in ("count", "priority") and not all(is_number(value) for value in values):
        return None

    tables = ", ".join(f"{key} = {_quoted(value)}" for key, value in {"column": name, **extra}.items())
    form = f"{{ {tables} }}" if extra else _quoted(name)
    return f"{target} = {form}  # {_examples(values)}{guess}"


def _time_keys(values: Sequence[str], unit: str) -> tuple[dict[str, str] | None, str]:
    """The unit or format of times, and what is a guess of it; None where they are no times."""
    if not values:
        return {}, ""
    if all(is_number(value) for value in values):
        largest = max(abs(float(value)) for value in values)
        guessed = next((name for least, name in LARGE_TIMES if largest >= least), "s")
        return {
            "unit": unit if unit in ("us", "ms", "s", "min", "h", "d") else guessed
        }, "" if unit else "; the unit is a guess"

    with suppress(ValueError):
        for value in values:
            moment(value)
        return {}, ""

    fitting = [form for form in TIME_FORMATS if all(_fits(value, form) for value in values)]
    if not fitting:
        return None, ""
    return {"format": fitting[0]}, f"; or {fitting[1]}" if len(fitting) > 1 else ""


def _fits(value: str, form: str) -> bool:
    with suppress(ValueError):
        datetime.strptime(value, form).replace(tzinfo=UTC)
        return True
    return False


def _states(values: Sequence[str]) -> list[str]:
    """Lines of `[states]`, with the words of the sample where they seem to belong."""
    placed: dict[str, list[str]] = {}
    # A number in a state, as of who cancelled, stands for any.
    for word in dict.fromkeys(re.sub(r"(?<=\D)\d+", "*", value) for value in values):
        status = next((name for name, words in STATE_WORDS.items() if re.search(words, word.lower())), "?")
        placed.setdefault(status, []).append(word)

    unknown = placed.pop("?", [])
    return [
        "[states]",
        "# finished: ran to its end; failed, killed, evicted, lost: ran, if it has a start; waiting: never started",
        *[f"{status} = {_listed(words)}" for status, words in placed.items()],
        *([f"# Words without a status: {_shown(', '.join(unknown))}"] if unknown else []),
    ]


def _examples(values: Sequence[str]) -> str:
    """Some values of a column, for a comment in one line."""
    shown = list(itertools.islice(dict.fromkeys(values), SHOWN))
    return ", ".join(_shown(value[:40]) for value in shown) or "no value in the first rows"


def _shown(text: str) -> str:
    """A text for a comment, in one line."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _quoted(text: str) -> str:
    """A string of TOML, which takes signs beyond 16 bits as they are, and no DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"
