"""Queries of the job service: jobs, tasks, users, nodes, plans and reasons, each answered from its parts.

Pages see a federation through `FederationView`: as it is now, by the queries of the job service, or as it was at some
moment of a recording, by `volery.playback`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Final, Protocol

from msgspec.structs import replace

from volery.core.events import Look, Seen
from volery.core.model import Address, Amounts, JobId, Time
from volery.live.clock import in_slices, unix_now_us
from volery.live.config.constraints import Fleet
from volery.live.jobs import JobDescription, TaskDemand, demand_at, demands, place_of, task_count
from volery.live.messages import Send
from volery.live.service.checksums import RowDamageError
from volery.live.service.descriptions import PartialDescription
from volery.live.service.events import EventFeed
from volery.live.service.ledgers import ArchivedJob
from volery.live.service.reports import History, ReportMemory, Sample, candidates, counted
from volery.live.service.rows import READ, JobOrder, JobQuery, UserLoad
from volery.live.service.store import JobStore
from volery.live.service.user_shares import UserShares
from volery.live.status import (
    FunnelStep,
    HostStatus,
    JobPlan,
    JobStatus,
    NodeStatus,
    PairStatus,
    PlannedGroup,
    PreemptionStatus,
    ShareStatus,
    TaskStatus,
    UserStatus,
    WeightChange,
    Why,
)

NODES_NAMED: Final = 8
GROUPS_MAX: Final = 1_000
"""Kinds of tasks of a job that are planned; of a job with more kinds these are the first."""
LOOK_MAX: Final = 1_000
"""Tasks that are searched for one that waits."""


class JobQueries:
    """Answers about a federation as it is now.

    Args:
        capacity: asks schedulers for their views; None: they do not answer.

    Attributes:
        feed: hands changes to those who follow them.
        table: all nodes.
        reports_by_state: Count of reports of attempts by state.
        pace: ended attempts over time.
        takes_orders: jobs can be cancelled here, unlike in a recording.
        drains: nodes can be drained here.
    """

    takes_orders = True

    def __init__(
        self,
        store: JobStore,
        fleet: Fleet,
        memory: ReportMemory,
        sharing: UserShares,
        feed: EventFeed,
        capacity: CapacityQueries | None = None,
    ) -> None:
        self.sharing, self.feed = sharing, feed
        self.history = History()
        # Queries that one part answers by itself.
        self.job, self.jobs, self.search, self.archived = store.job, store.jobs, store.search, store.retired.of
        self.definition = store.descriptions.whole
        self.tasks, self.result, self.loads, self.allocations_us = (
            store.tasks,
            store.result,
            store.loads,
            store.allocations_us,
        )
        self.table = table = memory.nodes
        self.nodes, self.lost, self.absent = table.statuses, table.lost, table.absent
        self.all_hosts, self.partitions, self.views = table.hosts, table.partitions, memory.decisions.pairs
        self.reports_by_state, self.pace = memory.counts.by_state, memory.counts.pace
        self.drains = table.can_drain

        self._store = store
        self._fleet = fleet
        self._decisions = memory.decisions
        self._capacity = capacity
        self._owners: dict[Address, tuple[Address, ...]] | None = None

    async def owners(self) -> dict[Address, tuple[Address, ...]]:
        """The components in charge of each node: they never change, and take seconds with ten thousand nodes."""
        if self._owners is None:
            self._owners = await asyncio.to_thread(self.partitions)
        return self._owners

    @property
    def revision(self) -> int:
        """The revision of the last change."""
        return self._store.revision

    def users(self, user: str | None) -> list[UserStatus]:
        loads = {load.user: load for load in self._store.loads(user)}
        due, weights = self.sharing.due(), self.sharing.weights()
        names = sorted({*loads, *due} if user is None else {user})

        statuses = []

        for name in names:
            share = due.get(name)
            counts = loads[name]._asdict() if name in loads else {"user": name}
            statuses.append(
                UserStatus(**counts, share=None if share is None else float(share), weight=weights.get(name))
            )

        return statuses

    def runs_on(self, node: Address, limit: int) -> list[TaskStatus]:
        running_tasks = self.table.running_on(node, limit)
        statuses = list[TaskStatus]()
        for job, place in self._store.places(running_tasks):
            with suppress(RowDamageError):  # its job is listed as damaged
                statuses += self._store.tasks(job, place, 1)
        return statuses

    def elapsed_us(self, task: TaskStatus) -> Time:
        first = self._store.first_task(task.job)
        elapsed_us = None if first is None else self.table.elapsed_us(first + task.index)
        # No start was reported since the API began: the clock of the store is all there is.
        return max(0, self.now_us - (task.started_us or self.now_us)) if elapsed_us is None else elapsed_us

    async def explain(self, number: JobId, place: int | None) -> Why | None:
        """As `why`; of a task that waits also what its scheduler sees just now."""
        reasons = await self.why(number, place)
        job = self.job(number)
        if reasons is None or job is None:
            return None

        steps = []
        if self._capacity is not None and reasons.state == "pending":
            scheduler = self._capacity.scheduler_of(number, job.user)
            demand = self._demand(await self._part(number, reasons.index), reasons.index)
            machines = await self._capacity.machines(scheduler, demand.mask, demand.request)
            if machines is not None:
                steps.append(FunnelStep(f"have room in the view of {scheduler}", machines))

        started_count = started_tasks(job) if place is None else int(reasons.state not in ("pending", "unsatisfiable"))
        steps.append(
            FunnelStep("were given to it" if place is not None else "were given to tasks of the job", started_count)
        )
        return replace(reasons, funnel=(*reasons.funnel, *steps))

    @property
    def now_us(self) -> Time:
        return unix_now_us()

    def samples(self) -> list[Sample]:
        return list(self.history.samples)

    def sample(self) -> None:
        """Add a sample of the federation to the history."""
        usable = [node for node in self.nodes() if node.state == "in use"]
        used = sum(node.running for node in usable)
        slots = sum(node.slots for node in usable)
        waiting = sum(load.tasks_pending for load in self._store.loads())
        self.history.note(self.now_us, used, slots, waiting, self.reports_by_state.get("failed", 0))

    async def description(self, number: JobId) -> JobDescription | None:
        part = await self._store.descriptions.part(number, 0)
        return None if part is None else part.description

    def mistaken(self, by: Address) -> dict[Address, tuple[int, int]]:  # noqa: ARG002 - only recordings know
        return {}

    async def all_tasks(self, number: JobId, first: int, limit: int) -> list[TaskStatus]:
        """As `tasks`, in pieces where they are many, so that other requests do not wait for the answer."""
        statuses = self.tasks(number, first, min(limit, READ))
        while len(statuses) < limit and (
            piece := self.tasks(number, first + len(statuses), min(READ, limit - len(statuses)))
        ):
            statuses += piece
            await asyncio.sleep(0)
        return statuses

    async def why(self, number: JobId, place: int | None) -> Why | None:
        """The reasons why a task is where it is; without a place: of the first that waits, or of the first."""
        job = self._store.job(number)
        first_task = self._store.first_task(number)
        if job is None or first_task is None or (place is not None and place >= job.tasks):
            return None

        if place is None:
            place = self._first_waiting(job)

        task = self._store.tasks(number, place, 1)[0]
        part = await self._part(number, place)
        funnel = counted(self._candidates(self._demand(part, place)))

        preemption_reason = block_reason = ""

        if task.state == "running":
            block_reason = await self._blocked_by_child(job, place)
        elif task.state == "pending":
            preemption_reason = self.sharing.why_again(number, place, task.attempt)
            block_reason = "" if funnel[-1].machines else await self._blocked_by_parent(job, part.description.parent)

        return Why(
            job=number,
            index=place,
            state=task.state,
            reason=preemption_reason or block_reason or task.reason or job.reason or self._unreported(job),
            waiting=0 if job.ended else job.tasks - _reported(job),
            funnel=funnel,
            decisions=self._decisions.steps(first_task + place, {at: node for node, at in self.table.machines.items()}),
            explained=self._decisions.has_decisions,
            absent=() if job.ended else self.absent(),
        )

    async def _blocked_by_parent(self, job: JobStatus, parent: str) -> str:
        """The reason why a job on a full fleet may wait for ever: the task that has submitted it holds a slot."""
        number, _, index = parent.partition("/")

        parent_job = self._store.job(int(number)) if index else None
        if parent_job is None or parent_job.ended or parent_job.user != job.user:
            return ""

        place = await self._place_of(parent_job.id, int(index))
        task = None if place is None else self._store.tasks(parent_job.id, place, 1)[0]
        if task is None or task.state != "running":
            return ""

        parent = f"{parent_job.id}/{place}"
        problem = f"no node has room, and task {parent}, which submitted this job, runs on {task.node}"
        return f"{problem}; if it waits for this job, neither ends without more slots, or a cancelled job"

    async def _blocked_by_child(self, job: JobStatus, place: int) -> str:
        """The reason why a task may wait for ever: a job that it has submitted finds no room while it runs."""
        for number in self._store.pending_after(job.id, job.user, CHILDREN_MAX):
            with suppress(RowDamageError):
                part = await self._part(number, 0)
                parent, _, index = part.description.parent.partition("/")
                if parent == str(job.id) and await self._place_of(job.id, int(index)) == place:
                    if counted(self._candidates(self._demand(part, 0)))[-1].machines:
                        return ""
                    problem = f"it runs, and job {number}, which it has submitted, finds no node with room"
                    return f"{problem}; if it waits for that job, neither ends without more slots, or a cancelled job"
        return ""

    async def _place_of(self, number: JobId, index: int) -> int | None:
        """The place of the task whose VOLERY_INDEX this is: tasks that submit jobs name themselves by it."""
        description = await self.definition(number)
        return None if description is None else place_of(description, index)

    def _unreported(self, job: JobStatus) -> str:
        """The reason why a job goes on although its scheduler has finished it; empty where it has not."""
        if job.ended or not self._store.is_answered(job.id):
            return ""
        missing = job.tasks - _reported(job) + job.running
        late_s = self.feed.reports_late_s
        return f"its scheduler has finished it, but {missing} ends are not reported; it fails after {late_s:g} s"

    async def _part(self, number: JobId, place: int) -> PartialDescription:
        part = await self._store.descriptions.part(number, place)
        assert part is not None, "there is such a job"
        return part

    def _demand(self, part: PartialDescription, place: int) -> TaskDemand:
        return demand_at(part.description, place - part.first, self._fleet)

    async def plan(self, description: JobDescription) -> JobPlan:
        """The prospects of a job if it were submitted now; others have turns meanwhile.

        Raises:
            InputError: constraints that the fleet gives no meaning to.
        """
        slots = self._fleet.cluster.slots
        node_on = {at: node for node, at in self.table.machines.items()}
        running, groups = self.table.taken(), []

        async for demand in in_slices(demands(description, self._fleet)):
            steps = self._candidates_of(demand, running)

            # Where machines have amounts, the API does not know what is free: schedulers do.
            machines = [] if demand.request else steps[-1][1]
            free_slots = sum(slots[machine] - running.get(machine, 0) for machine in machines)
            groups.append(
                PlannedGroup(
                    first=demand.first,
                    count=demand.tasks,
                    obstacle=demand.obstacle,
                    funnel=counted(steps),
                    at_once=None if demand.request else min(free_slots, demand.tasks),
                    nodes=tuple(node_on[machine] for machine in machines[:NODES_NAMED]),
                )
            )
            if len(groups) == GROUPS_MAX:
                break

        waiting = sum(load.tasks_pending for load in self._store.loads())
        return JobPlan(
            tasks=task_count(description),
            waiting=waiting,
            groups=tuple(groups),
            absent=self.absent(),
            lost=len(self.lost()),
        )

    def _candidates(self, demand: TaskDemand) -> list[tuple[str, list[int]]]:
        return self._candidates_of(demand, self.table.taken())

    def _candidates_of(self, demand: TaskDemand, running: Mapping[int, int]) -> list[tuple[str, list[int]]]:
        table = self.table
        drained, lost, short = table.drained_machines(), table.lost_machines(), table.short_machines()
        return candidates(self._fleet.cluster, demand.mask, demand.request, drained, running, lost, short)

    def _first_waiting(self, job: JobStatus) -> int:
        """The place of a task that has not been started, as a rule the first: they are in order as long as all fit."""
        # As many as are reported have started, in order as long as all fit; else the first ones are searched.
        for first, count in ((_reported(job), 1), (0, LOOK_MAX)):
            for task in self._store.tasks(job.id, first, count):
                if task.state == "pending":
                    return task.index
        return 0


def started_tasks(job: JobStatus) -> int:
    """The tasks of a job that run, or have run."""
    return job.running + job.finished + job.failed + job.killed


def _reported(job: JobStatus) -> int:
    return started_tasks(job) + job.unsatisfiable


CHILDREN_MAX: Final = 100
"""Jobs that are searched for one that a task has submitted."""
WAIT_S: Final = 0.25
"""Longest wait for the answer of a scheduler, which may be away or busy."""


class CapacityQueries:
    """Questions to schedulers that have not been answered.

    Args:
        scheduler_of: (job, user) -> the address of the scheduler that has the job.
    """

    def __init__(self, send: Send, scheduler_of: Callable[[JobId, str], Address]) -> None:
        self._send = send
        self.scheduler_of = scheduler_of
        self._number = 0
        self._open: dict[int, asyncio.Future[int]] = {}

    async def machines(self, scheduler: Address, constraints: int, request: Amounts) -> int | None:
        """The machines with room for a task in a scheduler's view; None: it has not answered in time."""
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._open[number] = answer

        self._send(scheduler, Look(number, constraints, request))

        try:
            async with asyncio.timeout(WAIT_S):
                return int(await answer)
        except TimeoutError:
            return None
        finally:
            del self._open[number]

    def seen(self, answer: Seen) -> None:
        """Take an answer, which may come too late."""
        future = self._open.get(answer.number)
        if future is not None and not future.done():
            future.set_result(answer.machines)


class SharesView(Protocol):
    """Shares and preemptions; see `volery.live.service.user_shares.UserShares`."""

    def due(self) -> Mapping[str, Fraction]:
        """The share of each user who has one."""

    def listed(self, user: str | None = None) -> list[ShareStatus]: ...

    def changes(self, name: str | None, limit: int) -> list[WeightChange]:
        """Changes of weights, the last one first."""

    def preemptions(
        self, user: str | None, job: JobId | None, before: int | None, limit: int, sees: str | None = None
    ) -> list[PreemptionStatus]: ...


class FederationView(Protocol):
    """Answers the queries of pages, all of one moment; see `volery.live.service.queries.JobQueries`."""

    @property
    def sharing(self) -> SharesView: ...

    @property
    def now_us(self) -> Time:
        """The moment: microseconds since 1970, or since a run has begun."""

    @property
    def takes_orders(self) -> bool:
        """True if anything can be changed: jobs cancelled, nodes drained."""

    @property
    def drains(self) -> bool:
        """True if nodes can be drained here."""

    @property
    def reports_by_state(self) -> Mapping[str, int]:
        """Reports of attempts, counted by state."""

    def lost(self) -> Collection[Address]:
        """Nodes that are known to have crashed and not to be back."""

    def mistaken(self, by: Address) -> Mapping[Address, tuple[int, int]]:
        """The wrong parts of a scheduler's view, where known: node -> slots believed free, believed taken."""

    def all_hosts(self) -> list[HostStatus]:
        """All hosts; none where they are not known."""

    def absent(self) -> Sequence[str]:
        """A sentence about each host that does not answer."""

    def samples(self) -> Sequence[Sample]:
        """The last hours, the oldest first."""

    async def description(self, number: JobId) -> JobDescription | None:
        """A job as it was submitted, of a long list of tasks the first one; None where that is not known."""

    def nodes(self) -> list[NodeStatus]:
        """All nodes, in order of their machines."""

    def partitions(self) -> Mapping[Address, Sequence[Address]]:
        """The components in charge of each node, where the scheduler names them."""

    def runs_on(self, node: Address, limit: int) -> list[TaskStatus]:
        """Tasks that run on a node, at most so many."""

    def elapsed_us(self, task: TaskStatus) -> Time:
        """The time for which a task that runs has run."""

    def job(self, number: JobId) -> JobStatus | None: ...

    def archived(self, number: JobId) -> ArchivedJob | None:
        """The user of an archived job, and the number of its file."""

    async def search(self, query: JobQuery, limit: int, order: JobOrder) -> list[JobStatus]:
        """Jobs, in the order that is asked for."""

    def tasks(self, number: JobId, first: int, limit: int) -> list[TaskStatus]:
        """Tasks of a job, in order."""

    async def explain(self, number: JobId, place: int | None) -> Why | None:
        """The reasons why a task is where it is; without a place: of the first that waits, or of the first."""

    def loads(self, user: str | None = None) -> list[UserLoad]:
        """The loads of all users, or of one."""

    def users(self, user: str | None) -> list[UserStatus]:
        """Users with something under way or a share, or only one."""

    def allocations_us(self, limit: int) -> list[Time]:
        """Allocation times of tasks of the jobs that were submitted last, in microseconds."""

    def views(self) -> list[PairStatus]:
        """Decisions of schedulers on their views of each other's parts."""
