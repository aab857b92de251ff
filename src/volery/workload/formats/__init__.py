"""Readers of public trace formats, a module each; the content of a file decides its format, never its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from volery.core.errors import InputError, suggestion
from volery.workload.files import lacks_last_line_end
from volery.workload.formats.alibaba import ALIBABA
from volery.workload.formats.archives import GWF, SWF, WTA
from volery.workload.formats.columns import MAPS, named_map
from volery.workload.formats.google import GOOGLE
from volery.workload.formats.microsoft import AZURE, PHILLY
from volery.workload.formats.nearest import refusal
from volery.workload.formats.own import TABLE, TR
from volery.workload.formats.source import Format, Noticed, head_of
from volery.workload.formats.summaries import SUMMARY
from volery.workload.formats.swim import SWIM
from volery.workload.formats.wfcommons import WFCOMMONS
from volery.workload.table import batches

FORMATS: Final = (TABLE, WTA, TR, SWF, GWF, *ALIBABA, *GOOGLE, *AZURE, *PHILLY, WFCOMMONS, SUMMARY, SWIM, *MAPS)
"""The known formats; the first that fits a file is taken."""
NO_LINE_END: Final = "last lines without a line end; the file may be cut in its last field"


def format_of(path: Path, name: str | None = None, columns: str | None = None) -> Format:
    """The format of a file: that of a map of columns, the one named, or the first that its content fits.

    Args:
        columns: a map's TOML file, or the name of a shipped map.

    Raises:
        InputError: there is no such format or map, both are named, none fits, or the file cannot be read.
    """
    if columns is not None and name is not None:
        raise InputError("--format", f"{name!r} and a map of columns exclude each other; leave one out")
    if columns is not None:
        return named_map(columns)
    if name is not None:
        for known_format in FORMATS:
            if known_format.name == name:
                return known_format
        raise InputError(
            "--format", f"{name!r} is no format{suggestion(name, [known_format.name for known_format in FORMATS])}"
        )

    if (fitting_format := fitting(path)) is not None:
        return fitting_format

    raise refusal(path, head_of(path), FORMATS)


def fitting(path: Path) -> Format | None:
    """The first format that the content fits.

    Raises:
        InputError: the file cannot be read.
    """
    head = head_of(path)
    return next((known_format for known_format in FORMATS if known_format.fits(head)), None)


def stated_processors(path: Path) -> int | None:
    """Processors of the machine that a file comes from; None where it does not state them, or there is no such file."""
    if not path.exists():
        return None
    head = head_of(path)
    form = next((known_format for known_format in FORMATS if known_format.fits(head)), None)
    return None if form is None or form.processors is None else form.processors(head)


def read_source(path: Path, form: Format, noticed: Noticed) -> Iterator[pa.RecordBatch]:
    """The rows of a file as batches of the canonical table.

    Raises:
        InputError: the file is wrong; the message names the line.
    """
    if form.batches is not None:
        yield from form.batches(path, noticed)
    elif form.rows is not None:
        yield from batches(form.rows(path, noticed))
        if lacks_last_line_end(path):
            noticed[NO_LINE_END] += 1
