"""Records of a slurm.conf as Slurm itself reads the file: comments, escapes, continued lines, includes, node ranges.

The rules are those of slurm.conf(5) of Slurm 22.05; what a record means is decided by its readers.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from volery.core.errors import InputError
from volery.workload.files import numbered_lines

COMMENT: Final = re.compile(r"(?<!\\)((?:\\\\)*)#.*", re.DOTALL)
CONTINUED: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*\Z")
ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
PAIR: Final = re.compile(r'\s*([\w.]+)\s*=\s*(?:"([^"]*)"|([^"\s]\S*|))(?=\s|\Z)', re.ASCII)
INCLUDE: Final = re.compile(r"\s*include\s+(\S+)\s*\Z", re.IGNORECASE)
RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
BRACKETS: Final = re.compile(r"\[([^][]*)\]")
ITEM: Final = re.compile(r"(?:[^,\[\]]|\[[^][]*\])+")
CLUSTER: Final = "%c"
"""Part of the name of an included file that stands for `ClusterName`."""
NAMES_MAX: Final = 1 << 20
"""Names that one expression may stand for; Slurm's own limit is 65,536 for a range."""


class ConfRecord(NamedTuple):
    """A line of slurm.conf, with those that continue it.

    Attributes:
        place: file and line of its beginning, as `slurm.conf:12`.
        pairs: parameters with their values in the order of the line, spelled as they are there.
    """

    place: str
    pairs: tuple[tuple[str, str], ...]

    def values(self) -> dict[str, str]:
        """Values by parameter in lower case, as the case of a parameter does not count; of two, the last counts."""
        return {name.lower(): value for name, value in self.pairs}


def conf_records(path: Path) -> Iterator[ConfRecord]:
    """The records of a slurm.conf and of the files that it includes, in the order in which Slurm reads them.

    A relative name of an included file is looked up beside the file that includes it.

    Raises:
        InputError: a file cannot be read or includes itself, a line is no record, or `%c` stands in the name of an
            included file before `ClusterName`.
    """
    values: dict[str, str] = {}
    for record in _records(path, (), values):
        values |= record.values()
        yield record


def _records(path: Path, including: tuple[Path, ...], values: dict[str, str]) -> Iterator[ConfRecord]:
    """The records of a file that others include.

    Args:
        values: values of the parameters above.
    """
    including = (*including, path.resolve())
    for number, line in _whole_lines(path):
        place = f"{path}:{number}"
        if (include := INCLUDE.match(line)) is None:
            if pairs := _pairs(line, place):
                yield ConfRecord(place, pairs)
            continue

        name = include[1]
        if CLUSTER in name:
            if "clustername" not in values:
                raise InputError(place, f"includes {name!r}, and no ClusterName is above it; name the file itself")
            name = name.replace(CLUSTER, values["clustername"].lower())

        included = path.parent / name
        if included.resolve() in including:
            raise InputError(place, f"includes {name!r}, which includes this file; take out one of the two lines")
        if not included.is_file():
            raise InputError(place, f"includes {str(included)!r}, which is no file; copy it there, or drop the line")
        # Slurm passes over an included file that is empty.
        if included.stat().st_size:
            yield from _records(included, including, values)


def _whole_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines without comments and escapes, continued ones put together, with the number of their first."""
    text, first = "", 0
    for number, raw in numbered_lines(path):
        line = COMMENT.sub(r"\1", raw.decode("utf-8", "replace").rstrip("\r\n"))
        first = first or number
        if (end := CONTINUED.search(line)) is not None:
            text += line[: end.end(1)]
            continue
        yield first, ESCAPE.sub(r"\1", text + line)
        text, first = "", 0

    if text.strip():
        yield first, ESCAPE.sub(r"\1", text)


def _pairs(line: str, place: str) -> tuple[tuple[str, str], ...]:
    """The parameters of a line.

    Raises:
        InputError: a part of the line is none.
    """
    pairs: list[tuple[str, str]] = []
    at = 0
    while pair := PAIR.match(line, at):
        pairs.append((pair[1], pair[2] if pair[2] is not None else pair[3]))
        at = pair.end()

    if remainder := line[at:].strip():
        raise InputError(
            place, f"{remainder[:60]!r} is no Parameter=Value; mend it, or quote a value that holds blanks"
        )
    return tuple(pairs)


def node_names(expression: str, place: str) -> list[str]:
    """The names that an expression stands for, as `n[0-3,07],login`, in its order.

    Leading zeros of the first number of a range give all its numbers that width. A name may have several ranges.

    Raises:
        InputError: at `place`, when brackets hold no ranges or do not match, or names are too many.
    """
    items = ITEM.findall(expression)
    if not items or expression.strip(",") != ",".join(items):
        raise InputError(place, f"{expression[:60]!r} is no list of nodes; write it as n[0-3,7],login")

    names: list[str] = []
    for item in items:
        parts = BRACKETS.split(item.strip())
        # Of the parts, every second stood in brackets.
        choices = [_numbers(part, item, place) if k % 2 else (part,) for k, part in enumerate(parts)]
        if len(names) + math.prod(map(len, choices)) > NAMES_MAX:
            raise InputError(place, f"{item[:60]!r} stands for over {NAMES_MAX} nodes; give fewer")
        names += map("".join, itertools.product(*choices))
    return names


RANGE_MAX: Final = 40
"""Characters of the longest range of numbers that fit into 64 bits, with blanks."""


def _numbers(text: str, item: str, place: str) -> tuple[str, ...]:
    numbers: list[str] = []
    for part in text.split(","):
        bounds = RANGE.fullmatch(part.strip()) if len(part) <= RANGE_MAX else None
        low, high = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else (1, 0)
        if low > high:
            raise InputError(place, f"[{text[:40]}] of {item[:40]!r} holds no ranges; write them as [0-3,7]")
        if high - low >= NAMES_MAX:
            raise InputError(place, f"{item[:60]!r} stands for over {NAMES_MAX} nodes; give fewer")
        width = len(bounds[1]) if bounds else 0
        numbers += [f"{number:0{width}d}" for number in range(low, high + 1)]
    return tuple(numbers)
