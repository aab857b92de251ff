"""`volery watch`: a kept run, or the journals of a federation, on the live page or as a Chrome trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volery.cli.options import AsJson
from volery.cli.output import print_json
from volery.cli.timeline import RunName, RunSeed
from volery.core.errors import InputError

if TYPE_CHECKING:
    from volery.cli.films import FilmOptions

ANY_PORT = 0


def watch(
    place: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PLACE]", help="A results folder, a journal, or a folder of journals.", show_default=False
        ),
    ] = None,
    run: RunName = None,
    seed: RunSeed = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Show a small Megha at work: what it does, in a minute.")
    ] = False,
    begin_s: Annotated[
        float | None,
        typer.Option("--from", metavar="SECONDS", help="Begin there; what was before counts.", show_default=False),
    ] = None,
    end_s: Annotated[
        float | None, typer.Option("--to", metavar="SECONDS", help="End there.", show_default=False)
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where it listens; 0: any free port.")] = ANY_PORT,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.json",
            help="Write a Chrome trace, which https://ui.perfetto.dev opens, instead of showing the page.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play a run, or what a federation has journalled, on the live page, as it stood at any moment, until Ctrl-C."""
    from volery.cli.films import FilmOptions, part_of

    if demo == (place is not None):
        raise InputError("PLACE", "give a results folder or journals; or --demo, without them")
    if output is not None and output.suffix != ".json":
        raise InputError(str(output), "is no name of a Chrome trace; give one that ends in .json")
    chosen = FilmOptions(place, run, seed, part_of(begin_s, end_s), silent=as_json)
    chosen.check()
    if output is None:
        _serve(chosen, port, as_json)
        return
    reel = chosen.reel()
    output.write_bytes(reel.chrome_trace())
    if as_json:
        print_json({"trace": str(output)} | reel.told)
    else:
        typer.echo(str(output))


def _serve(chosen: FilmOptions, port: int, as_json: bool) -> None:
    """Show it until Ctrl-C."""
    try:
        from volery.playback.server import PlaybackServer
    except ImportError as error:
        problem = f"{error.name} is not installed; install 'volery[live]', or write a Chrome trace: -o run.json"
        raise InputError("volery", problem) from None
    reel = chosen.reel()
    showing = PlaybackServer(reel.app(), port)
    if as_json:
        print_json({"url": showing.url} | reel.told)
    else:
        typer.echo(f"{reel.title} is at {showing.url}; Ctrl-C ends it")
    showing.run()
