"""`volery serve`: one host of a federation, by its name, or a results folder; no host may be called `results`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from volery.cli.browse import browse
from volery.cli.federation import LogJson, choose, run_host
from volery.cli.options import AsJson
from volery.core.errors import InputError

HOST, RESULTS = "HOST", "results"
OF_HOSTS: Final = ("-c", "--config", "--log-json")
OF_RESULTS: Final = ("--port", "--host")
WITH_VALUE: Final = ("-c", "--config", "--port", "--host")


class HostsAndResults(TyperGroup):
    """Every word but `results` is the name of a host; options may stand before it, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name first, where a group looks for its command."""
        found: list[str] = super().parse_args(ctx, name_first(args))
        return found

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command that shows results, or that runs a host."""
        return super().get_command(ctx, cmd_name if cmd_name == RESULTS else HOST)


def name_first(words: Sequence[str]) -> list[str]:
    """The words of a command line with the name before its options.

    Raises:
        InputError: there are options without a name, or options of the other use of `serve`.
    """
    given = [word.partition("=")[0] for word in words]
    before = ["", *words]
    at = next((at for at, word in enumerate(words) if word[:1] != "-" and before[at] not in WITH_VALUE), None)
    if at is None:
        if words and "--help" not in words:
            raise InputError("HOST", "is missing: volery serve HOST -c FEDERATION.toml, or volery serve results DIR")
        return list(words)
    name = words[at]
    if not name:
        raise InputError("HOST", "is empty; it is a name of the federation's file, or a role such as node")
    for option in given:
        if name == RESULTS and option in OF_HOSTS:
            raise InputError(
                option, "is for a host of a federation, which cannot be called results: volery serve HOST -c FILE"
            )
        if name != RESULTS and option in OF_RESULTS:
            raise InputError(option, "is for volery serve results DIR; where a host listens stands in its file")
    if name != RESULTS and not {"-c", "--config", "--help"} & set(given) and Path(name).is_dir():
        raise InputError(name, f"is a folder; its results are shown by: volery serve results {name}")
    return [name, *words[:at], *words[at + 1 :]]


serve_app = typer.Typer(
    cls=HostsAndResults,
    help="Run one host of a federation, by its name, or show a results folder in a browser.",
    no_args_is_help=True,
    subcommand_metavar="HOST -c FEDERATION.toml | results DIR",
)


@serve_app.command(HOST)
def host(
    context: typer.Context,
    config: Annotated[
        Path, typer.Option("-c", "--config", metavar="FEDERATION.toml", help="The federation.", show_default=False)
    ],
    log_json: LogJson = False,
    as_json: AsJson = False,
) -> None:
    """Run one host of a federation in this process, connected to the others by NATS, until Ctrl-C.

    HOST is a role, api, or a name from the file.
    """
    from volery.live.config.federation import read_federation

    run_host(read_federation(config, choose), str(context.info_name), as_json, log_json)


serve_app.command(RESULTS)(browse)
