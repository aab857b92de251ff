"""Shares of users, as a Global Master enforces them: algorithm 2 (arXiv 2103.08413, section IV-C).

A task that fits nowhere in the view may take the place of others' tasks as long as its user has no more than its share
with it. Victims are sought on the view, which is stale: the Local Master and the loser's GM may refuse.

Where components may crash, a GM gives tasks of its users up only while it knows all that they have: not before every
cluster has reported after a restart, nor while tasks are in doubt because another Local Master has begun to lead. A
preemption that was under way in that cluster has come to nothing then, for the gaining user and for the losing one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final

from volery.architectures.megha.capacity_view import CapacityView
from volery.architectures.megha.messages import (
    Answer,
    Holding,
    Holdings,
    Lost,
    Preempt,
    Refusal,
    Taken,
    Yield,
    place_of,
)
from volery.architectures.megha.users import HeldTask, UserAccount, UserLines, Users
from volery.core.component import Sends, sent_to
from volery.core.events import Reweigh, TimerFired
from volery.core.model import Address, Amounts, Job, JobId, Task, TaskId, Time
from volery.core.resources import SLOT
from volery.policies.queues import Kind
from volery.roles.recovery.leases import Active

if TYPE_CHECKING:
    from volery.architectures.megha.global_master import GlobalMaster

SEARCH_MAX: Final = 256
"""Tasks of a violator that are looked at for one request, the youngest first."""
KINDS_MAX: Final = 16
"""Kinds of waiting tasks of one user for which victims are sought."""
SPARED: Final = "spared"


class NoFairness:
    """No account of what users have: they are served as they come, and nobody preempts."""

    takes: ClassVar[frozenset[type]] = frozenset()
    sends: ClassVar[Sends] = frozenset()

    def join(self, gm: GlobalMaster) -> None: ...

    def submitted(self, job: Job) -> None:
        """Note whose job it is."""

    def scheduled(self, tasks: Sequence[Task]) -> None:
        """Note that tasks have come, so that there is something to claim."""

    def users_of(self, tasks: Sequence[Task]) -> tuple[int, ...]:
        """Users of tasks, for a request."""
        return ()

    def took(self, claim: Task, partition: int, position: int) -> None:
        """Count what a task was given in the view."""

    def promised(self, tasks: Sequence[Task], sign: int) -> None:
        """Count what was asked for and may be refused; a sign of -1: no longer."""

    def ended(self, tasks: Sequence[TaskId]) -> dict[JobId, int]:
        """Take ended tasks off; return how many have no place: they had been given up, or never begun; per job."""
        return {}

    def refused(self, message: Refusal, now: Time) -> None:
        """Take refused tasks off: nobody can take anything from them, and nothing was preempted for them."""

    def enforce(self) -> None:
        """Preempt for users that wait and have less than their share."""

    # Where components may crash.

    def pictured(self, source: Address) -> bool:
        """Find out whether the picture that belongs to a whole report has come."""
        return True

    def adopt_picture(self, source: Address, lm: int) -> None: ...
    def reported(self, source: Address) -> None:
        """Go on after a report."""
        self.enforce()

    def begin_epoch(self, lm: int, tasks: Iterable[TaskId]) -> None:
        """Give up preemptions that were under way in a cluster, where these tasks run."""

    def followed(self, task: Task, active: Active) -> None:
        """Count a task where an attempt of it runs."""

    def part_with(self, task: TaskId) -> None:
        """Take off a task that is neither there nor asked for."""

    def check(self) -> None:
        """Raise AssertionError where the account and the view differ."""


class WeightedFairness:
    """Accounts of users by weight, and preemption under contention.

    Args:
        spared_us: a user whose GM has refused to give up a task is not asked again for so long.
        printed: algorithm 2 as printed: who has no more than its share *without* the task may claim any task of who has
            more, though that may leave it less.
        in_turn: users take turns alone; else those with less than their share come first.

    Attributes:
        account: of what all users have, in this GM's view.
        lines: the queues of users.
    """

    takes: ClassVar[frozenset[type]] = frozenset({Reweigh, Holdings, Taken, Yield, Lost, TimerFired})
    sends: ClassVar[Sends] = sent_to("lm", Preempt, Answer)

    def __init__(
        self, users: Users, spared_us: Time, view: CapacityView, *, printed: bool = False, in_turn: bool = False
    ) -> None:
        self._users = users
        self._printed = printed
        self._spared_us = spared_us
        self._view = view
        self._weighed = 0
        self._kept_by_doubt = False
        self.account = UserAccount(users, view.packing)
        self._packing = view.packing
        self._user_of_job: dict[JobId, int] = {}
        view.queue = self.lines = UserLines(self._packing, self.user_of, None if in_turn else self.account.is_short)
        self._claims: dict[TaskId, dict[TaskId, HeldTask]] = {}
        self._prey: dict[TaskId, TaskId] = {}
        self._yielded: set[TaskId] = set()
        self._untouchable: set[TaskId] = set()
        self._hopeless: set[int] = set()
        self._spared: set[int] = set()
        self._pictures: dict[Address, Holdings] = {}
        self._leaving: set[TaskId] = set()

    def join(self, gm: GlobalMaster) -> None:
        self._gm = gm
        self._layout = gm.layout
        self._placed = gm.placed
        self._yields = dict.fromkeys(gm.lm_at, 0)
        self._told = dict.fromkeys(gm.lm_at, 0)

    def user_of(self, task: Task) -> int:
        return self._user_of_job[task.job]

    def users_of(self, tasks: Sequence[Task]) -> tuple[int, ...]:
        return tuple([self.user_of(task) for task in tasks])

    def took(self, claim: Task, partition: int, position: int) -> None:
        self.account.hold(claim.id, HeldTask(self.user_of(claim), partition, position, claim.request or SLOT))

    def _let_go(self, task: TaskId) -> HeldTask | None:
        held = self.account.let_go(task)
        if held is not None:
            self._hopeless.discard(held.user)
            self._untouchable.discard(task)
        return held

    def promised(self, tasks: Sequence[Task], sign: int) -> None:
        for task in tasks:
            self._doubt(self.user_of(task), task.request or SLOT, sign)

    def _doubt(self, user: int, request: Amounts, sign: int) -> None:
        """Count a request whose outcome is unknown: it may be refused, and nobody can take anything from it."""
        if sign < 0 and self._kept_by_doubt:
            self._kept_by_doubt = False
            self._hopeless.clear()
        self.account.doubt(user, request, sign)

    def _can_lose(self, user: int, tasks: Iterable[HeldTask]) -> bool:
        """Find out whether the user keeps its share without these tasks of it, whatever may still be refused."""
        if self._printed or self.account.can_lose(user, tasks):
            return True
        self._kept_by_doubt = self._kept_by_doubt or self.account.is_doubtful(user)
        return False

    # Algorithm 2.

    def scheduled(self, tasks: Sequence[Task]) -> None:
        self._hopeless.difference_update([self.user_of(task) for task in tasks])

    def enforce(self) -> None:
        for user in self.lines.users():
            while user not in self._hopeless:
                if not self._maybe_preempt(user):
                    self._hopeless.add(user)

    def _maybe_preempt(self, user: int) -> bool:
        if user == self._users.others:
            return False
        for kind in islice(self.lines.kinds_of(user), KINDS_MAX):
            request = kind[1] or SLOT
            if self.account.may_claim(user, (0,) * len(request) if self._printed else request):
                found = next(self._preemptible(user, kind), None)
                if found is not None:
                    self._preempt(self.lines.pop_kind(user, kind), *found)
                    return True
        return False

    def _preemptible(self, user: int, kind: Kind) -> Iterator[tuple[int, list[TaskId]]]:
        """Users from the largest violation down, each with tasks whose end makes room for a task of this kind."""
        for loser in self.account.violators():
            if loser != user and loser not in self._spared:
                victims = self._victims(loser, kind)
                if victims:
                    yield loser, victims

    def _victims(self, loser: int, kind: Kind) -> list[TaskId]:
        """The youngest task that makes enough room where it runs; else the youngest ones of one machine that do."""
        mask, need, packing, guards = kind[0], self._packing[kind[1]], self._packing, self._packing.guards
        matches, running, index = self._layout.matches, self.account.running[loser], self._view.index
        machines: dict[tuple[int, int], list[TaskId]] = {}
        losable: dict[Amounts, bool] = {}
        for task in islice(reversed(running), SEARCH_MAX):
            held = running[task]
            if task not in self._untouchable and matches[held.partition][mask] >> held.position & 1:
                free = index[held.partition].free[held.position]
                left = packing.settled(free + packing[held.request]) - need
                if held.request not in losable:
                    losable[held.request] = self._can_lose(loser, (held,))
                if not losable[held.request]:
                    continue
                if left & guards == guards:
                    return [task]
                machines.setdefault((held.partition, held.position), []).append(task)
        for (partition, position), tasks in machines.items():
            free, given = index[partition].free[position], list[int]()
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
        place = self.account.held[victims[0]]
        partition, position, user = place.partition, place.position, self.user_of(task)
        losing, gaining = self.account.has(loser), self.account.has(user)
        claimed: dict[TaskId, HeldTask] = {}
        for victim in victims:
            claimed[victim] = self.account.held[victim]
            self._let_go(victim)
            self._prey[victim] = task.id
            if victim in self._placed:
                self._yielded.add(victim)
        self._claims[task.id] = claimed
        had = sum([self._packing[held.request] for held in claimed.values()])
        task = self._view.take_over(task, partition, position, had)
        request = task.request or SLOT
        self.account.hold(task.id, HeldTask(user, partition, position, request))
        self._doubt(user, request, 1)
        gm, recovery, lm = self._gm, self._gm.recovery, self._layout.lm_of[partition]
        loss, gain = self.account.change(loser, losing), self.account.change(user, gaining)
        epoch, attempt, taken = recovery.epochs[lm], gm.attempt_of(task.id), tuple(victims)
        number, weighed, term = gm.next_request(lm), self._weighed, recovery.term
        asked = Preempt(
            number, partition, position, task, user, attempt, loser, taken, weighed, gain, loss, epoch, term
        )
        for address in recovery.requested(lm, (task,)):
            gm.send(address, asked)
        gm.narrator.claimed(task)

    def _settle(self, task: TaskId) -> dict[TaskId, HeldTask]:
        """A preemption has come to an end; returns the victims of which nothing was heard."""
        claimed = self._claims.pop(task, None)
        if claimed is None:
            return {}
        placed = self._placed[task][0]
        self._doubt(self.user_of(placed), placed.request or SLOT, -1)
        for victim in claimed:
            del self._prey[victim]
        return claimed

    def _forget_prey(self, task: TaskId) -> None:
        beneficiary = self._prey.pop(task, None)
        if beneficiary is not None:
            del self._claims[beneficiary][task]

    # What the submitter and the Local Masters send.

    def submitted(self, job: Job) -> None:
        self._user_of_job[job.id] = self._users.number_of(job.user)

    def on_reweigh(self, message: Reweigh, source: Address, now: Time) -> None:
        """Users are due something else: what could not be had may be had now."""
        if message.number <= self._weighed:
            return
        self._weighed = message.number
        self.account.reweigh(dict(message.weights))
        self._untouchable.clear()
        self._spared.clear()
        self._hopeless.clear()
        self.enforce()

    def ended(self, tasks: Sequence[TaskId]) -> dict[JobId, int]:
        given_up: dict[JobId, int] = {}
        for number in tasks:
            if number not in self._placed:
                continue
            withdrawn = number in self._claims
            for victim, held in self._settle(number).items():
                if victim not in self._yielded:
                    self.account.hold(victim, held)
            self._let_go(number)
            self._forget_prey(number)
            self._gm.attempts.pop(number, None)
            if withdrawn or number in self._yielded:
                self._yielded.discard(number)
                job = self._placed.pop(number)[0].job
                given_up[job] = given_up.get(job, 0) + 1
        return given_up

    def refused(self, message: Refusal, now: Time) -> None:
        """See `Fairness`; a refused preemption is tried again with other victims."""
        for task in message.tasks:
            claimed = self._settle(task)
            for victim, held in claimed.items():
                self._yielded.discard(victim)
                if victim not in self.account.held:
                    self.account.hold(victim, held)
            self._untouchable.update(claimed.keys() & message.gone)
            if message.kept and claimed:
                self._spared.add(next(iter(claimed.values())).user)
                self._gm.set_timer(SPARED, now + self._spared_us)
            self._let_go(task)
            self._forget_prey(task)
            self._yielded.discard(task)

    def on_holdings(self, message: Holdings, source: Address, now: Time) -> None:
        """Learn which tasks of others run where; a repeat is stale, and may be older than another leader's news."""
        if message.whole:
            self._pictures[source] = message
            return
        if message.number <= self._told[source]:
            return
        self._told[source] = message.number
        recovery, lm = self._gm.recovery, self._gm.lm_at[source]
        for task in [one for one in message.ended if not recovery.paired or self._last_seen(one) in (lm, None)]:
            self._forget_prey(task)
            self._let_go(task)
        self._learn_started(message.started)

    def _last_seen(self, task: TaskId) -> int | None:
        """The cluster in which another's task runs, as far as is known."""
        held = self._claims[self._prey[task]][task] if task in self._prey else self.account.held.get(task)
        return None if held is None else self._layout.lm_of[held.partition]

    def _learn_started(self, started: Iterable[Holding]) -> None:
        """Others have these tasks here, and no longer where they were before, if components may crash."""
        for holding in started if self._gm.recovery.paired else ():
            if holding.task not in self._placed:
                self._forget_prey(holding.task)
                self._let_go(holding.task)
        for holding in started:
            if holding.task not in self.account.held and holding.task not in self._placed:
                request = holding.request or SLOT
                self._forget_prey(holding.task)  # what was taken from it is over: it runs again, and may be taken again
                self.account.hold(holding.task, HeldTask(holding.user, holding.partition, holding.position, request))
            self._hopeless.clear()

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        self._spared.clear()
        self._hopeless.clear()
        self.enforce()

    def on_taken(self, message: Taken, source: Address, now: Time) -> None:
        self._settle(message.task)
        self.enforce()

    def on_yield(self, message: Yield, source: Address, now: Time) -> None:
        """Give tasks of a user up, if it has its share without them; nobody but this GM knows."""
        if message.number <= self._yields[source]:
            return
        self._yields[source] = message.number
        self._view.arrived(self._gm.lm_at[source], message.heard)
        known = [self.account.held[task] for task in message.tasks if task in self.account.held]
        knows_all = len(known) == len(message.tasks) and self._gm.recovery.knows_all()
        agreed = knows_all and self._can_lose(message.user, known)
        loss, before = None, self.account.has(message.user)
        if agreed:
            for task in message.tasks:
                self._yielded.add(task)
                self._let_go(task)
            loss = self.account.change(message.user, before)
        self._gm.send(source, Answer(message.number, agreed, loss))

    def on_lost(self, message: Lost, source: Address, now: Time) -> None:
        """A task of ours was preempted: it is like a new one, at the tail of its user's queue. A repeat is stale."""
        gm = self._gm
        for active in message.attempts:
            number = active.task
            self._leaving.discard(number)
            gm.recovery.ousted(number, active.attempt)
            if number not in self._placed or gm.attempt_of(number) != active.attempt:
                continue
            gm.narrator.ousted(number)
            self._settle(number)
            self._let_go(number)
            task = self._view.oust(number)
            self._yielded.discard(number)
            self._forget_prey(number)
            gm.attempts[number] = active.attempt + 1
            for waiting in gm.place(gm.still_wanted([task])):
                self.lines.push(waiting)
                self._hopeless.discard(self.user_of(waiting))
            self.enforce()

    # Where components may crash.

    def pictured(self, source: Address) -> bool:
        return source in self._pictures

    def adopt_picture(self, source: Address, lm: int) -> None:
        """Others have there what the picture shows, and nothing else."""
        picture, lm_of = self._pictures[source], self._layout.lm_of
        for task in [task for task, held in self.account.held.items() if lm_of[held.partition] == lm]:
            if task not in self._placed:
                self._forget_prey(task)
                self._let_go(task)
        self._leaving.update(picture.leaving)
        self._learn_started(picture.started)

    def reported(self, source: Address) -> None:
        self._pictures.pop(source, None)
        self.enforce()

    def begin_epoch(self, lm: int, tasks: Iterable[TaskId]) -> None:
        leader = self._gm.lms[lm]
        self._told[leader] = self._yields[leader] = 0
        for task in tasks:
            if task in self._claims:
                self._settle(task)
            self._leaving.discard(task)
            if task in self._yielded:  # the task that wanted its place does not get it
                self._yielded.discard(task)
                placed, partition, position = self._placed[task]
                self.account.hold(task, HeldTask(self.user_of(placed), partition, position, placed.request or SLOT))

    def followed(self, task: Task, active: Active) -> None:
        """The user has it, unless it was given up."""
        if task.id in self._leaving:
            self._let_go(task.id)
            self._yielded.add(task.id)
            return
        held = HeldTask(self.user_of(task), *place_of(active.unit), active.request or SLOT)
        if task.id not in self._yielded and self.account.held.get(task.id) != held:
            self._let_go(task.id)
            self.account.hold(task.id, held)

    def part_with(self, task: TaskId) -> None:
        self._let_go(task)
        self._forget_prey(task)
        self._yielded.discard(task)
        self._leaving.discard(task)

    def check(self) -> None:
        """The ledger holds what is placed and has not been given up."""
        ours = self._placed.keys() - self._yielded
        assert ours <= self.account.held.keys(), "placed tasks that count for nobody"
        assert self._yielded <= self._placed.keys(), "tasks were given up that are not placed"
        assert self._prey.keys() == {one for claimed in self._claims.values() for one in claimed}, "prey of nobody"


Fairness = NoFairness | WeightedFairness
