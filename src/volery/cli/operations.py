"""`volery hosts`, `nodes`, `drain` and `undrain`: what those need who operate a federation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from volery.cli.jobs import Api, connected
from volery.cli.options import AsJson
from volery.cli.output import moment, print_json, print_rows, terminal
from volery.core.errors import InputError, suggestion
from volery.core.omissions import amount_text

if TYPE_CHECKING:
    from volery.live.status import HostStatus, NodeStatus

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Its address, as node/3.", show_default=False)]


def nodes(
    state: Annotated[str | None, typer.Option(help="Only those in use, drained or lost.", show_default=False)] = None,
    host: Annotated[str | None, typer.Option(help="Only those on this host.", show_default=False)] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Only those of this cluster, as lm/0.", show_default=False)
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="Only where address, host, hostname or labels contain this.", show_default=False),
    ] = None,
    api: Api = None,
    as_json: AsJson = False,
) -> None:
    """List the nodes: state, what runs there, host and machine."""
    with connected(api, as_json) as client:
        found = client.nodes(_node_state(state), host, cluster, text)
    if as_json:
        print_json(found)
        return
    from rich.text import Text

    amounts = any(node.offers for node in found)
    more = ("offers",) if amounts else ()
    print_rows(
        ("node", "state", "running", "host", "machine", "system", "cores", "memory", "GPUs", "disk",
         *more, "labels"),
        [_node_row(node, amounts=amounts) for node in found],
    )  # fmt: skip
    for words in dict.fromkeys(node.held for node in found if node.held):
        where = [node.address for node in found if node.held == words]
        some = f"{where[0]} and {len(where) - 1} more" if len(where) > 1 else where[0]
        terminal().print(Text(f"{some}: {words}"))


def _node_state(word: str | None) -> str | None:
    """The state that an option names."""
    from typing import get_args

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
        node.address, node.state, str(node.running) if amounts else f"{node.running}/{node.slots}", node.host,
        node.hostname, f"{node.arch} {node.os} {node.kernel}", str(node.cores), f"{node.memory_mb:,} MB",
        f"{node.gpus} {node.gpu}" if node.gpus else "", node.disk,
        *((offers_in_words(node.offers),) if amounts else ()), labels,
    ]  # fmt: skip


def hosts(api: Api = None, as_json: AsJson = False) -> None:
    """List the hosts: what each holds, and whether it answers."""
    with connected(api, as_json) as client:
        found = client.hosts()
    if as_json:
        print_json(found)
    else:
        heads = ("host", "state", "last heard", "jobs", "holds", "process", "started", "version", "incarnation")
        print_rows((*heads, "machine"), [_host_row(host) for host in found])


def _host_row(host: HostStatus) -> list[str]:
    from volery.live.status import held_by

    return [
        host.name, host.state, moment(host.heard_us), f"{host.jobs:,}" if host.jobs else "",
        held_by(host.components, host.nodes), "" if host.pid is None else str(host.pid), moment(host.started_us),
        host.version, str(host.incarnation or ""), host.hostname,
    ]  # fmt: skip


def offers_in_words(offers: Mapping[str, int]) -> str:
    """`8 CPUs, 15 GB, 2 gpus`."""
    return ", ".join(amount_text(name, amount) for name, amount in offers.items() if amount)


def drain(node: NodeName, api: Api = None, as_json: AsJson = False) -> None:
    """Place nothing more on a node; what runs there goes on."""
    _change(node, True, api, as_json)


def undrain(node: NodeName, api: Api = None, as_json: AsJson = False) -> None:
    """Use a node again."""
    _change(node, False, api, as_json)


def _change(node: str, drained: bool, api: str | None, as_json: bool) -> None:
    with connected(api, as_json) as client:
        status = client.drain(node) if drained else client.undrain(node)
    if as_json:
        print_json(status)
    elif drained:
        left = f"{status.running} task{'s' * (status.running != 1)} still run" + "s" * (status.running == 1)
        typer.echo(f"{node} is drained: it gets no new task; {left if status.running else 'nothing runs'} there")
    else:
        typer.echo(f"{node} is used again")
