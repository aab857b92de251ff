"""Phoenix's schedulers and workers: Eagle's, which also report to a monitor and let scarce constraints go first.

Thinakaran, Gunasekaran, Sharma, Kandemir, Das: Phoenix, ICDCS 2017, sections III and IV.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from volery.architectures.hybrid.central import Central, Layout
from volery.architectures.hybrid.messages import Assign, Crowded, Demanded, Reorder, Scarcity, WithdrawJob
from volery.architectures.hybrid.monitor import BEAT, NONE, DemandReport, WatchSetting, next_beat
from volery.architectures.hybrid.scarcity import RecentService
from volery.architectures.hybrid.scheduler import Batch, Scheduler, SchedulerSetting
from volery.architectures.hybrid.waiting import LeastWait
from volery.architectures.hybrid.worker import Entry, Worker, WorkerSetting
from volery.core.component import sent_to
from volery.core.events import Cancel, Counted, MoreTasks, PeerLost, Submit, TaskFinished, TimerFired
from volery.core.model import Address, JobId, Task, TaskId, Time
from volery.policies.match import positions
from volery.policies.sampling import Draws, Sampler
from volery.roles.reservations import TaskRequest


class PhoenixScheduler(Scheduler):
    """Negotiates soft constraints that cannot be met, and reports what waits.

    Args:
        watch: shared with the monitor.
        layout, sampler, setting, stream, numbering: as of any scheduler.
    """

    __slots__ = ("_negotiated", "_report", "_thousandths", "_watch")

    FACTS = (*Scheduler.FACTS, ("_negotiated", "negotiated_constraints"))

    def __init__(
        self,
        watch: WatchSetting,
        layout: Layout,
        sampler: Sampler,
        setting: SchedulerSetting,
        stream: Random,
        numbering: tuple[int, int],
    ) -> None:
        super().__init__(layout, sampler, setting, stream, numbering)
        self._watch = watch
        self._report = DemandReport(watch)
        self._thousandths: Sequence[int] = (0,) * len(watch.supply)
        self._negotiated = 0

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Place a job."""
        super().on_submit(message, source, now)
        self._report.arm(self._port, now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Place a further chunk."""
        super().on_more_tasks(message, source, now)
        self._report.arm(self._port, now)

    def _schedule(self, job: JobId, tasks: Sequence[Task], estimate_us: Time) -> None:
        if self._watch.soft:
            tasks = [self._admitted(task) for task in tasks]
        super()._schedule(job, tasks, estimate_us)

    def _admitted(self, task: Task) -> Task:
        """The task without the soft constraints that stand in its way; those of the highest CRV go first."""
        needs, soft, supply = task.constraints, task.constraints & self._watch.soft, self._sampler.supply
        if not soft or supply(needs):
            return task
        dropped = 0
        while soft and not supply(needs):
            worst = 1 << max(positions(soft), key=self._scarceness)
            needs ^= worst
            soft ^= worst
            dropped += 1
        if not supply(needs):
            return task
        self._negotiated += dropped
        return msgspec.structs.replace(task, constraints=needs)

    def _scarceness(self, constraint: int) -> tuple[float, int, int]:
        """The CRV as last told; where that is equal, few workers; where none has it, before all others."""
        available = self._watch.supply[constraint] if constraint < len(self._watch.supply) else 0
        ratio = self._thousandths[constraint] if available else float("inf")
        return ratio, -available, -constraint

    def on_scarcity(self, message: Scarcity, source: Address, now: Time) -> None:
        """Keep the CRV."""
        self._thousandths = message.thousandths

    def _probe(self, batch: Batch, wanted: int, least: int) -> None:
        self._report.demand.add(batch.needs, len(batch.tasks))
        super()._probe(batch, wanted, least)

    def on_task_request(self, message: TaskRequest, source: Address, now: Time) -> None:
        """Bind a task, which waits no more."""
        batch = self._batches.get(message.batch)
        waiting = len(batch.tasks) if batch is not None else 0
        super().on_task_request(message, source, now)
        if batch is not None and len(batch.tasks) < waiting:
            self._report.demand.add(batch.needs, -1)
            self._report.arm(self._port, now)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """What has not been bound waits no more."""
        waiting = {batch.id: batch for batch in self._batches.values() if batch.tasks[0].job == message.job}
        super().on_cancel(message, source, now)
        for batch in waiting.values():
            if batch.id not in self._batches:
                self._report.demand.add(batch.needs, -len(batch.tasks))
        self._report.arm(self._port, now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """A heartbeat, or a round of probes."""
        if event.key == BEAT:
            self._report.tell(self._port)
        else:
            super().on_timer(event, source, now)

    def check(self) -> None:
        """What is reported is what waits."""
        super().check()
        asked = [0] * len(self._watch.supply)
        for batch in self._batches.values():
            for k in positions(batch.needs):
                asked[k] += len(batch.tasks)
        assert asked == self._report.demand.counts, f"{asked} tasks wait, {self._report.demand.counts} are reported"

    receives = {**Scheduler.receives, Scarcity: on_scarcity}  # noqa: RUF012 - the base class replaces it
    sends = Scheduler.sends | sent_to("monitor", Demanded)


class PhoenixCentral(Central):
    """Reports what waits of long jobs.

    Args:
        watch: shared with the monitor.
        layout, wait, numbering, watched: as of any central scheduler.
    """

    __slots__ = ("_report",)

    def __init__(
        self, watch: WatchSetting, layout: Layout, wait: LeastWait, numbering: tuple[int, int], *, watched: bool
    ) -> None:
        super().__init__(layout, wait, numbering, watched=watched)
        self._report = DemandReport(watch)

    def _place(self, tasks: list[Task], needs: int, short: bool, estimate_us: Time, now: Time) -> None:
        super()._place(tasks, needs, short, estimate_us, now)
        self._report.demand.add(needs, len(tasks))
        self._report.arm(self._port, now)

    def on_task_request(self, message: TaskRequest, source: Address, now: Time) -> None:
        """Bind a task, which waits no more."""
        tasks = self._tasks.get(message.batch)
        waiting, needs = (len(tasks), tasks[-1].constraints) if tasks else (0, 0)
        super().on_task_request(message, source, now)
        if tasks is not None and len(tasks) < waiting:
            self._report.demand.add(needs, -1)
            self._report.arm(self._port, now)

    def on_withdraw_job(self, message: WithdrawJob, source: Address, now: Time) -> None:
        """What nobody has asked for waits no more."""
        for tasks in self._tasks.values():
            if tasks[0].job == message.job:
                self._report.demand.add(tasks[0].constraints, -len(tasks))
        super().on_withdraw_job(message, source, now)
        self._report.arm(self._port, now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """A heartbeat."""
        self._report.tell(self._port)

    receives = {**Central.receives, TimerFired: on_timer}  # noqa: RUF012 - the base class replaces it
    sends = Central.sends | sent_to("monitor", Demanded)


class PhoenixWorker(Worker):
    """Tells when its queue is crowded, and then lets tasks that ask for the scarcest constraint go first.

    Without word of a scarce constraint it is Eagle's worker. With it, reservations do not stick, and one that asks for
    the constraint passes those that do not, each of which is passed at most `reorder_max` times; long ones neither
    pass nor are passed. Where none asks for it, the queue has its usual order.

    Args:
        watch: shared with the monitor.
        slots, offered, setting, draws: as of any worker.
    """

    __slots__ = ("_armed", "_begun", "_jumped", "_passed", "_recent", "_scarcest", "_told", "_watch")

    def __init__(self, watch: WatchSetting, slots: int, offered: int, setting: WorkerSetting, draws: Draws) -> None:
        super().__init__(slots, offered, setting, draws)
        self._watch = watch
        self._scarcest = NONE
        self._recent: RecentService | None = None
        self._begun: dict[TaskId, tuple[Time, Time]] = {}
        self._passed: dict[int, int] = {}
        self._jumped = 0
        self._armed = self._told = False

    def on_assign(self, message: Assign, source: Address, now: Time) -> None:
        """Run the task, and note when its reservation came."""
        entry = self._entry if message.request == self._asked else (self._others or {}).get(message.request)
        if entry is not None:
            self._begun[message.task.id] = (now - entry.came, now)
        super().on_assign(message, source, now)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Learn from how long it ran; if that makes the queue crowded, or no longer so, report at the heartbeat."""
        came, began = self._begun.pop(event.task.id)
        if self._recent is None:
            self._recent = RecentService(self._slots)
        self._recent.add(came, now - began)
        super().on_task_finished(event, source, now)
        if not self._armed and self._wait_us()[0] != self._told:
            self._armed = True
            self._port.set_timer(BEAT, next_beat(now, self._watch.heartbeat_us))

    def _wait_us(self) -> tuple[bool, Time]:
        """Whether the estimated wait is above the threshold, and the wait."""
        if self._recent is None:
            return False, 0
        wait_us = self._recent.wait_us(self._recent.load())
        return wait_us > self._recent.wait_us(self._watch.wait_load), round(wait_us)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """The heartbeat: tell whether the queue is crowded, if that has changed."""
        self._armed = False
        crowded, wait_us = self._wait_us()
        if crowded != self._told:
            self._told = crowded
            self._port.send(self._watch.monitor, Crowded(crowded, wait_us))

    def on_reorder(self, message: Reorder, source: Address, now: Time) -> None:
        """From now on tasks that ask for this constraint go first."""
        self._follow(message.constraint)

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """Without a monitor this is Eagle's worker."""
        if event.peer == self._watch.monitor:
            self._follow(NONE)

    def _follow(self, scarcest: int) -> None:
        self._scarcest = scarcest
        if self._jumped:
            self._port.observe(Counted("reordered_tasks", self._jumped))
            self._jumped = 0
        if scarcest == NONE:
            self._passed = {number: times for number, times in self._passed.items() if number in self._queue}

    def _take(self) -> Entry | None:
        if self._scarcest == NONE:
            return super()._take()
        entry = self._scarce_first()
        if entry is not None:
            self._drop(entry)
            self._passed.pop(entry.number, None)
        return entry

    def _scarce_first(self) -> Entry | None:
        """The first that asks for the scarcest constraint, as far as those in front may be passed once more."""
        asks, passed, reorder_max = 1 << self._scarcest, self._passed, self._watch.reorder_max
        in_front: list[int] = []
        first: Entry | None = None
        for entry in self._queue.values():
            if entry.asking:
                continue
            if first is None:
                first = entry
            if entry.long:
                break
            if entry.needs & asks:
                for number in in_front:
                    passed[number] = passed.get(number, 0) + 1
                self._jumped += bool(in_front)
                return entry
            if passed.get(entry.number, 0) >= reorder_max:
                return first
            in_front.append(entry.number)
        if first is None or first.long or self._setting.order == "fifo":
            return first
        return self._shortest()

    def check(self) -> None:
        """Nothing is passed more often than allowed."""
        super().check()
        most = max(self._passed.values(), default=0)
        assert most <= self._watch.reorder_max, f"passed {most} times, more than {self._watch.reorder_max}"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **Worker.receives,
        Reorder: on_reorder,
        TimerFired: on_timer,
        PeerLost: on_peer_lost,
    }
    sends = Worker.sends | sent_to("monitor", Crowded)
