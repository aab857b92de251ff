"""Effects of a component as records, and the port of unit tests that collects them.

With it a unit test reads: these events in, these effects out.
"""

from __future__ import annotations

import msgspec

from volery.core.component import Component
from volery.core.events import Fact
from volery.core.model import Address, Key, Message, Task, TaskId, Time
from volery.core.port import Problem


class Sent(msgspec.Struct, frozen=True):
    """A message was sent."""

    to: Address
    message: Message


class TimerSet(msgspec.Struct, frozen=True):
    """A timer was set or replaced."""

    key: Key
    at: Time


class TimerCancelled(msgspec.Struct, frozen=True):
    """A timer was cancelled."""

    key: Key


class Launched(msgspec.Struct, frozen=True):
    """A task was launched on the component's machine."""

    task: Task
    attempt: int
    waited_us: Time = 0


class Killed(msgspec.Struct, frozen=True):
    """An attempt was killed."""

    task: TaskId
    attempt: int


class ComputeAsked(msgspec.Struct, frozen=True):
    """Slow pure work was handed out."""

    key: Key
    problem: Problem


class Observed(msgspec.Struct, frozen=True):
    """A fact was reported."""

    fact: Fact


Effect = Sent | TimerSet | TimerCancelled | Launched | Killed | ComputeAsked | Observed


class RecordingPort:
    """Records effects in the order of the calls, and does nothing else.

    Attributes:
        effects: Effects since the port was made or last drained.
    """

    is_reliable = False

    def __init__(self, address: Address) -> None:
        self.address = address
        self.effects: list[Effect] = []

    @classmethod
    def under(cls, component: Component, address: Address) -> RecordingPort:
        """A port that the component is bound to."""
        port = cls(address)
        component.bind(port)
        return port

    def drain(self) -> list[Effect]:
        """The effects so far, which are then forgotten."""
        effects, self.effects = self.effects, []
        return effects

    def sent(self) -> list[Sent]:
        """The messages among the effects so far, which are all forgotten."""
        return [effect for effect in self.drain() if isinstance(effect, Sent)]

    def send(self, to: Address, message: Message) -> None:
        self.effects.append(Sent(to, message))

    def set_timer(self, key: Key, at: Time) -> None:
        self.effects.append(TimerSet(key, at))

    def cancel_timer(self, key: Key) -> None:
        self.effects.append(TimerCancelled(key))

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        self.effects.append(Launched(task, attempt, waited_us))

    def kill(self, task: TaskId, attempt: int) -> None:
        self.effects.append(Killed(task, attempt))

    def compute(self, key: Key, problem: Problem) -> None:
        """Record a problem; it is not solved."""
        self.effects.append(ComputeAsked(key, problem))

    def observe(self, fact: Fact) -> None:
        self.effects.append(Observed(fact))
