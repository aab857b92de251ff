"""Application masters beside their AM-RM proxy, which spreads what they ask for over the sub-clusters.

A job's tasks are bound to containers when these come. A proxy asks each sub-cluster for a part, often one container too
many, never for more than still wait, and releases what comes in vain. When a sub-cluster is lost, what was asked of it
is asked of others, and when its resource manager begins anew it is asked again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Final, Literal, NamedTuple

import msgspec

from volery.architectures.hydra.gangs import NOBODY, ApplicationGang
from volery.architectures.hydra.layout import Layout, Membership, rm_of, sub_of_rm
from volery.architectures.hydra.messages import (
    Completed,
    Container,
    ContainerRequest,
    Directory,
    GangRequest,
    Grant,
    Hosted,
    Kill,
    NodeDead,
    Reborn,
    Refused,
    Release,
    Start,
)
from volery.core.component import Component, role_of, sent_to
from volery.core.events import Cancel, Counted, JobAccepted, JobDone, MoreTasks, Submit
from volery.core.model import Address, Gang, JobId, Task, TaskId, Time
from volery.roles.recovery.channel import Renewed
from volery.roles.submission import GangChunks, GatheredGang, JobLedger, refuse_gang


class StartedContainer(NamedTuple):
    """An attempt that was started somewhere."""

    task: Task
    attempt: int
    machine: int
    container: int


Split = Literal["broadcast", "home", "weighted", "locality"]
NOWHERE: Final = -1
"""Sub-cluster of the input of a task that has none, or may run anywhere."""


class TaskLine:
    """Tasks of one job and constraint set that wait, by the sub-cluster that holds their input."""

    __slots__ = ("_by_sub", "length")

    def __init__(self) -> None:
        self._by_sub: dict[int, deque[Task]] = {}
        self.length = 0

    def push(self, task: Task, near: int) -> None:
        self._by_sub.setdefault(near, deque()).append(task)
        self.length += 1

    def pop(self, sub: int) -> Task:
        """The first one for a container in a sub-cluster: with input there, with none anywhere, or any."""
        # Tasks whose input is elsewhere come last: they may yet get a container beside it.
        near = sub if sub in self._by_sub else NOWHERE if NOWHERE in self._by_sub else next(iter(self._by_sub))

        tasks = self._by_sub[near]
        self.length -= 1

        task = tasks.popleft()
        if not tasks:
            del self._by_sub[near]
        return task


class Application(msgspec.Struct, eq=False):
    """The state that an application master keeps of its job.

    Attributes:
        waiting: Constraint set -> tasks without a container; never empty.
        asked: Sub-cluster and constraint set -> containers asked for there that have not come.
        attempts: The next attempt of tasks that have to begin again.
        near: Sub-cluster of the input of tasks, where that is asked for.
        gang: Gang that the tasks form; None: each task runs for itself.
    """

    user: str
    waiting: dict[int, TaskLine] = {}
    asked: dict[tuple[int, int], int] = {}
    running: dict[TaskId, StartedContainer] = {}
    attempts: dict[TaskId, int] = {}
    near: dict[TaskId, int] = {}
    gang: ApplicationGang | None = None

    def wait_count(self, mask: int) -> int:
        line = self.waiting.get(mask)
        return line.length if line is not None else 0


def proportional(
    count: int, candidates: Sequence[int], weights: Sequence[int], headroom: Mapping[int, int], alpha: Fraction
) -> dict[int, int]:
    """Containers to ask of each sub-cluster: ceil(n (a H + (1 - a) w)); at most one too many for each.

    Args:
        count: n, the number of containers that are wanted.
        weights: w, per sub-cluster, in permille.
        headroom: Free slots of the sub-clusters that have reported them.
        alpha: a, the part of headroom against weights.
    """
    reporting_subclusters = [sub for sub in candidates if sub in headroom]

    free = sum(headroom[sub] for sub in reporting_subclusters)
    total = sum(weights[sub] for sub in candidates)

    equal_part = Fraction(1, len(candidates))
    counts = {}

    for sub in candidates:
        room = (
            Fraction(headroom[sub] * len(reporting_subclusters), free * len(candidates))
            if free and sub in headroom
            else equal_part
        )
        # Shares are rounded up: together the parts are never less than what is wanted.
        weight = Fraction(weights[sub], total) if total else equal_part
        part = ceil(count * (alpha * room + (1 - alpha) * weight))

        if part:
            counts[sub] = min(part, count)

    return counts


class Splitter:
    """Splits what a proxy requests over sub-clusters, by one policy."""

    def __init__(self, layout: Layout, membership: Membership, policy: Split, alpha: Fraction) -> None:
        self._layout = layout
        self._membership = membership
        self._policy = policy
        self._alpha = alpha
        self.by_locality = policy == "locality"

    def split(self, mask: int, count: int, home: int, near: int = -1) -> dict[int, int]:
        """The number of containers to request of each sub-cluster, together at least as many as are wanted.

        Args:
            mask: Constraint set; some sub-cluster has machines that satisfy it.
            near: Sub-cluster that holds the input; -1: none in particular.
        """
        reach = self._layout.reach(mask)
        membership = self._membership

        # A home that is lost, or has no such machine, is asked for nothing: the others are.
        if self._policy == "home" and home in reach and membership.active[home]:
            return {home: count}

        if near >= 0 and membership.active[near]:
            return {near: count}

        candidates = membership.usable(reach)
        if self._policy == "broadcast":
            return dict.fromkeys(candidates, count)
        return proportional(count, candidates, membership.weights, membership.headroom, self._alpha)

    def whole(self, needs: Sequence[int], shape: Gang, home: int) -> int:
        """The sub-cluster to ask for all containers of a gang: of those that hold it the one with most headroom.

        What is asked counts against its headroom until the next report.

        Args:
            needs: Constraint set of each container.
            shape: Machines over which they are spread.
            home: Home of the job, which comes first where headroom is equal, and with the policy of this name.
        """
        membership = self._membership
        holding = self._layout.holding(needs, shape)
        if self._policy == "home" and home in holding and membership.active[home]:
            return home

        headroom = membership.headroom
        sub = max(membership.usable(holding), key=lambda sub: (headroom.get(sub, 0), sub == home, -sub))
        if sub in headroom:
            headroom[sub] = max(0, headroom[sub] - len(needs))
        return sub


class Proxy(Component):
    """Hosts the application masters of some jobs of its sub-cluster."""

    def __init__(self, home: int, layout: Layout, membership: Membership, splitter: Splitter) -> None:
        self._home = home
        self._layout = layout
        self._membership = membership
        self._splitter = splitter
        self._applications: dict[JobId, Application] = {}
        self._numbers: dict[Address, int] = {}
        self._granted: dict[int, int] = {}

    def start(self, now: Time) -> None:
        self._jobs = JobLedger(self._port.send)
        self._chunks = GangChunks()

    def on_hosted(self, message: Hosted, source: Address, now: Time) -> None:
        """Start an application master, which asks for containers at once.

        A restarted router hands over all that may run by now, and what it lost may be among it.
        """
        job = message.job
        is_known = job.id in self._applications

        tasks = self._jobs.admit(Submit(job), source, 0)
        # The restarted router has no record of chunks that it handed on, so a part of the job may be new.
        if is_known:
            first = self._jobs.received(job.id)
            if 0 <= first < len(job.tasks) and job.task_count == self._jobs.announced(job.id):
                self.on_more_tasks(MoreTasks(job.id, first, job.tasks[first:], (), job.replicas[first:]), source, now)
        elif self._jobs.is_open(job.id):
            application = self._applications[job.id] = Application(job.user)
            if job.gang is not None:
                application.gang = ApplicationGang(job.gang)
                self._add_gang(application, self._chunks.begin(job, tasks))
            else:
                self._add(job.id, tasks, job.replicas)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        tasks = self._jobs.more(message)
        if message.job in self._chunks:
            self._add_gang(self._applications[message.job], self._chunks.add(message.job, tasks))
        elif tasks:
            self._add(message.job, tasks, message.replicas)

    def _add_gang(self, application: Application, gang: GatheredGang | None) -> None:
        """Ask for containers for a gang whose tasks have all come; report one that no sub-cluster holds."""
        if gang is None:
            return
        if self._layout.holding([task.constraints for task in gang.tasks], gang.shape):
            self._want_gang(gang.job, application, gang.tasks)
        else:
            refuse_gang(gang, self._jobs, self._port)
            self._close_if_done(gang.job)

    def _want_gang(self, job: JobId, application: Application, tasks: Iterable[Task]) -> None:
        """Take members back; when no other has a container, ask for all, else end those that run."""
        gang = application.gang
        assert gang is not None, "it is a gang"
        gang.returned_tasks.update((task.id, task) for task in tasks)

        if application.running:
            for running in application.running.values() if not gang.is_recalled else ():
                self._port.send(f"node/{running.machine}", Kill(running.task.id, running.attempt))
            gang.is_recalled = True
            return

        gang.is_recalled = False
        for task in gang.returned_tasks.values():
            application.waiting.setdefault(task.constraints, TaskLine()).push(task, NOWHERE)
        gang.returned_tasks = {}
        self._ask_for_gang(job, application, gang)

    def _ask_for_gang(self, job: JobId, application: Application, gang: ApplicationGang) -> None:
        """Ask one sub-cluster for all containers of a gang."""
        counts = {mask: line.length for mask, line in application.waiting.items()}
        needs = tuple(Counter(counts).elements())
        # Where others have finished, the rest may be too few for all machines of the shape.
        shape = msgspec.structs.replace(gang.shape, nodes=min(gang.shape.nodes, len(needs)))
        gang.asked_sub = sub = self._splitter.whole(needs, shape, self._home)
        application.asked = {(sub, mask): count for mask, count in counts.items()}
        self._port.send(rm_of(sub), GangRequest(self._next(rm_of(sub)), job, application.user, needs, shape))

    def _forget_gang(self, job: JobId, application: Application, gang: ApplicationGang) -> None:
        """Want the containers of a gang no longer that were asked for."""
        if gang.asked_sub != NOBODY:
            address = rm_of(gang.asked_sub)
            self._port.send(address, GangRequest(self._next(address), job, application.user, (), gang.shape))
        gang.asked_sub = NOBODY
        application.asked = {}

    def _add(self, job: JobId, tasks: tuple[Task, ...], replicas: tuple[tuple[int, ...], ...]) -> None:
        application = self._applications[job]
        runnable_tasks = []
        for place, task in enumerate(tasks):
            if not self._layout.reach(task.constraints):
                self._jobs.unsatisfiable(job)
                continue
            if replicas and self._splitter.by_locality:
                application.near[task.id] = self._nearest(task, replicas[place])
            runnable_tasks.append(task)

        self._want(job, application, runnable_tasks)
        self._close_if_done(job)

    def _nearest(self, task: Task, replicas: tuple[int, ...]) -> int:
        """Of the sub-clusters that could run the task, the one that holds most of its input."""
        reach = self._layout.reach(task.constraints)
        holders = [sub for sub in (self._layout.sub_of[machine] for machine in replicas) if sub in reach]
        return max(holders, key=lambda sub: (holders.count(sub), -sub), default=NOWHERE)

    def _want(self, job: JobId, application: Application, tasks: list[Task]) -> None:
        """Let tasks wait, and ask for containers for them."""
        if application.gang is not None:
            self._want_gang(job, application, tasks)
            return

        kinds: dict[tuple[int, int], int] = {}
        for task in tasks:
            mask = task.constraints
            near = application.near.get(task.id, NOWHERE)
            line = application.waiting.get(mask)

            if line is None:
                line = application.waiting[mask] = TaskLine()
            line.push(task, near)

            kind = (mask, near)
            kinds[kind] = kinds.get(kind, 0) + 1

        changes: dict[int, dict[int, int]] = {}
        for (mask, near), count in kinds.items():
            for sub, part in self._splitter.split(mask, count, self._home, near).items():
                self._change(application, changes, sub, mask, part)

        self._send(job, application, changes)

    def _change(
        self, application: Application, changes: dict[int, dict[int, int]], sub: int, mask: int, change: int
    ) -> None:
        count = application.asked.get((sub, mask), 0) + change
        if count:
            application.asked[sub, mask] = count
        else:
            application.asked.pop((sub, mask), None)

        masks_of_sub = changes.setdefault(sub, {})
        masks_of_sub[mask] = masks_of_sub.get(mask, 0) + change

    def _send(self, job: JobId, application: Application, changes: dict[int, dict[int, int]]) -> None:
        for sub, changes_of_masks in changes.items():
            masks = tuple([mask for mask, change in changes_of_masks.items() if change])
            counts = tuple([changes_of_masks[mask] for mask in masks])

            if masks:
                address = rm_of(sub)
                self._port.send(address, ContainerRequest(self._next(address), job, application.user, masks, counts))

    def _next(self, address: Address) -> int:
        number = self._numbers[address] = self._numbers.get(address, 0) + 1
        return number

    def on_grant(self, message: Grant, source: Address, now: Time) -> None:
        """Bind tasks to containers; release those that no task waits for, and those asked for in excess."""
        sub = sub_of_rm(source)
        if message.number <= self._granted.get(sub, 0):
            return

        # Numbers of grants begin again with each life of the resource manager (see `on_renewed`).
        self._granted[sub] = message.number
        self._membership.headroom[sub] = message.headroom

        unused_containers: list[int] = []
        changed_requests: dict[tuple[JobId, int], None] = {}
        for container in message.containers:
            application = self._applications.get(container.job)
            if application is None or not self._bind(application, container, sub):
                unused_containers.append(container.id)
            if application is not None:
                changed_requests[container.job, container.mask] = None

        self._note_whole(changed_requests, sub)
        if unused_containers:
            self._port.observe(Counted("containers_released", len(unused_containers)))
            self._port.send(source, Release(tuple(unused_containers)))

        self._want_fewer(changed_requests)

    def _bind(self, application: Application, container: Container, sub: int) -> bool:
        """Start a task in the container; False when none waits for such a one."""
        mask = container.mask

        count = application.asked.get((sub, mask), 0)
        # Fewer are to come from there now, whether or not a task is left for this one.
        if count > 1:
            application.asked[sub, mask] = count - 1
        elif count:
            del application.asked[sub, mask]

        # Another sub-cluster's container came first.
        line = application.waiting.get(mask)
        if line is None:
            return False

        task = line.pop(sub)
        if not line.length:
            del application.waiting[mask]
        attempt = application.attempts.get(task.id, 0)
        application.running[task.id] = StartedContainer(task, attempt, container.machine, container.id)

        node = f"node/{container.machine}"
        self._port.send(node, Start(self._next(node), container, application.user, task, attempt))
        return True

    def _note_whole(self, requests: Iterable[tuple[JobId, int]], sub: int) -> None:
        """Note the gangs whose containers have come; those that were asked of another sub-cluster are not wanted."""
        for job in dict.fromkeys([job for job, _ in requests]):
            application = self._applications[job]
            gang = application.gang
            if gang is not None and not application.waiting and gang.asked_sub != NOBODY:
                gang.asked_sub = NOBODY if gang.asked_sub == sub else gang.asked_sub
                self._forget_gang(job, application, gang)

    def _want_fewer(self, requests: dict[tuple[JobId, int], None]) -> None:
        """No sub-cluster is asked for more containers than tasks wait."""
        changes: dict[JobId, dict[int, dict[int, int]]] = {}

        for job, mask in requests:
            application = self._applications[job]
            if application.gang is not None:
                if not application.waiting:
                    self._forget_gang(job, application, application.gang)
                continue

            wait_count = application.wait_count(mask)
            for sub in self._layout.reach(mask):
                excess = application.asked.get((sub, mask), 0) - wait_count
                if excess > 0:
                    self._change(application, changes.setdefault(job, {}), sub, mask, -excess)

        for job, changes_of_job in changes.items():
            self._send(job, self._applications[job], changes_of_job)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Count the result; what was ended by its machine, not by its user, begins again."""
        job = message.job
        if not self._runs(job, message.task, message.attempt):
            return

        # The machine ended it, as it had lost its resource manager for too long.
        if message.killed and job not in self._jobs.cancelled:
            self._retry(job, [message.task])
        else:
            application = self._applications[job]
            del application.running[message.task]
            self._jobs.finished(job)
            if application.gang is not None and application.gang.returned_tasks:
                self._want_gang(job, application, ())
            self._close_if_done(job)

    def on_refused(self, message: Refused, source: Address, now: Time) -> None:
        """The container was void: the task waits again."""
        if self._runs(message.job, message.task, message.attempt):
            self._port.observe(Counted("containers_void"))
            self._retry(message.job, [message.task])

    def _runs(self, job: JobId, task: TaskId, attempt: int) -> bool:
        """True if this attempt runs, as far as the proxy was informed."""
        application = self._applications.get(job)
        running = application.running.get(task) if application is not None else None
        return running is not None and running.attempt == attempt

    def _retry(self, job: JobId, tasks: list[TaskId]) -> None:
        """Let the tasks of attempts that are over wait again, unless their job is cancelled."""
        application = self._applications[job]
        ended_attempts = [application.running.pop(task) for task in tasks]

        # A cancelled job's attempts count as ended, whatever ended them.
        if job in self._jobs.cancelled:
            self._jobs.finished(job, len(ended_attempts))
            self._close_if_done(job)
            return

        for running in ended_attempts:
            application.attempts[running.task.id] = running.attempt + 1

        self._want(job, application, [running.task for running in ended_attempts])

    def _retry_machine(self, machine: int) -> None:
        for job in list(self._applications):
            application = self._applications[job]
            tasks = [task for task, running in application.running.items() if running.machine == machine]
            if tasks:
                self._retry(job, tasks)

    def on_node_dead(self, message: NodeDead, source: Address, now: Time) -> None:
        """Its resource manager has given the machine up."""
        self._retry_machine(message.machine)

    def on_reborn(self, message: Reborn, source: Address, now: Time) -> None:
        """Nothing: the link has reported the restart."""

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """A restarted machine runs nothing, and a restarted resource manager has no request."""
        role = role_of(message.peer)
        if role == "node":
            machine = int(message.peer.split("/")[1])
            # A container may be of the time since the restart: its manager keeps it, and its start is lost.
            started = [
                running for application in self._applications.values() for running in application.running.values()
            ]
            if containers := tuple([running.container for running in started if running.machine == machine]):
                self._port.send(rm_of(self._layout.sub_of[machine]), Release(containers))
            self._retry_machine(machine)
        elif role == "rm":
            sub = sub_of_rm(message.peer)
            # The numbers of its next life begin with one.
            self._granted[sub] = 0
            self._ask_again(sub, has_request=False)

    def on_directory(self, message: Directory, source: Address, now: Time) -> None:
        """News of the sub-clusters: what was asked of a lost one is asked of others; one that is back is asked, too."""
        lost_subclusters, returned_subclusters = self._membership.update(message)
        for sub in lost_subclusters:
            self._ask_again(sub, has_request=True)
        for sub in returned_subclusters:
            self._ask_also(sub)

    def _ask_also(self, sub: int) -> None:
        """Ask a sub-cluster for its part of what waits, although others have been asked for that already."""
        for job, application in self._applications.items():
            changes: dict[int, dict[int, int]] = {}

            for mask in application.waiting if application.gang is None else ():
                wait_count = application.wait_count(mask)

                part = self._splitter.split(mask, wait_count, self._home).get(sub, 0)
                # No sub-cluster is asked for more than wait, although others are asked for the same.
                missing_count = min(part, wait_count - application.asked.get((sub, mask), 0))
                if missing_count > 0:
                    self._change(application, changes, sub, mask, missing_count)
            self._send(job, application, changes)

    def _ask_again(self, sub: int, *, has_request: bool) -> None:
        """Split again what was asked of a sub-cluster, which may still have the request and has to drop it then."""
        for job, application in self._applications.items():
            changes: dict[int, dict[int, int]] = {}
            if application.gang is not None:
                if application.gang.asked_sub == sub:
                    application.gang.asked_sub = sub if has_request else NOBODY
                    self._forget_gang(job, application, application.gang)
                    self._ask_for_gang(job, application, application.gang)
                continue
            for asked_sub, mask in [key for key in application.asked if key[0] == sub]:
                count = application.asked[asked_sub, mask]
                # A lost one may still have the request, and is to drop it then; a restarted one has none.
                if has_request:
                    self._change(application, changes, sub, mask, -count)
                else:
                    del application.asked[asked_sub, mask]

                missing_count = application.wait_count(mask) - self._asked_count(application, mask)
                if missing_count > 0:
                    for subcluster, part in self._splitter.split(mask, missing_count, self._home).items():
                        self._change(application, changes, subcluster, mask, part)

            self._send(job, application, changes)

    def _asked_count(self, application: Application, mask: int) -> int:
        return sum(application.asked.get((sub, mask), 0) for sub in self._layout.reach(mask))

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Want nothing more for the job, and kill what runs."""
        job = message.job
        application = self._applications.get(job)

        if not self._jobs.cancel(message, source) or application is None:
            self._close_if_done(job)
            return

        for running in application.running.values():
            self._port.send(f"node/{running.machine}", Kill(running.task.id, running.attempt))

        dropped_count = sum(waiting.length for waiting in application.waiting.values()) + self._chunks.drop(job)
        application.waiting.clear()
        if application.gang is not None:
            dropped_count += len(application.gang.returned_tasks)
            application.gang.returned_tasks = {}

        if dropped_count:
            self._jobs.finished(job, dropped_count)
        self._want_fewer({(job, mask): None for _, mask in application.asked})

        self._close_if_done(job)

    def _close_if_done(self, job: JobId) -> None:
        application = self._applications.get(job)
        if application is not None and not self._jobs.is_open(job):
            self._want_fewer({(job, mask): None for _, mask in application.asked})
            del self._applications[job]

    def check(self) -> None:
        for job, application in self._applications.items():
            for mask, waiting in application.waiting.items():
                assert self._asked_count(application, mask) >= waiting.length > 0, (
                    f"job {job} waits for what nobody asks for"
                )
            for (sub, mask), count in application.asked.items():
                assert 0 < count <= application.wait_count(mask), f"job {job} asks too much of {sub}"

    def check_rest(self) -> None:
        assert not self._applications, "jobs are left"
        assert not len(self._jobs), "jobs are open"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Hosted: on_hosted,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Grant: on_grant,
        Completed: on_completed,
        Refused: on_refused,
        NodeDead: on_node_dead,
        Directory: on_directory,
        Reborn: on_reborn,
        Renewed: on_renewed,
    }
    sends = (
        sent_to("router", JobAccepted, JobDone)
        | sent_to("rm", ContainerRequest, GangRequest, Release)
        | sent_to("node", Start, Kill)
    )
