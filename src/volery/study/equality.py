"""Compares two files of a results folder number by number, and names the first place at which they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec

RELATIVE: Final = 1e-9
"""Numbers that differ by less are equal: libraries may add up in another order on another machine."""
MEASURED: Final = frozenset({"wall_s", "cpu_s", "tasks_per_cpu_s", "peak_rss_mb", "compute_s", "read_s"})
"""Fields that every run measures anew: processor time and memory."""
_MISSING: Final = object()
_ROWS: Final = 1 << 16


class Same(msgspec.Struct, frozen=True):
    """The comparison of a recorded value that is no container with the one found now: whole numbers are exact.

    Args:
        renamed: names found now -> names recorded, of inputs that lie elsewhere now.
    """

    renamed: Mapping[str, str] = {}

    def restored(self, text: str) -> str:
        """A text found now, with the recorded names."""
        for now, before in self.renamed.items():
            text = text.replace(now, before)
        return text

    def __call__(self, recorded: Any, found: Any) -> bool:
        """True if the two are equal."""
        if isinstance(recorded, bool) or isinstance(found, bool):
            return recorded is found
        if isinstance(recorded, float) and isinstance(found, int | float):
            return math.isclose(recorded, found, rel_tol=RELATIVE) or (math.isnan(recorded) and math.isnan(found))
        return bool(recorded == found or (isinstance(found, str) and recorded == self.restored(found)))


def of_trees(recorded: Any, found: Any, same: Same, place: str = "") -> Iterator[str]:
    """Differences between two JSON documents, with their places: `runs[2].delay_s.p50 is 0.5, and comes out as 0.6`."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key in dict.fromkeys((*found, *recorded)):
            inner = f"{place}.{key}" if place else str(key)
            yield from of_trees(recorded.get(key, _MISSING), found.get(key, _MISSING), same, inner)
    elif isinstance(recorded, list) and isinstance(found, list):
        for at, (old, new) in enumerate(zip_longest(recorded, found, fillvalue=_MISSING)):
            yield from of_trees(old, new, same, f"{place}[{at}]")
    elif recorded is _MISSING:
        yield f"{place} is missing"
    elif found is _MISSING:
        yield f"{place} does not come out"
    elif not same(recorded, found):
        yield f"{place} is {_short(recorded)}, and comes out as {_short(found)}"


def without_measured(tree: Any) -> Any:
    """A JSON document without the fields that every run measures anew."""
    if isinstance(tree, dict):
        return {key: without_measured(value) for key, value in tree.items() if key not in MEASURED}
    return [without_measured(value) for value in tree] if isinstance(tree, list) else tree


def of_columns(recorded: Mapping[str, Any], found: Mapping[str, Any], same: Same, first_row: int = 0) -> Iterator[str]:
    """Differences between two sets of numpy columns, one per column; a masked value is a null."""
    import numpy as np

    for name in dict.fromkeys((*found, *recorded)):
        if name not in recorded or name not in found:
            yield f"column {name} {'is missing' if name not in recorded else 'does not come out'}"
            continue
        old, new = recorded[name], found[name]
        if old.shape != new.shape:
            yield f"column {name} has {len(old)} rows, and comes out with {len(new)}"
        elif old.dtype.kind in "iufb" and new.dtype.kind in "iufb":
            exact = "f" not in (old.dtype.kind, new.dtype.kind)
            values, others = np.ma.getdata(old), np.ma.getdata(new)
            equal = values == others if exact else np.isclose(values, others, rtol=RELATIVE, atol=0.0, equal_nan=True)
            differs = np.flatnonzero(~equal | (np.ma.getmaskarray(old) != np.ma.getmaskarray(new)))
            if differs.size:
                at = int(differs[0])
                yield f"{name}[{first_row + at}] is {_cell(old[at])}, and comes out as {_cell(new[at])}"
        else:
            pairs = enumerate(zip(old.tolist(), new.tolist(), strict=True))
            wrong = next((row for row in pairs if not same(*row[1])), None)
            if wrong is not None:
                at, (value, other) = wrong
                yield f"{name}[{first_row + at}] is {_short(value)}, and comes out as {_short(other)}"


def of_json(recorded: Path, found: Path, same: Same) -> Iterator[str]:
    """Differences between two JSON files.

    Raises:
        ValueError: the recorded one is damaged.
    """
    yield from of_trees(msgspec.json.decode(recorded.read_bytes()), msgspec.json.decode(found.read_bytes()), same)


def of_archives(recorded: Path, found: Path, same: Same) -> Iterator[str]:
    """Differences between the columns of two .npz files.

    Raises:
        Exception: one of `volery.study.results.damage`: the recorded one is damaged.
    """
    import numpy as np

    with np.load(recorded, allow_pickle=False) as old, np.load(found, allow_pickle=False) as new:
        yield from of_columns(dict(old), dict(new), same)


def of_tables(recorded: Path, found: Path, same: Same) -> Iterator[str]:
    """Differences between two Parquet files, read in pieces.

    Raises:
        pyarrow.ArrowException, OSError: the recorded one is damaged.
    """
    from pyarrow import parquet

    with parquet.ParquetFile(recorded) as old, parquet.ParquetFile(found) as new:
        if old.metadata.num_rows != new.metadata.num_rows:
            yield f"has {old.metadata.num_rows} rows, and comes out with {new.metadata.num_rows}"
            return
        names = old.schema_arrow.names
        if len(set(names)) < len(names):
            yield f"has a column twice: {', '.join(names)}"
            return
        first = 0
        for pair in zip(*(file.iter_batches(_ROWS) for file in (old, new)), strict=True):
            before, after = map(_columns, pair)
            yield from of_columns(before, after, same, first)
            first += pair[0].num_rows


def _columns(batch: Any) -> dict[str, Any]:
    """A piece of a table as numpy columns; nulls of numbers are masked, since NaN is another value."""
    import numpy as np

    found = {}
    for name in batch.schema.names:
        column = batch.column(name)
        values = column.to_numpy(zero_copy_only=False)
        if column.null_count and values.dtype.kind in "iufb":
            values = np.ma.masked_array(values, column.is_null().to_numpy(zero_copy_only=False))
        found[name] = values
    return found


def of_pages(recorded: Path, found: Path, same: Same) -> Iterator[str]:
    """Differences between the words, and the content of the scripts, of two HTML pages; pictures are left out."""
    old, new = (_PageText.of(path) for path in (recorded, found))
    words = same.restored(" ".join(new.words)).split(" ")
    wrong = next((pair for pair in zip_longest(old.words, words, fillvalue="") if not same(*pair)), None)
    if wrong is not None:
        yield f"{_short(wrong[0])} stands where {_short(wrong[1])} comes out"
    for text, other in zip_longest(old.content, new.content, fillvalue="null"):
        yield from of_trees(msgspec.json.decode(text), msgspec.json.decode(other), same, "content")


COMPARED: Final[dict[str, Callable[[Path, Path, Same], Iterator[str]]]] = {
    ".json": of_json, ".npz": of_archives, ".parquet": of_tables, ".html": of_pages,
    ".load": of_json, ".conflicts": of_json,
}  # fmt: skip
"""Comparisons of files, by the ending of their name."""


class _PageText(HTMLParser):
    """Takes the text and the attributes that a reader sees, and the JSON that scripts read, from an HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.content: list[str] = []
        self._within = ""
        self._broken = False

    @classmethod
    def of(cls, path: Path) -> _PageText:
        """The text of a file."""
        text = cls()
        text.feed(path.read_text(encoding="utf-8"))
        text.close()
        return text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep attributes; notice parts whose text nobody reads, and words that go on after a line break's place."""
        self._broken = tag == "wbr"
        if not self._within and tag not in ("svg", "wbr"):
            self.words += " ".join(f"{name}={value}" for name, value in attrs).split()
        if not self._within and tag in ("svg", "style", "script"):
            self._within = "json" if dict(attrs).get("type") == "application/json" else tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._within or (tag == "script" and self._within == "json"):
            self._within = ""

    def handle_data(self, data: str) -> None:
        """Keep words and content."""
        if self._within == "json":
            self.content.append(data)
        elif not self._within:
            words = data.split()
            if self._broken and self.words and words:
                self.words[-1] += words.pop(0)
            self.words += words
            self._broken = False


def _cell(value: Any) -> str:
    """A number of a table, or that there is none."""
    import numpy as np

    return "null" if value is np.ma.masked else str(value)


def _short(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
