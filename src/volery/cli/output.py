"""The common output of commands: JSON, errors, the table of a study's results, and the streams to which they go.

The streams fail in words if a disk is full or a reader is gone, and know terminals without UTF-8.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from volery.core.errors import InputError, install_command

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from volery.core.omissions import Omissions
    from volery.report.schema import StageProfile
    from volery.study import Results

INTERRUPTED = 130
LEFT_OUT = 3
TABLE_WIDTH = 132
"""Width of a table that goes to a file or a pipe, where no terminal says how wide it is."""
STAGE_HEADS = (
    "calls",
    "cycles",
    "CPU us/\ncycle",
    "wall us/\ncycle",
    "median\nus/call",
    "p99\nus/call",
    "CPU s",
    "share",
)
STANDARD_OUTPUT: Final = "standard output"
_NAMES: Final = ("stdin", "stdout", "stderr")


class PipeClosedError(Exception):
    """The reader of the output has stopped."""


class _Descriptor(io.FileIO):
    """A standard stream; its first failure is raised, and what is written after that is dropped.

    Args:
        is_output: it holds answers; of messages no failure is raised.
        is_closed: whoever has started the command has closed it.
    """

    def __init__(self, number: int, *, is_output: bool, is_closed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._is_output = is_output
        self._is_closed = is_closed
        self._has_failed = False

    def write(self, content: Any, /) -> int:
        size = memoryview(content).nbytes
        # The first failure is told once; what is written to a closed standard error has no reader.
        if self._has_failed or (self._is_closed and not self._is_output):
            return size
        if not self._is_closed:
            try:
                return super().write(content)
            except BrokenPipeError:
                problem = None
            except OSError as error:
                problem = f"cannot be written: {error.strerror}; make room, or send it elsewhere"
        else:
            problem = "is closed; send it to a file, or to /dev/null"

        self._has_failed = True
        if not self._is_output:
            return size
        if problem is None:
            raise PipeClosedError
        raise InputError(STANDARD_OUTPUT, problem)


class _AsciiWriter(io.TextIOWrapper):
    """The text of a stream without UTF-8: characters beyond ASCII are replaced, as no terminal shows them all."""

    def write(self, text: str, /) -> int:
        return super().write(text.encode("ascii", "replace").decode())


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Write both streams so that they fail in words, and replace characters that a terminal does not have.

    The streams of a test stay as they are.

    Raises:
        InputError: the output could not be written, at the latest at the end.
        PipeClosedError: the reader of the output has stopped.
    """
    closed = _filled()
    streams_before = sys.stdout, sys.stderr

    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if number in closed or (stream is not None and stream is getattr(sys, f"__{name}__")):
            setattr(sys, name, _guarded(number, stream, number in closed))

    try:
        yield
    finally:
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        finally:
            sys.stdout, sys.stderr = streams_before


def _filled() -> set[int]:
    """Open the null device in place of standard streams that are closed, before a file or a socket takes their number.

    Returns:
        The descriptors that were closed.
    """
    closed = set[int]()
    for number in range(len(_NAMES)):
        try:
            os.fstat(number)
        except OSError:
            closed.add(number)
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)

    return closed


def _guarded(number: int, stream: Any, is_closed: bool) -> io.TextIOWrapper:
    descriptor = _Descriptor(number, is_output=number == 1, is_closed=is_closed)
    errors = "backslashreplace" if number == 2 else "replace"
    is_drawn = number == 2 or (not is_closed and os.isatty(number))
    encoding = stream.encoding if stream is not None else "utf-8"
    if encoding.lower().startswith("utf"):
        return io.TextIOWrapper(io.BufferedWriter(descriptor), encoding, errors, line_buffering=is_drawn)
    # Under the name of ASCII, click takes the encoding for a mistake and writes UTF-8 all the same.
    return _AsciiWriter(io.BufferedWriter(descriptor), "latin-1", errors, line_buffering=is_drawn)


def print_json(content: Any) -> None:
    """One indented JSON document on standard output; its characters are escaped where the terminal has no UTF-8."""
    try:
        text = msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
    except UnicodeEncodeError:  # a name of a file, for example, that is not UTF-8
        text = json.dumps(msgspec.to_builtins(content), indent=2)

    if not (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf"):
        text = re.sub(r"[^\x00-\x7f]", lambda character: json.dumps(character[0])[1:-1], text)

    typer.echo(text)


def print_answer(content: Any, as_json: bool, *lines: str) -> None:
    """The answer of a command: JSON where that was asked for, else these lines."""
    if as_json:
        print_json(content)
    else:
        for line in lines:
            typer.echo(line)


def print_error(place: str, problem: str, as_json: bool) -> None:
    """`error: place: problem` on standard error, and as JSON on standard output where that was asked for."""
    typer.echo(f"error: {place}: {problem}", err=True)
    if as_json:
        print_json({"error": {"place": place, "problem": problem}})


@contextmanager
def live_extra(otherwise: str = "") -> Iterator[None]:
    """Name the extra of the package that an import needs.

    Raises:
        InputError: instead of an ImportError.
    """
    try:
        yield
    except ImportError as error:
        problem = f"{error.name} is not installed; {install_command('live')} installs it{otherwise}"
        raise InputError("volery", problem) from None


def terminal(*, highlight: bool = True) -> Console:
    """The console for tables and sentences. No text is markup: labels and names may hold brackets."""
    from rich.console import Console

    own_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if own_width else TABLE_WIDTH, markup=False, highlight=highlight)


def moment(unix_us: int | None) -> str:
    """A moment as every view of a federation shows it; empty where there is none."""
    from volery.look.text import utc

    return "" if unix_us is None else utc(unix_us)


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    title: str | None = None,
    right: Collection[str] = (),
    bare: bool = False,
) -> None:
    """Print a table of texts; columns of numbers are named by `right`, and a bare one has no lines."""
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(head, justify="right" if head in right else "left", overflow="fold") for head in heads]
    table = Table(*columns, title=title, title_justify="left")

    if bare:
        table.box = None
        table.padding = (0, 2, 0, 0)

    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))

    terminal().print(table)


def print_listing(heads: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print a table; where no terminal reads, lines of cells with tabs between them, the heads first."""
    if sys.stdout.isatty():
        print_table(heads, rows)
        return
    for row in (heads, *rows):
        typer.echo("\t".join(re.sub(r"[\t\r\n]", " ", str(cell)) for cell in row))


def bold(text: str) -> Text:
    """A cell in bold type."""
    from rich.text import Text

    return Text(text, "bold")


def write_svg(path: Path, picture: str) -> None:
    """Write a picture.

    Raises:
        InputError: its name ends otherwise, or it cannot be written.
    """
    from volery.report.page import write_page

    if path.suffix != ".svg":
        raise InputError(str(path), "a picture's name must end in .svg")
    write_page(path, picture)


def print_rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, without lines, and without the columns that are empty."""
    from rich.cells import cell_len
    from rich.control import strip_control_codes

    # Many facts are unknown under the lab's nodes, and a column without any says nothing.
    filled_columns = [place for place in range(len(heads)) if any(row[place] for row in rows)] or range(len(heads))

    shown = [
        [heads[place] for place in filled_columns],
        *([strip_control_codes(row[place]) for place in filled_columns] for row in rows),
    ]

    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    lines = (
        "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    )
    typer.echo("\n".join(lines))


def print_results(
    results: Results, as_json: bool, stage_times: Sequence[StageProfile] = (), *, strict: bool = False
) -> None:
    """Print the table of a study and where its results are.

    Args:
        stage_times: time per stage, where it was measured.
        strict: leave with status 3 where over 1 % of jobs, tasks, waits or machine time is omitted.

    Raises:
        typer.Exit: with status 130 if Ctrl-C cut the study short, or with status 3.
    """
    from volery.report import best, groups, notes, sections

    run_groups = groups.group_runs(results.runs)
    warnings = notes.warnings(run_groups)

    if as_json:
        content: dict[str, Any] = {"runs": results.runs, "differences": results.differences}
        content["on_days_like_this"] = results.on_days_like_this
        content |= {"best": best.best(run_groups, results.study.confidence), "work": sections.work(run_groups)}
        content |= {"planned": results.planned, "interrupted": results.interrupted}
        content |= {"warnings": warnings, "not_random": [group.label for group in run_groups if group.is_alike]}
        content |= {"stage_times": stage_times} if stage_times else {}
        if results.stopping:
            content["stopping"] = msgspec.to_builtins(results.stopping) | {
                "sentence": notes.end_sentence(results.stopping)
            }
        print_json(content | ({"folder": str(results.folder)} if results.folder else {}))
    else:
        print_tables(results)
        print_stage_times(stage_times)
        for line in _closing_lines(results):
            typer.echo(line)

    if results.interrupted:
        raise typer.Exit(INTERRUPTED)

    if strict and warnings:
        raise typer.Exit(LEFT_OUT)


def print_omissions(omissions: Omissions | None, *, as_json: bool = False) -> None:
    """Print what is omitted of a trace above 1 % of jobs, tasks, waits or machine time; beside JSON on stderr."""
    from volery.report.notes import omission_warnings

    for sentence in omission_warnings(omissions) if omissions is not None else ():
        typer.echo(sentence, err=as_json)


def omission_rows(omissions: Omissions) -> list[tuple[str, str]]:
    """The omissions of a run as names and figures: in all by effect, and by reason."""
    from volery.core.omissions import EFFECTS
    from volery.look.text import percent
    from volery.report.notes import TITLES, share

    rows = []

    for effect in EFFECTS:
        part = omissions.of(effect)
        if part.reasons:
            rows.append((TITLES[effect].lower(), share(part)))

        for reason in part.reasons:
            machine_time = f", {percent(reason.machine_share)} of the machine time" if reason.machine_share else ""
            rows.append((f"{effect.replace('-', ' ')}: {reason.reason}", f"{_tasks(reason.tasks)}{machine_time}"))

    return rows


def _tasks(count: int) -> str:
    return f"{count:,} task{'s' if count > 1 else ''}"


def print_tables(results: Results) -> None:
    """The runs and their differences, for reading."""
    from volery.report.tables import print_comparison

    console = terminal()
    if not results.runs:
        console.print("No run has finished.")
        return
    study = results.study
    compared = results.differences, results.on_days_like_this
    print_comparison(console, results.runs, *compared, study.baseline)


def print_stage_times(profiles: Sequence[StageProfile]) -> None:
    """Time per stage: per cycle, per call, and as a share of all declared methods; a table per run."""
    from rich.table import Column, Table

    from volery.look.text import percent, shortened

    console = terminal()
    for profile in profiles:
        title = f"{shortened(profile.label)}: time per stage"

        table = Table("stages", Column("method", overflow="fold"), title=title, title_justify="left")
        for head in STAGE_HEADS:
            table.add_column(head, justify="right")

        total_s = sum(method_time.cpu_s for method_time in profile.times)
        for method_time in profile.times:
            per_cycle = (
                f"{1e6 * spent / method_time.cycles:.2f}" if method_time.cycles else "-"
                for spent in (method_time.cpu_s, method_time.wall_s)
            )

            at = dict(zip(profile.percentiles, method_time.call_s, strict=False))
            calls = (f"{1e6 * at[percentile]:.2f}" if percentile in at else "-" for percentile in (50, 99))
            counts = (f"{method_time.calls:,}", f"{method_time.cycles:,}")
            share = percent(method_time.cpu_s / total_s) if total_s else "-"
            table.add_row(
                " ".join(method_time.stages),
                method_time.method,
                *counts,
                *per_cycle,
                *calls,
                f"{method_time.cpu_s:.3f}",
                share,
            )
        console.print(table)

        to_call, to_caller = (f"{1e6 * cost:.1f} us" for cost in profile.own_costs_s)
        console.print(
            f"Measuring adds about {to_call} of CPU time to each call, and {to_caller} to the method that makes it."
        )


def _closing_lines(results: Results) -> list[str]:
    from volery.report.notes import end_rule, end_sentence

    folder, auto = results.folder, results.study.auto
    lines = []

    if results.stopping:
        lines += [end_sentence(results.stopping), end_rule(results.stopping)]

    if auto and auto.budget_s and len(results.study.seeds) == 1 and len(results.runs) < results.planned:
        budget = f"The budget of {auto.budget_s:g} CPU seconds"
        lines.append(f"{budget} is used up before all designs have run one seed; give more with --budget-s.")

    if results.interrupted or len(results.runs) < results.planned:
        lines.append(
            f"{len(results.runs)} of {results.planned} runs are finished"
            + ("; interrupted." if results.interrupted else ".")
        )

    if folder is None:
        if not results.interrupted:
            lines.append("Nothing was kept; give -o DIR to keep results, a report and a digest of every run.")
        return lines

    name = shlex.quote(str(folder))
    if results.reused and not results.interrupted:
        lines.append(f"{results.reused} of {results.planned} runs were finished already.")
    lines.append(f"results: {folder}")

    report = folder / "report.html"
    if report.exists():
        lines.append(f"report:  {report}")

    if len(results.runs) < results.planned:
        lines.append("The same command goes on where it stopped.")
    else:
        lines.append(f"check:   volery verify {name}")

    return lines
