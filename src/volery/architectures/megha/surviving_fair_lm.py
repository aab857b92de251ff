"""Megha's Local Master and nodes of users with shares where components may crash.

What runs, and on whose account, is in the nodes' record. A preemption under way is not: a new leader knows of none, and
nodes refuse to end what its predecessor has wanted ended. So GMs take back what they had given up, and what they had
claimed, when another begins to lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from volery.architectures.megha.fair_lm import Claim, FairLocalMaster, Holder, _News
from volery.architectures.megha.fair_messages import Answer, Denied, Holding, Holdings, Ousted, Preempt, Taken, Yield
from volery.architectures.megha.messages import Withdraw
from volery.architectures.megha.surviving_messages import ATTEMPTS, UNIT_SHIFT, Contest, Picture, Vacate, Vacated
from volery.architectures.megha.surviving_vector_lm import SurvivingVectorLocalMaster
from volery.architectures.megha.vector_lm import Told
from volery.core.component import sent_to
from volery.core.events import Counted, TaskFinished, TimerFired
from volery.core.model import Address, TaskId, Time
from volery.roles.recovery.leases import Active, GuardedNode, Result

PREEMPTIONS_MAX: Final = ATTEMPTS // 2
"""A task that was preempted so often in one life of its GM is no victim any more: the rest is for what is lost."""


class SurvivingFairLocalMaster(SurvivingVectorLocalMaster, FairLocalMaster):
    """Preempts while it leads; arguments as for `SurvivingVectorLocalMaster`, and the sharing of the cluster."""

    def _clear(self) -> None:
        super()._clear()
        self._holders.clear()
        self._losers.clear()
        self._claims.clear()
        self._claimed.clear()
        self._asked.clear()
        self._yields = 0
        self._news = {address: _News() for address in self._gms}

    def _allot(self, active: Active, node: Address) -> None:
        self._holders[active.task] = Holder(active.account, active.attempt)
        super()._allot(active, node)
        self._tell_started(self._holding(active), self._gms[active.owner])

    def _holding(self, active: Active) -> Holding:
        there = self._active[active.task]
        return Holding(active.task, active.account, there.partition, there.position, active.request)

    def _give_back(self, active: Active, node: Address) -> None:
        claim = self._claimed.get(active.task)
        if claim is not None:
            self._victim_ended(active.task, claim)
            self._recount(node)
            return
        del self._holders[active.task]
        self._losers.pop(active.task, None)
        self._tell_gone(active.task, self._gms[active.owner])
        super()._give_back(active, node)

    def _reserved(self, here: int, position: int) -> int:
        return sum(claim.pool for claim in self._claims.values() if claim.position == (here, position))

    def _node_of(self, claim: Claim) -> Address:
        node: Address = self._layout.nodes[claim.wanted.partition][claim.wanted.position]
        return node

    def _claims_at(self, node: Address) -> list[Claim]:
        return [claim for claim in self._claims.values() if self._node_of(claim) == node]

    def seats(self, node: Address, running: Sequence[Active]) -> list[Active]:
        """As of amounts; users whom the tree names no more are among the others."""
        nobody = self._others
        named = [active if active.account <= nobody else replace(active, account=nobody) for active in running]
        return super().seats(node, named)

    # What Global Masters say.

    def on_contest(self, message: Contest, source: Address, now: Time) -> None:
        """A preemption of this epoch; where the node is away, or another for the same task has not ended, it fails."""
        if not self.opened or message.epoch != self.epoch or self._is_void(source, message.term):
            return
        wanted = message.preempt
        node = self._layout.nodes[wanted.partition][wanted.position]
        if self.usable(node) and wanted.task.id not in self._claims:
            self.on_preempt(wanted, source, now)
            return
        owner = self._gms[source]
        owner.request = wanted.number
        self._deny(wanted, owner, kept=True)  # it is worth another try, and not at once

    def _may_end(self, task: TaskId, message: Preempt) -> bool:
        return super()._may_end(task, message) and self._holders[task].attempt % ATTEMPTS < PREEMPTIONS_MAX

    def on_answer(self, message: Answer, source: Address, now: Time) -> None:
        """End the victims, or let them run on; what a GM says whose tasks were moved to another counts no more."""
        claim = self._asked.pop(message.number, None)
        if claim is None:
            return
        if message.agreed:
            claim.loss = message.loss
            self._agree(claim, now)
        else:
            self._give_up(claim, kept=True)

    def _give_up(self, claim: Claim, *, kept: bool) -> None:
        """Nothing comes of a claim."""
        self._forget(claim)
        self._recount(self._node_of(claim))
        if not claim.withdrawn:
            self._deny(claim.wanted, claim.owner, kept=kept)

    def _agree(self, claim: Claim, now: Time) -> None:
        claim.agreed = True
        for task in claim.wanted.victims:
            if task in claim.victims:
                self._port.send(self._node_of(claim), Vacate(self.epoch, task, self._holders[task].attempt))
        self._maybe_launch(claim, now)

    def on_vacated(self, message: Vacated, source: Address, now: Time) -> None:
        """What the victim had is the beneficiary's; its own GM has it back."""
        task, known = message.active.task, self._there[source].get(message.active.task)
        if known is None or known.attempt != message.active.attempt:
            return
        claim = self._claimed[task]
        self._port.observe(Counted("preemptions"))
        self._port.observe(claim.preemption(now, task, known.attempt))
        self._port.send(known.owner, Ousted(task, known.attempt))
        self._let_go(known, source)
        self._maybe_launch(claim, now)

    def on_result(self, message: Result, source: Address, now: Time) -> None:
        """As of amounts; a task that was to be preempted may have been the last that its successor waited for."""
        super().on_result(message, source, now)
        for claim in self._claims_at(source):
            self._maybe_launch(claim, now)

    def _maybe_launch(self, claim: Claim, now: Time) -> None:
        """Launch the beneficiary where all victims have ended; what it does not need is free."""
        node, wanted = self._node_of(claim), claim.wanted
        if claim.victims or not claim.agreed or not self.reachable(node):
            return
        self._forget(claim)
        self._recount(node)
        if claim.withdrawn:
            return
        if claim.losers:
            self._losers[wanted.task.id] = claim.losers
        unit, task = wanted.partition << UNIT_SHIFT | wanted.position, wanted.task
        owner = claim.owner.address
        term = self._terms.get(owner, 0)
        self._begin(task, Active(task.id, task.job, wanted.attempt, owner, unit, task.request, wanted.user, term), node)
        self._port.send(owner, Taken(task.id))

    def _tell_nothing(self, told: Told) -> None:
        super()._tell_nothing(told)
        told.request = 0
        self._news[told.address] = _News()

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Stop what runs; what still waits for its victims to end never will."""
        for task in message.tasks:
            claim = self._claims.get(task)
            if claim is not None and not claim.withdrawn:
                claim.withdrawn = True
                self._note_ended(claim.owner, task, now)
        super().on_withdraw(message, source, now)

    def _meet_anew(self, told: Told) -> None:
        """It has claimed nothing, and answers nothing that its predecessor was asked."""
        super()._meet_anew(told)
        for claim in list(self._claims.values()):
            claim.withdrawn = claim.withdrawn or claim.owner is told
            if claim.asked == told.address and not claim.agreed:
                self._asked = {number: other for number, other in self._asked.items() if other is not claim}
                self._give_up(claim, kept=True)

    # What Global Masters are told.

    def _report_whole(self, address: Address) -> None:
        """All that runs goes before."""
        self._news[address] = _News()
        running = [active for known in self._there.values() for active in known.values()]
        others = tuple([self._holding(active) for active in running if active.owner != address])
        leaving = [
            active.task
            for active in running
            if active.owner == address and active.task in self._claimed and self._claimed[active.task].agreed
        ]
        self._port.send(address, Picture(others, tuple(leaving)))
        super()._report_whole(address)

    def _on_own_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        FairLocalMaster.on_timer(self, event, source, now)

    # What befalls nodes.

    def node_back(self, node: Address) -> None:
        """What no task there has is free, and claims there go on."""
        super().node_back(node)
        for claim in self._claims_at(node):
            self._maybe_launch(claim, 0)

    def node_dead(self, node: Address) -> None:
        """Its tasks go back to their owners, and nobody gets their places."""
        super().node_dead(node)
        for claim in self._claims_at(node):
            self._asked = {number: other for number, other in self._asked.items() if other is not claim}
            self._give_up(claim, kept=False)

    def check_rest(self) -> None:
        """As of amounts; beside that, no claim is left."""
        super().check_rest()
        assert not self._claims, "claims are left"
        assert not self._asked, "a Global Master has not answered"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **SurvivingVectorLocalMaster.receives,
        Result: on_result,
        Withdraw: on_withdraw,
        Contest: on_contest,
        Answer: on_answer,
        Vacated: on_vacated,
    }
    sends = (
        SurvivingVectorLocalMaster.sends
        | sent_to("gm", Holdings, Yield, Taken, Denied, Ousted, Picture)
        | sent_to("node", Vacate)
    )


class PreemptibleNode(GuardedNode):
    """A guarded node that ends attempts for others' sake; arguments as there."""

    __slots__ = ("_vacating",)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._vacating: set[TaskId] = set()

    def on_vacate(self, message: Vacate, source: Address, now: Time) -> None:
        """End the attempt, if it still runs and the master still leads."""
        active = self._running.get(message.task)
        if message.epoch == self._epoch and active is not None and active.attempt == message.attempt:
            self._vacating.add(message.task)
            self._port.kill(message.task, message.attempt)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """An attempt that was ended for another's sake has no result."""
        active, task = self._running.get(event.task.id), event.task.id
        vacated = task in self._vacating and task not in self._unseated and event.outcome == "killed"
        self._vacating.discard(task)
        if vacated and active is not None and active.attempt == event.attempt:
            del self._running[task]
            self._port.send(self._master, Vacated(active))
        else:
            super().on_task_finished(event, source, now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """The lease is over."""
        self._vacating.clear()
        super().on_timer(event, source, now)

    receives = {**GuardedNode.receives, Vacate: on_vacate}  # noqa: RUF012 - replaced by the base
    sends = GuardedNode.sends | sent_to("lm", Vacated)
