"""Interceptors of a deployment: hooks between the same components and their driver.

An interceptor changes nothing by itself. Its hooks may count, record, or interfere where a check needs that.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from volery.core.component import Component, Deployment
from volery.core.events import Event, Fact, Switched
from volery.core.model import SUBMITTER, Address, Key, Message, Task, Time
from volery.core.port import ForwardingPort, Port


class Interceptor:
    """Hooks around every component of a deployment; override those that are of interest."""

    now: Time = 0

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """An event reaches a component; the default passes it on."""
        component.handle(event, source, self.now)

    def sent(self, port: Port, to: Address, message: Message) -> None:
        """A component sends; the default passes it on."""
        port.send(to, message)

    def launched(self, port: Port, task: Task, attempt: int, waited_us: Time) -> None:
        """A component launches; the default passes it on."""
        port.launch(task, attempt, waited_us)

    def timed(self, port: Port, key: Key, at: Time) -> None:
        """A component sets a timer; the default passes it on."""
        port.set_timer(key, at)

    def observed(self, port: Port, fact: Fact) -> None:
        """A component reports a fact; the default passes it on."""
        port.observe(fact)

    def over(self, deployment: Deployment) -> Deployment:
        """The deployment with a proxy in front of every component."""
        proxies: dict[Address, Component] = {
            address: ComponentProxy(self, component, address) for address, component in deployment.components.items()
        }
        return msgspec.structs.replace(deployment, components=proxies)


class ComponentProxy(Component):
    """A component in front of another, whose events and effects it passes to an interceptor."""

    __slots__ = ("address", "inner", "interceptor", "port")

    def __init__(self, interceptor: Interceptor, inner: Component, address: Address) -> None:
        self.interceptor = interceptor
        self.inner = inner
        self.address = address

    def bind(self, port: Port) -> None:
        self.port = PortProxy(self.interceptor, port)
        self.inner.bind(self.port)

    def start(self, now: Time) -> None:
        self.interceptor.now = now
        self.inner.start(now)

    def handle(self, event: Event, source: Address, now: Time) -> None:
        self.interceptor.now = now
        self.interceptor.event(self.inner, event, source, self.address)

    def check(self) -> None:
        self.inner.check()


class PortProxy(ForwardingPort):
    """A port that passes effects to an interceptor; the port behind it may be exchanged."""

    __slots__ = ("_interceptor",)

    def __init__(self, interceptor: Interceptor, inner: Port) -> None:
        super().__init__(inner)
        self._interceptor = interceptor

    def send(self, to: Address, message: Message) -> None:
        self._interceptor.sent(self.inner, to, message)

    def set_timer(self, key: Key, at: Time) -> None:
        self._interceptor.timed(self.inner, key, at)

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        self._interceptor.launched(self.inner, task, attempt, waited_us)

    def observe(self, fact: Fact) -> None:
        self._interceptor.observed(self.inner, fact)


class FactFilter(Interceptor):
    """Drops the facts that components report, except the switching of a machine, on which the driver acts."""

    def observed(self, port: Port, fact: Fact) -> None:
        if isinstance(fact, Switched):
            port.observe(fact)


class Deliveries(Interceptor):
    """Keeps messages, and the times of their sending and delivery.

    Attributes:
        delivered: (time, source, receiver, message), in order; answers to the submitter at the time of sending.
        delays: per (source, receiver), how long each message was under way, in order.
    """

    def __init__(self) -> None:
        self.delivered: list[tuple[Time, Address, Address, Message]] = []
        self.delays: dict[tuple[Address, Address], list[Time]] = {}
        self._sent_at: dict[tuple[Address, Address], list[Time]] = {}

    def sent(self, port: Port, to: Address, message: Message) -> None:
        """Remember the time, by link."""
        self._sent_at.setdefault((port.address, to), []).append(self.now)
        if to == SUBMITTER:
            self.delivered.append((self.now, port.address, to, message))
        port.send(to, message)

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """Keep messages; each link is FIFO, so the n-th delivered is the n-th sent."""
        if isinstance(event, Message):
            self.delivered.append((self.now, source, address, event))
            sent_at = self._sent_at.get((source, address))
            if sent_at is not None:
                delays = self.delays.setdefault((source, address), [])
                delays.append(self.now - sent_at[len(delays)])
        component.handle(event, source, self.now)


class Interruption(Interceptor):
    """Calls a function in the middle of a run, once."""

    def __init__(self, events_before: int, action: Callable[[], None]) -> None:
        self._left = events_before
        self._action = action

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """Count the events down."""
        self._left -= 1
        if not self._left:
            self._action()
        component.handle(event, source, self.now)


class Echo(Interceptor):
    """Delivers every submission twice, as an impatient submitter does."""

    def __init__(self, kinds: tuple[type[Message], ...]) -> None:
        self._kinds = kinds

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """Deliver it once, and once more."""
        component.handle(event, source, self.now)
        if isinstance(event, self._kinds):
            component.handle(event, source, self.now)
