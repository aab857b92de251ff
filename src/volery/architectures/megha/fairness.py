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
    AttemptsLost,
    Holding,
    Holdings,
    Preempt,
    PreemptionDone,
    PreemptionRequest,
    PreemptionVote,
    Refusal,
    place_of,
)
from volery.architectures.megha.users import HeldTask, UserAccount, UserLines, Users
from volery.core.component import Sends, sent_to
from volery.core.events import Reweigh, TimerFired
from volery.core.model import Address, Amounts, Job, JobId, Task, TaskId, Time
from volery.core.resources import SLOT
from volery.policies.queues import Kind
from volery.roles.recovery.leases import RunningAttempt

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

    def followed(self, task: Task, active: RunningAttempt) -> None:
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

    takes: ClassVar[frozenset[type]] = frozenset(
        {Reweigh, Holdings, PreemptionDone, PreemptionRequest, AttemptsLost, TimerFired}
    )
    sends: ClassVar[Sends] = sent_to("lm", Preempt, PreemptionVote)

    def __init__(
        self, users: Users, spared_us: Time, view: CapacityView, *, printed: bool = False, in_turn: bool = False
    ) -> None:
        self._users = users
        self._printed = printed
        self._spared_us = spared_us
        self._view = view
        self._weights_number = 0
        self._is_refusal_uncertain = False
        self.account = UserAccount(users, view.packing)
        self._packing = view.packing
        self._user_of_job: dict[JobId, int] = {}
        view.queue = self.lines = UserLines(self._packing, self.user_of, None if in_turn else self.account.is_short)
        self._claims: dict[TaskId, dict[TaskId, HeldTask]] = {}
        self._beneficiary_of: dict[TaskId, TaskId] = {}
        self._released_tasks: set[TaskId] = set()
        self._unavailable_victims: set[TaskId] = set()
        self._users_without_victims: set[int] = set()
        self._vetoing_users: set[int] = set()
        self._whole_holdings: dict[Address, Holdings] = {}
        self._leaving_tasks: set[TaskId] = set()

    def join(self, gm: GlobalMaster) -> None:
        self._gm = gm
        self._layout = gm.layout
        self._placed = gm.placed
        self._last_preemption_request = dict.fromkeys(gm.lm_at, 0)
        self._last_holdings = dict.fromkeys(gm.lm_at, 0)

    def user_of(self, task: Task) -> int:
        return self._user_of_job[task.job]

    def users_of(self, tasks: Sequence[Task]) -> tuple[int, ...]:
        return tuple([self.user_of(task) for task in tasks])

    def took(self, claim: Task, partition: int, position: int) -> None:
        self.account.hold(claim.id, HeldTask(self.user_of(claim), partition, position, claim.request or SLOT))

    def _let_go(self, task: TaskId) -> HeldTask | None:
        held = self.account.let_go(task)
        if held is not None:
            self._users_without_victims.discard(held.user)
            self._unavailable_victims.discard(task)
        return held

    def promised(self, tasks: Sequence[Task], sign: int) -> None:
        for task in tasks:
            self._doubt(self.user_of(task), task.request or SLOT, sign)

    def _doubt(self, user: int, request: Amounts, sign: int) -> None:
        """Count a request whose outcome is unknown: it may be refused, and nobody can take anything from it."""
        if sign < 0 and self._is_refusal_uncertain:
            self._is_refusal_uncertain = False
            self._users_without_victims.clear()
        self.account.doubt(user, request, sign)

    def _can_lose(self, user: int, tasks: Iterable[HeldTask]) -> bool:
        """Find out whether the user keeps its share without these tasks of it, whatever may still be refused."""
        if self._printed or self.account.can_lose(user, tasks):
            return True
        self._is_refusal_uncertain = self._is_refusal_uncertain or self.account.is_doubtful(user)
        return False

    # Algorithm 2.

    def scheduled(self, tasks: Sequence[Task]) -> None:
        self._users_without_victims.difference_update([self.user_of(task) for task in tasks])

    def enforce(self) -> None:
        for user in self.lines.users():
            while user not in self._users_without_victims:
                if not self._maybe_preempt(user):
                    self._users_without_victims.add(user)

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
            if loser != user and loser not in self._vetoing_users:
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
            if task not in self._unavailable_victims and matches[held.partition][mask] >> held.position & 1:
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
            self._beneficiary_of[victim] = task.id
            if victim in self._placed:
                self._released_tasks.add(victim)
        self._claims[task.id] = claimed
        had = sum([self._packing[held.request] for held in claimed.values()])
        task = self._view.take_over(task, partition, position, had)
        request = task.request or SLOT
        self.account.hold(task.id, HeldTask(user, partition, position, request))
        self._doubt(user, request, 1)
        gm, recovery, lm = self._gm, self._gm.recovery, self._layout.lm_of[partition]
        loss, gain = self.account.change(loser, losing), self.account.change(user, gaining)
        epoch, attempt, taken = recovery.epochs[lm], gm.attempt_of(task.id), tuple(victims)
        number, weighed, term = gm.next_request(lm), self._weights_number, recovery.term
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
            del self._beneficiary_of[victim]
        return claimed

    def _forget_victim(self, task: TaskId) -> None:
        beneficiary = self._beneficiary_of.pop(task, None)
        if beneficiary is not None:
            del self._claims[beneficiary][task]

    # What the submitter and the Local Masters send.

    def submitted(self, job: Job) -> None:
        self._user_of_job[job.id] = self._users.number_of(job.user)

    def on_reweigh(self, message: Reweigh, source: Address, now: Time) -> None:
        """Users are due something else: what could not be had may be had now."""
        if message.number <= self._weights_number:
            return
        self._weights_number = message.number
        self.account.reweigh(dict(message.weights))
        self._unavailable_victims.clear()
        self._vetoing_users.clear()
        self._users_without_victims.clear()
        self.enforce()

    def ended(self, tasks: Sequence[TaskId]) -> dict[JobId, int]:
        given_up: dict[JobId, int] = {}
        for number in tasks:
            if number not in self._placed:
                continue
            withdrawn = number in self._claims
            for victim, held in self._settle(number).items():
                if victim not in self._released_tasks:
                    self.account.hold(victim, held)
            self._let_go(number)
            self._forget_victim(number)
            self._gm.attempts.pop(number, None)
            if withdrawn or number in self._released_tasks:
                self._released_tasks.discard(number)
                job = self._placed.pop(number)[0].job
                given_up[job] = given_up.get(job, 0) + 1
        return given_up

    def refused(self, message: Refusal, now: Time) -> None:
        """See `Fairness`; a refused preemption is tried again with other victims."""
        for task in message.tasks:
            claimed = self._settle(task)
            for victim, held in claimed.items():
                self._released_tasks.discard(victim)
                if victim not in self.account.held:
                    self.account.hold(victim, held)
            self._unavailable_victims.update(claimed.keys() & message.unavailable_victims)
            if message.is_vetoed and claimed:
                self._vetoing_users.add(next(iter(claimed.values())).user)
                self._gm.set_timer(SPARED, now + self._spared_us)
            self._let_go(task)
            self._forget_victim(task)
            self._released_tasks.discard(task)

    def on_holdings(self, message: Holdings, source: Address, now: Time) -> None:
        """Learn which tasks of others run where; a repeat is stale, and may be older than another leader's news."""
        if message.is_whole:
            self._whole_holdings[source] = message
            return
        if message.number <= self._last_holdings[source]:
            return
        self._last_holdings[source] = message.number
        recovery, lm = self._gm.recovery, self._gm.lm_at[source]
        for task in [one for one in message.ended_tasks if not recovery.paired or self._last_seen(one) in (lm, None)]:
            self._forget_victim(task)
            self._let_go(task)
        self._learn_started(message.started_tasks)

    def _last_seen(self, task: TaskId) -> int | None:
        """The cluster in which another's task runs, as far as is known."""
        held = (
            self._claims[self._beneficiary_of[task]][task]
            if task in self._beneficiary_of
            else self.account.held.get(task)
        )
        return None if held is None else self._layout.lm_of[held.partition]

    def _learn_started(self, started: Iterable[Holding]) -> None:
        """Others have these tasks here, and no longer where they were before, if components may crash."""
        for holding in started if self._gm.recovery.paired else ():
            if holding.task not in self._placed:
                self._forget_victim(holding.task)
                self._let_go(holding.task)
        for holding in started:
            if holding.task not in self.account.held and holding.task not in self._placed:
                request = holding.request or SLOT
                self._forget_victim(
                    holding.task
                )  # what was taken from it is over: it runs again, and may be taken again
                self.account.hold(holding.task, HeldTask(holding.user, holding.partition, holding.position, request))
            self._users_without_victims.clear()

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        self._vetoing_users.clear()
        self._users_without_victims.clear()
        self.enforce()

    def on_preemption_done(self, message: PreemptionDone, source: Address, now: Time) -> None:
        self._settle(message.task)
        self.enforce()

    def on_preemption_request(self, message: PreemptionRequest, source: Address, now: Time) -> None:
        """Give tasks of a user up, if it has its share without them; nobody but this GM knows."""
        if message.number <= self._last_preemption_request[source]:
            return
        self._last_preemption_request[source] = message.number
        self._view.arrived(self._gm.lm_at[source], message.last_request)
        known = [self.account.held[task] for task in message.tasks if task in self.account.held]
        knows_all = len(known) == len(message.tasks) and self._gm.recovery.knows_all()
        agreed = knows_all and self._can_lose(message.user, known)
        loss, before = None, self.account.has(message.user)
        if agreed:
            for task in message.tasks:
                self._released_tasks.add(task)
                self._let_go(task)
            loss = self.account.change(message.user, before)
        self._gm.send(source, PreemptionVote(message.number, agreed, loss))

    def on_preempted(self, message: AttemptsLost, source: Address, now: Time) -> None:
        """A task of ours was preempted: it is like a new one, at the tail of its user's queue. A repeat is stale."""
        gm = self._gm
        for active in message.attempts:
            number = active.task
            self._leaving_tasks.discard(number)
            gm.recovery.ousted(number, active.attempt)
            if number not in self._placed or gm.attempt_of(number) != active.attempt:
                continue
            gm.narrator.ousted(number)
            self._settle(number)
            self._let_go(number)
            task = self._view.oust(number)
            self._released_tasks.discard(number)
            self._forget_victim(number)
            gm.attempts[number] = active.attempt + 1
            for waiting in gm.place(gm.still_wanted([task])):
                self.lines.push(waiting)
                self._users_without_victims.discard(self.user_of(waiting))
            self.enforce()

    # Where components may crash.

    def pictured(self, source: Address) -> bool:
        return source in self._whole_holdings

    def adopt_picture(self, source: Address, lm: int) -> None:
        """Others have there what the picture shows, and nothing else."""
        picture, lm_of = self._whole_holdings[source], self._layout.lm_of
        for task in [task for task, held in self.account.held.items() if lm_of[held.partition] == lm]:
            if task not in self._placed:
                self._forget_victim(task)
                self._let_go(task)
        self._leaving_tasks.update(picture.leaving_tasks)
        self._learn_started(picture.started_tasks)

    def reported(self, source: Address) -> None:
        self._whole_holdings.pop(source, None)
        self.enforce()

    def begin_epoch(self, lm: int, tasks: Iterable[TaskId]) -> None:
        leader = self._gm.lms[lm]
        self._last_holdings[leader] = self._last_preemption_request[leader] = 0
        for task in tasks:
            if task in self._claims:
                self._settle(task)
            self._leaving_tasks.discard(task)
            if task in self._released_tasks:  # the task that wanted its place does not get it
                self._released_tasks.discard(task)
                placed, partition, position = self._placed[task]
                self.account.hold(task, HeldTask(self.user_of(placed), partition, position, placed.request or SLOT))

    def followed(self, task: Task, active: RunningAttempt) -> None:
        """The user has it, unless it was given up."""
        if task.id in self._leaving_tasks:
            self._let_go(task.id)
            self._released_tasks.add(task.id)
            return
        held = HeldTask(self.user_of(task), *place_of(active.unit), active.request or SLOT)
        if task.id not in self._released_tasks and self.account.held.get(task.id) != held:
            self._let_go(task.id)
            self.account.hold(task.id, held)

    def part_with(self, task: TaskId) -> None:
        self._let_go(task)
        self._forget_victim(task)
        self._released_tasks.discard(task)
        self._leaving_tasks.discard(task)

    def check(self) -> None:
        """The ledger holds what is placed and has not been given up."""
        ours = self._placed.keys() - self._released_tasks
        assert ours <= self.account.held.keys(), "placed tasks that count for nobody"
        assert self._released_tasks <= self._placed.keys(), "tasks were given up that are not placed"
        assert self._beneficiary_of.keys() == {one for claimed in self._claims.values() for one in claimed}, (
            "prey of nobody"
        )


Fairness = NoFairness | WeightedFairness
