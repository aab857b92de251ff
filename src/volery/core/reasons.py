"""Decisions of schedulers about tasks: the machine or the reason, the age of the view, and what was passed over.

A decision is a fact that a component reports where it is asked to (`volery compare --why`); Megha's Global Masters make
them in `architectures.megha.reasons`. How many are kept is bounded per task: the first, made on arrival, and the last
ones, which led to its end.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec

from volery.core.model import Address, JobId, TaskId, Time

KEPT_PER_TASK: Final = 8


class Reason(StrEnum):
    """Reasons for which a machine or a unit of it was not taken, in the lab and in the federation."""

    CONSTRAINT = "constraint"
    """The machine does not satisfy the task's placement constraints."""
    RESOURCE = "resource"
    """The machine is too small: even empty it could not hold the task."""
    BUSY = "busy"
    """The machine could hold the task, but is taken in the scheduler's view."""
    SHARE = "share"
    """Users below their shares come first."""
    INCONSISTENCY = "inconsistency"
    """The machine was free in the view, and its owner refused it."""


Scope = Literal["internal", "external"]
Chosen = Literal["placed", "queued", "refused", "unsatisfiable", "preempted", "lost"]


class Rejection(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The count of machines or units of one kind of partition that were passed over for one reason."""

    scope: Scope
    reason: Reason
    count: int


class Decision(msgspec.Struct, frozen=True):
    """A fact: a decision of a scheduler about one task.

    Args:
        task: Number of the task.
        job: Number of its job.
        chosen: Decision; "refused", "preempted" and "lost" are reports on an earlier placement; a lost attempt
            ended with its machine, or without a report.
        partition: Partition of the machine that was chosen, or that refused; -1: none.
        machine: Number of the machine; -1: none.
        asked: Component that has to confirm it, or has refused it; "": none.
        view_age_us: Time since the last update of that part of the cluster; where nothing was chosen, of the part with
            the oldest update.
        rejected: Machines that were passed over, in the order in which partitions are searched.
    """

    task: TaskId
    job: JobId
    chosen: Chosen
    partition: int = -1
    machine: int = -1
    asked: Address = ""
    view_age_us: Time = 0
    rejected: tuple[Rejection, ...] = ()


class LoggedDecision(NamedTuple):
    """A decision, its time, and its scheduler."""

    time_us: Time
    by: Address
    decision: Decision


class DecisionLog:
    """The decisions of a run: per task the first and the last ones, and how many there were.

    Attributes:
        of_task: Decisions that are kept.
        counts: Counts of all decisions by kind, those that are not kept included.
        dropped: Count of each task's decisions that are not kept.
        pairs: (Scheduler, component that it asked) -> placements and refusals, all of them.
        ages: Age of the view at a placement, microseconds -> number of placements, all of them.
    """

    def __init__(self) -> None:
        self.of_task: dict[TaskId, list[LoggedDecision]] = {}
        self.counts: dict[Chosen, int] = {}
        self.dropped: dict[TaskId, int] = {}
        self.pairs: dict[tuple[Address, Address], list[int]] = {}
        self.ages: dict[Time, int] = {}

    def note(self, now: Time, by: Address, decision: Decision) -> None:
        """Keep a decision, and let go of the second oldest where there are too many."""
        self.counts[decision.chosen] = self.counts.get(decision.chosen, 0) + 1
        if decision.chosen in ("placed", "refused"):
            self.pairs.setdefault((by, decision.asked), [0, 0])[decision.chosen == "refused"] += 1
        if decision.chosen == "placed":
            self.ages[decision.view_age_us] = self.ages.get(decision.view_age_us, 0) + 1

        decisions = self.of_task.setdefault(decision.task, [])
        decisions.append(LoggedDecision(now, by, decision))
        # The first decision stays; the oldest of the last ones goes.
        if len(decisions) > KEPT_PER_TASK:
            del decisions[1]
            self.dropped[decision.task] = self.dropped.get(decision.task, 0) + 1
