"""`volery hosts`, `nodes`, `drain`, `undrain`, `users` and `token`: the operation of a federation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

from volery.cli.jobs import NUMBER_MAX, Api, connected
from volery.cli.options import AsJson, argument, option
from volery.cli.output import moment, print_answer, print_json, print_rows, print_table, terminal
from volery.core.errors import InputError, suggestion
from volery.core.omissions import amount_text
from volery.look.text import percent

if TYPE_CHECKING:
    from volery.live.status import HostStatus, NodeStatus, SharePart

NodeName = Annotated[str, argument("Its address, as node/3.", "NODE")]


def nodes(
    state: Annotated[str | None, option("Only those in use, short of something, drained or lost.")] = None,
    host: Annotated[str | None, option("Only those on this host.")] = None,
    cluster: Annotated[str | None, option("Only those of this cluster, as lm/0.", form="ADDRESS")] = None,
    text: Annotated[str | None, option("Only where address, host, hostname or labels contain this.")] = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """List the nodes: state, what runs there, host and machine."""
    with connected(api, as_json) as client:
        listed_nodes = client.nodes(_node_state(state), host, cluster, text)

    if as_json:
        print_json(listed_nodes)
        return

    amounts = any(node.offers for node in listed_nodes)
    offers_head = ("offers",) if amounts else ()
    print_rows(
        (
            "node",
            "state",
            "running",
            "host",
            "machine",
            "system",
            "cores",
            "memory",
            "GPUs",
            "disk",
            *offers_head,
            "labels",
        ),
        [_node_row(node, amounts=amounts) for node in listed_nodes],
    )

    for words in dict.fromkeys(words for node in listed_nodes for words in (node.held, node.shortage) if words):
        addresses = [node.address for node in listed_nodes if words in (node.held, node.shortage)]
        named_nodes = f"{addresses[0]} and {len(addresses) - 1} more" if len(addresses) > 1 else addresses[0]
        terminal().print(f"{named_nodes}: {words}", highlight=False, emoji=False)


def _node_state(word: str | None) -> str | None:
    """The state that an option names."""
    from volery.live.status import NodeState

    states = get_args(NodeState)
    named = word.replace("-", " ").replace("_", " ") if word is not None else None
    if named is not None and named not in states:
        raise InputError(
            "--state", f"no node is ever {word!r}; nodes are {', '.join(states)}{suggestion(named, states)}"
        )
    return named


def _node_row(node: NodeStatus, *, amounts: bool) -> list[str]:
    labels = ", ".join(f"{name}={value}" for name, value in sorted(node.labels.items()))
    return [
        node.address,
        node.state,
        str(node.running) if amounts else f"{node.running}/{node.slots}",
        node.host,
        node.hostname,
        f"{node.arch} {node.os} {node.kernel}",
        str(node.cores),
        f"{node.memory_mb:,} MB",
        f"{node.gpus} {node.gpu}" if node.gpus else "",
        node.disk,
        *((offers_in_words(node.offers),) if amounts else ()),
        labels,
    ]


def hosts(api: Api = None, as_json: AsJson = False) -> None:
    """List the hosts: what each holds, whether it answers, and what it waits for if it has not opened."""
    with connected(api, as_json) as client:
        listed_hosts = client.hosts()

    if as_json:
        print_json(listed_hosts)
    else:
        heads = ("host", "state", "last heard", "jobs", "holds", "process", "started", "version", "incarnation")
        print_rows((*heads, "machine"), [_host_row(host) for host in listed_hosts])


def _host_row(host: HostStatus) -> list[str]:
    from volery.live.status import held_by

    return [
        host.name,
        ", ".join(filter(None, (host.state, host.wait))),
        moment(host.heard_us),
        f"{host.jobs:,}" if host.jobs else "",
        held_by(host.components, host.nodes),
        "" if host.pid is None else str(host.pid),
        moment(host.started_us),
        host.version,
        str(host.incarnation or ""),
        host.hostname,
    ]


def offers_in_words(offers: Mapping[str, int]) -> str:
    """`8 CPUs, 15 GB, 2 gpus`."""
    return ", ".join(amount_text(name, amount) for name, amount in offers.items() if amount)


def drain(node: NodeName, api: Api = None, as_json: AsJson = False) -> None:
    """Place nothing more on a node; what runs there goes on."""
    _set_drained(node, True, api, as_json)


def undrain(node: NodeName, api: Api = None, as_json: AsJson = False) -> None:
    """Use a node again."""
    _set_drained(node, False, api, as_json)


def _set_drained(node: str, drained: bool, api: str | None, as_json: bool) -> None:
    with connected(api, as_json) as client:
        status = client.drain(node) if drained else client.undrain(node)

    answer = f"{node} is used again"

    if drained:
        running_tasks = f"{status.running} task{'s' * (status.running != 1)} still run" + "s" * (status.running == 1)
        answer = f"{node} is drained: it gets no new task; {running_tasks if status.running else 'nothing runs'} there"
    print_answer(status, as_json, answer)


users_app = typer.Typer(help="Users, their shares, and who has lost what to whom.")


@users_app.callback(invoke_without_command=True)
def users(context: typer.Context, api: Api = None, as_json: AsJson = False) -> None:
    """List the users with something under way or a share of the federation."""
    if context.invoked_subcommand is not None:
        return

    with connected(api, as_json) as client:
        listed_users = client.users()

    if as_json:
        print_json(listed_users)
        return

    heads = ("user", "weight", "share", "jobs waiting", "jobs running", "tasks waiting", "tasks running")
    rows = (
        (
            user.user,
            "" if user.weight is None else str(user.weight),
            _percent(user.share),
            f"{user.jobs_pending:,}",
            f"{user.jobs_running:,}",
            f"{user.tasks_pending:,}",
            f"{user.tasks_running:,}",
        )
        for user in listed_users
    )
    print_table(heads, rows)


@users_app.command("share")
def share(
    name: Annotated[str | None, argument("A user, or an organisation.", "[NAME]")] = None,
    weight: Annotated[int | None, argument("Its weight from now on.", "[WEIGHT]", min=1)] = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """Show the shares of all users or of one; set the weight of one (administrators)."""
    with connected(api, as_json) as client:
        shares = client.shares() if name is None else [client.share(name, weight)]

    if as_json:
        print_json(shares if name is None else shares[0])
    elif weight is not None:
        user_share = shares[0]
        due = f"and is due {percent(user_share.share)} of the federation"
        typer.echo(f"{user_share.name} has weight {user_share.weight:,} from now on, {due}")
    else:
        rows = (
            (
                "  " * len(user_share.within) + user_share.name + "/" * user_share.organisation,
                str(user_share.weight),
                _percent(user_share.share),
            )
            for user_share in shares
        )
        print_table(("name", "weight", "share"), rows)


def _percent(share: float | None) -> str:
    return "" if share is None else percent(share)


@users_app.command("preemptions")
def preemptions(
    user: Annotated[str | None, argument("Who has lost, or gained.", "[USER]")] = None,
    job: Annotated[int | None, option("Only those of this job, or for it.", "--job", min=0, max=NUMBER_MAX)] = None,
    before: Annotated[int | None, option("Only those with smaller numbers.", "--before", min=0, max=NUMBER_MAX)] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many, the last first.")] = 100,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """List attempts that were ended so that others could have their places."""
    with connected(api, as_json) as client:
        listed_preemptions = client.preemptions(user, job, before, limit)

    if as_json:
        print_json(listed_preemptions)
        return

    heads = ("number", "when", "lost by", "task", "for", "task", "why", "loser had", "winner had")
    rows = (
        (
            str(preemption.number),
            moment(preemption.at_us),
            preemption.user,
            _task_name(preemption.job, preemption.index),
            preemption.for_user,
            _task_name(preemption.for_job, preemption.for_index),
            preemption.reason,
            _share_change(preemption.loss),
            _share_change(preemption.gain),
        )
        for preemption in listed_preemptions
    )
    print_table(heads, rows)


def _task_name(job: int, index: int) -> str:
    return "" if job < 0 else f"{job}/{index}"


def _share_change(part: SharePart | None) -> str:
    return "" if part is None else f"{percent(part.before)} > {percent(part.after)} of {percent(part.due)}"


token_app = typer.Typer(help="Make, list and revoke the tokens of a federation.", no_args_is_help=True)

FederationFolder = Annotated[
    Path, typer.Option("-o", "--folder", help="The federation's folder, on the host of its API.")
]
FOLDER: Final = Path("federation")
DAYS_MAX: Final = 36_500


@token_app.command("add")
def add(
    user: Annotated[str, argument("Whose it is.", None)],
    role: Annotated[
        str, typer.Option(help="user: their own jobs; operator: all jobs, and nodes; admin: jobs for others, too.")
    ] = "user",
    days: Annotated[float | None, option("It is void after so many; by default never.", min=0, max=DAYS_MAX)] = None,
    folder: FederationFolder = FOLDER,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it, for the only time; from the first one on the API lets in only who has one."""
    from volery.live.service.authentication import ROLES, TokenFile

    known_role = next((known_name for known_name in ROLES if known_name == role), None)
    if known_role is None:
        raise InputError("--role", f"expected {', '.join(ROLES)}, not {role!r}")

    tokens = TokenFile(folder)
    first = tokens.read() is None
    token, stored_token = tokens.add(user, known_role, days)

    if as_json:
        print_json(
            {
                "token": token,
                "id": stored_token.id,
                "user": stored_token.user,
                "role": stored_token.role,
                "expires_us": stored_token.expires_us,
            }
        )
        return

    typer.echo(token)
    typer.echo(f"{stored_token.role} {stored_token.user}: give it as VOLERY_TOKEN; nobody can print it again", err=True)
    if first:
        typer.echo("The API asks everyone for a token from now on.", err=True)


@token_app.command("list")
def list_tokens(folder: FederationFolder = FOLDER, as_json: AsJson = False) -> None:
    """List the tokens by id; what they are nobody can tell."""
    from volery.live.service.authentication import TokenFile

    if not folder.is_dir():
        raise InputError(str(folder), "is no folder of a federation; name it with -o, on the host of its API")

    tokens = TokenFile(folder).read()

    if as_json:
        fields = ("id", "user", "role", "created_us", "expires_us")
        listed = [{name: getattr(token, name) for name in fields} for token in tokens or ()]
        print_json({"open": tokens is None, "tokens": listed})
        return

    if tokens is None:
        typer.echo("There are no tokens: the API lets everyone in and listens on its own machine alone.")
        return

    rows = ((token.id, token.user, token.role, moment(token.created_us), moment(token.expires_us)) for token in tokens)
    print_table(("id", "user", "role", "made", "expires"), rows)


@token_app.command("revoke")
def revoke(
    name: Annotated[str, argument("A token, or all of a user.", "ID|USER")],
    folder: FederationFolder = FOLDER,
    as_json: AsJson = False,
) -> None:
    """Revoke tokens: the API refuses them from now on."""
    from volery.live.service.authentication import TokenFile

    revoked_ids = [token.id for token in TokenFile(folder).revoke(name)]
    print_answer({"revoked": revoked_ids}, as_json, f"revoked, and refused from now on: {', '.join(revoked_ids)}")
