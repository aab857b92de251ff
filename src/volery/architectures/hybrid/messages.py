"""Messages between the schedulers and workers of the hybrid designs, and a reservation as a worker keeps it.

A batch is what was probed for or placed together: the tasks of a job that need the same constraints. A vector has one
bit per machine: whether a long task runs or waits there; versions grow. What all designs with reservations say stands
in `roles/reservations.py`.
"""

from __future__ import annotations

from volery.core.model import JobId, Message, Task, TaskId, Time


class Probe(Message, frozen=True):
    """Scheduler > worker: a reservation for short tasks.

    `remaining_us`: estimated work of the batch that is not bound. `needs`: constraints. `final`: it cannot be rejected.
    """

    number: int
    batch: int
    estimate_us: Time
    remaining_us: Time
    needs: int = 0
    final: bool = True


class LongProbe(Message, frozen=True):
    """Central > worker: a reservation for one task, and where long tasks are."""

    number: int
    batch: int
    estimate_us: Time
    remaining_us: Time
    version: int
    vector: bytes


class Assign(Message, frozen=True):
    """Scheduler or central > worker: run this task in the slot that waits; `left` others are not bound."""

    request: int
    task: Task
    left: int


class Rejected(Message, frozen=True):
    """Worker > scheduler: a long task is here; and where others are, as far as the worker knows."""

    batch: int
    number: int
    version: int
    vector: bytes


class Steal(Message, frozen=True):
    """Worker > worker: give what one can run that satisfies `offered`."""

    offered: int


class Stolen(Message, frozen=True):
    """Worker > worker: these reservations are yours now; nothing, if there are none."""

    probes: tuple[Probe, ...]


class Ended(Message, frozen=True):
    """Worker > central: the task that was placed under this number has ended."""

    number: int
    task: TaskId
    job: JobId


class CentralTasks(Message, frozen=True):
    """Scheduler > central: place these tasks; short ones anywhere, long ones outside the short-only part."""

    number: int
    short: bool
    estimate_us: Time
    tasks: tuple[Task, ...]


class WithdrawJob(Message, frozen=True):
    """Scheduler > central: drop what is not bound and kill what runs."""

    job: JobId


class Dropped(Message, frozen=True):
    """Central > scheduler: these tasks will never run."""

    job: JobId
    tasks: tuple[TaskId, ...]


class VectorRequest(Message, frozen=True):
    """Scheduler > central: send the machines of long tasks."""

    batch: int


class Vector(Message, frozen=True):
    """Central > scheduler: the machines of long tasks."""

    batch: int
    vector: bytes


class Demanded(Message, frozen=True):
    """Scheduler or central > monitor: per constraint, how many of the tasks that wait here ask for it."""

    counts: tuple[int, ...]


class Crowded(Message, frozen=True):
    """Worker > monitor: whether its estimated wait is above the threshold; it has changed."""

    crowded: bool
    wait_us: Time


class Reorder(Message, frozen=True):
    """Monitor > worker: tasks that ask for this constraint go first; -1: none does any more."""

    constraint: int


class Scarcity(Message, frozen=True):
    """Monitor > scheduler: per constraint, demand over supply in thousandths (the CRV)."""

    thousandths: tuple[int, ...]


class Entry:
    """A reservation in the queue; it replaces the probe, whose memory would be cold when it is served.

    Attributes:
        number, batch, needs, estimate_us: See the probe.
        long: Whether the reservation is for a long task.
        came: Time of its arrival; for a sticky one, when it was last served.
        blocked_us: The worker's blocked time then.
        remaining_us: Work of the tasks of the batch that are not bound, as far as the worker knows.
        delayed_us: Time by which later reservations have passed it.
        asking: Whether a slot is reserved for it at the moment.
    """

    __slots__ = (
        "asking",
        "batch",
        "blocked_us",
        "came",
        "delayed_us",
        "estimate_us",
        "long",
        "needs",
        "number",
        "remaining_us",
    )

    def __init__(self, probe: Probe | LongProbe, needs: int, long: bool, came: Time, blocked_us: Time) -> None:
        self.number = probe.number
        self.batch = probe.batch
        self.needs = needs
        self.estimate_us = probe.estimate_us
        self.long = long
        self.came = came
        self.blocked_us = blocked_us
        self.remaining_us = probe.remaining_us
        self.delayed_us = 0
        self.asking = False

    def probe(self) -> Probe:
        """The reservation of a short task as it is handed on."""
        return Probe(self.number, self.batch, self.estimate_us, self.remaining_us, self.needs)
