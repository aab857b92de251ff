"""The scheduling cycle: tasks in order, machines by filter and selection, each by the policy of its stage.

Recovery (T11): a node counts its incarnations, and a launch is for one of them: a launch for an earlier incarnation is
refused, whenever it arrives. A restarted node announces itself (`Restarted`); from then on all attempts of earlier
incarnations are known to be lost. A lost node (PeerLost) is known to have failed: pipeline tolerates crashes of nodes
or links that fail, not both (docs/decisions/0013).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from volery.architectures.pipeline.allocs import Allocs
from volery.architectures.pipeline.attempts import AfterEviction, Evictions, Migration, PendingEviction, Speculation
from volery.architectures.pipeline.autoscaler import SWITCHES, Autoscaler
from volery.architectures.pipeline.delay import DelayScheduling
from volery.architectures.pipeline.gang_iterations import with_gangs
from volery.architectures.pipeline.gangs import GangKind, Gangs
from volery.architectures.pipeline.iterations import iteration_of
from volery.architectures.pipeline.monitor import Monitor, reserving_room
from volery.architectures.pipeline.node import Cleaned, Ready, Report, Restarted
from volery.architectures.pipeline.policies import JobRecord, Kind, Running, Waiting
from volery.architectures.pipeline.policies.policy import Preempting
from volery.architectures.pipeline.policies.tasks import NoPreemption
from volery.architectures.pipeline.queues import queue_of
from volery.architectures.pipeline.targets import Targets
from volery.core.component import Sends
from volery.core.events import PeerBack, PeerLost, Preemption, PreemptionReason
from volery.core.model import NEVER, Address, Gang, JobId, Key, Task, TaskId, Time
from volery.core.port import Port
from volery.policies.match import positions
from volery.roles.node import Completed, Kill


class Assembly(msgspec.Struct, frozen=True):
    """The policies that a scheduler is assembled from, and what its cycles cost.

    Args:
        policies: Policies by the id of their stage; of all stages that have policies.
        iteration: Mode of stage T3 where a task does not fit: skip, strict, easy, conservative or every.
        cycle_us: Period of cycles; 0: whenever something has changed.
        decision_us: Cost of a cycle.
        task_us: Cost of each task that is tried, in addition.
        per_instant: Whether, without a period, there is one cycle after all that happens in an instant, not after each
            event.
        alloc_us: Time for which the room of a task that has ended is reserved for its job; 0: it is not.
        starts_gangs: Whether gangs are started whole; else each member is a task of its own.
        ways: Number of tasks that are tried at once (stage J4); it divides their cost.
    """

    policies: dict[str, Any]
    iteration: str = "skip"
    cycle_us: Time = 0
    decision_us: Time = 0
    task_us: Time = 0
    ways: int = 1
    per_instant: bool = False
    alloc_us: Time = 0
    starts_gangs: bool = False

    def cost_us(self, try_count: int) -> Time:
        """The cost of a cycle in which so many tasks are tried."""
        return self.decision_us + self.task_us * -(-try_count // self.ways)


class TaskSource(Protocol):
    """The component whose tasks a cycle places."""

    def admit(self, now: Time) -> None:
        """Queue the tasks of jobs that have become eligible (stage J2)."""

    def finish(self, waiting: Waiting, now: Time) -> None:
        """Take in the end of a task."""


CYCLE = "cycle"
DECIDED = "decided"


class CycleParts(NamedTuple):
    """The parts of a cycle of which each may be missing.

    Args:
        speculation: Stage T9; None: one attempt at a time.
        migration: Stage T12; None: a task ends where it began.
        autoscaler: Stages R6 and R7; None: all machines are always on.
        delay: Stage R3 by distance; None: distance is not regarded.
        monitor: Stage T6; None: nodes report ends alone.
        allocs: Room that is reserved for jobs whose tasks have ended; None: there is none.
    """

    speculation: Speculation | None = None
    migration: Migration | None = None
    autoscaler: Autoscaler | None = None
    delay: DelayScheduling | None = None
    monitor: Monitor | None = None
    allocs: Allocs | None = None


NO_PARTS: Final = CycleParts()


class Cycle:
    """Gives tasks machines: stages T2 to T4, T10, T11, R2 and R3; targets answer for the others.

    Args:
        targets: The machines, or managers.
        parts: Parts that are there only where a policy needs them.
    """

    def __init__(self, targets: Targets, assembly: Assembly, stream: Random, parts: CycleParts = NO_PARTS) -> None:
        policies = assembly.policies
        self.targets = targets
        self.nodes = targets.nodes
        self.state = targets.state
        self.view = targets.view
        self._is_counted = targets.is_counted
        self._assembly = assembly

        # Without preemption nobody has to know what is held by whom.
        self._preempting = None if isinstance(policies["T10"], NoPreemption) else policies["T10"]
        self._reason: PreemptionReason = policies["T10"].reason
        if self._preempting is not None:
            self.state.priorities = {}
            self.state.held_by = {}

        self.evictions = Evictions()
        self.incarnations: dict[Address, int] = {}
        self.queue = queue_of(policies["T2"], policies["J3"], self.view, self.state, stream)
        self.iteration = iteration_of(assembly.iteration, self.state, self.queue)

        self._decided_evictions: list[PendingEviction] = []
        self._decided_launches: list[Running] = []
        self._set_aside_tasks: list[Waiting] = []
        self._access_of: dict[str, int] = {}
        self._message_count = self._task_count = 0
        self._due = self._busy = self._deciding = False
        self._gangs: Gangs | None = None

        self._speculation, self._migration, self._autoscaler, self._delay, self._monitor, self._allocs = parts
        self._parts = [part for part in parts if part is not None]
        for part in self._parts:
            part.attach(self)

    def begin(self, port: Port, source: TaskSource) -> None:
        """Place the tasks of a component, by its port."""
        self.port = port
        self._source = source

    @property
    def sends(self) -> Sends:
        """The messages to targets."""
        return self.targets.sends | (SWITCHES if self._autoscaler is not None else frozenset())

    @property
    def first_machines(self) -> list[int]:
        """The rented machines that are on when the run begins, by their numbers in the whole cluster."""
        return self._autoscaler.first_machines if self._autoscaler is not None else []

    def next_number(self) -> int:
        """The number of the next message to a target."""
        self._message_count += 1
        return self._message_count

    def kind(self, task: Task, job: JobRecord) -> Kind:
        """Stages R2 and R3: the machines that the user may have and that suit the task."""
        access = self._access_of.get(job.user)
        if access is None:
            machines = self._assembly.policies["R2"].machines(self.view, job.user)
            access = self._access_of[job.user] = self.state.access(machines)

        claim = None if self._preempting is None else self._preempting.claim(job)

        # A tolerant task may use reclaimed room, where others of the same needs may not: it is of a class of its own.
        if self._monitor is not None:
            claim = (claim, self._monitor.tolerant(job))
        return self.state.kind(task, access, claim)

    def record(self, task: Task, job: JobRecord, kind: Kind, rank_us: Time, came_us: Time, now: Time) -> Waiting:
        """The record of a task that is ready, the next in number."""
        self._task_count += 1
        self.state.now = now
        return Waiting(task, job, kind, self._task_count, now, self.state.work_us(task), rank_us, came_us)

    def expect_gang(self, job: JobId, gang: Gang, task_count: int) -> bool:
        """Start the tasks of a job whole; False: a gang is nothing else than its tasks here."""
        if not self._assembly.starts_gangs:
            return False
        if self._gangs is None:
            gangs = self._gangs = Gangs(self)
            self.iteration = with_gangs(self.iteration, self._assembly.iteration, self.state, self.queue, gangs)
        self._gangs.expect(job, gang, task_count)
        return True

    def may_hold(self, kinds: Sequence[Kind], gang: Gang) -> bool:
        """True if the empty cluster holds members of these classes together."""
        assert self._gangs is not None, "gangs are expected first"
        return all(kind.possible for kind in kinds) and self._gangs.kind_of(kinds, gang).possible

    def enqueue(self, waiting: Waiting) -> None:
        """Stage J3, and T2: a task takes its place among those that wait."""
        if self._gangs is not None and self._gangs.gathers(waiting):
            return
        if self._delay is not None:
            self._delay.joining(waiting)
        self.state.waiting[waiting.task.id] = waiting
        self.queue.push(waiting)
        self.iteration.joined(waiting)

        if self._delay is not None:
            self._delay.maybe_block(waiting.kind)

        if self._autoscaler is not None:
            self._autoscaler.happened(self.state.now)

        if self._allocs is not None:
            self._allocs.take(waiting)

    def changed(self, now: Time) -> None:
        """Let there be a cycle: something that it reads has changed."""
        if self._busy:
            self._due = True
        elif not (self._assembly.cycle_us or self._assembly.per_instant):
            self.run(now)
        elif not self._due:
            self._due = True
            period = self._assembly.cycle_us or 1
            self.port.set_timer(CYCLE, -(-now // period) * period)

    def on_timer(self, key: Key, now: Time) -> None:
        """Run a periodic cycle, end one that takes time, or pass the timer on to a part."""
        if key == CYCLE:
            self._due = False
            self.run(now)
        elif key == DECIDED:
            self._decide(now)
        else:
            is_known = any(part.on_timer(key, now) for part in self._parts)
            assert is_known, f"no part has set the timer {key!r}"

    def run(self, now: Time) -> None:
        """Stage T3: try the tasks that wait and may fit, in order; a task that fits nowhere stays."""
        if self._delay is None:
            self._try_all(now)
        else:
            self._delay.widen(now)
            self._try_all(now)
            self._delay.pass_over(now)

    def _try_all(self, now: Time) -> None:
        state, classes, targets = self.state, self.queue.classes, self.targets
        state.now = now
        self._source.admit(now)

        # The tasks to preempt change with more than what is given back, so that no class may stay blocked.
        if self._preempting is not None:
            for kind in list(classes.blocked):
                classes.unblock(kind)

        if not classes.unblocked:
            return

        self.queue.begin()
        try_count = 0
        self._deciding = bool(self._assembly.decision_us or self._assembly.task_us)

        while (waiting := self.next_task()) is not None:
            try_count += 1

            among = self.iteration.among(waiting)
            if self._gangs is not None and isinstance(waiting.kind, GangKind):
                places = self.iteration.places
                if not self._gangs.start(waiting, among, places, now):
                    classes.block(waiting.kind)
                continue

            if self._delay is not None:
                among = self._delay.nearest(waiting, among)
            candidates = targets.fitting(waiting, among)

            if candidates is None:
                if self._monitor is not None and self._monitor.place(waiting, among, now):
                    continue
                if self._preempting is None or not self.preempt(self._preempting, waiting, now):
                    if self._assembly.iteration == "every":
                        # With `every`, another task of the class may fit, as its policy decides by more than its needs.
                        self._set_aside(waiting)
                    else:
                        classes.block(waiting.kind)
                continue

            target = targets.select(waiting, candidates)
            if target >= 0:
                self.submit_task(waiting, target, now)
            elif self._set_aside(waiting):
                # A strict order does not go on behind a task that waits.
                break

        self._deciding = False

        # They come back when the cycle ends, so that none of them is tried twice in it.
        for waiting in self._set_aside_tasks:
            self.enqueue(waiting)
        self._set_aside_tasks.clear()

        cost = self._assembly.cost_us(try_count)

        # What was decided is sent when the decisions have taken their time.
        if cost:
            self._busy = True
            self.port.set_timer(DECIDED, now + cost)

    def next_task(self) -> Waiting | None:
        """Stage T2: the task to try now."""
        return self.iteration.following()

    def _set_aside(self, waiting: Waiting) -> bool:
        """Leave a task out of this cycle, as its policy would rather wait; returns whether that ends the cycle."""
        self.queue.remove(waiting)
        del self.state.waiting[waiting.task.id]
        self._set_aside_tasks.append(waiting)
        return self._assembly.iteration == "strict"

    def submit_task(self, waiting: Waiting, target: int, now: Time, takes: int | None = None) -> Running:
        """Stage T4: the target is the task's from now on; `takes`: see `State.launched`."""
        if self._is_counted:
            self.targets.count(waiting.task, target, 1)

        self.queue.remove(waiting)
        takes = self.iteration.takes(waiting, target) if takes is None else takes
        running = self.state.launched(waiting, target, now, takes)

        self.queue.served(waiting)
        self.iteration.started(target)
        self.start(running)

        if self._speculation is not None:
            self._speculation.replicate(running, now)

        if self._migration is not None:
            self._migration.request(now)

        if self._delay is not None:
            self._delay.submitted(waiting, target)

        return running

    def start(self, running: Running) -> None:
        """Launch, as soon as the decision has taken its time and pending evictions there have ended."""
        if self._deciding:
            self._decided_launches.append(running)
        elif not self.evictions.maybe_hold(running):
            self._launch(running)

    def runs(self, running: Running) -> bool:
        """True for an attempt that runs, or is about to."""
        return self.state.on_machine[running.machine].get(running.task.id) is running

    def preempt(self, policy: Preempting, waiting: Waiting, now: Time) -> bool:
        """Stage T10: evict tasks for one that fits nowhere; False: the policy would not."""
        eviction = policy.evict(self.view, waiting, positions(self.iteration.among(waiting)))
        if eviction is None:
            return False
        losers = [self.state.on_machine[eviction.machine][number] for number in eviction.tasks]

        if not self.view.makes_room(waiting, eviction.machine, losers):
            name, task = type(policy).__name__, waiting.task.id
            raise ValueError(f"{name} makes no room for task {task} on machine {eviction.machine}")

        with reserving_room(self._monitor, eviction.machine, now):
            for running in losers:
                # It may have been recalled with another member of its gang.
                if self.runs(running):
                    self.evict(running, AfterEviction.QUEUE, now, waiting.task.id)
                    self._recall_others(running.waiting, now)
            self.submit_task(waiting, eviction.machine, now)
        return True

    def evict(self, running: Running, then: AfterEviction, now: Time, beneficiary: TaskId = NEVER) -> PendingEviction:
        """End an attempt on purpose: its room is given back, and its task belongs to no queue until its end."""
        self.release(running, now)

        eviction = PendingEviction(running, running.attempt, then, beneficiary)
        self.evictions.add(eviction)

        if self._deciding:
            self._decided_evictions.append(eviction)
        else:
            self._send_kill(eviction)
        return eviction

    def _send_kill(self, eviction: PendingEviction) -> None:
        self.port.send(self.nodes[eviction.running.machine], Kill(eviction.waiting.task.id, eviction.attempt))

    def _decide(self, now: Time) -> None:
        """Carry out the decisions of a cycle that has taken its time, unless they are not wanted any more."""
        launches = self._decided_launches
        evictions = self._decided_evictions
        self._decided_launches = []
        self._decided_evictions = []
        for eviction in evictions:
            self._send_kill(eviction)

        for running in launches:
            # The attempt may have been called off, or its machine lost, while the decision took its time.
            if self.runs(running) and not self.evictions.maybe_hold(running):
                self._launch(running)

        self._busy = False
        if self._due:
            self._due = False
            self.changed(now)

    def _launch(self, running: Running) -> None:
        node = self.nodes[running.machine]
        self._message_count += 1
        message = self.targets.message(self._message_count, running, self.incarnations.get(node, 0))
        running.sent = True
        self.port.send(node, message)

    def ended(self, message: Completed, now: Time) -> Waiting | None:
        """Take in the end of an attempt; returns the task if that was its end, too."""
        waiting = self._end_attempt(message, now)
        if self._gangs is not None and waiting is not None:
            self._gangs.finished(waiting)
        if self._speculation is not None and waiting is not None:
            self._speculation.rearm()
        if self._migration is not None:
            self._migration.request(now)
        return waiting

    def _end_attempt(self, message: Completed, now: Time) -> Waiting | None:
        running = self.state.running.get(message.task)
        if running is not None and running.attempt != message.attempt:
            copies = self.state.copies.get(message.task, ())
            running = next((copy for copy in copies if copy.attempt == message.attempt), None)

        # An attempt that was evicted has no room any more: its eviction is closed.
        if running is None or running.cleaning:
            return self._close_eviction(message, now)

        if message.killed and not running.ending and self._gangs is not None:
            self._recall(running, now)
            self.changed(now)
            return None

        if self.state.copies:
            self._end_copies(running, now)

        # Its machine is used again only when the files are deleted (`_cleaned`).
        if running.clean_us and not message.killed:
            running.ending = running.cleaning = True
        elif message.killed or self._allocs is None or not self._allocs.keep(running, now):
            self.release(running, now)
        return running.waiting

    def _recall(self, running: Running, now: Time) -> None:
        """Queue a member of a gang again whose attempt the driver has ended, and the others with it."""
        self.release(running, now)
        running.waiting.attempt += running.sent
        self.enqueue(running.waiting)
        self._recall_others(running.waiting, now)

    def _recall_others(self, waiting: Waiting, now: Time) -> None:
        """End the attempts of all other members of a gang: it starts again whole."""
        for running in self._gangs.others(waiting) if self._gangs is not None else ():
            # Another member may have been recalled with an earlier one, and one that is called off ends anyway.
            if running.ending or not self.runs(running):
                continue
            if running.sent:
                self.evict(running, AfterEviction.QUEUE, now)
            else:
                self.evictions.drop(running)
                self.release(running, now)
                self.enqueue(running.waiting)

    def job_done(self, job: JobId, now: Time) -> None:
        """Give back what is kept for a job."""
        if self._gangs is not None:
            self._gangs.forget(job)
        if self._allocs is not None:
            self._allocs.done(job, now)

    def _cleaned(self, message: Cleaned, now: Time) -> None:
        """Use a machine again on which the files of a task are deleted (stage T8)."""
        running = self.state.running.get(message.task)
        if running is not None and running.cleaning and running.clean_us and running.attempt == message.attempt:
            running.clean_us = 0
            if self._allocs is None or not self._allocs.keep(running, now):
                self.release(running, now)
            self.changed(now)

    def _end_copies(self, running: Running, now: Time) -> None:
        if running.task.id in self.state.copies:
            assert self._speculation is not None, "it alone makes copies"
            self._speculation.end_others(running, now)

    def _close_eviction(self, message: Completed, now: Time) -> Waiting | None:
        """Launch the tasks that wait for an eviction, which has come to its end."""
        eviction, pending_launches = self.evictions.close(message.task, message.attempt)
        if eviction is None:
            return None
        self.state.now = now

        for running in pending_launches:
            self._launch(running)

        waiting = eviction.waiting
        target = eviction.target
        if eviction.then is AfterEviction.NOTHING:
            return None

        # It was moved: it goes on where it was given its new place, unless it has finished or is not wanted any more.
        if target is not None:
            assert self._migration is not None, "it alone moves tasks"
            if message.killed and self._migration.move_on(target, now):
                return None
            if self.runs(target):
                self.release(target, now)

        # It finished before the kill came, or its job was given up.
        if not message.killed or eviction.then is AfterEviction.OVER:
            return waiting

        if eviction.beneficiary != NEVER:
            self.port.observe(Preemption(now, message.task, message.attempt, eviction.beneficiary, self._reason))

        waiting.attempt += 1
        self.enqueue(waiting)
        self.changed(now)
        return None

    def on_node(
        self, event: Cleaned | Report | PeerLost | PeerBack | Restarted | Ready, source: Address, now: Time
    ) -> None:
        """A node has deleted files, reports, is lost, has restarted or is on; one that is back announces itself."""
        if isinstance(event, Cleaned):
            self._cleaned(event, now)
        elif isinstance(event, Report):
            if self._monitor is not None:
                self._monitor.reported(event, self.nodes.index(source), now)
        elif isinstance(event, PeerLost):
            self._node_lost(self.nodes.index(event.peer), now)
        elif isinstance(event, Restarted):
            if event.incarnation > self.incarnations.get(source, 0):
                self.incarnations[source] = event.incarnation
                self._node_restarted(self.nodes.index(source), now)
        elif isinstance(event, Ready):
            assert self._autoscaler is not None, "it alone switches machines on"
            self._autoscaler.ready(self.nodes.index(source), event.number, now)

    def _node_lost(self, machine: int, now: Time) -> None:
        if self._autoscaler is not None:
            self._autoscaler.pool.failed(machine)
        self.state.online &= ~(1 << machine)
        self.lose(machine, now)

    def _node_restarted(self, machine: int, now: Time) -> None:
        """Use a machine again, once all that it ran before is given up; one that is rented is off."""
        if self._autoscaler is not None:
            self._autoscaler.pool.failed(machine)
            self._autoscaler.pool.repaired(machine)
            self.lose(machine, now)
            return
        self.lose(machine, now)

        self.state.online |= 1 << machine
        self.iteration.given_back(machine)
        self.changed(now)

    def lose(self, machine: int, now: Time) -> None:
        """Stage T11: place the tasks of a machine that has failed again."""
        self.state.now = now
        if self._monitor is not None:
            self._monitor.forget(machine)
        # An alloc ends with its job, perhaps before its turn comes here.
        for running in filter(self.runs, list(self.state.on_machine[machine].values())):
            self.evictions.drop(running)
            has_copies = running.task.id in self.state.copies
            self.release(running, now)

            if running.cleaning:
                if self._allocs is not None:
                    self._allocs.forget(running)
                continue

            # The task was being called off: its end counts, although no machine will report it.
            if running.ending:
                self._source.finish(running.waiting, now)
            # Copies of the task go on elsewhere, so that it need not be queued.
            elif not has_copies:
                # An attempt that was never sent is not counted as one.
                running.waiting.attempt += running.sent
                self.enqueue(running.waiting)
                self._recall_others(running.waiting, now)

        for eviction in self.evictions.clear(machine):
            if eviction.then is AfterEviction.OVER:
                self._source.finish(eviction.waiting, now)
            elif eviction.then is not AfterEviction.NOTHING:
                eviction.waiting.attempt += 1
                self.enqueue(eviction.waiting)

        self.changed(now)

    def release(self, running: Running, now: Time) -> None:
        """Give an attempt's room back."""
        task = running.waiting.task
        state = self.state

        if self._is_counted:
            self.targets.count(task, running.machine, -1)
        if task.id in state.copies:
            state.copy_ended(running, now)
        else:
            state.ended(task.id, now)

        self.iteration.given_back(running.machine)

        if self._autoscaler is not None:
            self._autoscaler.happened(now)

        if self._monitor is not None:
            self._monitor.released(running, now)

    def withdraw(self, waiting: Waiting) -> None:
        """Take a task out of the queue."""
        if self._gangs is None or not self._gangs.withdraw(waiting):
            self.queue.remove(waiting)
        del self.state.waiting[waiting.task.id]

    def give_up(self, job: JobRecord, now: Time) -> int:
        """Drop a job's waiting tasks and kill the others; returns how many tasks ended by that at once."""
        dropped_tasks = [waiting for waiting in self.state.waiting.values() if waiting.job is job]
        for waiting in dropped_tasks:
            self.withdraw(waiting)

        dropped_tasks += [
            running.waiting
            for running in list(self.state.running.values())
            if running.job is job and self.call_off(running, now)
        ]

        # Tasks whose attempts are being ended end with them, instead of being queued again.
        for eviction in self.evictions.pending.values():
            if eviction.waiting.job is job and eviction.then is AfterEviction.QUEUE:
                eviction.then = AfterEviction.OVER

        if self._delay is not None:
            self._delay.dropped(job.id)

        return len(dropped_tasks)

    def call_off(self, running: Running, now: Time) -> bool:
        """End a task that runs; returns whether that was its end at once, because no machine knew of it."""
        # It has ended; only its files are left, or its room as an alloc.
        if running.cleaning:
            return False

        self._end_copies(running, now)

        if running.sent:
            running.ending = True
            self.port.send(self.nodes[running.machine], Kill(running.task.id, running.attempt))
            return False

        self.evictions.drop(running)
        self.release(running, now)

        moves = [eviction for eviction in self.evictions.of_task(running.task.id) if eviction.target is running]
        for eviction in moves:
            eviction.then = AfterEviction.OVER

        return not moves

    def check_rest(self) -> None:
        """Raise AssertionError where something runs, waits or is being ended."""
        self.evictions.check_rest()
        assert not self.state.running, "a task runs"
        assert not self.state.waiting, "a task waits"

    def check(self) -> None:
        """Raise AssertionError where free, held and running disagree, or a target has room for a blocked class."""
        self.state.check()
        self.queue.check()
        machines = self.state.online & ~self.iteration.withheld()
        blocked_kinds = [kind for kind in self.queue.classes.blocked if not isinstance(kind, GangKind)]
        self.targets.check(blocked_kinds, machines)
        if self._gangs is not None:
            self._gangs.check(machines)
        for part in (self._autoscaler, self._delay, self._monitor, self._allocs):
            if part is not None:
                part.check()
