"""One component of a built design, alone with a port that records."""

from __future__ import annotations

from typing import Any

from tests.unit.effects import Launched, Observed, RecordingPort, Sent

from volery.architectures import configure, lookup
from volery.core.component import Component
from volery.core.events import Counted, Measured, Submit
from volery.core.model import Address, Cluster, Job, Message, Task, Time
from volery.core.streams import Streams

SUBMITTER = "submitter"


class Alone:
    """A component of a design, started, with its port.

    Args:
        design: registry name.
        address: which component.
        cluster: that the design is built for.
        parameters: of the design.
    """

    def __init__(self, design: str, address: Address, cluster: Cluster, seed: int = 0, **parameters: Any) -> None:
        architecture = lookup(design)
        deployment = architecture.build(cluster, configure(architecture, parameters), Streams(seed))
        self.component: Component = deployment.components[address]
        self.port = RecordingPort.under(self.component, address)
        self.component.start(0)
        self.port.drain()

    def hear(self, event: Any, source: Address = SUBMITTER, now: Time = 0) -> list[Any]:
        """Events in, effects out: (receiver, message) for a message, else the effect itself; facts are left out."""
        self.component.handle(event, source, now)
        self.component.check()
        effects = [effect for effect in self.port.drain() if not isinstance(effect, Observed)]
        return [(effect.to, effect.message) if isinstance(effect, Sent) else effect for effect in effects]

    def facts(self, event: Any, source: Address = SUBMITTER, now: Time = 0) -> dict[str, int]:
        """What an event makes the component observe."""
        self.component.handle(event, source, now)
        facts = [effect.fact for effect in self.port.drain() if isinstance(effect, Observed)]
        return {
            fact.name: getattr(fact, "amount", getattr(fact, "value", 0))
            for fact in facts
            if isinstance(fact, Counted | Measured)
        }


def tasks(job: int, *constraints: int, estimate_us: Time = 0) -> tuple[Task, ...]:
    """A job's tasks with these constraint sets; task k of job j is number 100 j + k."""
    return tuple(Task(100 * job + k, job, mask, estimate_us) for k, mask in enumerate(constraints))


def submit(job: int, *constraints: int, estimate_us: Time = 0) -> Submit:
    """A job whose tasks have these constraint sets."""
    made = tasks(job, *constraints, estimate_us=estimate_us)
    return Submit(Job(job, len(made), made, estimate_us))


def messages(effects: list[Any], kind: type[Message]) -> list[tuple[Address, Any]]:
    """The messages of one type among effects, with their receivers."""
    return [effect for effect in effects if isinstance(effect, tuple) and isinstance(effect[1], kind)]


def launched(effects: list[Any]) -> list[int]:
    """The tasks that were launched."""
    return [effect.task.id for effect in effects if isinstance(effect, Launched)]
