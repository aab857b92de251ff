"""The view of hosts: the processes of the federation, what each holds, and which do not answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.live.dashboard import frame
from volery.live.dashboard.frame import View
from volery.live.dashboard.html import NOTHING, Markup, Piece, address, joined, link, moment, tag, whole
from volery.live.dashboard.jobs import state_of
from volery.live.dashboard.tables import Column, table
from volery.live.service.view import Watched
from volery.live.status import HostStatus, held_by

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


def hosts_view(queries: Watched) -> View:
    """All hosts."""
    rows = [_host(host) for host in queries.all_hosts()]
    listed = table(_HOSTS, rows, empty="Of hosts nothing is known here.", label="hosts")
    told = "A host is a process of the federation. Jobs: those that have not ended and are assigned to its schedulers."
    live = joined((absences(queries), listed, tag("p", told, class_="soft")))
    return View("Hosts", live, place=frame.HOSTS, every_s=2.0, idle_s=5.0)


def absences(queries: Watched) -> Markup | None:
    """A sentence about each host that does not answer."""
    found = queries.absent()
    if not found:
        return None
    return tag("ul", *(tag("li", f"{words}.") for words in found), class_="reason absent", role="alert")


def _host(host: HostStatus) -> Sequence[Piece]:
    held: Piece = held_by(host.components, host.nodes)
    if host.nodes:
        held = link(address(frame.NODES, {"host": host.name}), held)
    return (
        host.name, state_of(host.state), held, whole(host.jobs) if host.jobs else NOTHING, moment(host.heard_us),
        host.hostname or NOTHING, NOTHING if host.pid is None else str(host.pid), moment(host.started_us),
        host.version or NOTHING, host.incarnation or NOTHING,
    )  # fmt: skip
