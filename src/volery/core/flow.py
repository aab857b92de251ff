"""The message flow of a deployment, derived from the `receives` and `sends` tables of its components.

A hop is drawn where both tables agree: the sender's role declares a message to a role, and a component of that role
receives it. Only roles to which jobs are submitted exchange messages with the submitter. A message that a role sends
under other parameters of the same design is drawn, too, as long as a component of this deployment receives it.

The flow is here because report, conformance and playback need it, and share nothing but core.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from volery.core.capabilities import CrashRecovery, Draining, DueShares
from volery.core.component import Component, Deployment, Sends, role_of
from volery.core.events import DRIVER_EVENTS, Cancel, Drain, Look, MoreTasks, Moved, Reweigh, Submit, TaskFinished
from volery.core.model import SUBMITTER, Message

TASK: Final = "task"
"""The end of arrows to and from the driver's side of a machine: launches, and ends of tasks."""
LAUNCH: Final = "launch"
SUBMISSIONS: Final[frozenset[type]] = frozenset({Submit, MoreTasks, Cancel})
"""Messages of the submitter about jobs."""
FIRST: Final = (
    "Submit",
    "MoreTasks",
    "Cancel",
    "Drain",
    "Reweigh",
    "Moved",
    "Look",
    "JobAccepted",
    "JobRejected",
    "JobDone",
    "Seen",
)
"""The submitter's protocol in its own order; other messages between two roles are listed by name."""


class Role(msgspec.Struct, frozen=True):
    """A role of a deployment.

    Args:
        name: Part of its addresses before "/".
        kinds: Names of the classes that play it.
        count: Count of its components.
        on_machines: True if each is on a machine and launches tasks there.
        driver: Names of the events that it receives from the driver, besides the ends of tasks.
    """

    name: str
    kinds: tuple[str, ...]
    count: int
    on_machines: bool
    driver: tuple[str, ...]


class Hop(msgspec.Struct, frozen=True):
    """A message from role to role.

    Args:
        source: Sender: a role, the submitter, or `TASK`.
        message: Name of the message.
        to: Receiver: a role, the submitter, or `TASK`.
        meaning: First sentence of the documentation of the message's class.
    """

    source: str
    message: str
    to: str
    meaning: str


class Flow(msgspec.Struct, frozen=True):
    """The roles and hops of a deployment.

    Args:
        roles: Roles by their distance from the submitter in hops, those on machines last.
        hops: Hops away from the submitter first, then from a role to itself, then back.
        linked: True if messages travel in numbered frames, acknowledged and repeated.
    """

    roles: tuple[Role, ...]
    hops: tuple[Hop, ...]
    linked: bool


def seen_through(component: Component) -> Component:
    """The component itself, or the one that it wraps."""
    inner = getattr(component, "inner", component)
    assert isinstance(inner, Component), "a wrapper of a component has it as `inner`"
    return inner


def tables(deployment: Deployment) -> tuple[dict[str, set[type]], dict[str, Sends]]:
    """The events that the components of each role take, and the messages that they send to other roles."""
    takes: dict[str, set[type]] = {}
    sends_of_role: dict[str, Sends] = {}
    for address, component in deployment.components.items():
        role, inner = role_of(address), seen_through(component)
        takes.setdefault(role, set()).update(inner.takes())
        sends_of_role[role] = sends_of_role.get(role, frozenset()) | inner.emits()
    return takes, sends_of_role


def entry_roles(deployment: Deployment) -> frozenset[str]:
    """The roles to which jobs are submitted."""
    return frozenset({role_of(deployment.entry(0)), *map(role_of, deployment.entry_of_user.values())})


def draining_roles(deployment: Deployment) -> frozenset[str]:
    """The roles that receive drains of nodes."""
    if (draining := deployment.capability(Draining)) is None:
        return frozenset()
    return frozenset({role_of(owner) for node in deployment.machines for owner in draining.owners_of(node)})


def orders_to(deployment: Deployment) -> frozenset[tuple[type, str]]:
    """The messages of operators and queries that the driver sends, and the roles that receive them."""
    shares, recovery = deployment.capability(DueShares), deployment.capability(CrashRecovery)
    subscribers = shares.weight_subscribers if shares is not None else ()
    standins = recovery.standins if recovery is not None else ()
    return frozenset(
        {(Drain, role) for role in draining_roles(deployment)}
        | {(Reweigh, role_of(address)) for address in subscribers}
        | {(Moved, role_of(address)) for address in standins}
        | {(Look, role) for role in (entry_roles(deployment) if answers_queries(deployment) else ())}
    )


def answers_queries(deployment: Deployment) -> bool:
    """True if the components that jobs are submitted to answer `Look`."""
    return Look in deployment.components[deployment.entry(0)].takes()


def flow_of(deployment: Deployment) -> Flow:
    """The message flow of a deployment, as far as its components declare it."""
    takes, sends_of_role = tables(deployment)
    entries = entry_roles(deployment)

    hops_by_type = [(SUBMITTER, kind, role) for role in entries for kind in takes[role] & SUBMISSIONS]
    for source, sends in sends_of_role.items():
        for message, to in sends:
            # Both tables must agree; the submitter has none, so it receives what the entries send it.
            if source in entries if to == SUBMITTER else message in takes.get(to, ()):
                hops_by_type.append((source, message, to))

    workers = {role_of(address) for address in deployment.machines}
    hops_by_type += [(TASK, TaskFinished, role) for role in workers]
    ranks = _ranks(takes, ((source, to) for source, _, to in hops_by_type if source != TASK))
    hops_by_type += [(SUBMITTER, kind, role) for kind, role in orders_to(deployment)]

    roles = [_role(name, deployment, takes[name]) for name in takes]
    roles.sort(key=lambda role: (role.on_machines, ranks[role.name], role.name))
    hops = [Hop(source, kind.__name__, to, _meaning(kind)) for source, kind, to in hops_by_type]
    hops += [Hop(role, LAUNCH, TASK, "The task starts on the machine.") for role in workers]

    places = {name: place for place, name in enumerate((SUBMITTER, *(role.name for role in roles), TASK))}
    hops.sort(key=lambda hop: _place(hop, places))

    linked = any(seen_through(component) is not component for component in deployment.components.values())
    return Flow(tuple(roles), tuple(hops), linked)


def _role(name: str, deployment: Deployment, takes: Iterable[type]) -> Role:
    addresses = [address for address in deployment.components if role_of(address) == name]
    class_names = sorted({type(seen_through(deployment.components[address])).__name__ for address in addresses})
    driver_events = sorted(kind.__name__ for kind in takes if kind in DRIVER_EVENTS and kind is not TaskFinished)
    return Role(name, tuple(class_names), len(addresses), addresses[0] in deployment.machines, tuple(driver_events))


def _ranks(roles: Iterable[str], links: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Least numbers of hops from the submitter; a role without incoming messages comes last."""
    receivers_of: dict[str, set[str]] = {}
    for source, to in links:
        receivers_of.setdefault(source, set()).add(to)

    ranks = {SUBMITTER: -1}
    frontier = {SUBMITTER}
    while frontier:
        depth = 1 + max(ranks.values())
        frontier = {to for source in frontier for to in receivers_of.get(source, ())} - ranks.keys()
        ranks |= dict.fromkeys(frontier, depth)

    last = max(ranks.values()) + 1
    return {role: ranks.get(role, last) for role in roles}


def _place(hop: Hop, places: Mapping[str, int]) -> tuple[int, int, int, int, str]:
    """The sort key of a hop; see `Flow`."""
    source, to = places[hop.source], places[hop.to]
    order = FIRST.index(hop.message) if hop.message in FIRST else len(FIRST)
    if source < to:
        return 0, source, to, order, hop.message
    return 1 + (source > to), -source, -to, order, hop.message


def _meaning(kind: type) -> str:
    """The first sentence of a docstring, without the "GM > LM:" in front of it, which a hop has already."""
    text = " ".join((inspect.getdoc(kind) or "").split())
    head, colon, tail = text.partition(": ")
    text = tail if colon and " > " in head else text
    first = text.partition(". ")[0].removesuffix(".")
    return first[:1].upper() + first[1:] + "." if first and issubclass(kind, Message | msgspec.Struct) else ""
