"""`volery serve results`, or `browse` in short: a results folder in a browser, whatever its size."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from volery.cli.options import AsJson, Folder
from volery.cli.output import print_json

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

LOOPBACK = "127.0.0.1"
ANY_PORT = 0
TOLD_EVERY_S = 2.0


def browse(
    folder: Folder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where it listens; 0: any free port.")] = ANY_PORT,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Others than this machine can read the results through another.")
    ] = LOOPBACK,
    as_json: AsJson = False,
) -> None:
    """Show a results folder on a page that can answer about every job and task, until Ctrl-C."""
    from volery.report.explore.server import LOCAL_NAMES, ResultsSite, Site, open_server, url_of
    from volery.study.why import Explanations

    waiting = BrowseServer()
    site = ResultsSite(folder, lambda: Explanations(folder), waiting.told, waiting.failed)
    site.begin()
    names = LOCAL_NAMES if host == LOOPBACK else (*LOCAL_NAMES, host, f"[{host}]")
    server = open_server(Site(site.page, site.answer, names), host, port)
    url = url_of(server)
    if as_json:
        print_json({"folder": str(folder), "url": url})
    else:
        typer.echo(f"{folder} is at {url}; Ctrl-C ends it")
    waiting.serve(server)


class BrowseServer:
    """Serves while the folder is read, prints the progress, and ends where the folder cannot be read."""

    def __init__(self) -> None:
        self._server: ThreadingHTTPServer | None = None
        self._problem: Exception | None = None
        self._began = self._last = time.monotonic()

    def told(self, text: str) -> None:
        """Print it, but not too often."""
        now = time.monotonic()
        if now - self._last >= TOLD_EVERY_S:
            typer.echo(f"{text} ({now - self._began:.0f} s)", err=True)
            self._last = now

    def failed(self, problem: Exception) -> None:
        """End the server; its caller prints the error."""
        self._problem = problem
        if self._server is not None:
            self._server.shutdown()

    def serve(self, server: ThreadingHTTPServer) -> None:
        """Until Ctrl-C, or until it shows that there is nothing to serve.

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
