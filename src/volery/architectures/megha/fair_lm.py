"""Megha's Local Master and nodes where users have shares: whose tasks run, and preemption (arXiv 2103.08413, IV-C).

Only the GM of a user knows what the user has in the whole cluster, so a preemption is validated twice: here, where it
is known what runs on the machine, and by the loser's GM. From then on nothing can go wrong: what the victims give back
is set aside for the beneficiary, which is launched when the last of them has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from volery.architectures.megha.fair_messages import (
    Answer,
    Denied,
    Holding,
    Holdings,
    Ousted,
    Preempt,
    Taken,
    UserRequest,
    Yield,
)
from volery.architectures.megha.local_master import HEARTBEAT, Answering, CompletionNotice, Updates
from volery.architectures.megha.messages import Ask, Request, Withdraw
from volery.architectures.megha.sharing import Sharing
from volery.architectures.megha.vector_layout import VectorLayout
from volery.architectures.megha.vector_lm import Active, Told, VectorLocalMaster
from volery.architectures.megha.vector_messages import Ended, Refusal, StateUpdate
from volery.core.component import sent_to
from volery.core.events import Counted, Drain, Preemption, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.core.records import ATTEMPT_MAX
from volery.roles.node import Completed, Kill, Launch


class Holder(NamedTuple):
    """Whose active task it is, and which attempt of it."""

    user: int
    attempt: int


class _News:
    """Tasks of other GMs of which one GM does not know yet, and the last of its requests that it knows to be heard."""

    __slots__ = ("ended", "heard", "number", "started")

    def __init__(self) -> None:
        self.heard = 0
        self.number = 0
        self.started: dict[TaskId, Holding] = {}
        self.ended: list[TaskId] = []


class Claim:
    """A preemption under way.

    Attributes:
        wanted: what was asked for.
        owner: the GM that asked.
        position: of the machine, with the place of its partition among this LM's.
        losers: users who have lost the place, now or before.
        victims: those that have not ended yet; they are active.
        pool: what is set aside, packed.
        asked: the GM that has been asked for the victims; nobody while that is not needed.
        agreed: whether the victims' GM has given them up.
        withdrawn: whether the job of the beneficiary was cancelled meanwhile.
        loss: what the loser has before and after it; its own GM knows best.
    """

    __slots__ = ("agreed", "asked", "losers", "loss", "owner", "pool", "position", "victims", "wanted", "withdrawn")

    def __init__(
        self, wanted: Preempt, owner: Told, position: tuple[int, int], pool: int, victims: set[TaskId]
    ) -> None:
        self.wanted = wanted
        self.owner = owner
        self.position = position
        self.pool = pool
        self.victims = victims
        self.losers: frozenset[int] = frozenset()
        self.asked = ""
        self.agreed = False
        self.withdrawn = False
        self.loss = wanted.loss

    def preemption(self, now: Time, task: TaskId, attempt: int) -> Preemption:
        """The fact that an attempt was ended for this."""
        return Preemption(now, task, attempt, self.wanted.task.id, "share", self.loss, self.wanted.gain)


class FairLocalMaster(VectorLocalMaster):
    """Tells every GM what others' tasks run where, and preempts on request what may be preempted.

    Args:
        lm, layout, heartbeat_us, updates, completion_notice: see `VectorLocalMaster`.
        sharing: of the cluster.
    """

    __slots__ = (
        "_asked", "_claimed", "_claims", "_holders", "_losers", "_news", "_others", "_requested", "_weighed",
        "_yields",
    )  # fmt: skip

    def __init__(
        self,
        lm: int,
        layout: VectorLayout,
        *,
        heartbeat_us: Time,
        updates: Updates,
        completion_notice: CompletionNotice,
        sharing: Sharing,
    ) -> None:
        super().__init__(lm, layout, heartbeat_us=heartbeat_us, updates=updates, completion_notice=completion_notice)
        self._others = sharing.others
        self._holders: dict[TaskId, Holder] = {}
        self._news = {address: _News() for address in self._gms}
        self._requested: dict[TaskId, Holder] = {}
        self._losers: dict[TaskId, frozenset[int]] = {}  # of a place that was taken, down to whoever holds it now
        self._claims: dict[TaskId, Claim] = {}
        self._claimed: dict[TaskId, Claim] = {}
        self._asked: dict[int, Claim] = {}
        self._yields = 0
        self._weighed = 0

    def on_user_request(self, message: UserRequest, source: Address, now: Time) -> None:
        """As `on_request` and `on_repartition`."""
        owner = self._gms[source]
        pairs = zip(message.users, message.attempts, strict=True)
        self._requested = {task.id: Holder(*pair) for task, pair in zip(message.tasks, pairs, strict=True)}
        request = Request(message.number, message.partition, message.tasks, message.positions)
        self._validate(request, owner, self._first + owner.number if message.lent else -1, now)

    def _launch(self, node: Address, number: int, task: Task) -> None:
        holder = self._holders[task.id] = self._requested[task.id]
        active = self._active[task.id]
        self._tell_started(Holding(task.id, holder.user, active.partition, active.position, task.request), active.owner)
        self._port.send(node, Launch(number, task, holder.attempt))

    def _tell_started(self, holding: Holding, owner: Told) -> None:
        for address, news in self._news.items():
            if address != owner.address:
                news.started[holding.task] = holding

    def _tell_gone(self, task: TaskId, owner: Told) -> None:
        for address, news in self._news.items():
            if address != owner.address and news.started.pop(task, None) is None:
                news.ended.append(task)

    def _update(self, told: Told) -> StateUpdate:
        """Whose tasks have ended and started is told before the state that comes of it."""
        news = self._news[told.address]
        if news.ended or news.started:
            news.number += 1
            self._port.send(told.address, Holdings(news.number, tuple(news.ended), tuple(news.started.values())))
            news.ended, news.started = [], {}
        news.heard = told.request
        return super()._update(told)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """As for any Local Master; a GM also hears what has come of its requests, so that it can count on its tasks."""
        super().on_timer(event, source, now)
        if event.key == HEARTBEAT:
            for address, told in self._gms.items():
                if told.request > self._news[address].heard:
                    self._port.send(address, self._update(told))

    def on_preempt(self, message: Preempt, source: Address, now: Time) -> None:
        """Validate that the victims run there and that with what they have there is enough; ask their GM."""
        owner = self._gms[source]
        if message.number <= owner.request:
            return
        owner.request = message.number
        self._heed_weights(message.weighed)
        here, position, packing = message.partition - self._first, message.position, self._packing
        if (here, position) in self._held:
            self._deny(message, owner, kept=True)
            return
        victims = [task for task in message.victims if task in self._active]  # those that have ended are no loss
        given = sum(self._active[task].took for task in victims)
        need = packing[message.task.request]
        self._port.observe(Counted("preemption_attempts"))
        can_be_had = all(self._may_end(task, message) for task in victims)  # else `given` is of other machines
        left = packing.settled(self._free[here][position] + given) - need
        if not can_be_had or left & self._guards != self._guards:
            self._deny(message, owner, kept=False)
            return
        pool = packing.beyond(need, given)
        self._give(here, position, -pool)
        claim = Claim(message, owner, (here, position), pool, set(victims))
        self._claims[message.task.id] = claim
        self._claimed.update(dict.fromkeys(victims, claim))
        self._changed_for_all(claim)
        if not self._armed:
            self._arm(now)
        losers = self._active[victims[0]].owner if victims else owner
        if losers is owner or message.loser == self._others:
            self._agree(claim, now)
            return
        self._yields += 1
        self._asked[self._yields] = claim
        claim.asked = losers.address
        self._port.send(losers.address, Yield(self._yields, losers.request, message.loser, tuple(victims)))

    def _heed_weights(self, weighed: int) -> None:
        """Who has lost a place by other weights may have it back: the account begins anew."""
        if weighed > self._weighed:
            self._weighed = weighed
            self._losers.clear()
            for claim in self._claims.values():
                claim.losers = frozenset()

    def _may_end(self, task: TaskId, message: Preempt) -> bool:
        active = self._active.get(task)
        if active is None or task in self._claimed or message.user in self._losers.get(task, ()):
            return False
        holder = self._holders[task]
        runs_there = (active.partition, active.position) == (message.partition, message.position)
        return runs_there and holder.user == message.loser and holder.attempt < ATTEMPT_MAX

    def _deny(self, message: Preempt, owner: Told, *, kept: bool) -> None:
        """Refuse, with the state."""
        self._port.observe(Counted("preemptions_denied"))
        gone = () if kept else tuple([task for task in message.victims if not self._may_end(task, message)])
        owner.lacks[message.partition - self._first] |= 1 << message.position
        self._tell_ended(owner)
        self._consider()
        self._port.send(owner.address, Denied(message.task.id, gone, kept, self._update(owner)))

    def on_answer(self, message: Answer, source: Address, now: Time) -> None:
        """End the victims, or let them run on."""
        claim = self._asked.pop(message.number, None)
        if claim is None:
            return
        if message.agreed:
            claim.loss = message.loss
            self._agree(claim, now)
            return
        here, position = claim.position
        self._give(here, position, claim.pool)
        self._hold(here, position)
        self._forget(claim)
        if not claim.withdrawn:
            self._deny(claim.wanted, claim.owner, kept=True)

    def _attempt(self, task: TaskId) -> int:
        return self._holders[task].attempt

    def _forget(self, claim: Claim) -> None:
        del self._claims[claim.wanted.task.id]
        for task in claim.victims:
            del self._claimed[task]
        self._changed_for_all(claim)

    def _changed_for_all(self, claim: Claim) -> None:
        here, position = claim.position
        self._has_changed(here, 1 << position, claim.owner)
        claim.owner.lacks[here] |= 1 << position

    def _agree(self, claim: Claim, now: Time) -> None:
        claim.agreed = True
        node = self._layout.nodes[claim.wanted.partition][claim.wanted.position]
        for task in claim.wanted.victims:
            if task in claim.victims:
                self._port.send(node, Kill(task, self._holders[task].attempt))
        self._maybe_launch(claim, now)

    def _evicted(self, task: TaskId, attempt: int, claim: Claim, now: Time) -> None:
        """What the victim had is the beneficiary's; its own GM has it back."""
        owner = self._active[task].owner
        self._port.observe(Counted("preemptions"))
        self._port.observe(claim.preemption(now, task, attempt))
        self._victim_ended(task, claim)
        self._port.send(owner.address, Ousted(task, attempt))
        self._maybe_launch(claim, now)

    def _victim_ended(self, task: TaskId, claim: Claim) -> None:
        del self._claimed[task], self._holders[task]
        active = self._active.pop(task)
        claim.pool += active.took
        claim.victims.discard(task)
        self._tell_gone(task, active.owner)
        self._lose_place(task, claim)
        active.owner.lacks[claim.position[0]] |= 1 << active.position

    def _lose_place(self, task: TaskId, claim: Claim) -> None:
        """Whoever has lost a place never takes it back from those who got it: the account has no circle."""
        before = self._losers.pop(task, frozenset())
        if claim.wanted.weighed == self._weighed:
            claim.losers |= before | {claim.wanted.loser}

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """What the task took is free, or its successor's where it was to be preempted."""
        claim, holder = self._claimed.get(message.task), self._holders.get(message.task)
        if holder is None or holder.attempt != message.attempt:
            return
        if claim is not None and claim.agreed and message.killed:
            self._evicted(message.task, message.attempt, claim, now)
        elif claim is not None:
            owner = self._active[message.task].owner
            self._victim_ended(message.task, claim)
            self._note_ended(owner, message.task, now)
            self._maybe_launch(claim, now)
        else:
            del self._holders[message.task]
            self._losers.pop(message.task, None)
            self._tell_gone(message.task, self._active[message.task].owner)
            super().on_completed(message, source, now)

    def _maybe_launch(self, claim: Claim, now: Time) -> None:
        """Launch the beneficiary where all victims have ended; what it does not need is free."""
        if claim.victims or not claim.agreed:
            return
        self._forget(claim)
        wanted, (here, position) = claim.wanted, claim.position
        took = 0 if claim.withdrawn else self._packing[wanted.task.request]
        self._give(here, position, claim.pool - took)
        self._hold(here, position)
        if claim.withdrawn:
            return
        owner = claim.owner
        lent = self._first + owner.number
        guest = -1 if lent == wanted.partition else lent
        if claim.losers:
            self._losers[wanted.task.id] = claim.losers
        self._active[wanted.task.id] = Active(wanted.partition, position, took, owner, guest)
        self._launches += 1
        self._requested = {wanted.task.id: Holder(wanted.user, wanted.attempt)}
        self._launch(self._layout.nodes[wanted.partition][position], self._launches, wanted.task)
        self._port.send(owner.address, Taken(wanted.task.id))

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Kill what runs; what still waits for its victims to end never will."""
        for task in message.tasks:
            claim = self._claims.get(task)
            if claim is not None and not claim.withdrawn:
                claim.withdrawn = True
                self._note_ended(claim.owner, task, now)
        super().on_withdraw(message, source, now)

    def _set_aside(self) -> Iterable[tuple[int, int, int]]:
        yield from super()._set_aside()
        for claim in self._claims.values():
            yield (*claim.position, claim.pool)

    def check(self) -> None:
        """As for any Local Master; beside that, every active task has a holder and every victim is active."""
        super().check()
        assert self._holders.keys() == self._active.keys(), "active tasks that are nobody's"
        assert all(claim.victims <= self._active.keys() for claim in self._claims.values()), "a victim that has ended"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        UserRequest: on_user_request,
        Preempt: on_preempt,
        Answer: on_answer,
        Withdraw: on_withdraw,
        Ask: Answering.on_ask,
        Completed: on_completed,
        Drain: VectorLocalMaster.on_drain,
        TimerFired: on_timer,
    }
    sends = sent_to("node", Launch, Kill) | sent_to(
        "gm", Ended, Refusal, StateUpdate, Holdings, Yield, Taken, Denied, Ousted
    )
