"""Decisions of schedulers about tasks: the machine or the reason, the age of the view, and what was passed over.

A decision is a fact that a component reports where it is asked to (`volery compare --why`). How many are kept is
bounded per task: the first, which says what the task met on arrival, and the last ones, which say how it ended.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, NamedTuple

import msgspec

from volery.core.model import Address, JobId, TaskId, Time

KEPT_PER_TASK: Final = 8


class Reason(StrEnum):
    """Why a machine or a unit of it was not taken; the lab and the federation say it in these words."""

    CONSTRAINT = "constraint"
    """It does not satisfy the task's placement constraints."""
    RESOURCE = "resource"
    """It is too small: even empty it could not hold the task."""
    BUSY = "busy"
    """It could hold the task, but is taken in the scheduler's view."""
    SHARE = "share"
    """Others of whom less is taken than they are entitled to come first."""
    INCONSISTENCY = "inconsistency"
    """The view said that it was free, and whoever is in charge of it said no."""


Scope = Literal["internal", "external"]
Chosen = Literal["placed", "queued", "refused", "unsatisfiable", "preempted", "lost"]


class Rejected(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The count of machines or units of one kind of partition that were passed over for one reason."""

    scope: Scope
    reason: Reason
    count: int


class Decision(msgspec.Struct, frozen=True):
    """A fact: what a scheduler decided about one task.

    Args:
        task: which.
        job: its job.
        chosen: what was decided; "refused", "preempted" and "lost" are what the scheduler was told of an
            earlier placement; what is lost has died with a machine, or was never heard of again.
        partition: of the machine that was chosen, or that refused; -1: none.
        machine: its number; -1: none.
        asked: who has to confirm it, or has refused it; "": nobody.
        view_age_us: time since the scheduler last heard of that part of the cluster; where nothing was chosen, of the
            part that it has heard of least recently.
        rejected: what was passed over, in the order in which partitions are searched.
    """

    task: TaskId
    job: JobId
    chosen: Chosen
    partition: int = -1
    machine: int = -1
    asked: Address = ""
    view_age_us: Time = 0
    rejected: tuple[Rejected, ...] = ()


class Noted(NamedTuple):
    """A decision, when it was taken and by whom."""

    time_us: Time
    by: Address
    decision: Decision


class DecisionLog:
    """The decisions of a run: per task the first and the last ones, and how many there were.

    Attributes:
        of_task: the decisions that are kept.
        counts: how often each thing was decided, the ones that are not kept included.
        dropped: per task, how many are not kept.
        pairs: (who decided, who was asked) -> placements and refusals, all of them.
        ages: age of the view at a placement, microseconds -> how many, all of them.
    """

    def __init__(self) -> None:
        self.of_task: dict[TaskId, list[Noted]] = {}
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
        kept = self.of_task.setdefault(decision.task, [])
        kept.append(Noted(now, by, decision))
        if len(kept) > KEPT_PER_TASK:
            del kept[1]
            self.dropped[decision.task] = self.dropped.get(decision.task, 0) + 1
