"""Tables with columns of their own: a map in TOML says which column gives what; some maps are shipped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Final

import pyarrow as pa

from volery.core.errors import InputError, suggestion
from volery.workload.formats.columns.maps import ColumnMap, parsed_map, read_map
from volery.workload.formats.columns.proposal import Proposal, propose
from volery.workload.formats.columns.records import AD_END, AD_LINE
from volery.workload.formats.columns.rows import MappedRows
from volery.workload.formats.source import JSON_KEY, Format, Head, Noticed, always, fields, row_like

SHIPPED: Final = (
    "sacct",
    "sacct-json",
    "jobcomp",
    "scontrol",
    "alibaba-pai",
    "helios",
    "elasticflow",
    "azure-vmtable",
    "condor-history",
    "pbs",
    "kube-pods",
    "gwa",
    "condor-history-long",
)
"""Names of the maps in the folder `data`, in the order in which files are tried."""


def map_text(name: str) -> str:
    """The text of a shipped map."""
    return resources.files(__package__).joinpath(f"data/{name}.toml").read_text(encoding="utf-8")


def named_map(name_or_path: str) -> Format:
    """The format of a map: a shipped one by its name, or that of a TOML file.

    Raises:
        InputError: there is no such map, or a key of it is wrong.
    """
    if name_or_path in SHIPPED:
        return next(form for form in MAPS if form.name == name_or_path)
    path = Path(name_or_path)
    if path.suffix != ".toml":
        problem = (
            f"{name_or_path!r} is neither a shipped map{suggestion(name_or_path, SHIPPED)} nor a .toml file of one"
        )
        raise InputError("columns", problem)
    return mapped_format(read_map(path), name_or_path)


def mapped_format(column_map: ColumnMap, place: str) -> Format:
    """The format of the files that a map is for.

    Args:
        place: name of the map's file, for messages.
    """
    source = column_map.source

    def batches(path: Path, noticed: Noticed) -> Iterator[pa.RecordBatch]:
        return MappedRows(path, column_map, place, noticed).batches()

    return Format(
        column_map.name,
        column_map.title,
        _recognition(column_map),
        batches=batches,
        remarks=column_map.remarks,
        has_gangs=always if column_map.has_gangs else None,
        # A text with other separators is near to none by its names: its first line does not show them.
        columns=frozenset(source.header if source.form != "text" or source.separator == "," else ()),
        like=row_like(source.kinds, source.separator) if source.kinds else None,
        limits="ignore" if column_map.states_runs else "enforce",
        # A log of a manager is in the order of ends or ids, on the clock of the site; a run sorts and begins at 0.
        usual=("unsorted", "clock-origin"),
    )


def proposed_map(path: Path, head: Head) -> Proposal:
    """A map to edit: the shipped one that is for such files, or one made from the names and first rows of a table.

    Raises:
        InputError: the file is no table.
    """
    for name, form in zip(SHIPPED, MAPS, strict=True):
        if form.fits(head):
            return Proposal(f"# A copy of the shipped map {name}.\n{map_text(name)}", {}, (), ())
    return propose(path, head)


def _recognition(column_map: ColumnMap) -> Callable[[Head], bool]:
    """A function that recognises the files of a map by their beginning."""
    source = column_map.source
    header = frozenset(source.header)
    like = row_like(source.kinds, source.separator) if source.kinds else None

    def fits(head: Head) -> bool:
        if source.form == "ads":
            return bool(head.lines) and all(AD_LINE.fullmatch(line) or line.startswith(AD_END) for line in head.lines)
        if source.begins:
            return bool(head.lines) and re.match(source.begins, head.lines[0]) is not None
        if source.form == "parquet":
            return bool(header) and head.columns >= header
        if not head.lines or not (header or like):
            return False
        if source.form in ("json", "json-lines"):
            keys = frozenset(JSON_KEY.findall("\n".join(head.lines)))
            return head.lines[0][:1] in ("{", "[") and keys >= header
        rows = [line for line in head.lines if not (source.comment and line.startswith(source.comment))]
        if header and rows and frozenset(fields(rows[0], source.separator)) >= header:
            return True
        return like is not None and bool(rows) and all(like(line) == 1.0 for line in rows)

    return fits


MAPS: Final = tuple(mapped_format(parsed_map(map_text(name), f"{name}.toml"), f"{name}.toml") for name in SHIPPED)
"""The formats of the shipped maps."""
