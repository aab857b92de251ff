"""`volery token`: who may use the API of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from volery.cli.options import AsJson
from volery.cli.output import moment, print_json, terminal
from volery.core.errors import InputError

token_app = typer.Typer(help="Make, list and revoke the tokens of a federation.", no_args_is_help=True)

Folder = Annotated[
    Path, typer.Option("-o", "--folder", help="The federation's folder, on the host of its API.", show_default=True)
]
FOLDER: Final = Path("federation")
DAYS_MAX: Final = 36_500


@token_app.command("add")
def add(
    user: Annotated[str, typer.Argument(help="Whose it is.", show_default=False)],
    role: Annotated[
        str, typer.Option(help="user: their own jobs; operator: all jobs, and nodes; admin: jobs for others, too.")
    ] = "user",
    days: Annotated[
        float | None,
        typer.Option(min=0, max=DAYS_MAX, help="It is void after so many; by default never.", show_default=False),
    ] = None,
    folder: Folder = FOLDER,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it, for the only time; from the first one on the API lets in only who has one."""
    from volery.live.service.authentication import ROLES, TokenFile

    known = next((one for one in ROLES if one == role), None)
    if known is None:
        raise InputError("--role", f"expected {', '.join(ROLES)}, not {role!r}")
    tokens = TokenFile(folder)
    first = tokens.read() is None
    token, kept = tokens.add(user, known, days)
    if as_json:
        print_json({"token": token, "id": kept.id, "user": kept.user, "role": kept.role, "expires_us": kept.expires_us})
        return
    typer.echo(token)
    typer.echo(f"{kept.role} {kept.user}: give it as VOLERY_TOKEN; nobody can print it again", err=True)
    if first:
        typer.echo("The API asks everyone for a token from now on.", err=True)


@token_app.command("list")
def list_tokens(folder: Folder = FOLDER, as_json: AsJson = False) -> None:
    """List the tokens by id; what they are nobody can tell."""
    from volery.live.service.authentication import TokenFile

    if not folder.is_dir():
        raise InputError(str(folder), "is no folder of a federation; name it with -o, on the host of its API")
    found = TokenFile(folder).read()
    if as_json:
        shown = ("id", "user", "role", "created_us", "expires_us")
        listed = [{name: getattr(one, name) for name in shown} for one in found or ()]
        print_json({"open": found is None, "tokens": listed})
        return
    if found is None:
        typer.echo("There are no tokens: the API lets everyone in and listens on its own machine alone.")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("id", "user", "role", "made", "expires")
    for one in found:
        table.add_row(one.id, Text(one.user), one.role, moment(one.created_us), moment(one.expires_us))
    terminal().print(table)


@token_app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="ID|USER", help="A token, or all of a user.", show_default=False)],
    folder: Folder = FOLDER,
    as_json: AsJson = False,
) -> None:
    """Revoke tokens: the API refuses them from now on."""
    from volery.live.service.authentication import TokenFile

    gone = [one.id for one in TokenFile(folder).revoke(name)]
    if as_json:
        print_json({"revoked": gone})
    else:
        typer.echo(f"revoked, and refused from now on: {', '.join(gone)}")
