"""Submitters of a federation: the component at the address `SUBMITTER`, with a frontend to open and close around it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from volery.core.component import Component, Deployment
from volery.core.model import Address
from volery.live.config.federation import Federation
from volery.live.messages import HostName, Send
from volery.live.node.runtime import reporter_of
from volery.live.runtime.failure_detector import HostRegister
from volery.live.transport.transport import Transport


class SubmitterSite(NamedTuple):
    """The host of a submitter.

    Args:
        send: Sends in the name of the submitter.
        layout: Host -> addresses of its components.
        transport: Transport to the other hosts; None: there are none.
        gives_up_jobs: True to take a store that is older than it was, or is missing; see `volery.live.service.marks`.
    """

    federation: Federation
    deployment: Deployment
    send: Send
    layout: Mapping[HostName, tuple[Address, ...]]
    name: HostName
    incarnation: int
    transport: Transport | None = None
    gives_up_jobs: bool = False

    def _remote_components(self) -> list[tuple[HostName, Address]]:
        return [
            (host, address) for host, addresses in self.layout.items() if host != self.name for address in addresses
        ]

    @property
    def elsewhere(self) -> list[Address]:
        """Addresses of components on other hosts."""
        return [address for _, address in self._remote_components()]

    @property
    def agents(self) -> dict[Address, Address]:
        """The reporter of the host of each node on another host."""
        nodes = self.deployment.machines
        return {address: reporter_of(host) for host, address in self._remote_components() if address in nodes}

    def register(self, assigned: Callable[[], Mapping[Address, int]] = dict) -> HostRegister:
        """The register of all hosts; `assigned` gives how many jobs are assigned to a component."""
        return HostRegister(self.layout, self.deployment.machines, self.name, self.incarnation, assigned=assigned)


class Frontend:
    """A submitter without anything to open and to close around it, such as a load generator.

    Args:
        register: Register of all hosts, if the frontend shows it; otherwise its host has one of its own.

    Attributes:
        url: URL of the API; empty without one.
        open_to_all: True if the API asks for no tokens.
    """

    def __init__(self, component: Component, register: HostRegister | None = None) -> None:
        self.component = component
        self.register = register
        self.url = ""
        self.open_to_all = False

    async def open(self) -> None:
        """Called when the host has started."""

    def restarted(self, addresses: Collection[Address]) -> None:
        """Called when a host with these schedulers is met for the first time, or has restarted."""

    async def close(self) -> None:
        """Called when the host has closed."""


MakeFrontend = Callable[[SubmitterSite], Frontend]
