"""What a task cost the schedulers: messages, probes, stolen probes, queues, blocking (docs/reference/metrics.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from volery.core.model import SECOND
from volery.metrics import RunSummary
from volery.report.groups import RunGroup
from volery.report.units import NOTHING, digits, duration

QUEUES: Final = ("queued_tasks", "queued_reservations")
"""At a scheduler or master; in a worker's own queue."""
HEADS: Final = ("msg/task", "probes", "stolen", "queue", "queue max", "blocked")
NOTE: Final = (
    "Per task: messages, probes, stolen probes. Queue: tasks that wait at a scheduler when a job arrives, or "
    "reservations at the worker that starts a job. Blocked: mean time of a task behind long ones at its worker."
)


class Work(msgspec.Struct, frozen=True):
    """Of one architecture, means over its seeds; None where the design does not report it.

    Args:
        messages_per_task, probes_per_task, stolen_probes_per_task: counts / tasks.
        queue: what waits in `queue_mean` and `queue_max`: "tasks" or "reservations".
        queue_mean: mean of the lengths that were seen: as a job arrives, or as a worker starts the first task of one.
        queue_max: mean over the seeds of the largest.
        blocked_s_per_task: time that tasks waited behind long ones at their workers (head-of-line blocking) / tasks.
    """

    label: str
    messages_per_task: float
    probes_per_task: float | None
    stolen_probes_per_task: float | None
    queue: str
    queue_mean: float | None
    queue_max: float | None
    blocked_s_per_task: float | None

    @property
    def cells(self) -> list[str]:
        """As text, under `HEADS`."""
        blocked = self.blocked_s_per_task
        counts = [self.messages_per_task, self.probes_per_task, self.stolen_probes_per_task]
        counts += [self.queue_mean, self.queue_max]
        return [*map(_count, counts), NOTHING if blocked is None else duration(blocked)]


def _count(value: float | None) -> str:
    return NOTHING if value is None else digits(value)


def work(groups: Sequence[RunGroup]) -> list[Work]:
    """One entry per group, in their order."""
    return [_of(group) for group in groups]


def is_counted(found: Sequence[Work]) -> bool:
    """Whether there is anything to tell beside messages."""
    return any(one.probes_per_task is not None or one.queue for one in found)


def _of(group: RunGroup) -> Work:
    queue = next((name for name in QUEUES if any(f"{name}_count" in run.counters for run in group.runs)), "")
    blocked_us = _per_task(group, "blocked_us")
    return Work(
        group.label,
        group.mean(lambda run: run.messages_per_task),
        _per_task(group, "probes"),
        _per_task(group, "stolen_probes"),
        queue.removeprefix("queued_"),
        _mean(group, f"{queue}_mean"),
        _mean(group, f"{queue}_max"),
        None if blocked_us is None else blocked_us / SECOND,
    )


def _per_task(group: RunGroup, counter: str) -> float | None:
    """A counter / tasks; a seed under which it was never raised counts as zero where another raised it."""
    if not any(counter in run.counters for run in group.runs):
        return None

    def of(run: RunSummary) -> float:
        return run.counters.get(counter, 0.0) / run.tasks if run.tasks else 0.0

    return group.mean(of)


def _mean(group: RunGroup, counter: str) -> float | None:
    known = [run.counters[counter] for run in group.runs if counter in run.counters]
    return sum(known) / len(known) if known else None
