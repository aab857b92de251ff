"""The reason that a file fits no format: the nearest format with its line, or the columns that a map could name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from volery.core.errors import InputError
from volery.workload.formats.source import JSON_KEY, Format, Head, Noticed, fields, is_number

NEAR: Final = 0.5
"""Share of the named columns, or of the first rows, from which on a format is near."""
EQUAL: Final = 0.13
"""Difference of such shares, a little more than one column of eight, below which two formats are as near."""
SEPARATORS: Final = (",", ";", "\t", "|")
PAGE: Final = "docs/reference/trace-table.md"
MAPS_PAGE: Final = "docs/how-to/read-a-table.md"
JSON: Final = (b"{", b"[")
ENOUGH: Final = 6
"""Columns of a format that has more, with which a file is of that format beyond doubt."""
SHOWN: Final = 32
"""Names of columns that a message lists."""

SACCT: Final = frozenset({"JobID", "State"})


def _fits_own(head: Head) -> bool:
    """A first line of names above rows of as many fields."""
    for mark in SEPARATORS:
        rows = [fields(line, mark) for line in head.lines]
        if len(rows) > 1 and len(rows[0]) > 2 and len({len(row) for row in rows}) == 1:
            return not any(map(is_number, rows[0])) and any(is_number(word) for word in rows[1])
    return False


NARROW: Final = f"is output of sacct without -P, which cuts what is long; export it with -P, as {MAPS_PAGE} shows"


def refusal(path: Path, head: Head, formats: Sequence[Format]) -> InputError:
    """The error of a file that fits no format."""
    if head.lines and set(head.lines[0].split()) >= SACCT:
        return InputError(f"{path}:1", NARROW)

    if forms := nearest(head, formats):
        return _misfits(path, head, forms)

    if _fits_own(head):
        mark = max(SEPARATORS, key=lambda separator: len(fields(head.lines[0], separator)))
        names = _listed(fields(head.lines[0], mark))
        fix = f"map them with `volery trace columns {path.name} > map.toml` and --columns map.toml ({MAPS_PAGE})"
        return InputError(f"{path}:1", f"is a table with columns of its own ({names}); {fix}")

    first = f"begins with {head.lines[0][:40]!r}" if head.lines else "has no line of text"
    if head.columns:
        first = f"has the columns {_listed(sorted(head.columns))}"

    problem = f"{first}, which no known format does; name the format with --format, or write jobs as {PAGE} shows"
    return InputError(f"{path}:1", problem)


def nearest(head: Head, formats: Sequence[Format]) -> list[Format]:
    """The formats that have most in common with the beginning of a file; none where that is little."""
    scores = [(max(_named(head, form), _alike(head, form)), form) for form in formats]
    score_max = max(score for score, _ in scores)

    near = [(score, form) for score, form in scores if score >= max(NEAR, score_max - EQUAL)]
    return [form for _, form in sorted(near, key=lambda scored_form: -scored_form[0])]


def _named(head: Head, form: Format) -> float:
    """Share of a format's columns, or of enough of them, that a file names."""
    if not form.columns:
        return 0.0
    return max(len(form.columns & names) for names in _names(head)) / min(len(form.columns), ENOUGH)


def _names(head: Head) -> Iterator[frozenset[str]]:
    """Names of columns or keys that the beginning of a file may hold, by the ways to separate them."""
    yield head.columns
    if head.start[:1] in JSON:
        yield frozenset(JSON_KEY.findall("\n".join(head.lines)))
        return
    for mark in SEPARATORS:
        yield frozenset(fields(head.lines[0], mark)) if head.lines else frozenset()


def _alike(head: Head, form: Format) -> float:
    """Share of the first lines that could be rows or comments of a format."""
    if form.like is None or not head.lines:
        return 0.0
    return sum(map(form.like, head.lines)) / len(head.lines)


def _misfits(path: Path, head: Head, forms: Sequence[Format]) -> InputError:
    """The first place at which a file is not of the format that it is nearest to; of several formats, all names."""
    error = _misfit(path, head, forms[0])
    if len(forms) == 1:
        return error

    other_formats = " and ".join(f"{form.title} (--format {form.name})" for form in forms[1:])
    return InputError(error.place, f"{error.problem}; it is about as near to {other_formats}")


def _misfit(path: Path, head: Head, form: Format) -> InputError:
    """The first place at which a file is not of a format."""
    prefix = f"is of no known format, and nearest to {form.title} (--format {form.name})"

    is_json = head.start[:1] in JSON
    if _named(head, form) >= NEAR:
        lacking = form.columns - max(_names(head), key=lambda names: len(form.columns & names))
        if lacking:
            noun = ("key" if is_json else "column") + ("s" if len(lacking) > 1 else "")
            fix = f"add what is missing, or write jobs as {PAGE} shows"
            problem = f"{prefix}: lacks the {noun} {_listed(sorted(lacking))}; {fix}"
            return InputError(str(path) if head.columns or is_json else f"{path}:1", problem)
        if not (head.columns or is_json or head.names() >= form.columns):
            return InputError(f"{path}:1", f"{prefix}: separates its columns otherwise than by a comma; write commas")

    # Names agree: only reading shows the first row that is wrong.
    reader = form.rows or form.batches

    try:
        for _ in reader(path, Noticed()) if reader is not None else ():
            pass
    except InputError as error:
        return InputError(error.place, f"{prefix}: {error.problem.removeprefix(f'is no row of {form.title}: ')}")
    return InputError(f"{path}:1", f"{prefix}; read it with that option if it is one")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
