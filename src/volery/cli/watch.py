"""`volery watch`: a kept run, or the journals of a federation, on the live page or as a Chrome trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from volery.cli.options import AsJson, Port, RunName, RunSeed, argument, journal_folder, option
from volery.cli.output import live_extra, print_answer
from volery.cli.progress import OneLine
from volery.cli.results import kept_runs
from volery.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.applications import Starlette

    from volery.core.component import Architecture, Component, Deployment
    from volery.core.model import Address, Cluster, Time
    from volery.live.dashboard.frame import PageView
    from volery.live.runtime.journal import Header
    from volery.playback.run_log import RunLog
    from volery.playback.traced_runs import TracedRun
    from volery.report.folder import KeptTimeline
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
    """Play a run, or what a federation has journalled, on the live page, as it stood at any moment, until Ctrl-C."""
    if demo == (place is not None):
        raise InputError("PLACE", "give a results folder or journals; or --demo, without them")

    if output is not None and output.suffix != ".json":
        raise InputError(str(output), "is no name of a Chrome trace; give one that ends in .json")

    if begin_s is not None and end_s is not None and end_s <= begin_s:
        raise InputError("--to", f"{end_s:g} s is not after {begin_s:g} s, where the film begins")

    journals = journals_of(place) if place is not None else []

    if run is not None or seed is not None:
        if place is None:
            raise InputError("--demo", "takes no --run and no --seed: it brings its own run")
        if journals:
            raise InputError("--run", "journals are of one federation; --run and --seed are for results")

    def reel_of() -> Reel:
        part = FilmSpan(begin_s, end_s)
        if place is None:
            return of_demonstration(part)
        if journals:
            return of_journals(journals, part, silent=as_json)
        return of_results(place, run, seed, part, silent=as_json)

    if output is None:
        _serve(reel_of, port, as_json)
        return

    reel = reel_of()
    output.write_bytes(reel.chrome_trace())
    print_answer({"trace": str(output)} | reel.told, as_json, str(output))


def _serve(reel_of: Callable[[], Reel], port: int, as_json: bool) -> None:
    """Show it until Ctrl-C."""
    with live_extra(", or write a Chrome trace: -o run.json"):
        from volery.playback.server import PlaybackServer
    reel = reel_of()
    showing = PlaybackServer(reel.app(), port)
    content = {"url": showing.url} | reel.told
    print_answer(content, as_json, f"{reel.title} is at {showing.url}; Ctrl-C ends it")
    showing.run()


SUFFIX = ".journal"
MICROSECONDS = 1e6
DEMO_S = 15
"""The length of the demonstration, without its pauses to read."""
USUAL_S = 30


class FilmSpan(msgspec.Struct, frozen=True):
    """The part of a run that is asked for, seconds; None: from its beginning, to its end."""

    begin_s: float | None = None
    end_s: float | None = None

    def of(self, first_us: Time, last_us: Time) -> tuple[Time, Time]:
        """Its bounds in microseconds.

        Raises:
            InputError: nothing of it is within the run.
        """
        begin = first_us if self.begin_s is None else max(first_us, round(self.begin_s * MICROSECONDS))
        end = last_us if self.end_s is None else min(last_us, round(self.end_s * MICROSECONDS))
        span = f"it lasts from {first_us / MICROSECONDS:.3f} s to {last_us / MICROSECONDS:.3f} s"
        if begin >= last_us:
            raise InputError("--from", f"{begin / MICROSECONDS:g} s is after its end; {span}")
        if end <= first_us or end <= begin:
            raise InputError("--to", f"{end / MICROSECONDS:g} s is before its beginning; {span}")
        return begin, end


class Reel(msgspec.Struct, frozen=True, eq=False):
    """A film that can be shown.

    Args:
        title, subtitle: headings of the film.
        filmed: the log of the traced run.
        cluster, deployment, architecture: the machines, and the design that scheduled on them.
        told: what the command prints of the film as JSON.
        origin_us: the film's time 0, microseconds since 1970; 0: of a run.
        lasts_s: so long it takes at first.
    """

    title: str
    subtitle: str
    filmed: RunLog
    cluster: Cluster
    deployment: Deployment
    architecture: Architecture
    told: dict[str, object]
    origin_us: Time = 0
    lasts_s: int = USUAL_S

    def app(self) -> Starlette:
        """The live page of the film."""
        from volery.core.flow import flow_of
        from volery.playback.pages import design_view
        from volery.playback.recording import Recording, source_of
        from volery.playback.server import PlaybackApp
        from volery.report.designpage import explanation
        from volery.report.flowplot import flow_svg

        stage = source_of(self.title, self.subtitle, self.cluster, self.deployment, self.origin_us)

        def design() -> PageView:
            text = explanation(self.architecture)
            return design_view(self.architecture, self.deployment, text, lambda: flow_svg(flow_of(self.deployment)))

        return PlaybackApp(Recording(self.filmed, stage), design, self.lasts_s).app()

    def chrome_trace(self) -> bytes:
        """The film as a Chrome trace."""
        from volery.playback.perfetto import chrome_trace

        return chrome_trace(self.filmed, len(self.cluster.constraints), self.title)


def journals_of(place: Path) -> list[Path]:
    """The journals there; none where it is a results folder."""
    if place.is_file():
        return [place]
    return sorted(journal_folder(place).glob(f"*{SUFFIX}"))


def of_demonstration(part: FilmSpan) -> Reel:
    """A small Megha at work."""
    from volery.playback.traced_runs import LENGTH_US, demonstration

    begin, end = part.of(0, LENGTH_US)
    traced_run = demonstration(begin, end, part=part.end_s is not None)

    title = "how Megha works"
    subtitle = f"{len(traced_run.cluster.slots)} machines, 3 clusters, 3 Global Masters; a little work, and a crash."
    summary: dict[str, object] = {"label": title}
    return _reel(title, subtitle, traced_run, summary, DEMO_S)


def of_results(folder: Path, run: str | None, seed: int | None, part: FilmSpan, *, silent: bool) -> Reel:
    """A kept run, run again under a tracer.

    Raises:
        InputError: it is not there, or is no longer what it was.
    """
    results, timelines = kept_runs(folder, run, seed)
    timeline = timelines[0]
    traced_run = filmed_run(folder, timeline, part, silent=silent)
    subtitle = f"{timeline.machines:,} machines, Volery {results.manifest.volery_version}."
    return _reel(
        f"{timeline.label}, seed {timeline.seed}",
        subtitle,
        traced_run,
        {"label": timeline.label, "seed": timeline.seed},
        USUAL_S,
    )


def _reel(title: str, subtitle: str, traced_run: TracedRun, summary: dict[str, object], lasts_s: int) -> Reel:
    return Reel(
        title,
        subtitle,
        traced_run.log,
        traced_run.cluster,
        traced_run.deployment,
        traced_run.architecture,
        summary,
        lasts_s=lasts_s,
    )


def filmed_run(folder: Path, timeline: KeptTimeline, part: FilmSpan, *, silent: bool) -> TracedRun:
    """A kept run, run again."""
    from volery.playback.traced_runs import trace_run
    from volery.report.folder import read_timeline
    from volery.sim import Progress

    begin, end = part.of(*read_timeline(folder, timeline).span_us())

    with OneLine(silent) as line:
        jobs = 1

        def moved(progress: TraceFacts | Progress) -> None:
            nonlocal jobs
            if isinstance(progress, Progress):
                line.moved("running it again", progress.jobs_done, jobs, f"{progress.jobs_done:,}/{jobs:,} jobs")
            else:
                jobs = progress.jobs

        return trace_run(folder, timeline.label, timeline.seed, begin, end, part=part.end_s is not None, watch=moved)


def of_journals(paths: list[Path], part: FilmSpan, *, silent: bool) -> Reel:
    """The film of a federation, from its journals.

    Raises:
        InputError: a file is no journal of the same federation, or does not replay.
    """
    from volery.architectures import lookup
    from volery.playback.journals import Journals
    from volery.playback.tracer import Tracer

    journals = Journals(paths, lookup)
    span = journals.span()

    begin, end = part.of(span.first_us, span.end_us)
    architecture = lookup(span.architecture)
    tracer = Tracer(begin, end, span.cluster.slots, span.machines, architecture.captions(), part=part.end_s is not None)

    def watch(header: Header, components: Mapping[Address, Component], offset_us: Time) -> None:
        if header.incarnation > 1:
            tracer.happened(offset_us, f"{header.host} begins anew.")
        tracer.watch(components, offset_us)

    with OneLine(silent) as line:

        def moved(now: Time, events: int) -> None:
            state = f"{now / MICROSECONDS:,.0f} of {end / MICROSECONDS:,.0f} s, {events:,} events"
            line.moved("playing journals", now - span.first_us, end - span.first_us, state)

        events = journals.play(watch, moved, end)

    hosts = len(span.hosts)
    title = f"{span.federation}, {span.architecture}"
    subtitle = f"{len(span.cluster.slots):,} machines, journals of {hosts} host{'s' if hosts > 1 else ''}"

    if span.cut:
        subtitle += f"; the first files of {', '.join(span.cut)} are no longer kept"

    summary: dict[str, object] = {
        "federation": span.federation,
        "hosts": list(span.hosts),
        "events": events,
        "cut": list(span.cut),
    }
    return Reel(title, subtitle, tracer.log(), span.cluster, span.deployment, architecture, summary, span.origin_us)
