"""The `.tr` format of the Sparrow, Hawk, Eagle, Pigeon and Megha simulators: one job per line.

A row is `arrival_s task_count mean_duration_s d1 .. dn`, separated by one or more blanks, possibly with blanks at its
end. Rows that are not in order of arrival are sorted by it; equal arrivals keep the order of the file. The first job
arrives at 0: the trace keeps the distances between arrivals, not the clock of the cluster that it was taken from.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import AnyStr

import msgspec
import numpy as np

from volery.core.errors import InputError
from volery.core.limits import LimitSummary
from volery.core.model import SECOND
from volery.core.omissions import Omissions
from volery.core.trace import Trace
from volery.workload.arrays import column, microseconds, view
from volery.workload.files import atomic_output, bare_name, numbered_lines
from volery.workload.quirks import apply_quirks, in_order

SECONDS_MAX = 2_000_000_000
"""Beyond this (63 years) a 64-bit float no longer holds microseconds exactly enough to survive writing and reading."""
FLUSH_TASKS = 1 << 16
TEXT_MAX = 40
JOB_FIELDS = 3
"""The number of fields of a row before its durations."""


class Reading(msgspec.Struct, frozen=True):
    """Facts about a file that the trace read from it no longer holds.

    Args:
        first_arrival_s: the earliest arrival as the file has it; the trace counts from there.
        unsorted_rows: rows that arrive before the row above them.
        blank_lines: lines without a word.
        left_out: omissions by effect and reason; None for a `.tr` file, of which nothing is omitted.
        unheeded: resources that tasks of the file ask for, and that do not count.
        has_estimates: true where the file states estimates of runtimes.
        limits: limits of the file, and the tasks that exceed them; None where it states none.
    """

    first_arrival_s: float
    unsorted_rows: int
    blank_lines: int
    left_out: Omissions | None = None
    unheeded: tuple[str, ...] = ()
    has_estimates: bool = False
    limits: LimitSummary | None = None


def read_tr(path: str | Path, durations: str = "exact", arrivals: str = "exact") -> Trace:
    """Read a `.tr` file, plain or gzip-compressed, line by line.

    Args:
        durations: `exact`, or `whole-seconds` to cut each duration as the published Python simulators do.
        arrivals: `exact`, or `dephased` to shift equal arrivals by 10 ms each as they do.

    Raises:
        InputError: the file cannot be read, or a row is wrong; the message names the line.
    """
    return scan_tr(Path(path), durations, arrivals)[0]


def begins_like_tr(path: Path) -> bool:
    """True for a file called `.tr`, compressed or not, that begins with a row of that format."""
    if not bare_name(path).endswith(".tr") or not path.is_file():
        return False
    try:
        words = next((words for _, line in numbered_lines(path) if (words := line.split())), [])
    except InputError:
        return False
    return has_its_durations(words)


def has_its_durations(words: list[AnyStr]) -> bool:
    """True for a row that holds as many durations as its second field states, and at least one."""
    return len(words) > JOB_FIELDS and words[1].isdigit() and len(words) == JOB_FIELDS + int(words[1])


def scan_tr(
    path: Path, durations: str = "exact", arrivals: str = "exact", job_count: int | None = None
) -> tuple[Trace, Reading]:
    """Read the first `job_count` rows of a `.tr` file (all by default), and count its oddities.

    Raises:
        InputError: as `read_tr`.
    """
    rows = _Rows(path)
    for number, line in numbered_lines(path):
        rows.add(number, line)
        if job_count is not None and len(rows.line) >= job_count:
            break

    rows.convert()
    if not rows.line:
        raise InputError(str(path), "holds no job; a row is: arrival_s task_count mean_duration_s d1 .. dn")

    arrival_us = microseconds(np.frombuffer(rows.arrival_s, dtype=np.float64))
    estimate_us = microseconds(np.frombuffer(rows.mean_s, dtype=np.float64))
    reading = Reading(min(rows.arrival_s), int(np.count_nonzero(np.diff(arrival_us) < 0)), rows.blank_lines)
    arrival_us -= arrival_us.min()
    trace = in_order(Trace(trace_name(path), column(arrival_us), rows.first, rows.duration_us, column(estimate_us)))
    return apply_quirks(trace, durations, arrivals), reading


def trace_name(path: Path) -> str:
    """The name of a trace file without its endings."""
    return bare_name(path).removesuffix(".tr")


class _Rows:
    """The rows read so far; durations are converted in batches, for a numpy call per row costs more than the row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending_s = array("d")
        self.arrival_s = array("d")
        self.mean_s = array("d")
        self.first = array("q", [0])
        self.duration_us = array("q")
        self.line = array("q")
        self.blank_lines = 0

    def add(self, number: int, line: bytes) -> None:
        """Take in one line.

        Raises:
            InputError: the line is no row.
        """
        words = line.split()
        if not words:
            self.blank_lines += 1
            return

        try:
            task_count = int(words[1])
            arrival_s, mean_s = float(words[0]), float(words[2])
            pending_before = len(self._pending_s)
            self._pending_s.extend(map(float, words[3:]))
        except (ValueError, IndexError):
            raise self._refusal(number, words) from None

        durations_read = len(self._pending_s) - pending_before
        is_sound = durations_read == task_count > 0 and 0 <= arrival_s <= SECONDS_MAX and 0 <= mean_s <= SECONDS_MAX
        if not is_sound or b"_" in line:  # Python reads 1_0 as ten
            raise self._refusal(number, words)

        self.arrival_s.append(arrival_s)
        self.mean_s.append(mean_s)
        self.line.append(number)
        self.first.append(self.first[-1] + task_count)

        # In pieces: the seconds and the microseconds of a large trace are never both whole in memory.
        if pending_before + durations_read >= FLUSH_TASKS:
            self.convert()

    def convert(self) -> None:
        """Turn the durations read since the last call into microseconds.

        Raises:
            InputError: one of them is negative, infinite, no number or out of range.
        """
        seconds = np.frombuffer(self._pending_s, dtype=np.float64) if self._pending_s else np.zeros(0)

        is_sound = (seconds >= 0) & (seconds <= SECONDS_MAX)
        if not is_sound.all():
            at = int(np.argmin(is_sound))
            job = bisect.bisect_right(self.first, len(self.duration_us) + at) - 1
            position = len(self.duration_us) + at - self.first[job] + 1
            raise InputError(
                f"{self._path}:{self.line[job]}", _out_of_range(f"duration {position}", f"{seconds[at]:g}")
            )

        self.duration_us.frombytes(microseconds(seconds).tobytes())
        self._pending_s = array("d")

    def _refusal(self, number: int, words: list[bytes]) -> InputError:
        """The error of a row; durations in the rows above are checked first, so that the first error is reported."""
        complete = self.first[-1] - len(self.duration_us)
        del self._pending_s[complete:]
        self.convert()
        return InputError(f"{self._path}:{number}", _complaint(words))


def _complaint(words: list[bytes]) -> str:
    names = ["the arrival", "the task count", "the mean duration"]
    names += [f"duration {i}" for i in range(1, len(words) - 2)]

    for name, word in zip(names, words, strict=False):
        shown = word[:TEXT_MAX].decode("ascii", "backslashreplace")
        try:
            value = float(word)
        except ValueError:
            return f"{name} is {shown!r}, not a number; a row is: arrival_s task_count mean_duration_s d1 .. dn"

        if b"_" in word:
            return f"{name} is {shown!r}; write the number without underscores"
        if name == "the task count" and not (value >= 1 and value == int(value) and word.isdigit()):
            return f"the task count is {shown!r}; it must be a whole number of at least 1"
        if not 0 <= value <= SECONDS_MAX:
            return _out_of_range(name, shown)

    if len(words) < 3:
        return f"the row has {len(words)} of its fields; a row is: arrival_s task_count mean_duration_s d1 .. dn"

    claimed = words[1].decode()
    return f"the row says {claimed} tasks but holds {len(words) - 3} durations; mend the count or the row"


def _out_of_range(name: str, shown: str) -> str:
    return f"{name} is {shown}; times must be finite, not negative and at most {SECONDS_MAX} s"


def write_tr(trace: Trace, path: str | Path, *, force: bool = False) -> None:
    """Write a trace as a `.tr` file, compressed when the name ends in `.gz`; it is there whole or not at all.

    Reading it back gives the same columns, provided that the first job arrives at 0. The same trace gives the same
    bytes.

    Raises:
        InputError: the trace has what the format cannot hold (constraints, users, tags, workflows, a job without
            tasks), the file exists and `force` is off, or it cannot be written.
    """
    if trace.constraints or trace.user or trace.resources or trace.parents or trace.tag_set:
        problem = "a .tr file holds no constraints, requests, users, tags or workflows; write the trace without them"
        raise InputError(trace.name, problem)
    if not trace.job_count or not np.diff(view(trace.first)).all():
        raise InputError(trace.name, "a .tr file needs at least one job, and at least one task in each")
    with atomic_output(Path(path), force=force) as output:
        output.writelines(_rows_of(trace))


def _rows_of(trace: Trace) -> Iterable[bytes]:
    for job in range(trace.job_count):
        low, high = trace.first[job], trace.first[job + 1]
        durations = " ".join(map(seconds_text, trace.duration_us[low:high]))
        head = f"{seconds_text(trace.arrival_us[job])} {high - low} {seconds_text(trace.estimate_us[job])}"
        yield f"{head} {durations}\n".encode()


def seconds_text(time_us: int) -> str:
    """Microseconds as exact decimal seconds: 1500000 gives `1.5`."""
    seconds, fraction_us = divmod(time_us, SECOND)
    return f"{seconds}.{fraction_us:06d}".rstrip("0") if fraction_us else str(seconds)
