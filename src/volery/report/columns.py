"""Columns of a Parquet table of a results folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from volery.core.errors import InputError
from volery.report.rows import AGAIN, damaged


def columns_of(path: Path, names: tuple[str, ...], only: tuple[str, int] | None = None) -> dict[str, Any]:
    """Columns of a Parquet file: numpy arrays, of objects for text; of one run alone, by label and seed.

    Raises:
        InputError: when the file is missing, damaged, or has not all of these columns.
    """
    import pyarrow as pa
    from pyarrow import parquet

    present = names_of(path)
    missing = [name for name in names if name not in present]
    if missing:
        raise InputError(str(path), f"has no column {missing[0]!r}; {AGAIN}")
    try:
        matching = [("label", "==", only[0]), ("seed", "==", only[1])] if only is not None else None
        table = parquet.read_table(path, columns=list(names), filters=matching)
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from None
    return {name: table.column(name).to_numpy() for name in names}


def names_of(path: Path) -> list[str]:
    """The columns that a Parquet file has.

    Raises:
        InputError: when it is missing or damaged.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        names: list[str] = parquet.read_schema(path).names
    except FileNotFoundError:
        raise InputError(str(path), f"is missing; {AGAIN}") from None
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from None
    return names
