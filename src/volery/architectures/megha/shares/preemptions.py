"""Shares of users, as a Local Master enforces them: whose tasks run, and preemption (arXiv 2103.08413, section IV-C).

Only the GM of a user knows what the user has in the whole cluster, so a preemption is validated twice: here, where it
is known what runs on the machine, and by the loser's GM. From then on nothing can go wrong: what the victims give back
is set aside for the beneficiary, which is launched when the last of them has ended. A preemption under way is in no
record of the nodes. So a new leader knows of none, nodes refuse to end what its predecessor has wanted ended, and GMs
take back what they had given up, and what they had claimed, when another begins to lead.
"""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec.structs import replace

from volery.architectures.megha.allocations import GmSyncState
from volery.architectures.megha.amounts.allocations import AmountAllocations
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.hosts import PreemptionHost
from volery.architectures.megha.messages import UNIT_SHIFT, Refusal, place_of
from volery.architectures.megha.partitions import Layout
from volery.architectures.megha.shares.messages import (
    ATTEMPTS,
    AttemptsLost,
    Holding,
    Holdings,
    Preempt,
    PreemptionDone,
    PreemptionRequest,
    PreemptionVote,
)
from volery.core.component import Attached, Sends, sent_to
from volery.core.events import Counted, Event, Preemption
from volery.core.model import Address, TaskId, Time
from volery.core.records import ATTEMPT_MAX
from volery.roles.recovery.leases import RunningAttempt

PREEMPTIONS_MAX: Final = ATTEMPTS // 2
"""Preemptions of a task by one incarnation of its GM after which it is no victim any more, where GMs may crash: the
other attempts are for what is lost."""


class HoldingsNews:
    """Tasks of other GMs that one GM has still to be sent, and the last of its requests that it knows to have come."""

    def __init__(self) -> None:
        self.last_request = 0
        self.number = 0
        self.started: dict[TaskId, Holding] = {}
        self.ended: list[TaskId] = []


class PreemptionClaim:
    """A preemption under way.

    Attributes:
        wanted: Message that asks for it.
        owner: GM that asked.
        position: Place of the machine's partition among this LM's, and of the machine there.
        node: Machine on which the victims run, and the beneficiary will.
        losers: Users who have lost the place, now or before.
        victims: Victims that have not ended yet; they are active.
        pool: Amount that is set aside, packed.
        asked: GM that has been asked for the victims; empty while that is not needed.
        agreed: Whether the victims' GM has given them up.
        withdrawn: Whether the job of the beneficiary was cancelled meanwhile.
        loss: Holdings of the loser before and after it; its own GM knows best.
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


class ClaimTable:
    """Preemptions under way in a cluster.

    Attributes:
        by_task: Claims by the task that is to run.
        by_victim: Claims by the tasks that are to end for them.
    """

    def __init__(self) -> None:
        self.by_task: dict[TaskId, PreemptionClaim] = {}
        self.by_victim: dict[TaskId, PreemptionClaim] = {}

    def at(self, node: Address) -> list[PreemptionClaim]:
        """Return the claims on a node."""
        return [claim for claim in self.by_task.values() if claim.node == node]

    def reserved(self, row: int, position: int) -> int:
        """Return the amount that is set aside on a machine, packed."""
        return sum(claim.pool for claim in self.by_task.values() if claim.position == (row, position))

    def add(self, claim: PreemptionClaim) -> None:
        """Add a claim on a machine."""
        self.by_task[claim.wanted.task.id] = claim
        self.by_victim.update(dict.fromkeys(claim.victims, claim))

    def remove(self, claim: PreemptionClaim) -> None:
        """Remove a claim, of which victims may still run."""
        del self.by_task[claim.wanted.task.id]
        for task in claim.victims:
            del self.by_victim[task]

    def clear(self) -> None:
        """Remove all claims on machines."""
        self.by_task.clear()
        self.by_victim.clear()


class WeightedShares(Attached):
    """Sends every GM the tasks of the others, and preempts on request what may be preempted.

    Args:
        host: The Local Master.
        allocations: Amounts of the cluster; they keep what claims on machines set aside.
        layout: The whole cluster.
        partitions: Partitions of the Local Master.
        others: Number of the users whom the tree does not name.
    """

    takes: ClassVar[frozenset[type]] = frozenset({Preempt, PreemptionVote})
    sends: ClassVar[Sends] = sent_to("gm", Holdings, PreemptionRequest, PreemptionDone, Refusal, AttemptsLost)

    def __init__(
        self,
        host: PreemptionHost,
        allocations: AmountAllocations,
        layout: Layout,
        partitions: range,
        others: int,
        config: MeghaConfig,
    ) -> None:
        self._host = host
        self._allocations = allocations
        self._claims = allocations.reservations = ClaimTable()
        self._nodes_of = layout.nodes
        self._first = partitions.start
        self._others = others

        # As algorithm 2 is printed, preemptions are verified here alone, and a place may go back.
        self._printed = config.preemption == "paper"
        self._can_crash = config.reliable
        self._packing = allocations.packing
        self._losers_of: dict[TaskId, frozenset[int]] = {}  # of a place that was taken, down to whoever holds it now
        self._claims_to_confirm: dict[int, PreemptionClaim] = {}
        self._last_preemption_request = 0
        self._weights_number = 0
        self._news = {address: HoldingsNews() for address in host.gms}

    def clear(self) -> None:
        """Forget everything but weights."""
        self._losers_of.clear()
        self._claims.clear()
        self._claims_to_confirm.clear()
        self._last_preemption_request = 0
        self._news = {address: HoldingsNews() for address in self._host.gms}

    # News for Global Masters of tasks of others.

    def started(self, active: RunningAttempt) -> None:
        """Note that an attempt has what it asked for."""
        holding = self._holding(active)
        for address, news in self._news.items():
            if address != active.owner:
                news.started[active.task] = holding

    def _holding(self, active: RunningAttempt) -> Holding:
        return Holding(active.task, active.account, *place_of(active.unit), active.request)

    def _tell_gone(self, active: RunningAttempt) -> None:
        for address, news in self._news.items():
            if address != active.owner and news.started.pop(active.task, None) is None:
                news.ended.append(active.task)

    def send_holdings(self, gm: GmSyncState) -> None:
        """Send a GM the ends and starts of others' tasks, before a state that contains them."""
        news = self._news[gm.address]
        if news.ended or news.started:
            news.number += 1
            self._host.send(gm.address, Holdings(news.number, tuple(news.ended), tuple(news.started.values())))
            news.ended, news.started = [], {}
        news.last_request = gm.request

    def send_outcomes(self) -> None:
        """Send GMs the outcome of their requests, with a heartbeat, so that they can count on their tasks."""
        for address, gm in self._host.gms.items():
            if gm.request > self._news[address].last_request:
                self._host.send(address, self._allocations.delta(gm))

    def send_whole_holdings(self, gm: GmSyncState, running: list[RunningAttempt]) -> None:
        """Send a GM all that runs, before a whole report."""
        address = gm.address
        self._news[address] = HoldingsNews()
        others = tuple([self._holding(active) for active in running if active.owner != address])
        by_victim = self._claims.by_victim
        leaving = [
            active.task
            for active in running
            if active.owner == address and active.task in by_victim and by_victim[active.task].agreed
        ]
        self._host.send(address, Holdings(0, (), others, is_whole=True, leaving_tasks=tuple(leaving)))

    # Preemption.

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take a preemption, or a vote on one."""
        match event:
            case Preempt():
                self.on_preempt(event, source, now)
            case PreemptionVote():
                self.on_preemption_vote(event, now)

    def on_preempt(self, message: Preempt, source: Address, now: Time) -> None:
        """Validate that the victims run there and that with what they have there is enough; ask their GM."""
        owner = self._host.accept(message, (message.task,), source)
        if owner is None:
            return

        node = self._nodes_of[message.partition][message.position]
        if not self._host.is_usable(node) or message.task.id in self._claims.by_task:
            self._deny(message, owner, is_vetoed=True)  # it is worth another try, and not at once
            return
        self._adopt_weights(message.weights_number)
        allocations, packing = self._allocations, self._packing
        row, position = message.partition - self._first, message.position
        running = self._host.attempts.by_task
        victims = [task for task in message.victims if task in running]  # those that have ended are no loss
        returned = sum(packing[running[task].request] for task in victims)
        need = packing[message.task.request]
        self._host.observe(Counted("preemption_attempts"))
        can_be_had = all(self._may_end(task, message) for task in victims)  # else `given` is of other machines
        if not can_be_had or not allocations.room_for(need, returned, row, position):
            self._deny(message, owner, is_vetoed=False)
            return

        # From here on nothing else can get the room: what is missing is taken now, what victims return is set aside.
        pool = packing.beyond(need, returned)
        claim = PreemptionClaim(message, owner, (row, position), node, pool, set(victims))
        self._claims.add(claim)
        allocations.set_aside(row, position, pool, owner)
        self._host.set_heartbeat(now)
        losers = self._host.gms[running[victims[0]].owner] if victims else owner
        if self._printed or losers is owner or message.loser == self._others:
            self._agree(claim, now)
            return

        # Only the loser's own GM knows what its user has in the whole cluster (decision 11).
        self._last_preemption_request += 1
        self._claims_to_confirm[self._last_preemption_request] = claim
        claim.asked = losers.address
        self._host.send(
            losers.address,
            PreemptionRequest(self._last_preemption_request, losers.request, message.loser, tuple(victims)),
        )

    def _adopt_weights(self, weighed: int) -> None:
        """Begin the account anew: a user that has lost a place by other weights may have it back."""
        if weighed > self._weights_number:
            self._weights_number = weighed
            self._losers_of.clear()
            for claim in self._claims.by_task.values():
                claim.losers = frozenset()

    def _may_end(self, task: TaskId, message: Preempt) -> bool:
        active = self._host.attempts.by_task.get(task)
        if active is None or task in self._claims.by_victim or message.user in self._losers_of.get(task, ()):
            return False

        # The view of the GM may be old: the victim may run elsewhere, or for another user. Where GMs may crash, half
        # of the numbers of one incarnation's attempts are kept for what is lost.
        runs_there = place_of(active.unit) == (message.partition, message.position)
        if self._can_crash and active.attempt % ATTEMPTS >= PREEMPTIONS_MAX:
            return False
        return runs_there and active.account == message.loser and active.attempt < ATTEMPT_MAX

    def _deny(self, message: Preempt, owner: GmSyncState, *, is_vetoed: bool) -> None:
        """Refuse, with the state."""
        self._host.observe(Counted("preemptions_denied"))

        # A veto says nothing about the victims: they may be asked for again when the user has more.
        unavailable: tuple[TaskId, ...] = ()
        if not is_vetoed:
            unavailable = tuple([task for task in message.victims if not self._may_end(task, message)])
        owner.lacks[message.partition - self._first] |= 1 << message.position
        self._host.send_ends(owner)
        self._allocations.consider()
        self._host.send(
            owner.address, Refusal((message.task.id,), self._allocations.delta(owner), unavailable, is_vetoed)
        )

    def on_preemption_vote(self, message: PreemptionVote, now: Time) -> None:
        """End the victims, or let them run on; the answer of a GM whose tasks were moved to another is void."""
        claim = self._claims_to_confirm.pop(message.number, None)
        if claim is None:
            return
        if message.is_agreed:
            claim.loss = message.loss
            self._agree(claim, now)
        else:
            self._give_up(claim, is_vetoed=True)
            self._host.set_heartbeat(now)

    def _give_up(self, claim: PreemptionClaim, *, is_vetoed: bool) -> None:
        """Nothing comes of a claim."""
        self._forget(claim)
        if not claim.withdrawn:
            self._deny(claim.wanted, claim.owner, is_vetoed=is_vetoed)

    def _forget(self, claim: PreemptionClaim) -> None:
        self._claims.remove(claim)
        self._allocations.has_changed(*claim.position, claim.owner)
        self._allocations.recount(claim.node)

    def _agree(self, claim: PreemptionClaim, now: Time) -> None:
        claim.agreed = True
        for task in claim.wanted.victims:
            if task in claim.victims:
                self._host.evict(claim.node, self._host.attempts.by_task[task])
        self._maybe_launch(claim, now)

    def is_victim(self, task: TaskId) -> bool:
        """Find out whether another task gets what a task has once it ends."""
        return task in self._claims.by_victim

    def evicted(self, active: RunningAttempt, now: Time) -> bool:
        """Find out whether a killed attempt was ended for another task; then its GM has it back."""
        claim = self._claims.by_victim.get(active.task)
        if claim is None or not claim.agreed:
            return False
        self._host.observe(Counted("preemptions"))
        self._host.observe(claim.preemption(now, active.task, active.attempt))
        self._host.send(active.owner, AttemptsLost((active,), is_preemption=True))
        return True

    def absorbs(self, attempt: RunningAttempt) -> bool:
        """Note the end of an attempt; find out whether what it had is set aside for another task."""
        task, claim = attempt.task, self._claims.by_victim.pop(attempt.task, None)
        losers = self._losers_of.pop(task, frozenset())
        self._tell_gone(attempt)
        if claim is None:
            return False
        claim.pool += self._packing[attempt.request]
        claim.victims.discard(task)

        # A user that has lost a place never takes it back from those that got it: no circle.
        if claim.wanted.weights_number == self._weights_number and not self._printed:
            claim.losers |= losers | {claim.wanted.loser}

        if self._can_crash:
            self._allocations.recount(claim.node)
        else:
            self._host.gms[attempt.owner].lacks[claim.position[0]] |= 1 << claim.position[1]
        return True

    def resume(self, node: Address, now: Time) -> None:
        """Launch what waits for victims at a node that have ended."""
        for claim in self._claims.at(node):
            self._maybe_launch(claim, now)

    def _maybe_launch(self, claim: PreemptionClaim, now: Time) -> None:
        """Launch the beneficiary where all victims have ended; what it does not need is free."""
        node, wanted = claim.node, claim.wanted
        if claim.victims or not claim.agreed or not self._host.is_reachable(node):
            return
        self._forget(claim)

        # The heartbeat that the request had set may be over: without another one no GM would hear what runs there now.
        self._host.set_heartbeat(now)
        if claim.withdrawn:
            return
        if claim.losers:
            self._losers_of[wanted.task.id] = claim.losers
        unit, task, owner = wanted.partition << UNIT_SHIFT | wanted.position, wanted.task, claim.owner.address
        # The term is the request's: a restarted master does not know the GM's before that has answered it.
        active = RunningAttempt(task.id, task.job, wanted.attempt, owner, unit, task.request, wanted.user, wanted.term)
        self._host.launch(task, active, is_lent=self._can_crash)
        # The state before the outcome: a Global Master that waits for it goes on with the state.
        self._host.answer(claim.owner)
        self._host.send(owner, PreemptionDone(task.id))

    def withdraw(self, tasks: tuple[TaskId, ...], now: Time) -> None:
        """Drop tasks that still wait for their victims to end."""
        for task in tasks:
            claim = self._claims.by_task.get(task)
            if claim is not None and not claim.withdrawn:
                claim.withdrawn = True
                self._host.note_end(claim.owner, task, now)
                self._host.answer(claim.owner)

    # Where components may crash.

    def named(self, active: RunningAttempt) -> RunningAttempt:
        """Return an attempt on the account of a user whom the tree names; others may run from before it changed."""
        return active if active.account <= self._others else replace(active, account=self._others)

    def gm_restarted(self, gm: GmSyncState) -> None:
        """A GM has begun anew: it has claimed nothing, and answers nothing that its predecessor was asked."""
        for claim in list(self._claims.by_task.values()):
            claim.withdrawn = claim.withdrawn or claim.owner is gm
            if claim.asked == gm.address and not claim.agreed:
                self._unask(claim)
                self._give_up(claim, is_vetoed=True)

    def _unask(self, claim: PreemptionClaim) -> None:
        self._claims_to_confirm = {
            number: other for number, other in self._claims_to_confirm.items() if other is not claim
        }

    def skip(self, gm: GmSyncState) -> None:
        """Send a GM nothing before it asks for a report."""
        gm.request = 0
        self._news[gm.address] = HoldingsNews()

    def node_dead(self, node: Address) -> None:
        """Give up the preemptions on a node."""
        for claim in self._claims.at(node):
            self._unask(claim)
            self._give_up(claim, is_vetoed=False)

    def check(self) -> None:
        active = self._host.attempts.by_task.keys()
        assert all(claim.victims <= active for claim in self._claims.by_task.values()), "a victim that has ended"

    def check_rest(self) -> None:
        assert not self._claims.by_task, "claims are left"
        assert not self._claims_to_confirm, "unanswered"
