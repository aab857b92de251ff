"""The plain node: a machine that runs each attempt that its master launches there, once, and reports the end.

It decides nothing: its master keeps count of what is free there. A task that is killed and placed again is another
attempt, whose number tells late messages about the earlier one apart; a design that never preempts has attempt 0 alone.
Nodes that queue, stage files, keep results or obey several masters are others (`reservations`, `recovery.leases`).

Where nodes report at intervals alone, `Heartbeats` is their clock. A heartbeat without news is not sent: the master
knows the free slots of a machine and the time of its next heartbeat, and decides then what it would on receipt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from volery.core.component import Component, Deployment, Sends, role_of, sent_to
from volery.core.events import TaskFinished
from volery.core.model import Address, Cluster, Message, Task, TaskId, Time

NO_EPOCH: Final = -1


class Launch(Message, frozen=True):
    """Master > node: run the attempt. Numbers grow, so that a repeated or overtaken launch is recognised."""

    number: int
    task: Task
    attempt: int = 0


class Kill(Message, frozen=True):
    """Master > node: end the attempt, if it still runs; Completed or, from a guarded node, Result follows.

    Args:
        attempt: Attempt to end; to a guarded node without an epoch, nothing: whichever attempt runs there is ended.
        epoch: Epoch of the master; where given, the attempt is evicted for another task, if that master still leads.
    """

    task: TaskId
    attempt: int = 0
    epoch: int = NO_EPOCH


class Completed(Message, frozen=True):
    """Node > master: the attempt has ended and what it took is free.

    Args:
        killed: True if the master wanted it; otherwise the task is over, whether it has succeeded or failed.
    """

    task: TaskId
    attempt: int = 0
    killed: bool = False


SCHEDULER: Final[Address] = "scheduler/0"
"""The master in designs that have one scheduler."""
NODE_MESSAGES: Final[frozenset[type[Message]]] = frozenset({Launch, Kill, Completed})


class Node(Component):
    """One worker machine.

    Args:
        master: Component that launches here and receives the ends.
    """

    __slots__ = ("_launched", "_master")

    def __init__(self, master: Address) -> None:
        self._master = master
        self._launched = 0

    def emits(self) -> Sends:
        """The messages to the node's own master, which alone receives the ends."""
        role = role_of(self._master)
        return frozenset(hop for hop in self.sends if hop[1] == role)

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        """Start the attempt; a repeated or overtaken launch is ignored."""
        if message.number > self._launched:
            self._launched = message.number
            self._port.launch(message.task, message.attempt)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the attempt, if it still runs."""
        self._port.kill(message.task, message.attempt)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        self._port.send(self._master, Completed(event.task.id, event.attempt, event.outcome == "killed"))

    receives = {Launch: on_launch, Kill: on_kill, TaskFinished: on_task_finished}  # noqa: RUF012 - replaced by the base
    sends = frozenset().union(*(sent_to(role, Completed) for role in ("scheduler", "oracle", "cell", "lm")))


class Heartbeats:
    """Clock of the heartbeats of all machines.

    Args:
        interval_us: Time between two heartbeats of one machine.
        seats: Count of the machines; that of seat k is due k / seats of an interval later than the first.

    Raises:
        ValueError: an interval in which not every machine has a microsecond of its own.
    """

    __slots__ = ("_interval_us", "_seats")

    def __init__(self, interval_us: Time, seats: int) -> None:
        if interval_us < seats:
            raise ValueError(
                f"heartbeats of {seats} machines need an interval of {seats} us at least: {interval_us} us"
            )
        self._interval_us = interval_us
        self._seats = seats

    def after(self, seat: int, now: Time) -> Time:
        """The next heartbeat of a machine, later than now."""
        phase = seat * self._interval_us // self._seats
        return now + self._interval_us - (now - phase) % self._interval_us

    def next_of(self, candidates: int, now: Time) -> tuple[int, Time]:
        """Return the seat of the machine whose heartbeat is next, later than now, and its time.

        Args:
            candidates: Bit vector of seats, not 0.
        """
        # Phases <= offset have passed in this interval: those of seats below the first one whose phase is greater.
        offset = now % self._interval_us
        first_seat = (offset + 1) * self._seats + self._interval_us - 1
        first_seat //= self._interval_us
        later_seats = candidates >> first_seat
        seat = first_seat + lowest(later_seats) if later_seats else lowest(candidates)
        return seat, self.after(seat, now)


def lowest(vector: int) -> int:
    """The position of the lowest set bit."""
    return (vector & -vector).bit_length() - 1


def with_nodes(
    cluster: Cluster, master: Address, scheduler: Component, delays: Mapping[tuple[str, str], Time] = {}
) -> Deployment:
    """The deployment of a design with one scheduler: it takes all jobs, and launches on a node per machine."""
    machines = {f"node/{machine}": machine for machine in range(len(cluster.constraints))}
    nodes = {address: Node(master) for address in machines}
    return Deployment({master: scheduler, **nodes}, machines, lambda _: master, delays)
