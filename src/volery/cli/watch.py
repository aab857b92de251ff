"""`volery watch`: a kept run, or what a federation has lived through, on the live page or as a page of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volery.cli.options import AsJson
from volery.cli.output import print_json
from volery.cli.timeline import RunName, RunSeed
from volery.core.errors import InputError

if TYPE_CHECKING:
    from volery.cli.filming import Choice

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
    messages: Annotated[
        bool,
        typer.Option(
            "--messages", help="On a page of its own (-o): run it again, and show messages, queues, and views, too."
        ),
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where it listens; 0: any free port.")] = ANY_PORT,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.html",
            help="Write a page of its own, which needs no server.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play a run, or what a federation has journalled, on the live page, as it stood at any moment, until Ctrl-C."""
    from volery.cli.filming import Choice, part_of
    from volery.report.page import write_page

    if demo == (place is not None):
        raise InputError("PLACE", "give a results folder or journals; or --demo, without them")
    chosen = Choice(place, run, seed, part_of(begin_s, end_s), messages=messages, silent=as_json)
    chosen.check()
    if output is None:
        if messages:
            raise InputError("--messages", "is for a page of its own (-o FILE.html); the live page shows them anyway")
        _serve(chosen, port, as_json)
        return
    if output.suffix != ".html":
        raise InputError(str(output), "a page's name must end in .html")
    text, told = chosen.page()
    write_page(output, text)
    if as_json:
        print_json({"page": str(output)} | told)
    else:
        typer.echo(str(output))


def _serve(chosen: Choice, port: int, as_json: bool) -> None:
    """Show it until Ctrl-C."""
    try:
        from volery.live.recorded.serving import Showing
    except ImportError as error:
        problem = f"{error.name} is not installed; install 'volery[live]', or write a page of its own: -o watch.html"
        raise InputError("volery", problem) from None
    reel = chosen.reel()
    showing = Showing(reel.app(), port)
    if as_json:
        print_json({"url": showing.url} | reel.told)
    else:
        typer.echo(f"{reel.title} is at {showing.url}; Ctrl-C ends it")
    showing.run()
