"""`volery watch`: a kept run, or the journals of a federation, on the dashboard or as a Chrome trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volery.cli.options import AsJson, Port, RunName, RunSeed, argument, journal_folder, option
from volery.cli.output import live_extra, print_answer
from volery.cli.results import kept_runs
from volery.core.errors import InputError
from volery.lab.progress import OneLine

if TYPE_CHECKING:
    from volery.core.model import Time
    from volery.playback.traced_runs import TimeRange, TracedRun
    from volery.report.schema import TraceFacts
    from volery.sim import Progress


def watch(
    place: Annotated[Path | None, argument("A results folder, a journal, or a folder of journals.", "[PLACE]")] = None,
    run: RunName = None,
    seed: RunSeed = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Show a small Megha at work: what it does, in a minute.")
    ] = False,
    begin_s: Annotated[float | None, option("Begin there; what was before counts.", "--from", form="SECONDS")] = None,
    end_s: Annotated[float | None, option("End there.", "--to", form="SECONDS")] = None,
    port: Port = 0,
    output: Annotated[
        Path | None,
        option(
            "Write a Chrome trace, which https://ui.perfetto.dev opens, instead of showing the page.",
            "--output",
            "-o",
            form="FILE.json",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play a run, or what a federation has journalled, on the dashboard, as it stood at any moment, until Ctrl-C."""
    if demo == (place is not None):
        raise InputError("PLACE", "give a results folder or journals; or --demo, without them")

    if output is not None and output.suffix != ".json":
        raise InputError(str(output), "is not the name of a Chrome trace; give one that ends in .json")

    if begin_s is not None and end_s is not None and end_s <= begin_s:
        raise InputError("--to", f"{end_s:g} s is not after {begin_s:g} s, where the recording begins")

    if demo and (run is not None or seed is not None):
        raise InputError("--demo", "takes no --run and no --seed: it brings its own run")

    if output is None:
        with live_extra(", or write a Chrome trace: -o run.json"):
            from volery.playback.server import PlaybackServer, playback_app
    from volery.playback.traced_runs import TimeRange, demonstration

    part = TimeRange(begin_s, end_s)
    traced = demonstration(part) if place is None else trace_place(place, run, seed, part, silent=as_json)
    source = traced.source

    if output is not None:
        from volery.playback.perfetto import chrome_trace

        output.write_bytes(chrome_trace(traced.log, len(source.cluster.slots), source.title))
        print_answer({"trace": str(output)} | dict(source.facts), as_json, str(output))
        return

    from volery.playback.recording import Recording

    server = PlaybackServer(playback_app(Recording(traced.log, source)), port)
    text = f"{source.title} is at {server.url}; Ctrl-C ends it"
    print_answer({"url": server.url} | dict(source.facts), as_json, text)
    server.run()


def trace_place(place: Path, run: str | None, seed: int | None, part: TimeRange, *, silent: bool) -> TracedRun:
    """Trace the journals at a place, or a run of the results there, with a line of progress.

    Raises:
        InputError: there is no such run, it is no longer the same, or a journal does not replay.
    """
    paths = [place] if place.is_file() else sorted(journal_folder(place).glob("*.journal"))
    if not paths:
        return _trace_result(place, run, seed, part, silent=silent)
    if run is not None or seed is not None:
        raise InputError("--run", "journals are of one federation; --run and --seed are for results")

    from volery.playback.traced_runs import trace_journals

    with OneLine(silent) as line:

        def moved(begin: Time, end: Time, now: Time, events: int) -> None:
            state = f"{now / 1e6:,.0f} of {end / 1e6:,.0f} s, {events:,} events"
            line.moved("playing journals", now - begin, end - begin, state)

        return trace_journals(paths, part, moved)


def _trace_result(folder: Path, run: str | None, seed: int | None, part: TimeRange, *, silent: bool) -> TracedRun:
    from volery.playback.traced_runs import trace_run
    from volery.report.folder import read_timeline
    from volery.sim import Progress

    timeline = kept_runs(folder, run, seed)[1][0]
    span_us = read_timeline(folder, timeline).span_us()

    with OneLine(silent) as line:
        jobs = 1

        def moved(progress: TraceFacts | Progress) -> None:
            nonlocal jobs
            if isinstance(progress, Progress):
                line.moved("running it again", progress.jobs_done, jobs, f"{progress.jobs_done:,}/{jobs:,} jobs")
            else:
                jobs = progress.jobs

        return trace_run(folder, timeline.label, timeline.seed, span_us, part, moved)
