"""The job tracker, which offers a free machine to the job whose turn it is; the job may wait for a better one.

The machine, which runs tasks and reports their ends in heartbeats, is here, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

import msgspec

from volery.architectures.hfs.pools import Pools
from volery.architectures.hfs.preemption import LOOK, LaunchedAttempt, Preemptor
from volery.core.component import Component, sent_to
from volery.core.events import Cancel, Counted, Measured, MoreTasks, Preemption, Submit, TaskFinished, TimerFired
from volery.core.model import NEVER, Address, Cluster, JobId, Message, Task, TaskId, Time
from volery.policies.locality import DelayPolicy, PlacedTasks, Sites
from volery.policies.match import Anchors, Matches, nth_position
from volery.roles import node
from volery.roles.node import Completed, Heartbeats, Kill, Launch
from volery.roles.submission import ANSWERS, JobLedger

TRACKER: Final[Address] = "jobtracker/0"
BEAT: Final = "heartbeat"


class Heartbeat(Message, frozen=True):
    """Node > job tracker: what has ended here since the last heartbeat."""

    ended: tuple[Completed, ...]


class Node(node.Node):
    """One worker machine.

    Args:
        beats: Heartbeats of machines; None: an end is reported at once (an out-of-band heartbeat).
    """

    __slots__ = ("_beats", "_seat", "_unreported_ends")

    def __init__(self, seat: int, beats: Heartbeats | None) -> None:
        super().__init__(TRACKER)
        self._seat = seat
        self._beats = beats
        self._unreported_ends: tuple[Completed, ...] = ()

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        completed = Completed(event.task.id, event.attempt, event.outcome == "killed")
        if self._beats is None:
            self._port.send(self._master, Heartbeat((completed,)))
            return

        # One timer for all ends until the next heartbeat.
        if not self._unreported_ends:
            self._port.set_timer(BEAT, self._beats.after(self._seat, now))
        self._unreported_ends += (completed,)

    def on_beat(self, event: TimerFired, source: Address, now: Time) -> None:
        self._port.send(self._master, Heartbeat(self._unreported_ends))
        self._unreported_ends = ()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Launch: node.Node.on_launch,
        Kill: node.Node.on_kill,
        TaskFinished: on_task_finished,
        TimerFired: on_beat,
    }
    sends = sent_to("jobtracker", Heartbeat)


class JobWork(msgspec.Struct, eq=False):
    """A job of the tracker.

    Attributes:
        passed_since: Time when it was first passed over since its last launch; NEVER: it was not.
    """

    placed: PlacedTasks
    has_input: bool = False
    passed_since: Time = NEVER
    waited_us: Time = 0
    passed_count: int = 0
    launched_count: int = 0


class Offers(NamedTuple):
    """The occasions on which machines are offered to jobs.

    Args:
        beats: Heartbeats of the machines.
        at_once: Whether a machine reports an end at once, and not with its next heartbeat.
        per_heartbeat: Number of tasks that a machine is given in a heartbeat at most; 0: as many as fit.
    """

    beats: Heartbeats
    at_once: bool
    per_heartbeat: int


class JobTracker(Component):
    """Offers machines to jobs in the order of their pools; a job without input there may let the next go first.

    Args:
        order: Machines in the order of their heartbeats; a machine's place in it is its seat.
    """

    def __init__(
        self,
        cluster: Cluster,
        order: Sequence[int],
        pools: Pools,
        delay: DelayPolicy,
        offers: Offers,
        stream: Random,
        preemptor: Preemptor | None = None,
    ) -> None:
        self._preemptor = preemptor
        self._sites = Sites(cluster)

        self._order = order
        self._seat = [0] * len(order)
        for seat, machine in enumerate(order):
            self._seat[machine] = seat
        self._matches = Matches([cluster.constraints[machine] for machine in order], Anchors(cluster.constraints))

        self._slots = cluster.slots
        self._idle = list(cluster.slots)
        self._free_seats = self._matches.every

        self._pools = pools
        self._delay = delay
        self._beats, self._at_once, self._per_heartbeat = offers
        self._stream = stream

        self._work: dict[JobId, JobWork] = {}
        self._running: dict[TaskId, LaunchedAttempt] = {}
        self._attempts: dict[TaskId, int] = {}
        self._masks: dict[int, int] = {}
        self._suitable_seats = 0
        self._waiting = 0
        self._launches = 0
        self._armed: tuple[int, Time] | None = None

    def start(self, now: Time) -> None:
        self._jobs = JobLedger(self._port.send)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        self._port.observe(Measured("queued_tasks", self._waiting))
        job = message.job

        tasks = self._jobs.admit(message, source, self._waiting)
        if self._jobs.is_open(job.id) and job.id not in self._work:
            self._work[job.id] = JobWork(PlacedTasks(self._sites))
            self._pools.join(job.id, job.user, job.priority)
            self._add(job.id, tasks, job.replicas, now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        if tasks := self._jobs.more(message):
            self._add(message.job, tasks, message.replicas, now)

    def _add(self, job: JobId, tasks: tuple[Task, ...], replicas: tuple[tuple[int, ...], ...], now: Time) -> None:
        work = self._work[job]
        waiting_before = self._waiting
        work.has_input |= bool(replicas)

        for place, task in enumerate(tasks):
            if self._matches[task.constraints]:
                work.placed.add(task, replicas[place] if replicas else ())
                self._wait(task.constraints, now)
            else:
                self._jobs.unsatisfiable(job)

        self._pools.change(job, self._waiting - waiting_before, 0)
        self._close_if_done(job)

        if self._at_once and self._free_seats:
            self._offer_free(job, now)

        self._arm(now)

    def _wait(self, mask: int, now: Time) -> None:
        if not self._waiting:
            self._delay.awaited(now)
        self._waiting += 1

        task_count = self._masks.get(mask, 0)
        self._masks[mask] = task_count + 1
        if not task_count:
            self._suitable_seats |= self._matches[mask]

    def _wait_no_longer(self, mask: int) -> None:
        self._waiting -= 1

        task_count = self._masks[mask] - 1
        if task_count:
            self._masks[mask] = task_count
            return
        del self._masks[mask]

        self._suitable_seats = 0
        for other_mask in self._masks:
            self._suitable_seats |= self._matches[other_mask]

    def _offer_free(self, job: JobId, now: Time) -> None:
        """Offer machines with slots free, those that hold input of the job first, then in random order.

        Where waits are times, one machine in vain is as good as all in this instant.
        """
        work = self._work.get(job)
        if work is None:
            return

        placed = work.placed
        # Machines with input of the job first: there it need not wait for locality.
        for machine in placed.machines():
            if self._idle[machine]:
                self._offer(machine, now)

        candidates = 0
        for mask in placed.masks:
            candidates |= self._matches[mask] & self._free_seats

        while candidates and len(placed):
            seat = nth_position(candidates, int(self._stream.random() * candidates.bit_count()))
            candidates &= ~(1 << seat)

            # Where opportunities are counted, each machine in vain is one more; a wait in time would not be any longer.
            if not self._offer(self._order[seat], now) and not self._delay.each_counts:
                break

    def _offer(self, machine: int, now: Time) -> int:
        """Offer a machine to the jobs that wait, which is one opportunity; returns the number of launches."""
        if not self._waiting:
            return 0

        self._delay.opportunity(now)
        launch_count = 0
        launches_max = self._per_heartbeat or self._idle[machine]

        while launch_count < launches_max and self._idle[machine] and self._assign(machine, now):
            launch_count += 1
        return launch_count

    def _assign(self, machine: int, now: Time) -> bool:
        """Launch a task of the first job in order that has one near enough; those before it have been passed over."""
        delay = self._delay
        for job in self._pools.order():
            work = self._work[job]

            if delay.predicts:
                delay.reaches(job, *work.placed.near())

            placed_task = work.placed.find(machine, delay.allowed(job))
            if placed_task is not None:
                self._launch(work, placed_task[0], machine, now)
                delay.launched(job, placed_task[1])
                return True

            # Passed over: it might have run there, but not near enough to its input.
            if work.placed.fits(machine):
                delay.passed_over(job)
                work.passed_count += 1
                if work.passed_since == NEVER:
                    work.passed_since = now
        return False

    def _launch(self, work: JobWork, task: Task, machine: int, now: Time) -> None:
        if self._preemptor is not None:
            self._preemptor.launched(task)

        work.placed.take(task)
        work.launched_count += 1

        if work.passed_since != NEVER:
            # Waits for locality are measured from the first time it was passed over.
            work.waited_us += now - work.passed_since
            work.passed_since = NEVER

        self._wait_no_longer(task.constraints)
        self._pools.change(task.job, -1, 1)

        self._idle[machine] -= 1
        if not self._idle[machine]:
            self._free_seats ^= 1 << self._seat[machine]

        attempt = self._attempts.get(task.id, 0)
        self._running[task.id] = LaunchedAttempt(task, attempt, machine)
        self._launches += 1
        self._port.send(f"node/{machine}", Launch(self._launches, task, attempt))

    def on_heartbeat(self, message: Heartbeat, source: Address, now: Time) -> None:
        machine = -1
        for completed in message.ended:
            run = self._running.get(completed.task)
            if run is not None and run.attempt == completed.attempt:
                machine = run.machine
                self._end(run, completed, now)

        if machine >= 0:
            self._offer(machine, now)
            self._arm(now)

    def _end(self, run: LaunchedAttempt, completed: Completed, now: Time) -> None:
        task = run.task
        machine = run.machine

        beneficiary = self._preemptor.ended(task) if self._preemptor is not None else None
        if beneficiary is not None and completed.killed and task.job not in self._jobs.cancelled:
            self._port.observe(Preemption(now, task.id, run.attempt, beneficiary.id))

        del self._running[task.id]
        if not self._idle[machine]:
            self._free_seats |= 1 << self._seat[machine]
        self._idle[machine] += 1

        # Preempted tasks wait again; what was killed for a cancelled job has ended.
        if not completed.killed or task.job in self._jobs.cancelled:
            self._pools.change(task.job, 0, -1)
            self._attempts.pop(task.id, None)
            self._jobs.finished(task.job)
            self._close_if_done(task.job)
        else:
            self._pools.change(task.job, 1, -1)
            self._attempts[task.id] = run.attempt + 1
            self._work[task.job].placed.again(task)
            self._wait(task.constraints, now)

    def _close_if_done(self, job: JobId) -> None:
        if self._jobs.is_open(job):
            return

        work = self._work.pop(job)

        self._pools.leave(job)
        self._delay.forget(job)

        if work.has_input and work.launched_count:
            self._port.observe(Measured("locality_wait_us", work.waited_us // work.launched_count))
            self._port.observe(Counted("passed_over", work.passed_count))

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Offer the machine whose heartbeat is due; or look at shares."""
        if event.key == LOOK:
            self._look_at_shares(now)
            return
        assert self._armed is not None, "no heartbeat was due"

        machine = self._order[self._armed[0]]
        self._armed = None

        if self._idle[machine]:
            self._offer(machine, now)
        self._arm(now)

    def _look_at_shares(self, now: Time) -> None:
        if self._preemptor is not None:
            self._preemptor.look(sum(self._slots), self._running, self._waiting_of, self._port, now)

    def _waiting_of(self, job: JobId) -> Iterable[Task]:
        return self._work[job].placed.waiting.values()

    def _arm(self, now: Time) -> None:
        """Wait for the next heartbeat of a machine that could run a waiting task, and the next look at shares."""
        self._arm_heartbeat(now)
        if self._preemptor is not None and self._waiting:
            self._preemptor.arm(self._port, now)

    def _arm_heartbeat(self, now: Time) -> None:
        # The heartbeat of a machine that nothing could run on is not waited for.
        candidates = self._free_seats & self._suitable_seats if self._free_seats and self._waiting else 0

        next_beat = self._beats.next_of(candidates, now) if candidates else None
        if next_beat == self._armed:
            return
        self._armed = next_beat
        if next_beat is None:
            self._port.cancel_timer(BEAT)
        else:
            self._port.set_timer(BEAT, next_beat[1])

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        job = message.job

        if self._jobs.cancel(message, source):
            for run in self._running.values():
                if run.task.job == job:
                    self._port.send(f"node/{run.machine}", Kill(run.task.id, run.attempt))

            placed = self._work[job].placed
            waiting_tasks = list(placed.waiting.values())
            for task in waiting_tasks:
                placed.take(task)
                self._wait_no_longer(task.constraints)

            self._pools.change(job, -len(waiting_tasks), 0)
            if waiting_tasks:
                self._jobs.finished(job, len(waiting_tasks))

        if job in self._work:
            self._close_if_done(job)
        self._arm(now)

    def check(self) -> None:
        idle = list(self._slots)
        for run in self._running.values():
            idle[run.machine] -= 1

        assert idle == self._idle, "slots neither idle nor running"
        assert all((self._free_seats >> self._seat[m] & 1) == (count > 0) for m, count in enumerate(idle)), (
            "free machines"
        )
        assert self._waiting == sum(len(work.placed) for work in self._work.values()), "waiting tasks"
        assert (self._armed is not None) == bool(self._waiting and self._free_seats & self._suitable_seats), (
            "a heartbeat is missed"
        )

        for work in self._work.values():
            work.placed.check()
        self._pools.check()

        if self._preemptor is not None:
            self._preemptor.check(self._running)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Heartbeat: on_heartbeat,
        TimerFired: on_timer,
    }
    sends = ANSWERS | sent_to("node", Launch, Kill)
