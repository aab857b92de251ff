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
from typing import ClassVar, Final

from volery.architectures.megha.amounts.view import CapacityView
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.hosts import FairnessHost
from volery.architectures.megha.messages import Refusal, place_of
from volery.architectures.megha.partitions import Layout
from volery.architectures.megha.shares.messages import (
    AttemptsLost,
    Holding,
    Holdings,
    Preempt,
    PreemptionDone,
    PreemptionRequest,
    PreemptionVote,
)
from volery.architectures.megha.shares.users import HeldTask, UserAccount, UserLines, Users
from volery.architectures.megha.view import Place
from volery.core.component import Attached, Sends, sent_to
from volery.core.events import Event, Reweigh, TimerFired
from volery.core.model import SECOND, Address, Amounts, Job, JobId, Task, TaskId, Time
from volery.core.resources import SLOT, Packing
from volery.policies.queues import Kind
from volery.roles.recovery.leases import RunningAttempt

SEARCH_MAX: Final = 256
"""Tasks of a violator that are looked at for one request, the youngest first."""
KINDS_MAX: Final = 16
"""Kinds of waiting tasks of one user for which victims are sought."""
SPARED: Final = "spared"


class WeightedFairness(Attached):
    """Accounts of users by weight, and preemption under contention.

    Args:
        host: The Global Master.
        layout: The whole cluster, by machine.
        packing: Packing of amounts into one number.

    Attributes:
        account: Account of what all users have, in this GM's view.
        lines: Queues of users.
        view: View that victims are sought on; set once it exists, because it counts with this account.
    """

    takes: ClassVar[frozenset[type]] = frozenset(
        {Reweigh, Holdings, PreemptionDone, PreemptionRequest, AttemptsLost, TimerFired}
    )
    sends: ClassVar[Sends] = sent_to("lm", Preempt, PreemptionVote)

    view: CapacityView

    def __init__(
        self,
        host: FairnessHost,
        users: Users,
        layout: Layout,
        packing: Packing,
        config: MeghaConfig,
    ) -> None:
        self._host = host
        self._users = users
        self._layout = layout
        self._spared_us = round(config.heartbeat_s * SECOND)

        # As algorithm 2 is printed, a user with no more than its share *without* the task may claim any task of one
        # that has more, though that may leave it less.
        self._printed = config.preemption == "paper"
        # What others have may move from one cluster to another when a leader is lost.
        self._can_crash = config.reliable
        self._weights_number = 0
        self._is_refusal_uncertain = False
        self.account = UserAccount(users, packing)
        self._packing = packing
        self._user_of_job: dict[JobId, int] = {}
        self._is_first = None if config.turns == "round-robin" else self.account.is_short
        self.lines = self.new_lines()

        # Preemptions under way by the task that gains: victims of which nothing was heard, and what they had.
        self._claims: dict[TaskId, dict[TaskId, HeldTask]] = {}
        self._beneficiary_of: dict[TaskId, TaskId] = {}
        # Tasks of this GM that it has given up and that have not ended; and those of an earlier incarnation.
        self._released_tasks: set[TaskId] = set()
        self._leaving_tasks: set[TaskId] = set()

        # What is not sought, or asked for, again before something changes.
        self._unavailable_victims: set[TaskId] = set()
        self._users_without_victims: set[int] = set()
        self._vetoing_users: set[int] = set()

        # News of Local Masters: holdings that wait for their whole report, and numbers by which a repeat is known.
        self._whole_holdings: dict[Address, Holdings] = {}
        self._last_preemption_request: dict[Address, int] = {}
        self._last_holdings: dict[Address, int] = {}

    def new_lines(self) -> UserLines:
        """Return empty queues of the users, in the order of their turns."""
        return UserLines(self._packing, self.user_of, self._is_first)

    @property
    def _placed(self) -> dict[TaskId, Place]:
        return self.view.placed

    def user_of(self, task: Task) -> int:
        return self._user_of_job[task.job]

    def users_of(self, tasks: Sequence[Task]) -> tuple[int, ...]:
        """Return the users of tasks, for a request."""
        return tuple([self.user_of(task) for task in tasks])

    def took(self, task: Task, partition: int, position: int) -> None:
        """Count what a task was given in the view."""
        self.account.hold(task.id, HeldTask(self.user_of(task), partition, position, task.request or SLOT))

    def _release(self, task: TaskId) -> HeldTask | None:
        holding = self.account.let_go(task)
        if holding is not None:
            self._users_without_victims.discard(holding.user)
            self._unavailable_victims.discard(task)
        return holding

    def promised(self, tasks: Sequence[Task], sign: int) -> None:
        """Count requests whose outcome is unknown: they may be refused, and nobody can take anything from them."""
        for task in tasks:
            if sign < 0 and self._is_refusal_uncertain:
                self._is_refusal_uncertain = False
                self._users_without_victims.clear()
            self.account.doubt(self.user_of(task), task.request or SLOT, sign)

    def _can_lose(self, user: int, tasks: Iterable[HeldTask]) -> bool:
        """Find out whether the user keeps its share without these tasks of it, whatever may still be refused."""
        if self._printed or self.account.can_lose(user, tasks):
            return True
        self._is_refusal_uncertain = self._is_refusal_uncertain or self.account.is_doubtful(user)
        return False

    # Algorithm 2.

    def scheduled(self, tasks: Sequence[Task]) -> None:
        """Note that tasks have come, so that there is something to claim."""
        self._users_without_victims.difference_update([self.user_of(task) for task in tasks])

    def enforce(self) -> None:
        """Preempt for users that wait and have less than their share."""
        for user in self.lines.users():
            while user not in self._users_without_victims and self._host.may_preempt():
                if not self._maybe_preempt(user):
                    self._users_without_victims.add(user)

    def has_claims(self) -> bool:
        """Find out whether the outcome of a preemption has still to come."""
        return bool(self._claims)

    def _maybe_preempt(self, user: int) -> bool:
        # Those whom the tree does not name are due nothing, so they claim nothing.
        if user == self._users.others:
            return False
        for kind in islice(self.lines.kinds_of(user), KINDS_MAX):
            request = kind[1] or SLOT
            if self.account.may_claim(user, (0,) * len(request) if self._printed else request):
                victim_choice = next(self._preemptible(user, kind), None)
                if victim_choice is not None:
                    self._preempt(self.lines.pop_kind(user, kind), *victim_choice)
                    return True
        return False

    def _preemptible(self, user: int, kind: Kind) -> Iterator[tuple[int, list[TaskId]]]:
        """Users from the largest violation down, each with tasks whose end makes room for a task of this kind."""
        for loser in self.account.violators():
            # Section IV-C: victims are sought from the largest violation down.
            if loser != user and loser not in self._vetoing_users:
                victims = self._victims(loser, kind)
                if victims:
                    yield loser, victims

    def _victims(self, loser: int, kind: Kind) -> list[TaskId]:
        """The youngest task that makes enough room where it runs; else the youngest ones of one machine that do."""
        mask, need, packing, guards = kind[0], self._packing[kind[1]], self._packing, self._packing.guards
        matches, running, index = self._layout.matches, self.account.running[loser], self.view.index
        machines: dict[tuple[int, int], list[TaskId]] = {}
        losable: dict[Amounts, bool] = {}
        for task in islice(reversed(running), SEARCH_MAX):
            holding = running[task]
            if task not in self._unavailable_victims and matches[holding.partition][mask] >> holding.position & 1:
                free = index[holding.partition].free[holding.position]
                remainder = packing.settled(free + packing[holding.request]) - need
                if holding.request not in losable:
                    losable[holding.request] = self._can_lose(loser, (holding,))
                if not losable[holding.request]:
                    continue
                if remainder & guards == guards:
                    return [task]
                machines.setdefault((holding.partition, holding.position), []).append(task)
        for (partition, position), tasks in machines.items():
            free, returned = index[partition].free[position], list[int]()
            room = free
            for task in tasks:
                returned.append(packing[running[task].request])
                room = packing.settled(room + returned[-1])
                if (room - need) & guards == guards:
                    victims = [tasks[place] for place in packing.needed(free, need, returned)]
                    if self._can_lose(loser, [running[victim] for victim in victims]):
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
            self._release(victim)
            self._beneficiary_of[victim] = task.id
            if victim in self._placed:
                self._released_tasks.add(victim)
        self._claims[task.id] = claimed
        had = sum([self._packing[holding.request] for holding in claimed.values()])
        task = self.view.take_over(task, partition, position, had)
        self.took(task, partition, position)
        self.promised((task,), 1)
        gm, lm = self._host, self._layout.lm_of[partition]
        loss, gain = self.account.change(loser, losing), self.account.change(user, gaining)
        number, addresses, epoch, term = gm.address_request(lm, (task,))
        attempt, weighed = gm.attempt_of(task.id), self._weights_number
        preemption = Preempt(
            number, partition, position, task, user, attempt, loser, tuple(victims), weighed, gain, loss, epoch, term
        )
        for address in addresses:
            gm.send(address, preemption)
        gm.claimed(task)

    def _settle(self, task: TaskId) -> dict[TaskId, HeldTask]:
        """A preemption has come to an end; returns the victims of which nothing was heard."""
        claimed = self._claims.pop(task, None)
        if claimed is None:
            return {}
        self.promised((self._placed[task][0],), -1)
        for victim in claimed:
            del self._beneficiary_of[victim]
        return claimed

    def _forget_victim(self, task: TaskId) -> None:
        beneficiary = self._beneficiary_of.pop(task, None)
        if beneficiary is not None:
            del self._claims[beneficiary][task]

    # What the submitter and the Local Masters send.

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take an event of shares; that of a timer ends the time for which users are spared."""
        match event:
            case Reweigh():
                self.on_reweigh(event)
            case Holdings():
                self.on_holdings(event, source)
            case PreemptionDone():
                self._settle(event.task)
                self.enforce()
            case PreemptionRequest():
                self.on_preemption_request(event, source)
            case AttemptsLost():
                self.on_preempted(event)
            case _:
                self._vetoing_users.clear()
                self._users_without_victims.clear()
                self.enforce()

    def submitted(self, job: Job) -> None:
        """Note whose job it is."""
        self._user_of_job[job.id] = self._users.number_of(job.user)

    def on_reweigh(self, message: Reweigh) -> None:
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
        """Take ended tasks off; return how many have no place: they had been given up, or never begun; per job."""
        given_up: dict[JobId, int] = {}
        for number in tasks:
            # A repeat, or the end of a task that another cluster has reported.
            if number not in self._placed:
                continue
            withdrawn = number in self._claims
            for victim, holding in self._settle(number).items():
                if victim not in self._released_tasks:
                    self.account.hold(victim, holding)
            self._release(number)
            self._forget_victim(number)
            self._host.attempts.pop(number, None)
            if withdrawn or number in self._released_tasks:
                self._released_tasks.discard(number)
                job = self._placed.pop(number)[0].job
                given_up[job] = given_up.get(job, 0) + 1
        return given_up

    def refused(self, message: Refusal, now: Time) -> None:
        """Take refused tasks off; a refused preemption is tried again with other victims."""
        for task in message.tasks:
            claimed = self._settle(task)
            for victim, holding in claimed.items():
                self._released_tasks.discard(victim)
                if victim not in self.account.held:
                    self.account.hold(victim, holding)
            self._unavailable_victims.update(claimed.keys() & message.unavailable_victims)
            if message.is_vetoed and claimed:
                self._vetoing_users.add(next(iter(claimed.values())).user)
                self._host.set_timer(SPARED, now + self._spared_us)
            self._release(task)
            self._forget_victim(task)
            self._released_tasks.discard(task)

    def on_holdings(self, message: Holdings, source: Address) -> None:
        """Learn which tasks of others run where; a repeat is ignored: another leader's news may be newer."""
        if message.is_whole:
            # It belongs to the report that follows, and counts with it.
            self._whole_holdings[source] = message
            return
        if message.number <= self._last_holdings.get(source, 0):
            return  # a repeat
        self._last_holdings[source] = message.number
        lm = self._host.lm_at[source]
        for task in [
            ended for ended in message.ended_tasks if not self._can_crash or self._last_seen(ended) in (lm, None)
        ]:
            self._forget_victim(task)
            self._release(task)
        self._learn_started(message.started_tasks)

    def _last_seen(self, task: TaskId) -> int | None:
        """The cluster in which another's task runs, as far as is known."""
        holding = (
            self._claims[self._beneficiary_of[task]][task]
            if task in self._beneficiary_of
            else self.account.held.get(task)
        )
        return None if holding is None else self._layout.lm_of[holding.partition]

    def _learn_started(self, started: Iterable[Holding]) -> None:
        """Others have these tasks here, and no longer where they were before, if components may crash."""
        for holding in started if self._can_crash else ():
            if holding.task not in self._placed:
                self._forget_victim(holding.task)
                self._release(holding.task)
        for holding in started:
            if holding.task not in self.account.held and holding.task not in self._placed:
                request = holding.request or SLOT
                # What was taken from it is over: it runs again, and may be taken again.
                self._forget_victim(holding.task)
                self.account.hold(holding.task, HeldTask(holding.user, holding.partition, holding.position, request))
            self._users_without_victims.clear()

    def on_preemption_request(self, message: PreemptionRequest, source: Address) -> None:
        """Give tasks of a user up, if it has its share without them; nobody but this GM knows."""
        if message.number <= self._last_preemption_request.get(source, 0):
            return
        self._last_preemption_request[source] = message.number
        self.view.arrived(self._host.lm_at[source], message.last_request)
        # Of a job that was moved here and is not placed yet, tasks are held as another's.
        own_holdings = [
            self.account.held[task] for task in message.tasks if task in self._placed and task in self.account.held
        ]
        knows_all = len(own_holdings) == len(message.tasks) and self._host.knows_all()

        # Nobody but this GM knows what its user has; and where it does not know all, it gives nothing up.
        agreed = knows_all and self._can_lose(message.user, own_holdings)
        loss, holdings_before = None, self.account.has(message.user)
        if agreed:
            for task in message.tasks:
                self._released_tasks.add(task)
                self._release(task)
            loss = self.account.change(message.user, holdings_before)
        self._host.send(source, PreemptionVote(message.number, agreed, loss))

    def on_preempted(self, message: AttemptsLost) -> None:
        """A task of ours was preempted: it is like a new one, at the tail of its user's queue. A repeat is ignored."""
        gm = self._host
        for active in message.attempts:
            number = active.task
            self._leaving_tasks.discard(number)
            if not gm.preempted(number, active.attempt):
                continue
            self._settle(number)
            self._release(number)
            task = self.view.oust(number)
            self._released_tasks.discard(number)
            self._forget_victim(number)
            gm.attempts[number] = active.attempt + 1
            for waiting in gm.place(gm.still_wanted([task])):
                self.lines.push(waiting)
                self._users_without_victims.discard(self.user_of(waiting))
            self.enforce()

    # Where components may crash.

    def has_whole_holdings(self, source: Address) -> bool:
        """Find out whether the holdings that belong to a whole report have come."""
        return source in self._whole_holdings

    def adopt_whole_holdings(self, source: Address, lm: int) -> None:
        """Others have there what the picture shows, and nothing else."""
        picture, lm_of = self._whole_holdings[source], self._layout.lm_of
        for task in [task for task, holding in self.account.held.items() if lm_of[holding.partition] == lm]:
            if task not in self._placed:
                self._forget_victim(task)
                self._release(task)
        self._leaving_tasks.update(picture.leaving_tasks)
        self._learn_started(picture.started_tasks)

    def reported(self, source: Address) -> None:
        """Go on after a report."""
        self._whole_holdings.pop(source, None)
        self.enforce()

    def start_epoch(self, lm: int, tasks: Iterable[TaskId]) -> None:
        """Give up preemptions that were under way in a cluster, where these tasks run."""
        leader = self._host.lms[lm]
        self._last_holdings[leader] = self._last_preemption_request[leader] = 0
        for task in tasks:
            if task in self._claims:
                self._settle(task)
            self._leaving_tasks.discard(task)
            if task in self._released_tasks:  # the task that wanted its place does not get it
                self._released_tasks.discard(task)
                self.took(*self._placed[task])

    def followed(self, task: Task, active: RunningAttempt) -> None:
        """The user has it, unless it was given up, or claimed for a task of another user."""
        # Of a job that was moved here, it may have been claimed while it was another's.
        if task.id in self._leaving_tasks or task.id in self._beneficiary_of:
            self._release(task.id)
            self._released_tasks.add(task.id)
            return
        holding = HeldTask(self.user_of(task), *place_of(active.unit), active.request or SLOT)
        if task.id not in self._released_tasks and self.account.held.get(task.id) != holding:
            self._release(task.id)
            self.account.hold(task.id, holding)

    def forget_task(self, task: TaskId) -> None:
        """Take off a task that is neither there nor asked for."""
        self._release(task)
        self._forget_victim(task)
        self._released_tasks.discard(task)
        self._leaving_tasks.discard(task)

    def check(self) -> None:
        """The ledger holds what is placed and has not been given up."""
        ours = self._placed.keys() - self._released_tasks
        assert ours <= self.account.held.keys(), "placed tasks that count for nobody"
        assert self._released_tasks <= self._placed.keys(), "tasks were given up that are not placed"
        assert self._beneficiary_of.keys() == {task for claimed in self._claims.values() for task in claimed}, (
            "prey of nobody"
        )
