"""`volery show`, `report`, `export`, `timeline`, `browse`, `verify` and `check`: the commands on a results folder.

`check` takes the state folder of a federation, too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from volery.cli.options import (
    AsJson,
    Baseline,
    Dask,
    Folder,
    Picture,
    Port,
    Processes,
    RunName,
    RunSeed,
    argument,
    option,
)
from volery.cli.output import print_answer, print_json, print_results, print_table, terminal, write_svg
from volery.core.errors import InputError, suggestion
from volery.integrity import CheckedFile
from volery.lab.progress import LiveProgress

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

    from volery.report.folder import KeptTimeline, StoredResults, Timeline
    from volery.study import Verification


def show(folder: Folder, baseline: Baseline = "", as_json: AsJson = False) -> None:
    """Print the table of a results folder again."""
    from volery.study import load_results
    from volery.study.stagetime import kept_stage_times

    print_results(load_results(folder, baseline), as_json, kept_stage_times(folder))


def report(
    folder: Folder,
    pictures: Annotated[Path | None, option("Write its pictures there, too, as SVG files.", form="FOLDER")] = None,
    baseline: Baseline = "",
    as_json: AsJson = False,
) -> None:
    """Write report.html of a results folder anew, and print its path."""
    from volery.report.pictures import write_pictures
    from volery.study import write_results_report

    written = []
    # Pictures of results that nobody may change can still be drawn, elsewhere.
    if pictures is not None and folder.is_dir() and not os.access(folder, os.W_OK):
        typer.echo(f"{folder} is read-only: report.html stays as it is, and pictures come from the tables", err=True)
    else:
        written = [write_results_report(folder, baseline)]

    drawn = write_pictures(folder, pictures) if pictures is not None else []
    content = {"report": str(written[0]) if written else None, "pictures": [str(path) for path in drawn]}
    print_answer(content, as_json, *map(str, (*written, *drawn)))


def export(
    folder: Folder,
    csv: Annotated[bool, typer.Option("--csv", help="Tables as CSV.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Tables as LaTeX, with booktabs.")] = False,
    pdf: Annotated[bool, typer.Option("--pdf", help="Figures as PDF.")] = False,
    png: Annotated[bool, typer.Option("--png", help="Figures as PNG.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Figures as SVG.")] = False,
    into: Annotated[
        Path | None, option("Where to write; else the folder export of the results.", form="FOLDER")
    ] = None,
    width: Annotated[
        Literal["single", "double"],
        typer.Option(metavar="single|double", help="Width of figures: a column (3.33 in), or a page (7 in)."),
    ] = "single",
    baseline: Baseline = "",
    as_json: AsJson = False,
) -> None:
    """Write tables and figures of a results folder for a paper, and print their paths."""
    from volery.report.export import write_export
    from volery.study import load_results

    chosen_formats = {"csv": csv, "latex": latex, "pdf": pdf, "png": png, "svg": svg}

    formats = [name for name, is_wanted in chosen_formats.items() if is_wanted]
    if not formats:
        raise InputError("export", "no format is given; add --csv, --latex, --pdf, --png or --svg")

    compared = load_results(folder, baseline) if baseline else None
    written = write_export(folder, into or folder / "export", formats, width, compared)

    files = [str(path) for path in written]
    print_answer({"files": files}, as_json, *files)


SEEDS_LISTED: Final = 10
"""The largest number of seeds that an error names."""


def timeline(
    folder: Folder,
    run: RunName = None,
    seed: RunSeed = None,
    output: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Draw one run as a Gantt chart (a large one as a heat map), or print its columns with --json."""
    from volery.look.text import straight
    from volery.report.folder import read_timeline

    _, timelines = kept_runs(folder, run, seed)

    if output is not None:
        from volery.report.gantt import picture

        write_svg(output, picture(read_timeline(folder, timelines[0])))

    if as_json:
        print_json(_timeline_content(read_timeline(folder, timelines[0]), output))
    elif output is not None:
        typer.echo(str(output))
    else:
        for kept_timeline in timelines:
            kind = "task runs" if kept_timeline.is_small else "heat map"
            name = f"{straight(kept_timeline.label)}, seed {kept_timeline.seed}"
            typer.echo(f"{name}: {kind}, {kept_timeline.machines:,} machines")
        typer.echo("-o FILE.svg draws the first of these; --json prints its columns.")


def kept_runs(folder: Path, run: str | None, seed: int | None) -> tuple[StoredResults, list[KeptTimeline]]:
    """A results folder, and the runs of this label and seed that have kept what ran where.

    Raises:
        InputError: there are none.
    """
    from volery.look.text import straight
    from volery.report.folder import read_results

    results = read_results(folder)
    timelines = results.timelines

    if not timelines:
        raise InputError(str(folder), "no run in it has kept what ran where; run the study again in a new folder")
    matching_timelines = [
        kept_timeline
        for kept_timeline in timelines
        if run in (None, kept_timeline.label) and seed in (None, kept_timeline.seed)
    ]

    if not matching_timelines:
        labels = list(dict.fromkeys(straight(kept_timeline.label) for kept_timeline in timelines))

        if run is not None and run not in (kept_timeline.label for kept_timeline in timelines):
            raise InputError("--run", f"there is no run {run!r}{suggestion(run, labels)}")

        seeds = sorted({kept_timeline.seed for kept_timeline in timelines if run in (None, kept_timeline.label)})
        listed = ", ".join(map(str, seeds[:SEEDS_LISTED])) + (", ..." if len(seeds) > SEEDS_LISTED else "")
        raise InputError("--seed", f"there is no such run; its seeds are {listed}")

    return results, matching_timelines


def _timeline_content(timeline: Timeline, output: Path | None) -> dict[str, Any]:
    content: dict[str, Any] = {"label": timeline.label, "seed": timeline.seed, "machines": timeline.machines}
    content |= {"kind": "task runs" if timeline.is_small else "heat map"}
    content |= {"columns": {name: column.tolist() for name, column in timeline.columns.items()}}
    content |= {"submit_s": timeline.submit_s.tolist()}
    return content | ({"picture": str(output)} if output is not None else {})


LOOPBACK = "127.0.0.1"
TOLD_EVERY_S = 2.0


def browse(
    folder: Folder,
    port: Port = 0,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Others than this machine can read the results through another.")
    ] = LOOPBACK,
    as_json: AsJson = False,
) -> None:
    """Show a results folder on a page that can answer about every job and task, until Ctrl-C."""
    from volery.report.explore.server import LOCAL_NAMES, ResultsSite, Site, open_server, url_of
    from volery.study.answers import Explanations

    waiting = BrowseServer()
    site = ResultsSite(folder, lambda: Explanations(folder), waiting.told, waiting.failed)

    site.begin()
    names = LOCAL_NAMES if host == LOOPBACK else (*LOCAL_NAMES, host, f"[{host}]")
    server = open_server(Site(site.page, site.answer, names), host, port)
    url = url_of(server)

    print_answer({"folder": str(folder), "url": url}, as_json, f"{folder} is at {url}; Ctrl-C ends it")
    waiting.serve(server)


class BrowseServer:
    """Serves while the folder is read, prints the progress, and ends where the folder cannot be read."""

    def __init__(self) -> None:
        self._server: ThreadingHTTPServer | None = None
        self._problem: Exception | None = None
        self._began_s = self._last_told_s = time.monotonic()

    def told(self, text: str) -> None:
        """Print it, but not too often."""
        now = time.monotonic()
        if now - self._last_told_s >= TOLD_EVERY_S:
            typer.echo(f"{text} ({now - self._began_s:.0f} s)", err=True)
            self._last_told_s = now

    def failed(self, problem: Exception) -> None:
        """End the server; its caller prints the error."""
        self._problem = problem
        # The reading may fail before the server runs: `serve` sees the problem then.
        if self._server is not None:
            self._server.shutdown()

    def serve(self, server: ThreadingHTTPServer) -> None:
        """Serve until Ctrl-C, or until it shows that there is nothing to serve.

        Raises:
            InputError: what is wrong with the folder.
        """
        self._server = server
        try:
            if self._problem is None:
                server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            server.server_close()

        if self._problem is not None:
            raise self._problem


SHOWN_DIGITS = 16


def verify(
    folder: Folder,
    trace: Annotated[
        list[Path] | None,
        option(
            "A trace or machine file that has moved, or a folder that holds it; found by its digest. Repeatable.",
            form="PATH",
        ),
    ] = None,
    processes: Processes = 1,
    dask: Dask = None,
    as_json: AsJson = False,
) -> None:
    """Run everything in a results folder again and compare every number of every file; status 1 where one differs."""
    from volery.study import verify as verify_folder

    with LiveProgress(silent=as_json) as watcher:
        verification = verify_folder(folder, traces=trace or (), processes=processes, dask=dask, watcher=watcher)

    if as_json:
        print_json(
            {
                "agrees": verification.agrees,
                "same_code": verification.same_code,
                "planned": verification.planned,
                "runs": [
                    {"label": run.label, "seed": run.seed, "recorded": run.recorded, "found": run.found}
                    | {"agrees": run.agrees, "same_input": run.same_input}
                    for run in verification.runs
                ],
                "differences": verification.differences,
            }
        )
    else:
        _print_verification(verification)

    if not verification.agrees:
        raise typer.Exit(1)


def _print_verification(verification: Verification) -> None:
    from rich.text import Text

    rows = []
    for run in verification.runs:
        verdict = "agrees" if run.agrees else ("DIFFERS" if run.same_input else "DIFFERS: the input is another")
        width = SHOWN_DIGITS if run.agrees else None
        shown = Text(verdict, "green" if run.agrees else "bold red")
        rows.append((f"{run.label}, seed {run.seed}", run.recorded[:width], run.found[:width], shown))

    print_table(("run", "recorded", "found now", "verdict"), rows, title="Digests")

    wrong = sum(not run.agrees for run in verification.runs)
    typer.echo(
        f"{wrong} of {len(verification.runs)} runs differ."
        if wrong
        else f"All {len(verification.runs)} runs come out as recorded"
        + (", but files of the folder do not:" if verification.differences else ", and so does every number.")
    )

    for difference in verification.differences:
        terminal().print(Text(f"  {difference}", "bold red"), soft_wrap=True)

    if len(verification.runs) < verification.planned:
        typer.echo(f"The study has {verification.planned} runs; the others have not finished yet.")
    if not verification.same_code:
        typer.echo("The code that results depend on is not the code that made them.")


def check(
    folder: Annotated[Path, argument("Folder of a federation's state, or of results.", "DIR")],
    as_json: AsJson = False,
) -> None:
    """Compare every file of a folder with its checksums, and print each damage; status 1 where there is one.

    Nothing is run or written; a federation may be at work in the folder.
    """
    files = list(_checked(folder))

    if as_json:
        print_json(files)
    else:
        _print_checks(folder, files)

    if any(file.damages for file in files):
        raise typer.Exit(1)


def _checked(folder: Path) -> list[CheckedFile]:
    from volery.report.schema import MANIFEST

    if not folder.is_dir():
        raise InputError(str(folder), "is no folder; give the state folder of a federation, or a results folder")
    if (folder / MANIFEST).exists():
        from volery.study.results import check_results

        return list(check_results(folder))

    from volery.live.service.checks import check_state, is_state_folder

    if not is_state_folder(folder):
        problem = f"holds no state of a federation and no {MANIFEST}; give a state folder, or a results folder"
        raise InputError(str(folder), problem)
    return list(check_state(folder))


def _print_checks(folder: Path, files: list[CheckedFile]) -> None:
    from rich.text import Text

    rows = []
    for file in files:
        # A note says that a file cannot be proved, as those of earlier versions, which is neither sound nor damaged.
        sound = Text("see note", "yellow") if file.note else Text("sound", "green")
        verdict = Text("DAMAGED", "bold red") if file.damages else sound
        rows.append((_name(folder, file), verdict, file.note))

    print_table(("file", "verdict", "note"), rows, title="Checksums")

    for file in files:
        for damage in file.damages:
            typer.echo(f"{file.path}: {damage}")

    damaged = sum(bool(file.damages) for file in files)
    unproved = sum(bool(file.note) and not file.damages for file in files)
    typer.echo(f"Damaged files: {damaged} of {len(files)}; files with a note: {unproved}.")


def _name(folder: Path, file: CheckedFile) -> str:
    return str(Path(file.path).relative_to(folder))
