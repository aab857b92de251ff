"""Watching a deployment from outside: the same components, each behind a door and a port that tell what passes.

A watch changes nothing by itself. Its hooks may count, record, or meddle where a check needs that.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from volery.core.component import Component, Deployment
from volery.core.events import Event, Fact, Switched
from volery.core.model import SUBMITTER, Address, Key, Message, Task, TaskId, Time
from volery.core.port import Port, Problem


class Watch:
    """Hooks around every component of a deployment; override those that are of interest."""

    now: Time = 0

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """An event reaches a component; the default hands it over."""
        component.handle(event, source, self.now)

    def sent(self, port: Port, to: Address, message: Message) -> None:
        """A component sends; the default lets it."""
        port.send(to, message)

    def launched(self, port: Port, task: Task, attempt: int, waited_us: Time) -> None:
        """A component launches; the default lets it."""
        port.launch(task, attempt, waited_us)

    def observed(self, port: Port, fact: Fact) -> None:
        """A component reports a fact; the default lets it."""
        port.observe(fact)

    def over(self, deployment: Deployment) -> Deployment:
        """The deployment with every component under watch."""
        watched: dict[Address, Component] = {
            address: Watched(self, component, address) for address, component in deployment.components.items()
        }
        return msgspec.structs.replace(deployment, components=watched)


class Watched(Component):
    """A component under watch."""

    __slots__ = ("address", "inner", "port", "watch")

    def __init__(self, watch: Watch, inner: Component, address: Address) -> None:
        self.watch = watch
        self.inner = inner
        self.address = address

    def bind(self, port: Port) -> None:
        """Put the watch between the component and its port."""
        self.port = WatchedPort(self.watch, port)
        self.inner.bind(self.port)

    def start(self, now: Time) -> None:
        """Start it."""
        self.watch.now = now
        self.inner.start(now)

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Tell the watch, which hands the event over."""
        self.watch.now = now
        self.watch.event(self.inner, event, source, self.address)

    def check(self) -> None:
        """Check it."""
        self.inner.check()


class WatchedPort:
    """A port under watch.

    Attributes:
        inner: the port that applies the effects; it may be exchanged.
    """

    __slots__ = ("address", "inner", "sure", "watch")

    def __init__(self, watch: Watch, inner: Port) -> None:
        self.watch = watch
        self.inner = inner
        self.address = inner.address
        self.sure = inner.sure

    def send(self, to: Address, message: Message) -> None:
        """Tell the watch."""
        self.watch.sent(self.inner, to, message)

    def set_timer(self, key: Key, at: Time) -> None:
        """Pass on."""
        self.inner.set_timer(key, at)

    def cancel_timer(self, key: Key) -> None:
        """Pass on."""
        self.inner.cancel_timer(key)

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Tell the watch."""
        self.watch.launched(self.inner, task, attempt, waited_us)

    def kill(self, task: TaskId, attempt: int) -> None:
        """Pass on."""
        self.inner.kill(task, attempt)

    def compute(self, key: Key, problem: Problem) -> None:
        """Pass on."""
        self.inner.compute(key, problem)

    def observe(self, fact: Fact) -> None:
        """Tell the watch."""
        self.watch.observed(self.inner, fact)


class Silenced(Watch):
    """A watch that drops what components observe, except the switching of a machine, on which the driver acts."""

    def observed(self, port: Port, fact: Fact) -> None:
        """Pass on a machine's switch, and drop every other fact."""
        if isinstance(fact, Switched):
            port.observe(fact)


class Deliveries(Watch):
    """Keeps what was delivered, and when it had been sent.

    Attributes:
        delivered: (time, source, receiver, message), in order; answers to the submitter at the time of sending.
        delays: per (source, receiver), how long each message was under way, in order.
    """

    def __init__(self) -> None:
        self.delivered: list[tuple[Time, Address, Address, Message]] = []
        self.delays: dict[tuple[Address, Address], list[Time]] = {}
        self._sent_at: dict[tuple[Address, Address], list[Time]] = {}

    def sent(self, port: Port, to: Address, message: Message) -> None:
        """Remember when, on which link."""
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


class Interruption(Watch):
    """Does something else in the middle of a run, once.

    Args:
        after: how many events.
        action: what.
    """

    def __init__(self, after: int, action: Callable[[], None]) -> None:
        self._left = after
        self._action = action

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """Count down."""
        self._left -= 1
        if not self._left:
            self._action()
        component.handle(event, source, self.now)


class Echo(Watch):
    """Hands every submission over twice, as an impatient submitter does.

    Args:
        kinds: which messages.
    """

    def __init__(self, kinds: tuple[type[Message], ...]) -> None:
        self._kinds = kinds

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """Once, and once more."""
        component.handle(event, source, self.now)
        if isinstance(event, self._kinds):
            component.handle(event, source, self.now)
