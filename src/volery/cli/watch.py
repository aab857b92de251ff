"""`volery watch`: a kept run, or what a federation has lived through, as a page that plays it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volery.cli.options import AsJson
from volery.cli.output import print_json
from volery.cli.timeline import RunName, RunSeed, kept_runs
from volery.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from volery.core.component import Component
    from volery.core.film import Filmed
    from volery.core.model import Address, Time
    from volery.live.hosts.journal import Header
    from volery.report.folder import KeptTimeline

NAME = "watch.html"
SUFFIX = ".journal"
MICROSECONDS = 1e6


def watch(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="PLACE", help="A results folder, a journal, or a folder of journals.", show_default=False
        ),
    ],
    run: RunName = None,
    seed: RunSeed = None,
    messages: Annotated[
        bool,
        typer.Option("--messages", help="Run it again and look on: messages, queues of all roles, views."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.html", help=f"The page; PLACE/{NAME}.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a page that plays a run, or what a federation has journalled, at any speed, and print its path."""
    from volery.report.page import write_page

    found = _journals(place)
    path = output if output is not None else (place.parent if place.is_file() else place) / NAME
    if path.suffix != ".html":
        raise InputError(str(path), "a page's name must end in .html")
    if found:
        if run is not None or seed is not None or messages:
            raise InputError("--run", "journals are of one federation; --run, --seed and --messages are for results")
        text, told = _of_journals(found)
    else:
        text, told = _of_results(place, run, seed, messages=messages)
    write_page(path, text)
    if as_json:
        print_json({"page": str(path)} | told)
    else:
        typer.echo(str(path))


def _journals(place: Path) -> list[Path]:
    """The journals there; none where it is a results folder."""
    if place.is_file():
        return [place]
    folder = place / "journal" if (place / "journal").is_dir() else place
    return sorted(folder.glob(f"*{SUFFIX}"))


def _of_results(folder: Path, run: str | None, seed: int | None, *, messages: bool) -> tuple[str, dict[str, object]]:
    from volery.report.explore.watch import watch_page

    results, chosen = kept_runs(folder, run, seed)
    one = chosen[0]
    filmed = _filmed(folder, one) if messages else None
    return watch_page(results, one, filmed), {"label": one.label, "seed": one.seed}


def _filmed(folder: Path, one: KeptTimeline) -> Filmed:
    from volery.report.explore.watch import played
    from volery.report.folder import read_timeline
    from volery.study.filming import film_run

    run = played(read_timeline(folder, one))
    return film_run(
        folder, one.label, one.seed, int(run.begin_s * MICROSECONDS), round(run.end_s * MICROSECONDS)
    ).filmed


def _of_journals(paths: list[Path]) -> tuple[str, dict[str, object]]:
    from volery.architectures import lookup
    from volery.live.trials.together import Together
    from volery.metrics.filming import Camera
    from volery.report.explore.watch import journal_page

    together = Together(paths, lookup)
    span = together.span()
    camera = Camera(span.first_us, span.end_us, span.cluster.slots, span.machines)

    def watch(header: Header, components: Mapping[Address, Component], offset_us: Time) -> None:
        if header.incarnation > 1:
            camera.happened(offset_us, f"{header.host} begins anew")
        camera.watch(components, offset_us)

    events = together.play(watch)
    title, hosts = f"{span.federation}, {span.architecture}", len(span.hosts)
    subtitle = f"{len(span.cluster.slots):,} machines, journals of {hosts} host{'s' if hosts > 1 else ''}"
    text = journal_page(title, subtitle, camera.filmed(), span.cluster.slots)
    return text, {"federation": span.federation, "hosts": list(span.hosts), "events": events}
