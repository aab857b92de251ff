"""`volery browse`: a results folder in a browser, whatever its size."""

from __future__ import annotations

from typing import Annotated

import typer

from volery.cli.options import AsJson, Folder
from volery.cli.output import print_json

LOOPBACK = "127.0.0.1"
ANY_PORT = 0


def browse(
    folder: Folder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where it listens; 0: any free port.")] = ANY_PORT,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Others than this machine can read the results through another.")
    ] = LOOPBACK,
    as_json: AsJson = False,
) -> None:
    """Show a results folder on a page that can answer about every job and task, until Ctrl-C."""
    from volery.report.explore.server import LOCAL_NAMES, open_server, url_of
    from volery.report.explore.site import site_of
    from volery.study.told import Explanations

    explanations = Explanations(folder)
    names = LOCAL_NAMES if host == LOOPBACK else (*LOCAL_NAMES, host, f"[{host}]")
    server = open_server(site_of(folder, explanations.longest(), explanations.answer, names), host, port)
    url = url_of(server)
    if as_json:
        print_json({"folder": str(folder), "url": url})
    else:
        typer.echo(f"{folder} is at {url}; Ctrl-C ends it")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()
