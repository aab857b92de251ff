"""Views for those who look after a federation: nodes, and one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, get_args

import msgspec
from starlette.requests import Request

from volery.core.model import Address
from volery.core.omissions import amount_text
from volery.live.config.machine import ATTRIBUTES, LABEL
from volery.live.dashboard import frame
from volery.live.dashboard.frame import Column, PageView, pager, slice_of, state_of, table
from volery.live.dashboard.jobs import user_of
from volery.live.service.operator_api import is_asked_for, labels_of
from volery.live.service.queries import FederationView
from volery.live.service.requests import choice, principal
from volery.live.status import AttributeValue, HostStatus, NodeState, NodeStatus, held_by
from volery.look.html import Markup, Piece, address, facts, joined, link, moment, name_of, section, tag
from volery.look.text import NOTHING, time_span, whole

RUNS_MAX: Final = 200
LABELS_SHOWN: Final = 120
_NODES: Final = (
    Column("node", "node", text=True),
    Column("state", "state", text=True),
    Column("running", "running"),
    Column("slots", "slots"),
    Column("cores", "cores"),
    Column("memory, MB", "memory_mb"),
    Column("host", "host", text=True),
    Column("machine", text=True),
    Column("labels", text=True),
    Column("", text=True),
)
_RUNS: Final = (
    Column("task", text=True),
    Column("job", text=True),
    Column("user", text=True),
    Column("attempt"),
    Column("started", text=True),
    Column("for"),
)


def nodes_view(queries: FederationView, request: Request, owners: Mapping[Address, Sequence[Address]]) -> PageView:
    """All nodes, filtered, sorted, cut into pages.

    Args:
        owners: the components responsible for each node.

    Raises:
        InputError: the query holds something else than it may.
    """
    states = ("", *get_args(NodeState))
    filters = {name: request.query_params.get(name) or None for name in ("state", "host", "cluster", "text")}
    filters["state"] = choice(request, "state", states) or None
    shown = slice_of(request, _NODES, "node", filters)
    nodes = [node for node in queries.nodes() if is_asked_for(node, owners, **filters)]
    if shown.key != "node":
        nodes.sort(key=lambda node: getattr(node, shown.key), reverse=shown.falling)
    elif shown.falling:
        nodes.reverse()
    page_nodes = nodes[shown.skip : shown.skip + shown.rows]
    may = queries.drains and principal(request).may("operator")
    listed = table(_NODES, [_node(node, may=may) for node in page_nodes], shown, "No such nodes.", "nodes")
    pages = pager(shown, len(page_nodes), shown.skip + len(page_nodes) < len(nodes), len(nodes))
    return PageView("Nodes", joined((pages, listed)), _filters(filters), frame.NODES, every_s=5.0)


def _filters(filters: dict[str, str | None]) -> Markup:
    fields = (
        frame.choice_field("state", get_args(NodeState), filters["state"]),
        frame.text_field("host ", "host", filters["host"], 10),
        frame.text_field("cluster ", "cluster", filters["cluster"], 6),
        frame.text_field("address, machine or labels contain ", "text", filters["text"], 16),
    )
    return frame.filter_form(frame.NODES, fields, filled=any(filters.values()))


def _machine(node: NodeStatus) -> str:
    """The machine of a node; a recording has none."""
    return f"{node.arch}, {node.os} {node.kernel}" if node.arch else NOTHING


def _node(node: NodeStatus, *, may: bool) -> Sequence[Piece]:
    return (
        link(f"{frame.NODES}/{node.address}", node.address, id=node.address),
        _state(node),
        whole(node.running),
        whole(node.slots),
        node.cores or NOTHING,
        whole(node.memory_mb) if node.memory_mb else NOTHING,
        name_of(_place(node), LABELS_SHOWN),
        name_of(_machine(node), LABELS_SHOWN),
        name_of(labels_of(node), LABELS_SHOWN),
        _draining(node) if may else "",
    )


def _state(node: NodeStatus) -> Markup:
    return state_of(node.state)


def _place(node: NodeStatus) -> str:
    """The host, and the machine on which it runs."""
    if not node.host:
        return NOTHING
    return f"{node.host} on {node.hostname}" if node.hostname else node.host


def _draining(node: NodeStatus) -> Markup:
    word = "undrain" if node.drained else "drain"
    question = (
        f"Use {node.address} again?"
        if node.drained
        else f"Place nothing more on {node.address}? What runs there goes on."
    )
    return frame.order(word, f"/nodes/{node.address}/{word}", question, f"{word}-{node.address}")


def _conditions(node: NodeStatus) -> Markup:
    """All that a job can ask for and have here, as it would write it."""
    attributes: dict[str, AttributeValue] = {name: getattr(node, name) for name in ATTRIBUTES} if node.arch else {}
    attributes |= {LABEL + name: value for name, value in sorted(node.labels.items())}
    items = []
    for name, value in attributes.items():
        text = f"{name} == {msgspec.json.encode(value).decode()}"
        items.append(tag("li", tag("code", name_of(text, LABELS_SHOWN))))
    return tag("ul", *items, class_="conditions")


def node_view(queries: FederationView, node: NodeStatus, request: Request, owners: Sequence[Address] = ()) -> PageView:
    """One node, and the tasks there that may be seen.

    Args:
        owners: the components in charge of it, where the scheduler names them.
    """
    caller = principal(request)
    runs = queries.runs_on(node.address, RUNS_MAX)
    jobs = {number: queries.job(number) for number in {run.job for run in runs}}
    node_facts = facts(
        ("state", _state(node)),
        ("lacks", node.shortage or NOTHING),
        ("host", link(frame.HOSTS, _place(node)) if node.host else NOTHING),
        ("cluster", ", ".join(owners) or NOTHING),
        ("running", f"{whole(node.running)} of {whole(node.slots)} slots"),
        ("cores", node.cores or NOTHING),
        ("memory", f"{whole(node.memory_mb)} MB" if node.memory_mb else NOTHING),
        ("GPUs", name_of(f"{node.gpus} {node.gpu}") if node.gpus else NOTHING),
        ("disk", node.disk),
        ("offers", ", ".join(amount_text(name, amount) for name, amount in node.offers.items()) or "slots"),
        ("tasks are held", node.held or NOTHING),
        ("machine", name_of(_machine(node))),
        ("labels", name_of(labels_of(node), 12_000) if node.labels else NOTHING),
    )
    cells = []
    for run in runs:
        job = jobs[run.job]
        if job is None or caller.sees not in (None, job.user):
            continue
        cells.append((
            link(f"{frame.JOBS}/{run.job}/tasks/{run.index}", f"{run.job}/{run.index}"),
            link(f"{frame.JOBS}/{run.job}", name_of(job.name, 60) if job.name else f"job {job.id}"),
            user_of(job.user, 40), run.attempt, moment(run.started_us),
            NOTHING if run.started_us is None else time_span(queries.elapsed_us(run)),
        ))  # fmt: skip
    if not cells:
        empty = "None of yours." if caller.sees is not None else "None."
        ran: Markup = tag("p", empty, class_="soft")
    else:
        ran = table(_RUNS, cells, label="tasks that run here")
    if len(runs) == RUNS_MAX:
        ran = joined((ran, tag("p", f"The first {RUNS_MAX} of them.", class_="soft")))
    button = _draining(node) if queries.drains and caller.may("operator") else None
    parts = (
        button, node_facts, section("Tasks that run here", ran),
        section("Constraints that it meets", _conditions(node) if node.arch or node.labels else None),
    )  # fmt: skip
    return PageView(f"Node {node.address}", joined(parts), place=frame.NODES, idle_s=10.0)


_HOSTS: Final = (
    Column("host", text=True),
    Column("state", text=True),
    Column("holds", text=True),
    Column("jobs"),
    Column("last heard", text=True),
    Column("machine", text=True),
    Column("process"),
    Column("started", text=True),
    Column("version", text=True),
    Column("incarnation"),
)


def hosts_view(queries: FederationView) -> PageView:
    rows = [_host(host) for host in queries.all_hosts()]
    listed = table(_HOSTS, rows, empty="Of hosts nothing is known here.", label="hosts")
    note = "A host is a process of the federation. Jobs: those that have not ended and are assigned to its schedulers."
    live = joined((absences(queries), listed, tag("p", note, class_="soft")))
    return PageView("Hosts", live, place=frame.HOSTS, every_s=2.0, idle_s=5.0)


def absences(queries: FederationView) -> Markup | None:
    sentences = queries.absent()
    if not sentences:
        return None
    return tag("ul", *(tag("li", f"{words}.") for words in sentences), class_="reason absent", role="alert")


def _host(host: HostStatus) -> Sequence[Piece]:
    components: Piece = held_by(host.components, host.nodes)
    if host.nodes:
        components = link(address(frame.NODES, {"host": host.name}), components)
    state = joined((state_of(host.state), tag("span", f" {host.wait}"))) if host.wait else state_of(host.state)
    return (
        host.name, state, components, whole(host.jobs) if host.jobs else NOTHING, moment(host.heard_us),
        host.hostname or NOTHING, NOTHING if host.pid is None else str(host.pid), moment(host.started_us),
        host.version or NOTHING, host.incarnation or NOTHING,
    )  # fmt: skip
