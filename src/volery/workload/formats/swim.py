"""Format of SWIM, the Statistical Workload Injector for MapReduce (github.com/SWIMProjectUCB/SWIM): a job per line.

Six fields with tabs between them: name of the job, submission and time since the one before in seconds, bytes that its
maps read, bytes of the shuffle, bytes that its reduces write. Further fields (paths) are not read. The files of
Facebook's clusters of 2009 and 2010 state neither tasks nor durations, and these follow from two rules:

- Maps: one per block, one at least, as SWIM replays a job (`GenerateReplayScript.java`): every map reads a whole block.
- Duration: a block at one rate, the same for all maps. The rate is a choice of this reader; the source has none.

Reduces are left out: their number depends on a setting of the replay. Jobs with a shuffle count as changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Final

from volery.core.model import SECOND
from volery.workload.files import numbered_lines
from volery.workload.formats.source import Format, Head, Noticed, amount, count, microseconds, place, row_like
from volery.workload.table import TaskRow

FIELDS: Final = 6
BLOCK_BYTES: Final = 64 << 20
"""Size of a block, and the least that a job reads (`GenerateReplayScript.java`: "64 MB minimum size")."""
BLOCK_BYTES_S: Final = BLOCK_BYTES / 20
"""Bytes that a map processes in a second: 20 s a block, as the maps of the mixes for delay scheduling take."""
ROW: Final = re.compile(r"job\S*(\t\d+){5}(\t.*)?")
WITHOUT_REDUCES: Final = "a job with reduces, of which the maps alone are replayed"


def _rows(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    for number, line in numbered_lines(path):
        words = line.decode("utf-8", "replace").rstrip("\r\n").split("\t")
        if words == [""]:
            continue

        with place(path, number, SWIM.title):
            if len(words) < FIELDS:
                raise ValueError(f"it has {len(words)} fields with tabs between them where {FIELDS} are expected")
            noticed["rows with fields after the sixth, as paths, which are not read"] += len(words) > FIELDS
            read_bytes, shuffled_bytes, _ = [amount(word) or 0 for word in words[3:FIELDS]]
            yield TaskRow(
                job=words[0],
                task="0",
                submit_us=microseconds(words[1]),
                runtime_us=round(BLOCK_BYTES / BLOCK_BYTES_S * SECOND),
                instances=count(str(max(1, ceil(read_bytes / BLOCK_BYTES)))),
                parents=[],
                line=number,
                changed=WITHOUT_REDUCES if shuffled_bytes else None,
            )


def _fits(head: Head) -> bool:
    return bool(head.lines) and all(ROW.fullmatch(line) for line in head.lines)


SWIM: Final = Format(
    "swim",
    "SWIM",
    _fits,
    rows=_rows,
    remarks=("the number of maps is a rule's: one per 64 MB; so is their duration: 20 s each",),
    like=row_like("wnnnnn", "\t"),
)
