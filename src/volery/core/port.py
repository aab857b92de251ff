"""The port of a component: all that a component can do to the world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from volery.core.events import Fact
from volery.core.model import Address, Key, Message, Task, TaskId, Time


class Problem(msgspec.Struct, frozen=True):
    """Slow pure work: `solve(argument)` has no effect but its answer.

    Args:
        solve: Module-level function, so that a process pool can run it.
        argument: Only argument of the function.
        decision_us: Modelled time, in the lab.
    """

    solve: Callable[[Any], Any]
    argument: Any
    decision_us: Time = 0


class Port(Protocol):
    """Effects of a component are calls, applied in order: at once in the lab, after the handler live.

    Attributes:
        address: Address of the component.
        is_reliable: True if the driver delivers each message once and in order on its link, as long as sender and
            receiver run; messages to a component that has crashed since are void. Then no acknowledgement is needed.
    """

    address: Address
    is_reliable: bool

    def send(self, to: Address, message: Message) -> None:
        """Send a message; it arrives after the delay of its link, in the order of sending on each link."""

    def set_timer(self, key: Key, at: Time) -> None:
        """Set the one timer of this key; `at` <= now fires once, after this handler."""

    def cancel_timer(self, key: Key) -> None:
        """A cancelled or replaced timer never fires, not even from an inbox."""

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Start a task here; answered by TaskFinished.

        Args:
            task, attempt: Task and number of the attempt.
            waited_us: Time spent in this worker's own queue.
            note: Bytes kept beside the attempt as long as it runs; `Adopted` brings it back where processes outlive the
                component that has launched them, which they never do in the lab.
        """

    def kill(self, task: TaskId, attempt: int) -> None:
        """End a running attempt; answered by TaskFinished with outcome "killed"."""

    def compute(self, key: Key, problem: Problem) -> None:
        """Solve slow pure work; answered by Computed."""

    def observe(self, fact: Fact) -> None:
        """Report a rare fact (per job, per conflict, per heartbeat), never one per task."""


class ForwardingPort:
    """A port that passes every effect to another; subclasses override what concerns them.

    Attributes:
        inner: Port to which effects are passed.
    """

    __slots__ = ("address", "inner", "is_reliable")

    def __init__(self, inner: Port) -> None:
        self.inner = inner
        self.address = inner.address
        self.is_reliable = inner.is_reliable

    def send(self, to: Address, message: Message) -> None:
        self.inner.send(to, message)

    def set_timer(self, key: Key, at: Time) -> None:
        self.inner.set_timer(key, at)

    def cancel_timer(self, key: Key) -> None:
        self.inner.cancel_timer(key)

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        self.inner.launch(task, attempt, waited_us, note)

    def kill(self, task: TaskId, attempt: int) -> None:
        self.inner.kill(task, attempt)

    def compute(self, key: Key, problem: Problem) -> None:
        self.inner.compute(key, problem)

    def observe(self, fact: Fact) -> None:
        self.inner.observe(fact)
