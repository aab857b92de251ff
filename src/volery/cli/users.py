"""`volery users`: who has what of a federation, what each is due, and who has lost what to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from volery.cli.jobs import NUMBER_MAX, Api, connected
from volery.cli.options import AsJson
from volery.cli.output import moment, print_json, terminal

if TYPE_CHECKING:
    from volery.live.status import PreemptionStatus, SharePart, ShareStatus

users_app = typer.Typer(help="Users, their shares, and who has lost what to whom.")


@users_app.callback(invoke_without_command=True)
def users(context: typer.Context, api: Api = None, as_json: AsJson = False) -> None:
    """List the users with something under way or a share of the federation."""
    if context.invoked_subcommand is not None:
        return
    with connected(api, as_json) as client:
        found = client.users()
    if as_json:
        print_json(found)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("user", "weight", "share", "jobs waiting", "jobs running", "tasks waiting", "tasks running")
    for user in found:
        weight, share = ("" if user.weight is None else str(user.weight)), _percent(user.share)
        counts = (user.jobs_pending, user.jobs_running, user.tasks_pending, user.tasks_running)
        table.add_row(Text(user.user), weight, share, *(f"{count:,}" for count in counts))
    terminal().print(table)


@users_app.command("share")
def share(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A user, or an organisation.", show_default=False)
    ] = None,
    weight: Annotated[
        int | None, typer.Argument(metavar="[WEIGHT]", min=1, help="Its weight from now on.", show_default=False)
    ] = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Show the shares of all users or of one; set the weight of one (administrators)."""
    with connected(api, as_json) as client:
        found = client.shares() if name is None else [client.share(name, weight)]
    if as_json:
        print_json(found if name is None else found[0])
    elif weight is not None:
        one = found[0]
        typer.echo(f"{one.name} has weight {one.weight:,} from now on, and is due {one.share:.1%} of the federation")
    else:
        _print_shares(found)


def _print_shares(found: list[ShareStatus]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("name", "weight", "share")
    for one in found:
        table.add_row(Text("  " * len(one.within) + one.name + "/" * one.organisation), str(one.weight),
                      _percent(one.share))  # fmt: skip
    terminal().print(table)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


@users_app.command("preemptions")
def preemptions(
    user: Annotated[
        str | None, typer.Argument(metavar="[USER]", help="Who has lost, or gained.", show_default=False)
    ] = None,
    job: Annotated[
        int | None,
        typer.Option("--job", min=0, max=NUMBER_MAX, help="Only those of this job, or for it.", show_default=False),
    ] = None,
    before: Annotated[
        int | None,
        typer.Option("--before", min=0, max=NUMBER_MAX, help="Only those with smaller numbers.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many, the last first.")] = 100,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """List attempts that were ended so that others could have their places."""
    with connected(api, as_json) as client:
        found = client.preemptions(user, job, before, limit)
    if as_json:
        print_json(found)
    else:
        _print_preemptions(found)


def _print_preemptions(found: list[PreemptionStatus]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("number", "when", "lost by", "task", "for", "task", "why", "loser had", "winner had")
    for one in found:
        when = moment(one.at_us)
        table.add_row(
            str(one.number), when, Text(one.user), _task(one.job, one.index), Text(one.for_user),
            _task(one.for_job, one.for_index), one.reason, _change(one.loss), _change(one.gain),
        )  # fmt: skip
    terminal().print(table)


def _task(job: int, index: int) -> str:
    return "" if job < 0 else f"{job}/{index}"


def _change(part: SharePart | None) -> str:
    return "" if part is None else f"{part.before:.1%} > {part.after:.1%} of {part.due:.1%}"
