"""Megha's Global Master of users with shares where components may crash.

It gives tasks of its users up only while it knows all that they have: not before every cluster has told it after a
restart, nor while tasks are in doubt because another Local Master has begun to lead. A preemption that was under way in
that cluster has come to nothing then, for whoever gains and for whoever would have lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from volery.architectures.megha.fair_gm import FairGlobalMaster, Held
from volery.architectures.megha.messages import (
    Answer,
    Denied,
    Holding,
    Holdings,
    Lost,
    Ousted,
    Picture,
    Preempt,
    Report,
    Request,
    Taken,
    Yield,
    place_of,
)
from volery.architectures.megha.surviving_gm import Surviving
from volery.architectures.megha.surviving_vector_gm import SurvivingVectorMaster
from volery.architectures.megha.vector_layout import VectorLayout
from volery.core.component import sent_to
from volery.core.events import MoreTasks, Reweigh, Submit, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.core.resources import SLOT
from volery.roles.recovery.leases import Active


class SurvivingFairMaster(SurvivingVectorMaster, FairGlobalMaster):
    """Shares that outlive their masters; arguments as for `FairGlobalMaster`, and the incarnation."""

    def __init__(self, gm: int, layout: VectorLayout, **arguments: Any) -> None:
        super().__init__(gm, layout, **arguments)
        self._told = dict.fromkeys(self._lm_at, 0)
        self._yields = dict.fromkeys(self._lm_at, 0)
        self._pictures: dict[Address, Picture] = {}
        self._leaving: set[TaskId] = set()

    def _knows_all(self) -> bool:
        return not self._unknown and not any(self._doubted)

    def _placement(self, number: int, partition: int, tasks: tuple[Task, ...], places: tuple[int, ...]) -> Request:
        place = super()._placement(number, partition, tasks, places)
        users = tuple([self._user_of(task) for task in tasks])
        return replace(place, users=users)

    def _send_preempt(self, lm: int, message: Preempt) -> None:
        self._port.send(self._lms[lm], replace(message, epoch=self._epochs[lm], term=self._term))

    # What a leader says of its cluster.

    def on_picture(self, message: Picture, source: Address, now: Time) -> None:
        """The report that follows says whether to believe it."""
        self._pictures[source] = message

    def on_report(self, message: Report, source: Address, now: Time) -> None:
        """As of amounts, then enforce the shares; what goes with it may have come before this GM began anew."""
        if message.whole and source not in self._pictures:
            return
        super().on_report(message, source, now)
        self._pictures.pop(source, None)
        self._enforce()

    def _begin_epoch(self, lm: int) -> None:
        """Preemptions under way there have come to nothing."""
        super()._begin_epoch(lm)
        self._told[self._lms[lm]] = self._yields[self._lms[lm]] = 0
        for task in self._at(lm):
            if task in self._claims:
                self._settle(task)
            self._leaving.discard(task)
            if task in self._yielded:  # whoever wanted its place does not get it
                self._yielded.discard(task)
                placed, partition, position = self._placed[task]
                self._hold(task, Held(self._user_of(placed), partition, position, placed.request or SLOT))

    def _adopt_report(self, message: Report, source: Address) -> list[tuple[int, int]]:
        if message.whole:
            self._look_at(self._pictures[source], self._lm_at[source])
        return super()._adopt_report(message, source)

    def _look_at(self, picture: Picture, lm: int) -> None:
        """Others have there what it shows, and nothing else."""
        lm_of = self._layout.lm_of
        for task in [task for task, held in self._held.items() if lm_of[held.partition] == lm]:
            if task not in self._placed:
                self._forget_prey(task)
                self._let_go(task)
        self._leaving.update(picture.leaving)
        self._learn_started(picture.others)

    def _follow(self, task: Task, active: Active) -> None:
        """The user has it, unless it was given up."""
        super()._follow(task, active)
        if task.id in self._leaving:
            self._let_go(task.id)
            self._yielded.add(task.id)
            return
        held = Held(self._user_of(task), *place_of(active.unit), active.request or SLOT)
        if task.id not in self._yielded and self._held.get(task.id) != held:
            self._let_go(task.id)
            self._hold(task.id, held)

    def _has_finished(self, lm: int, active: Active) -> None:
        """As of amounts; its user has it no more."""
        placed = active.task in self._placed
        super()._has_finished(lm, active)
        if placed and active.task not in self._placed:
            self._part_with(active.task)

    def _part_with(self, task: TaskId) -> None:
        """The task is neither there nor asked for."""
        self._let_go(task)
        self._forget_prey(task)
        self._yielded.discard(task)
        self._leaving.discard(task)

    def _place_again(self, dead: Iterable[TaskId]) -> None:
        """As of amounts; users have less than they had."""
        lost = list(dead)
        for number in lost:
            self._part_with(number)
            self._hopeless.discard(self._user_of(self._placed[number][0]))
        super()._place_again(lost)

    def on_lost(self, message: Lost, source: Address, now: Time) -> None:
        """Attempts are dead; then enforce the shares."""
        super().on_lost(message, source, now)
        self._enforce()

    # What the Local Masters say of preemptions.

    def on_holdings(self, message: Holdings, source: Address, now: Time) -> None:
        """Learn from the leader; what it says may be older than what another has said of the same task."""
        lm = self._lm_at[source]
        ended = tuple([task for task in message.ended if self._last_seen(task) in (lm, None)])
        super().on_holdings(Holdings(message.number, ended, message.started), source, now)

    def _last_seen(self, task: TaskId) -> int | None:
        """The cluster in which another's task runs, as far as is known."""
        held = self._claims[self._prey[task]][task] if task in self._prey else self._held.get(task)
        return None if held is None else self._layout.lm_of[held.partition]

    def _learn_started(self, started: Iterable[Holding]) -> None:
        """Others have these tasks here, and no longer where they were before."""
        for holding in started:
            if holding.task not in self._placed:
                self._forget_prey(holding.task)
                self._let_go(holding.task)
        super()._learn_started(started)

    def on_ousted(self, message: Ousted, source: Address, now: Time) -> None:
        """A task of ours was preempted, perhaps one of which only its node and its Local Master knew."""
        self._leaving.discard(message.task)
        found = self._found.get(message.task)
        if found is not None and found.attempt == message.attempt:
            del self._found[message.task]
        super().on_ousted(message, source, now)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **SurvivingVectorMaster.receives,
        Submit: Surviving.on_submit,
        MoreTasks: Surviving.on_more_tasks,
        Report: on_report,
        Lost: on_lost,
        Picture: on_picture,
        Holdings: on_holdings,
        Denied: FairGlobalMaster.on_denied,
        Taken: FairGlobalMaster.on_taken,
        Yield: FairGlobalMaster.on_yield,
        Ousted: on_ousted,
        TimerFired: FairGlobalMaster.on_timer,
        Reweigh: FairGlobalMaster.on_reweigh,
    }
    sends = SurvivingVectorMaster.sends | sent_to("lm", Preempt, Answer)
