"""Megha's Global Master where users have shares: algorithm 2 (arXiv 2103.08413, section IV-C).

A task that fits nowhere in the view may take the place of others' tasks as long as its user has no more than its share
with it. Victims are sought on the view, which is stale: the Local Master and the loser's GM may refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from random import Random
from typing import Final, NamedTuple

from volery.architectures.megha.global_master import MeghaMatch
from volery.architectures.megha.messages import (
    Answer,
    Ask,
    Denied,
    Ended,
    Holding,
    Holdings,
    Ousted,
    Preempt,
    Refusal,
    Request,
    StateUpdate,
    Taken,
    Withdraw,
    Yield,
)
from volery.architectures.megha.sharing import Sharing, sum_of
from volery.architectures.megha.user_lines import UserLines
from volery.architectures.megha.vector_gm import Rescheduling, VectorGlobalMaster, Wanted
from volery.architectures.megha.vector_layout import VectorLayout
from volery.core.component import sent_to
from volery.core.events import Cancel, Look, MoreTasks, Reweigh, Submit, TimerFired
from volery.core.model import Address, Amounts, JobId, Message, Task, TaskId, Time
from volery.core.resources import SLOT
from volery.core.shares import ShareChange
from volery.policies.queues import Kind
from volery.roles.submission import ANSWERS, REFUSALS, SIGHTS

SEARCH_MAX: Final = 256
"""Tasks of a violator that are looked at for one request, the youngest first."""
KINDS_MAX: Final = 16
"""Kinds of waiting tasks of one user for which victims are sought."""


SPARED: Final = "spared"


class Held(NamedTuple):
    """A task that runs or was asked to run, in the view of a GM."""

    user: int
    partition: int
    position: int
    request: Amounts


class FairGlobalMaster(VectorGlobalMaster):
    """Queues by user, and preemption under contention.

    Args:
        gm, layout, match, batch_max, eager_retry, queue_max, stream, ask, rescheduling: see
            `VectorGlobalMaster`.
        sharing: of the cluster.
        spared_us: a user whose GM has refused to give up a task is not asked again for so long.
    """

    __slots__ = (
        "_attempts", "_claims", "_doubtful", "_held", "_hopeless", "_kept_by_doubt", "_ledger", "_names", "_prey",
        "_running", "_sharing", "_spared", "_spared_us", "_told", "_untouchable", "_user_lines", "_user_of_job",
        "_weighed", "_yielded", "_yields",
    )  # fmt: skip

    def __init__(
        self,
        gm: int,
        layout: VectorLayout,
        *,
        match: MeghaMatch,
        batch_max: int,
        eager_retry: bool,
        queue_max: int,
        stream: Random,
        rescheduling: Rescheduling,
        sharing: Sharing,
        spared_us: Time,
        ask: bool = False,
    ) -> None:
        super().__init__(
            gm,
            layout,
            match=match,
            batch_max=batch_max,
            eager_retry=eager_retry,
            queue_max=queue_max,
            stream=stream,
            rescheduling=rescheduling,
            ask=ask,
        )
        self._sharing = sharing
        self._spared_us = spared_us
        self._weighed = 0
        self._kept_by_doubt = False
        self._names = sharing.names
        self._ledger = sharing.ledger()
        self._user_of_job: dict[JobId, int] = {}
        self._user_lines = UserLines(self._packing, self._user_of, self._is_short)
        self._lines = self._user_lines
        self._attempts: dict[TaskId, int] = {}
        self._held: dict[TaskId, Held] = {}
        self._running: list[dict[TaskId, Held]] = [{} for _ in self._names]
        self._doubtful: list[Amounts] = [(0,) * len(self._packing.amounts(0)) for _ in self._names]
        self._claims: dict[TaskId, dict[TaskId, Held]] = {}
        self._prey: dict[TaskId, TaskId] = {}
        self._yielded: set[TaskId] = set()
        self._untouchable: set[TaskId] = set()
        self._hopeless: set[int] = set()
        self._spared: set[int] = set()
        self._yields = dict.fromkeys(self._lms, 0)
        self._told = dict.fromkeys(self._lms, 0)

    def _user_of(self, task: Task) -> int:
        return self._user_of_job[task.job]

    def _is_short(self, user: int) -> bool:
        return self._ledger.violation(self._names[user]) < 0

    # The ledger: what all users have, in this GM's view.

    def _hold(self, task: TaskId, held: Held) -> None:
        self._held[task] = self._running[held.user][task] = held
        self._ledger.launched(self._names[held.user], self._packing.asked(held.request))

    def _let_go(self, task: TaskId) -> Held | None:
        """The task is not there any more, or will not be."""
        held = self._held.pop(task, None)
        if held is not None:
            del self._running[held.user][task]
            self._ledger.ended(self._names[held.user], self._packing.asked(held.request))
            self._hopeless.discard(held.user)
            self._untouchable.discard(task)
        return held

    def _doubt(self, user: int, request: Amounts, sign: int) -> None:
        """What was asked for, and not heard of yet, may be refused; what has been heard of can be taken from."""
        if sign < 0 and self._kept_by_doubt:
            self._kept_by_doubt = False
            self._hopeless.clear()
        pairs = zip(self._doubtful[user], self._packing.asked(request), strict=True)
        self._doubtful[user] = tuple([amount + sign * more for amount, more in pairs])

    def _can_lose(self, user: int, tasks: Iterable[Held]) -> bool:
        """Whether the user keeps its share without these tasks of it, whatever else may still be refused."""
        losing = sum_of([self._doubtful[user], *(self._packing.asked(held.request) for held in tasks)])
        if user == self._sharing.others or self._ledger.can_lose(self._names[user], losing):
            return True
        self._kept_by_doubt = self._kept_by_doubt or any(self._doubtful[user])
        return False

    def _take(self, task: Task, partition: int, position: int) -> Task:
        claim = super()._take(task, partition, position)
        self._hold(task.id, Held(self._user_of(task), partition, position, claim.request or SLOT))
        return claim

    def _asking(self, number: int, partition: int, tasks: tuple[Task, ...], places: tuple[int, ...]) -> Message:
        users = tuple([self._user_of(task) for task in tasks])
        attempts = tuple([self._attempt_of(task.id) for task in tasks])
        return Request(number, partition, tasks, places, attempts, users)

    def _promise(self, wanted: Wanted, sign: int) -> None:
        super()._promise(wanted, sign)
        for task in wanted[2]:
            self._doubt(self._user_of(task), task.request or SLOT, sign)

    # Algorithm 2.

    def _enforce(self) -> None:
        """For each user who waits and has less than its share: preempt while there is somebody to take from."""
        for user in self._user_lines.users():
            while user not in self._hopeless:
                if not self._maybe_preempt(user):
                    self._hopeless.add(user)

    def _maybe_preempt(self, user: int) -> bool:
        if user == self._sharing.others:
            return False
        for kind in islice(self._user_lines.kinds_of(user), KINDS_MAX):
            if self._ledger.may_claim(self._names[user], kind[1] or SLOT):
                found = next(self._preemptible(user, kind), None)
                if found is not None:
                    self._preempt(self._user_lines.pop_kind(user, kind), *found)
                    return True
        return False

    def _preemptible(self, user: int, kind: Kind) -> Iterator[tuple[int, list[TaskId]]]:
        """Users from the largest violation down, each with tasks whose end makes room for a task of this kind."""
        for name in list(self._ledger.violators()):
            loser = self._sharing.number_of(name)
            if loser != user and loser not in self._spared:
                victims = self._victims(loser, kind)
                if victims:
                    yield loser, victims

    def _victims(self, loser: int, kind: Kind) -> list[TaskId]:
        """The youngest task that makes enough room where it runs; else the youngest ones of one machine that do."""
        mask, need, packing, guards = kind[0], self._packing[kind[1]], self._packing, self._guards
        matches, running = self._layout.matches, self._running[loser]
        machines: dict[tuple[int, int], list[TaskId]] = {}
        losable: dict[Amounts, bool] = {}
        for task in islice(reversed(running), SEARCH_MAX):
            held = running[task]
            if task not in self._untouchable and matches[held.partition][mask] >> held.position & 1:
                free = self._index[held.partition].free[held.position]
                left = packing.settled(free + packing[held.request]) - need
                if held.request not in losable:
                    losable[held.request] = self._can_lose(loser, (held,))
                if not losable[held.request]:
                    continue
                if left & guards == guards:
                    return [task]
                machines.setdefault((held.partition, held.position), []).append(task)
        for (partition, position), tasks in machines.items():
            free, given = self._index[partition].free[position], list[int]()
            room = free
            for task in tasks:
                given.append(packing[running[task].request])
                room = packing.settled(room + given[-1])
                if (room - need) & guards == guards:
                    victims = [tasks[place] for place in packing.needed(free, need, given)]
                    if self._can_lose(loser, [running[one] for one in victims]):
                        return victims
        return []

    def _preempt(self, task: Task, loser: int, victims: Sequence[TaskId]) -> None:
        """Ask the Local Master for it; in the view it is so already. A user of this GM gives up its tasks with it."""
        place = self._held[victims[0]]
        partition, position = place.partition, place.position
        user = self._user_of(task)
        losing, gaining = self._ledger.has(self._names[loser]), self._ledger.has(self._names[user])
        lm = self._layout.lm_of[partition]
        claimed: dict[TaskId, Held] = {}
        for victim in victims:
            held = self._let_go(victim)
            assert held is not None
            claimed[victim] = held
            self._prey[victim] = task.id
            if victim in self._placed:
                self._yielded.add(victim)
        self._claims[task.id] = claimed
        index, packing = self._index[partition], self._packing
        free, had = index.free[position], sum([packing[held.request] for held in claimed.values()])
        took = packing.named(packing.settled(free + had), packing[task.request])
        index.put(position, packing.settled(free - packing.beyond(took, had)))
        task = packing.naming(task, took)
        request = task.request or SLOT
        self._dirty[partition] |= 1 << position
        self._placed[task.id] = (task, partition, position)
        self._hold(task.id, Held(user, partition, position, request))
        self._doubt(user, request, 1)
        number = self._requests[lm] = self._requests[lm] + 1
        attempt = self._attempt_of(task.id)
        loss, gain = self._change(loser, losing), self._change(user, gaining)
        taken = tuple(victims)
        wanted = Preempt(number, partition, position, task, user, attempt, loser, taken, self._weighed, gain, loss)
        self._send_preempt(lm, wanted)

    def _change(self, user: int, before: tuple[int, int]) -> ShareChange:
        """What a user has now, and what it was due and had before."""
        due, had = before
        return ShareChange(self._names[user], due, had, self._ledger.has(self._names[user])[1])

    def _send_preempt(self, lm: int, message: Preempt) -> None:
        self._port.send(self._lms[lm], message)

    def _attempt_of(self, task: TaskId) -> int:
        return self._attempts.get(task, 0)

    def _settle(self, task: TaskId) -> dict[TaskId, Held]:
        """A preemption has come to an end; returns the victims of which nothing was heard."""
        claimed = self._claims.pop(task, None)
        if claimed is None:
            return {}
        placed = self._placed[task][0]
        self._doubt(self._user_of(placed), placed.request or SLOT, -1)
        for victim in claimed:
            del self._prey[victim]
        return claimed

    # What the submitter and the Local Masters say.

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """As without shares, then enforce them."""
        self._user_of_job[message.job.id] = self._sharing.number_of(message.job.user)
        super().on_submit(message, source, now)
        self._enforce()

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """As without shares, then enforce them."""
        super().on_more_tasks(message, source, now)
        self._enforce()

    def _schedule(self, tasks: Sequence[Task]) -> None:
        super()._schedule(tasks)
        self._hopeless.difference_update([self._user_of(task) for task in tasks])

    def on_reweigh(self, message: Reweigh, source: Address, now: Time) -> None:
        """Users are due something else: what could not be had may be had now."""
        if message.number <= self._weighed:
            return
        self._weighed = message.number
        self._ledger.reweigh(self._sharing.tree(dict(message.weights)))
        self._untouchable.clear()
        self._spared.clear()
        self._hopeless.clear()
        self._enforce()

    def on_ended(self, message: Ended, source: Address, now: Time) -> None:
        """Tasks of ours have ended, some that had been given up or never begun too: their places are not ours."""
        given_up: dict[JobId, int] = {}
        for number in message.tasks:
            if number not in self._placed:
                continue
            withdrawn = number in self._claims
            for victim, held in self._settle(number).items():
                if victim not in self._yielded:
                    self._hold(victim, held)
            self._let_go(number)
            self._forget_prey(number)
            self._attempts.pop(number, None)
            if withdrawn or number in self._yielded:
                self._yielded.discard(number)
                job = self._placed.pop(number)[0].job
                given_up[job] = given_up.get(job, 0) + 1
        super().on_ended(message, source, now)
        for job, count in given_up.items():
            self._jobs.finished(job, count)
        self._enforce()

    def on_state_update(self, message: StateUpdate, source: Address, now: Time) -> None:
        """As without shares, then enforce them."""
        super().on_state_update(message, source, now)
        self._enforce()

    def on_refusal(self, message: Refusal, source: Address, now: Time) -> None:
        """As without shares; refused tasks take nothing, and nobody can take that from them."""
        if message.update.number > self._heard[source]:
            for task in message.tasks:
                self._let_go(task)
                self._forget_prey(task)
                self._yielded.discard(task)
        super().on_refusal(message, source, now)
        self._enforce()

    def on_holdings(self, message: Holdings, source: Address, now: Time) -> None:
        """Take over which tasks of others run where; a repeat is stale."""
        if message.number <= self._told[source]:
            return
        self._told[source] = message.number
        for task in message.ended:
            beneficiary = self._prey.pop(task, None)
            if beneficiary is not None:
                del self._claims[beneficiary][task]
            self._let_go(task)
        self._learn_started(message.started)

    def _learn_started(self, started: Iterable[Holding]) -> None:
        """Others have these tasks."""
        for holding in started:
            if holding.task not in self._held and holding.task not in self._placed:
                request = holding.request or SLOT
                self._forget_prey(holding.task)  # what was taken from it is over: it runs again, and may be taken again
                self._hold(holding.task, Held(holding.user, holding.partition, holding.position, request))
            self._hopeless.clear()

    def on_denied(self, message: Denied, source: Address, now: Time) -> None:
        """Nothing was preempted: learn what is true there and try again with others; a repeat is stale."""
        if message.update.number <= self._heard[source]:
            return
        claimed = self._settle(message.task)
        for victim, held in claimed.items():
            self._yielded.discard(victim)
            if victim not in self._held:
                self._hold(victim, held)
        self._untouchable.update(claimed.keys() & message.gone)
        if message.kept and claimed:
            self._spared.add(next(iter(claimed.values())).user)
            self._port.set_timer(SPARED, now + self._spared_us)
        self.on_refusal(Refusal((message.task,), message.update), source, now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Nobody is spared any longer."""
        self._spared.clear()
        self._hopeless.clear()
        self._enforce()

    def on_taken(self, message: Taken, source: Address, now: Time) -> None:
        """A preemption is complete."""
        self._settle(message.task)
        self._enforce()

    def on_yield(self, message: Yield, source: Address, now: Time) -> None:
        """Give tasks of a user up, if it has its share without them; nobody but this GM knows."""
        if message.number <= self._yields[source]:
            return
        self._yields[source] = message.number
        self._arrived(self._layout_lm(source), message.heard)
        known = [self._held[task] for task in message.tasks if task in self._held]
        agreed = len(known) == len(message.tasks) and self._knows_all() and self._can_lose(message.user, known)
        loss = None
        if agreed:
            before = self._ledger.has(self._names[message.user])
            for task in message.tasks:
                self._yielded.add(task)
                self._let_go(task)
            loss = self._change(message.user, before)
        self._port.send(source, Answer(message.number, agreed, loss))

    def _knows_all(self) -> bool:
        """Whether all that this GM's users have is known here."""
        return True

    def on_ousted(self, message: Ousted, source: Address, now: Time) -> None:
        """A task of ours was preempted: it is like a new one, at the tail of its user's queue. A repeat is stale."""
        number = message.task
        if number not in self._placed or self._attempt_of(number) != message.attempt:
            return
        self._settle(number)
        self._let_go(number)
        _, partition, position = self._placed[number]
        task = self._taken_back(number)
        self._dirty[partition] |= 1 << position
        self._yielded.discard(number)
        self._forget_prey(number)
        self._attempts[number] = message.attempt + 1
        wanted = self._still_wanted([task]) if self._jobs.cancelled else [task]
        for waiting in self._place(wanted):
            self._user_lines.push(waiting)
            self._hopeless.discard(self._user_of(waiting))
        self._enforce()

    def _forget_prey(self, task: TaskId) -> None:
        beneficiary = self._prey.pop(task, None)
        if beneficiary is not None:
            del self._claims[beneficiary][task]

    def check(self) -> None:
        """As for any GM; beside that, the ledger holds what is placed and has not been given up."""
        super().check()
        ours = self._placed.keys() - self._yielded
        assert ours <= self._held.keys(), "placed tasks that count for nobody"
        assert self._yielded <= self._placed.keys(), "tasks were given up that are not placed"
        assert self._prey.keys() == {one for claimed in self._claims.values() for one in claimed}, "prey of nobody"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: VectorGlobalMaster.on_cancel,
        Look: VectorGlobalMaster.on_look,
        Reweigh: on_reweigh,
        Ended: on_ended,
        StateUpdate: on_state_update,
        Refusal: on_refusal,
        Holdings: on_holdings,
        Denied: on_denied,
        Taken: on_taken,
        Yield: on_yield,
        Ousted: on_ousted,
        TimerFired: on_timer,
    }
    sends = ANSWERS | REFUSALS | SIGHTS | sent_to("lm", Request, Withdraw, Preempt, Answer, Ask)
