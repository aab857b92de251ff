"""The check of message flow: a run's messages are declared, and `sends` and `receives` fit each other."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from volery.conformance.cases import MACHINES, mixed_cases
from volery.conformance.interceptor import ComponentProxy
from volery.conformance.jobs import Cancels
from volery.conformance.verdict import check, demand, run
from volery.core.component import Architecture, Component, Deployment, Sends, role_of
from volery.core.events import DRIVER_EVENTS, SUBMITTER_MESSAGES
from volery.core.flow import SUBMISSIONS, entry_roles, orders_to, seen_through, tables
from volery.core.model import Address, Cluster, Message
from volery.core.port import ForwardingPort, Port
from volery.core.streams import Streams

Sending = tuple[Address, type[Message], str]
"""Sender, message, role of the receiver."""


class _SendLog(ForwardingPort):
    """A port that records the kinds of messages that it sends."""

    __slots__ = ("_sendings",)

    def __init__(self, inner: Port, sendings: dict[Sending, None]) -> None:
        super().__init__(inner)
        self._sendings = sendings

    def send(self, to: Address, message: Message) -> None:
        self._sendings[self.address, type(message), role_of(to)] = None
        self.inner.send(to, message)


class _LoggedComponent(ComponentProxy):
    """A proxy that records what a component itself sends, also where a reliable channel is around it."""

    __slots__ = ()
    interceptor: _Sendings

    def bind(self, port: Port) -> None:
        super().bind(port)
        sender = seen_through(self.inner)
        sender._port = _SendLog(sender._port, self.interceptor.sendings)


class _Sendings(Cancels):
    """Records the kinds of messages of a run in which some jobs are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.sendings: dict[Sending, None] = {}

    def over(self, deployment: Deployment) -> Deployment:
        proxies: dict[Address, Component] = {
            address: _LoggedComponent(self, component, address) for address, component in deployment.components.items()
        }
        return msgspec.structs.replace(deployment, components=proxies)


@check
def check_flow_is_declared(architecture: Architecture) -> None:
    """Every message of a run is in its sender's `sends`; what is declared is taken, and what is taken is declared."""
    whole = architecture.build(Cluster.uniform(MACHINES), architecture.defaults, Streams(0))
    _demand_tables_fit(whole, architecture.messages)
    log, case = _Sendings(), mixed_cases(seed=24)[1]
    run(architecture, case, interceptor=log)
    deployment = architecture.build(case.cluster, architecture.defaults, Streams(0))
    for address, kind, to in log.sendings:
        sender = seen_through(deployment.components[address])
        what = f"{type(sender).__name__} sends {kind.__name__} to {to}"
        demand((kind, to) in sender.emits(), f"{what}, which is not in its `sends`")


def _demand_tables_fit(deployment: Deployment, messages: frozenset[type[Message]]) -> None:
    takes, sends_of = tables(deployment)
    entries = entry_roles(deployment)
    declared = {(kind, role) for role in entries for kind in SUBMISSIONS}.union(*map(_declared, _all_roles()))
    declared |= orders_to(deployment)
    for role, sends in sends_of.items():
        for kind, to in sends:
            carried = kind in messages or kind in SUBMITTER_MESSAGES
            demand(
                carried, f"{role} sends {kind.__name__}, which is not among the design's `messages`: no wire takes it"
            )
            taken = to not in takes or kind in takes[to]
            demand(taken, f"{role} sends {kind.__name__} to {to}, which does not take it")
    for role, kinds in takes.items():
        for kind in kinds - DRIVER_EVENTS:
            if kind in messages or kind in SUBMITTER_MESSAGES:  # others come from the component's own links
                demand((kind, role) in declared, f"{role} takes {kind.__name__}, which no role declares to send there")


def _declared(component: type[Component]) -> Sends:
    return component.sends


def _all_roles() -> Iterator[type[Component]]:
    """Every class of components, because one that sends a message may be of use under other parameters alone."""
    waiting = [Component]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += found.__subclasses__()
