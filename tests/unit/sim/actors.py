"""Components whose behaviour a test writes on the spot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from volery.core.component import Component, Deployment
from volery.core.events import Event, JobDone, Submit, TaskFinished
from volery.core.model import Address, Cluster, Message, Time
from volery.core.port import Port
from volery.core.records import Records
from volery.core.trace import Trace
from volery.sim import simulate

Reaction = Callable[[Port, Event, Address, Time], None]
Seen = tuple[Time, Event, Address]


class Note(Message, frozen=True):
    """Something to send."""

    number: int = 0


class Actor(Component):
    """Keeps what it sees and reacts as it is told."""

    __slots__ = ("_react", "_start", "seen")

    def __init__(self, react: Reaction | None = None, start: Callable[[Port], None] | None = None) -> None:
        self.seen: list[Seen] = []
        self._react = react
        self._start = start

    def start(self, now: Time) -> None:
        if self._start is not None:
            self._start(self._port)

    def handle(self, event: Event, source: Address, now: Time) -> None:
        self.seen.append((now, event, source))
        if self._react is not None:
            self._react(self._port, event, source, now)

    def times(self, kind: type) -> list[Time]:
        """When events of a type came."""
        return [now for now, event, _ in self.seen if isinstance(event, kind)]

    def numbers(self, source: Address | None = None) -> list[int]:
        """The numbers of the notes that came, from one sender or all."""
        return [e.number for _, e, who in self.seen if isinstance(e, Note) and source in (None, who)]


def launch_all(port: Port, event: Event, source: Address, now: Time) -> None:
    """Run whatever is submitted here; answer each job after its last task (jobs of one task)."""
    if isinstance(event, Submit):
        for task in event.job.tasks:
            port.launch(task, 0)
        if not event.job.tasks:
            port.send("submitter", JobDone(event.job.id))
    elif isinstance(event, TaskFinished):
        port.send("submitter", JobDone(event.task.job))


def answer(port: Port, event: Event, source: Address, now: Time) -> None:
    """Answer a submission at once, without running anything."""
    if isinstance(event, Submit):
        port.send("submitter", JobDone(event.job.id))


def play(
    components: Mapping[Address, Component],
    trace: Trace,
    cluster: Cluster | None = None,
    *,
    delays: Mapping[tuple[str, str], Time] | None = None,
    **settings: Any,
) -> Records:
    """Run actors; "entry/0" takes the jobs, and "node/k" stands on machine k."""
    machines = {address: int(address.partition("/")[2]) for address in components if address.startswith("node/")}
    cluster = cluster or Cluster.uniform(max(1, len(machines)))
    deployment = Deployment(components, machines, lambda _: next(iter(components)), delays or {})
    return simulate(deployment, trace, cluster, **settings)
