"""Shares of users, as a Local Master enforces them: whose tasks run, and preemption (arXiv 2103.08413, section IV-C).

Only the GM of a user knows what the user has in the whole cluster, so a preemption is validated twice: here, where it
is known what runs on the machine, and by the loser's GM. From then on nothing can go wrong: what the victims give back
is set aside for the beneficiary, which is launched when the last of them has ended. A preemption under way is in no
record of the nodes. So a new leader knows of none, nodes refuse to end what its predecessor has wanted ended, and GMs
take back what they had given up, and what they had claimed, when another begins to lead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from msgspec.structs import replace

from volery.architectures.megha.allocations import GmSyncState
from volery.architectures.megha.amounts import AmountAllocations
from volery.architectures.megha.messages import (
    ATTEMPTS,
    UNIT_SHIFT,
    AttemptsLost,
    Holding,
    Holdings,
    Preempt,
    PreemptionDone,
    PreemptionRequest,
    PreemptionVote,
    Refusal,
)
from volery.core.component import Sends, sent_to
from volery.core.events import Counted, Preemption
from volery.core.model import Address, TaskId, Time
from volery.core.records import ATTEMPT_MAX
from volery.roles.recovery.leases import RunningAttempt

if TYPE_CHECKING:
    from volery.architectures.megha.local_master import LocalMaster

PREEMPTIONS_MAX: Final = ATTEMPTS // 2
"""Preemptions of a task by one incarnation of its GM after which it is no victim any more, where GMs may crash: the
other attempts are for what is lost."""


class NoShares:
    """Nobody is due anything, and nobody preempts: no account of holdings of users in a cluster, and of claims."""

    takes: ClassVar[frozenset[type]] = frozenset()
    sends: ClassVar[Sends] = frozenset()

    def join(self, lm: LocalMaster) -> None: ...

    def reserved(self, here: int, position: int) -> int:
        """Amount that is set aside on a machine, packed."""
        return 0

    def tell_holdings(self, gm: GmSyncState) -> None:
        """Send a GM the ends and starts of others' tasks, before a state that contains them."""

    def tell_heard(self) -> None:
        """With a heartbeat, send GMs the outcome of their requests, so that they can count on their tasks."""

    def started(self, active: RunningAttempt) -> None:
        """An attempt has what it asked for."""

    def is_victim(self, task: TaskId) -> bool:
        """Find out whether another task gets what a task has once it ends."""
        return False

    def victim_ended(self, active: RunningAttempt, node: Address) -> None:
        """Set aside what a victim had."""

    def gone(self, active: RunningAttempt) -> None:
        """An attempt that was nobody's victim has ended."""

    def evicted(self, active: RunningAttempt, now: Time) -> bool:
        """Find out whether a killed attempt was ended for another task; then its GM has it back."""
        return False

    def go_on(self, node: Address, now: Time) -> None:
        """Launch what waits for victims there that have ended."""

    def withdraw(self, tasks: tuple[TaskId, ...], now: Time) -> None:
        """Drop tasks that still wait for their victims to end."""

    def clear(self) -> None:
        """Nothing is known any more."""

    def named(self, active: RunningAttempt) -> RunningAttempt:
        """An attempt on the account of a user whom the tree names."""
        return active

    def met_anew(self, gm: GmSyncState) -> None:
        """A GM has begun anew: it has claimed nothing, and answers nothing that its predecessor was asked."""

    def skip(self, gm: GmSyncState) -> None:
        """Send a GM nothing before it joins again."""

    def tell_picture(self, gm: GmSyncState, running: list[RunningAttempt]) -> None:
        """Send a GM all that runs, before a whole report."""

    def node_dead(self, node: Address) -> None: ...

    def check(self) -> None:
        """Raise AssertionError where claims and allocations differ."""

    def check_rest(self) -> None:
        """Raise AssertionError where a claim is left."""


class _News:
    """Tasks of other GMs of which one GM does not know yet, and the last of its requests that it knows to be heard."""

    def __init__(self) -> None:
        self.last_request = 0
        self.number = 0
        self.started: dict[TaskId, Holding] = {}
        self.ended: list[TaskId] = []


class PreemptionClaim:
    """A preemption under way.

    Attributes:
        wanted: what was asked for.
        owner: the GM that asked.
        position: of the machine, with the place of its partition among this LM's.
        node: the machine.
        losers: users who have lost the place, now or before.
        victims: those that have not ended yet; they are active.
        pool: what is set aside, packed.
        asked: the GM that has been asked for the victims; nobody while that is not needed.
        agreed: whether the victims' GM has given them up.
        withdrawn: whether the job of the beneficiary was cancelled meanwhile.
        loss: what the loser has before and after it; its own GM knows best.
    """

    def __init__(
        self,
        wanted: Preempt,
        owner: GmSyncState,
        position: tuple[int, int],
        node: Address,
        pool: int,
        victims: set[TaskId],
    ) -> None:
        self.wanted = wanted
        self.owner = owner
        self.position = position
        self.node = node
        self.pool = pool
        self.victims = victims
        self.losers: frozenset[int] = frozenset()
        self.asked = ""
        self.agreed = False
        self.withdrawn, self.loss = False, wanted.loss

    def preemption(self, now: Time, task: TaskId, attempt: int) -> Preemption:
        """The fact that an attempt was ended for this."""
        return Preemption(now, task, attempt, self.wanted.task.id, "share", self.loss, self.wanted.gain)


class WeightedShares:
    """Sends every GM the tasks of the others, and preempts on request what may be preempted.

    Args:
        others: the number of the users whom the tree does not name.
        printed: preemptions are verified here alone, and a place may go back, as algorithm 2 is printed.
    """

    takes: ClassVar[frozenset[type]] = frozenset({Preempt, PreemptionVote})
    sends: ClassVar[Sends] = sent_to("gm", Holdings, PreemptionRequest, PreemptionDone, Refusal, AttemptsLost)

    def __init__(self, others: int, allocations: AmountAllocations, *, printed: bool = False) -> None:
        self._others = others
        self._printed = printed
        self._allocations = allocations
        self._packing = allocations.packing
        self._losers_of: dict[TaskId, frozenset[int]] = {}  # of a place that was taken, down to whoever holds it now
        self._claims: dict[TaskId, PreemptionClaim] = {}
        self._claim_on: dict[TaskId, PreemptionClaim] = {}
        self._claims_to_confirm: dict[int, PreemptionClaim] = {}
        self._last_preemption_request = 0
        self._weights_number = 0

    def join(self, lm: LocalMaster) -> None:
        self._lm = lm
        self._news = {address: _News() for address in lm.gms}

    def clear(self) -> None:
        """See `Shares`; weights stay as they are."""
        self._losers_of.clear()
        self._claims.clear()
        self._claim_on.clear()
        self._claims_to_confirm.clear()
        self._last_preemption_request = 0
        self._news = {address: _News() for address in self._lm.gms}

    # News for Global Masters of tasks of others.

    def started(self, active: RunningAttempt) -> None:
        holding = self._holding(active)
        for address, news in self._news.items():
            if address != active.owner:
                news.started[active.task] = holding

    def _holding(self, active: RunningAttempt) -> Holding:
        there = self._allocations.active[active.task]
        return Holding(active.task, active.account, there.partition, there.position, active.request)

    def _tell_gone(self, active: RunningAttempt) -> None:
        for address, news in self._news.items():
            if address != active.owner and news.started.pop(active.task, None) is None:
                news.ended.append(active.task)

    def gone(self, active: RunningAttempt) -> None:
        self._losers_of.pop(active.task, None)
        self._tell_gone(active)

    def tell_holdings(self, gm: GmSyncState) -> None:
        news = self._news[gm.address]
        if news.ended or news.started:
            news.number += 1
            self._lm.send(gm.address, Holdings(news.number, tuple(news.ended), tuple(news.started.values())))
            news.ended, news.started = [], {}
        news.last_request = gm.request

    def tell_heard(self) -> None:
        for address, gm in self._lm.gms.items():
            if gm.request > self._news[address].last_request:
                self._lm.send(address, self._allocations.delta(gm))

    def tell_picture(self, gm: GmSyncState, running: list[RunningAttempt]) -> None:
        address = gm.address
        self._news[address] = _News()
        others = tuple([self._holding(active) for active in running if active.owner != address])
        leaving = [
            active.task
            for active in running
            if active.owner == address and active.task in self._claim_on and self._claim_on[active.task].agreed
        ]
        self._lm.send(address, Holdings(0, (), others, is_whole=True, leaving_tasks=tuple(leaving)))

    # Preemption.

    def on_preempt(self, message: Preempt, source: Address, now: Time) -> None:
        """Validate that the victims run there and that with what they have there is enough; ask their GM."""
        owner = self._lm.gms[source]
        node = self._lm.layout.nodes[message.partition][message.position]
        self._lm.recovery.note_requested((message.task,), source, message.term)
        if message.number <= owner.request or not self._lm.recovery.heeds(source, message.epoch, message.term):
            return
        owner.request = message.number
        if not self._lm.recovery.usable(node) or message.task.id in self._claims:
            self._deny(message, owner, kept=True)  # it is worth another try, and not at once
            return
        self._adopt_weights(message.weights_number)
        allocations, packing = self._allocations, self._packing
        here, position = message.partition - self._lm.partitions.start, message.position
        victims = [task for task in message.victims if task in allocations.active]  # those that have ended are no loss
        given = sum(allocations.active[task].took for task in victims)
        need = packing[message.task.request]
        self._lm.observe(Counted("preemption_attempts"))
        can_be_had = all(self._may_end(task, message) for task in victims)  # else `given` is of other machines
        if not can_be_had or not allocations.room_for(need, given, here, position):
            self._deny(message, owner, kept=False)
            return
        pool = packing.beyond(need, given)
        claim = PreemptionClaim(message, owner, (here, position), node, pool, set(victims))
        self._claims[message.task.id] = claim
        self._claim_on.update(dict.fromkeys(victims, claim))
        allocations.set_aside(here, position, pool, owner)
        self._lm.maybe_arm(now)
        losers = allocations.active[victims[0]].owner if victims else owner
        if self._printed or losers is owner or message.loser == self._others:
            self._agree(claim, now)
            return
        self._last_preemption_request += 1
        self._claims_to_confirm[self._last_preemption_request] = claim
        claim.asked = losers.address
        self._lm.send(
            losers.address,
            PreemptionRequest(self._last_preemption_request, losers.request, message.loser, tuple(victims)),
        )

    def _adopt_weights(self, weighed: int) -> None:
        """Begin the account anew: a user that has lost a place by other weights may have it back."""
        if weighed > self._weights_number:
            self._weights_number = weighed
            self._losers_of.clear()
            for claim in self._claims.values():
                claim.losers = frozenset()

    def _may_end(self, task: TaskId, message: Preempt) -> bool:
        there = self._allocations.active.get(task)
        if there is None or task in self._claim_on or message.user in self._losers_of.get(task, ()):
            return False
        active = self._lm.there[self._allocations.node_of(task)][task]
        runs_there = (there.partition, there.position) == (message.partition, message.position)
        if self._lm.recovery.paired and active.attempt % ATTEMPTS >= PREEMPTIONS_MAX:
            return False
        return runs_there and active.account == message.loser and active.attempt < ATTEMPT_MAX

    def _deny(self, message: Preempt, owner: GmSyncState, *, kept: bool) -> None:
        """Refuse, with the state."""
        self._lm.observe(Counted("preemptions_denied"))
        gone = () if kept else tuple([task for task in message.victims if not self._may_end(task, message)])
        owner.lacks[message.partition - self._lm.partitions.start] |= 1 << message.position
        self._lm.tell_ended(owner)
        self._allocations.consider()
        self._lm.send(owner.address, Refusal((message.task.id,), self._allocations.delta(owner), gone, kept))

    def on_preemption_vote(self, message: PreemptionVote, source: Address, now: Time) -> None:
        """End the victims, or let them run on; the answer of a GM whose tasks were moved to another is void."""
        claim = self._claims_to_confirm.pop(message.number, None)
        if claim is None:
            return
        if message.is_agreed:
            claim.loss = message.loss
            self._agree(claim, now)
        else:
            self._give_up(claim, kept=True)

    def _give_up(self, claim: PreemptionClaim, *, kept: bool) -> None:
        """Nothing comes of a claim."""
        self._forget(claim)
        if not claim.withdrawn:
            self._deny(claim.wanted, claim.owner, kept=kept)

    def _forget(self, claim: PreemptionClaim) -> None:
        del self._claims[claim.wanted.task.id]
        for task in claim.victims:
            del self._claim_on[task]
        self._allocations.has_changed(*claim.position, claim.owner)
        self._allocations.node_changed(claim.node)

    def _agree(self, claim: PreemptionClaim, now: Time) -> None:
        claim.agreed = True
        for task in claim.wanted.victims:
            if task in claim.victims:
                self._lm.recovery.evict(claim.node, self._lm.there[claim.node][task])
        self._maybe_launch(claim, now)

    def is_victim(self, task: TaskId) -> bool:
        return task in self._claim_on

    def evicted(self, active: RunningAttempt, now: Time) -> bool:
        claim = self._claim_on.get(active.task)
        if claim is None or not claim.agreed:
            return False
        self._lm.observe(Counted("preemptions"))
        self._lm.observe(claim.preemption(now, active.task, active.attempt))
        self._lm.send(active.owner, AttemptsLost((active,), is_preemption=True))
        return True

    def victim_ended(self, active: RunningAttempt, node: Address) -> None:
        """See `Shares`; a user that has lost a place never takes it back from those that got it: no circle."""
        task, claim = active.task, self._claim_on.pop(active.task)
        allotment = self._allocations.active.pop(task)
        claim.pool += allotment.took
        claim.victims.discard(task)
        self._tell_gone(active)
        before = self._losers_of.pop(task, frozenset())
        if claim.wanted.weights_number == self._weights_number and not self._printed:
            claim.losers |= before | {claim.wanted.loser}
        if self._lm.recovery.paired:
            self._allocations.node_changed(node)
        else:
            allotment.owner.lacks[claim.position[0]] |= 1 << allotment.position

    def go_on(self, node: Address, now: Time) -> None:
        for claim in self._claims_at(node):
            self._maybe_launch(claim, now)

    def _claims_at(self, node: Address) -> list[PreemptionClaim]:
        return [claim for claim in self._claims.values() if claim.node == node]

    def _maybe_launch(self, claim: PreemptionClaim, now: Time) -> None:
        """Launch the beneficiary where all victims have ended; what it does not need is free."""
        node, wanted = claim.node, claim.wanted
        if claim.victims or not claim.agreed or not self._lm.recovery.reachable(node):
            return
        self._forget(claim)
        if claim.withdrawn:
            return
        if claim.losers:
            self._losers_of[wanted.task.id] = claim.losers
        unit, task, owner = wanted.partition << UNIT_SHIFT | wanted.position, wanted.task, claim.owner.address
        term = self._lm.recovery.term_of(owner)
        active = RunningAttempt(task.id, task.job, wanted.attempt, owner, unit, task.request, wanted.user, term)
        self._lm.begin(task, active, node, lends=self._lm.recovery.paired)
        self._lm.send(owner, PreemptionDone(task.id))

    def withdraw(self, tasks: tuple[TaskId, ...], now: Time) -> None:
        for task in tasks:
            claim = self._claims.get(task)
            if claim is not None and not claim.withdrawn:
                claim.withdrawn = True
                self._lm.note_ended(claim.owner, task, now)

    def reserved(self, here: int, position: int) -> int:
        return sum(claim.pool for claim in self._claims.values() if claim.position == (here, position))

    # Where components may crash.

    def named(self, active: RunningAttempt) -> RunningAttempt:
        """See `Shares`; users whom the tree names no more are among the others."""
        return active if active.account <= self._others else replace(active, account=self._others)

    def met_anew(self, gm: GmSyncState) -> None:
        for claim in list(self._claims.values()):
            claim.withdrawn = claim.withdrawn or claim.owner is gm
            if claim.asked == gm.address and not claim.agreed:
                self._unask(claim)
                self._give_up(claim, kept=True)

    def _unask(self, claim: PreemptionClaim) -> None:
        self._claims_to_confirm = {
            number: other for number, other in self._claims_to_confirm.items() if other is not claim
        }

    def skip(self, gm: GmSyncState) -> None:
        gm.request = 0
        self._news[gm.address] = _News()

    def node_dead(self, node: Address) -> None:
        for claim in self._claims_at(node):
            self._unask(claim)
            self._give_up(claim, kept=False)

    def check(self) -> None:
        active = self._allocations.active.keys()
        assert all(claim.victims <= active for claim in self._claims.values()), "a victim that has ended"

    def check_rest(self) -> None:
        assert not self._claims, "claims are left"
        assert not self._claims_to_confirm, "unanswered"


Shares = NoShares | WeightedShares
