"""The check of message flow: what a run really says is declared, and `sends` and `receives` fit each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from volery.conformance.cancelling import Cancels
from volery.conformance.cases import MACHINES, mixed_cases
from volery.conformance.verdict import check, demand, run
from volery.conformance.watching import Watched
from volery.core.component import Architecture, Component, Deployment, Sends, role_of
from volery.core.events import DRIVER_EVENTS, SUBMITTER_MESSAGES
from volery.core.flow import SUBMISSIONS, entry_roles, orders_to, seen_through, tables
from volery.core.model import Address, Cluster, Message
from volery.core.port import Port
from volery.core.streams import Streams

Saying = tuple[Address, type[Message], str]
"""Who said what to which role."""


class _Ear:
    """A port that keeps what is said; all else is up to the one inside."""

    def __init__(self, port: Any, said: dict[Saying, None]) -> None:
        self._inside = port
        self._said = said

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)

    def send(self, to: Address, message: Message) -> None:
        self._said[self._inside.address, type(message), role_of(to)] = None
        self._inside.send(to, message)


class _Overheard(Watched):
    """A component under watch whose every word is kept, also where it stands on links."""

    __slots__ = ()
    watch: _Sayings

    def bind(self, port: Port) -> None:
        super().bind(port)
        speaker = seen_through(self.inner)
        speaker._port = cast(Port, _Ear(speaker._port, self.watch.said))


class _Sayings(Cancels):
    """Keeps what is said, in a run in which some jobs are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.said: dict[Saying, None] = {}

    def over(self, deployment: Deployment) -> Deployment:
        heard: dict[Address, Component] = {
            address: _Overheard(self, component, address) for address, component in deployment.components.items()
        }
        return msgspec.structs.replace(deployment, components=heard)


@check
def check_flow_is_declared(architecture: Architecture) -> None:
    """Every message of a run is in its sender's `sends`; what is declared is taken, and what is taken is declared."""
    whole = architecture.build(Cluster.uniform(MACHINES), architecture.defaults, Streams(0))
    _demand_tables_fit(whole, architecture.messages)
    sayings, case = _Sayings(), mixed_cases(seed=24)[1]
    run(architecture, case, watch=sayings)
    deployment = architecture.build(case.cluster, architecture.defaults, Streams(0))
    for address, kind, to in sayings.said:
        sender = seen_through(deployment.components[address])
        what = f"{type(sender).__name__} sends {kind.__name__} to {to}"
        demand((kind, to) in sender.says(), f"{what}, which is not in its `sends`")


def _demand_tables_fit(deployment: Deployment, messages: frozenset[type[Message]]) -> None:
    takes, says = tables(deployment)
    entries = entry_roles(deployment)
    told = {(kind, role) for role in entries for kind in SUBMISSIONS}.union(*map(_declared, _all_roles()))
    told |= orders_to(deployment)
    for role, sends in says.items():
        for kind, to in sends:
            carried = kind in messages or kind in SUBMITTER_MESSAGES
            demand(
                carried, f"{role} sends {kind.__name__}, which is not among the design's `messages`: no wire takes it"
            )
            taken = to not in takes or kind in takes[to]
            demand(taken, f"{role} sends {kind.__name__} to {to}, which does not take it")
    for role, kinds in takes.items():
        for kind in kinds - DRIVER_EVENTS:
            if kind in messages or kind in SUBMITTER_MESSAGES:  # others are what a component is told by its own links
                demand((kind, role) in told, f"{role} takes {kind.__name__}, which nobody declares to send there")


def _declared(component: type[Component]) -> Sends:
    return component.sends


def _all_roles() -> Iterator[type[Component]]:
    """Every class of components, because one that sends a message may be of use under other parameters alone."""
    waiting = [Component]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += found.__subclasses__()
