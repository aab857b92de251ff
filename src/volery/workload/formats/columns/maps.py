"""Maps of columns: a TOML file states which columns of a table give the jobs of a trace, in which units and zone.

`[source]` describes the file, `[columns]` names for each target the column that gives it, `[states]` lists the words of
the source for each status of the trace table, `[[filter]]` keeps or drops rows by the value of a column, and `[window]`
cuts a part out of the time. docs/how-to/read-a-table.md explains each key.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec

from volery.core.errors import InputError, suggestion
from volery.workload.formats.columns.functions import FUNCTIONS
from volery.workload.formats.columns.values import AMOUNT_UNITS, TIME_UNITS, Kind, check_time_format, zone_of
from volery.workload.table import STATUSES

TARGETS: Final[dict[str, Kind]] = {
    "job": "word",
    "task": "word",
    "cluster": "word",
    "user": "word",
    "group": "word",
    "partition": "word",
    "submit": "time",
    "start": "time",
    "end": "time",
    "deadline": "time",
    "wait": "duration",
    "runtime": "duration",
    "limit": "duration",
    "estimate": "duration",
    "nodes": "count",
    "tasks": "count",
    "array": "count",
    "cores": "cores",
    "devices": "cores",
    "memory": "memory",
    "priority": "priority",
    "state": "state",
    "dependency": "words",
    "rack": "rack",
}
"""Targets of `[columns]`, and the kinds of their values; `array` is the number of equal jobs that a row stands for.

`rack` has `prefer` or `require` where the tasks of a job are to lie in one rack."""
UNITS: Final[dict[Kind, Mapping[str, float]]] = {
    "time": TIME_UNITS,
    "duration": TIME_UNITS,
    "cores": AMOUNT_UNITS["cores"],
    "memory": AMOUNT_UNITS["memory"],
}
"""Units of the kinds of values that have one."""

FORMS: Final = ("text", "json-lines", "json", "parquet", "pairs", "ads")
"""Forms of files; `volery.workload.formats.columns.records` has a reader of each."""

Per = Literal["job", "node", "task", "core"]


class SourceColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column of the source, and how its texts are read.

    Args:
        column: Name of the column; of a JSON file the keys to the value, with dots between them.
        unit: Unit of numbers, one of `UNITS`; empty: texts state theirs, or there is only one.
        format: Format of a time in the letters of `strptime`; empty: ISO 8601.
        pattern: Regular expression whose first group is the value; without a match there is none.
        function: Name of a function of `FUNCTIONS` that makes the value of the text.
        per: Thing of which the amount is: the whole job, each of its nodes or tasks, or each core.
    """

    column: str
    unit: str = ""
    format: str = ""
    pattern: str = ""
    function: str = ""
    per: Per = "job"


class TableSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file that a map is for.

    Args:
        form: Form of the file, one of `FORMS`.
        separator: Character between fields of a text; empty, without quotes: any blanks.
        comment: Beginning of the lines of a text without quotes that are passed over; empty: there are none.
        quotes: True where `"` encloses fields of a text that hold separators or line ends.
        names: Names of the columns of a text whose header line may lack; of `pairs`, the keys in front of values.
        rows: Keys to the list of rows in a JSON document, with dots between them.
        spill: Columns of a text without quotes that may hold separators and line ends: the first that the file has.
        missing: Texts that stand for no value, beside the empty one.
        decimal: Character before the fraction of a number.
        zone: Time zone of times that state none: a name of the IANA database, or an offset as +01:00.
        header: Names by which a file is recognised; empty: it is only read where the map is named.
        begins: Regular expression by whose match in the first line a file is recognised.
        kinds: Kinds of the fields of a text without a header line, by which it is recognised; see `source.row_like`.
        needs: Targets of which a file must have some column.
        attempts: True where a further row of a job is a further attempt, which came when the attempt before ended,
            or later if it says so.
        lacks: True where a file may lack columns that the map names.
    """

    form: str = "text"
    separator: str = ","
    comment: str = ""
    quotes: bool = True
    names: tuple[str, ...] = ()
    rows: str = ""
    spill: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    decimal: Literal[".", ","] = "."
    zone: str = "UTC"
    header: tuple[str, ...] = ()
    begins: str = ""
    kinds: str = ""
    needs: tuple[str, ...] = ()
    attempts: bool = False
    lacks: bool = False


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows that are read, by the value of a column; `*` and `?` stand for any letters, and for one.

    Args:
        column: Name of the column of the source.
        keep: Values of the rows that are read; empty: all but those to drop.
        drop: Values of the rows that are passed over.
        reason: Noun phrase for the rows that are passed over.
    """

    column: str
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    reason: str = ""


class MapWindow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"since": "from", "until": "to"}):
    """A part of the time, from a moment until just before another, as the source writes moments."""

    since: Any = None
    until: Any = None


class ColumnMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A map of columns.

    Args:
        columns: Target -> columns that give it, the first that has a value.
        name: Name of the format.
        title: Name of the format in messages.
        fix: Command or action that makes a file that can be read, for messages.
        remarks: Peculiarities of the format.
        gang: True where the tasks of a job run only together; None: where nodes or tasks are mapped.
    """

    columns: dict[str, Any]
    name: str = "columns"
    title: str = "a table with columns of its own"
    fix: str = ""
    remarks: tuple[str, ...] = ()
    source: TableSource = TableSource()
    states: dict[str, tuple[str, ...]] = {}
    filter: tuple[Filter, ...] = ()
    window: MapWindow = MapWindow()
    gang: bool | None = None

    def given(self, target: str) -> tuple[SourceColumn, ...]:
        """The columns that give a target; nothing where none does."""
        return cast("tuple[SourceColumn, ...]", self.columns.get(target, ()))

    @property
    def has_gangs(self) -> bool:
        """True where the tasks of a job run only together."""
        return bool(self.given("nodes") or self.given("tasks")) if self.gang is None else self.gang

    @property
    def states_runs(self) -> bool:
        """True where rows state what has run: a start, an end, a wait or a state; else they are plans of runs."""
        return any(self.given(target) for target in ("start", "end", "wait", "state"))

    @property
    def source_names(self) -> tuple[str, ...]:
        """The columns of the source that the map reads, each once."""
        names = [entry.column for entries in self.columns.values() for entry in entries]
        return tuple(dict.fromkeys([*names, *(rule.column for rule in self.filter)]))


def read_map(path: Path) -> ColumnMap:
    """The map that a TOML file states.

    Raises:
        InputError: the file cannot be read, or a key is wrong; the message names it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}; check the path and its permissions"
        raise InputError(str(path), problem) from None
    return parsed_map(text, str(path))


def parsed_map(text: str, place: str) -> ColumnMap:
    """The map that a text states.

    Raises:
        InputError: a key is wrong; the message names it.
    """
    try:
        tables = tomllib.loads(text)
        stated_map = msgspec.convert(tables, ColumnMap)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        fix = "; name each target once" if "overwrite" in str(error) else ""
        raise InputError(f"{place}:{line[1]}" if line else place, f"is not TOML: {error}{fix}") from None
    except msgspec.ValidationError as error:
        problem, _, key = str(error).replace("`", "").partition(" - at $")
        raise InputError(f"{place}: {key.lstrip('.')}".rstrip(": "), problem[:1].lower() + problem[1:]) from None

    columns = {target: _entries(target, value, place) for target, value in stated_map.columns.items()}
    complete_map = msgspec.structs.replace(stated_map, columns=columns)
    _check(complete_map, place)
    return complete_map


def _entries(target: str, value: Any, place: str) -> tuple[SourceColumn, ...]:
    """The columns that give a target: a name, a table, or a list of these."""
    where = f"{place}: columns.{target}"
    if target not in TARGETS:
        raise InputError(where, f"is no target{suggestion(target, TARGETS)}")

    entries = []
    for entry in value if isinstance(value, list) else [value]:
        try:
            entries.append(msgspec.convert({"column": entry} if isinstance(entry, str) else entry, SourceColumn))
        except msgspec.ValidationError as error:
            problem = str(error).replace("`", "").partition(" - at $")[0]
            form = 'write a name, or a table as {column = "NAME", unit = "h"}'
            raise InputError(where, f"{problem[:1].lower() + problem[1:]}; {form}") from None

    for entry in entries:
        _check_entry(entry, TARGETS[target], where)
    return tuple(entries)


def _check_entry(entry: SourceColumn, kind: Kind, where: str) -> None:
    """Refuse what the kind of a target does not have."""
    units = UNITS.get(kind, {})
    if entry.unit and entry.unit not in units:
        choices = f"; write {', '.join(units)}" if units else ": a value of this target has none; leave it out"
        raise InputError(f"{where}.unit", f"{entry.unit!r} is no unit{choices}")

    if entry.format:
        if kind != "time":
            raise InputError(f"{where}.format", "is for submit, start and end alone; leave it out")
        check_time_format(entry.format, f"{where}.format")

    if entry.per != "job" and kind not in ("cores", "memory"):
        raise InputError(f"{where}.per", "is for cores, devices and memory alone; leave it out")
    if entry.function and entry.function not in FUNCTIONS:
        raise InputError(
            f"{where}.function", f"{entry.function!r} is no function{suggestion(entry.function, FUNCTIONS)}"
        )
    if entry.pattern and _compiled(entry.pattern, f"{where}.pattern").groups != 1:
        raise InputError(f"{where}.pattern", f"{entry.pattern!r} has not one group (...) around the value")


def _compiled(pattern: str, where: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(where, f"{pattern!r} is no regular expression: {error}; mend it") from None


def _check(column_map: ColumnMap, place: str) -> None:
    """Refuse a map that gives no job, no time or no order, or that contradicts itself."""
    source, targets = column_map.source, column_map.columns
    if "job" not in targets:
        raise InputError(f"{place}: columns", 'lacks job, the id of a job; write job = "NAME OF A COLUMN"')
    if "submit" not in targets and "start" not in targets:
        raise InputError(f"{place}: columns", "lacks submit and start, so that no job has a time; map one of them")
    if "runtime" not in targets and "end" not in targets:
        raise InputError(f"{place}: columns", "lacks end and runtime, so that no job has a duration; map one of them")
    if "end" in targets and "runtime" not in targets and not {"start", "wait"} & set(targets):
        raise InputError(f"{place}: columns", "lacks start, from which a job runs until its end; map it, or runtime")

    if "rack" in targets and not column_map.has_gangs:
        fix = "map nodes or tasks, or leave it out"
        raise InputError(f"{place}: columns.rack", f"is for jobs whose tasks run only together; {fix}")

    zone_of(source.zone, f"{place}: source.zone")
    if source.form not in FORMS:
        raise InputError(f"{place}: source.form", f"{source.form!r} is no form{suggestion(source.form, FORMS)}")
    if len(source.separator) != 1 and (source.separator or source.quotes):
        raise InputError(f"{place}: source.separator", f"{source.separator!r} is not one character")
    if source.begins:
        _compiled(source.begins, f"{place}: source.begins")

    for status in column_map.states:
        if status not in STATUSES:
            raise InputError(f"{place}: states.{status}", f"is no status{suggestion(status, STATUSES)}")
    if bool(column_map.states) != ("state" in targets):
        fix = "name its words in [states]" if "state" in targets else "map state in [columns], or leave [states] out"
        raise InputError(f"{place}: states", f"and the target state belong together; {fix}")

    for number, rule in enumerate(column_map.filter):
        if not (rule.keep or rule.drop):
            raise InputError(f"{place}: filter[{number}]", "has neither keep nor drop; name values in one of them")
