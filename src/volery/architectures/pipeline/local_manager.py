"""A local resource manager (LRM): a queue of its own for the tasks that a scheduler passes to it, or the broker.

Andreadis et al., SC18, section III-D3: stages T2 to T5 and R1 to R5 at the lower one of two levels; stages M1 and B.
"""

from __future__ import annotations

from typing import Final

from volery.architectures.pipeline.attempts import AfterEviction
from volery.architectures.pipeline.autoscaler import SWITCHES
from volery.architectures.pipeline.cycle import Cycle
from volery.architectures.pipeline.node import Cleaned, Launch, Pass, Ready, Report, Restarted
from volery.architectures.pipeline.policies import JobRecord, State, View, Waiting
from volery.architectures.pipeline.policies.policy import Management
from volery.architectures.pipeline.targets import MachineInventory, message_of
from volery.core.component import Component, Sends, sent_to
from volery.core.events import PeerBack, PeerLost, TimerFired
from volery.core.model import Address, JobId, Task, TaskId, Time
from volery.roles.node import Completed, Kill

BROKER: Final[Address] = "broker/0"


class Broker:
    """The tasks that are with the broker, and the policy that sends them there.

    Args:
        inventory: Machines of the broker.
        management: The policy of stage M1.
    """

    __slots__ = ("_machines", "_management", "_passes", "tasks")

    def __init__(self, inventory: MachineInventory, management: Management) -> None:
        self._machines = State(inventory.cluster, inventory.numbers)
        self._machines.access(None)
        self._management = management
        self._passes = 0
        self.tasks: dict[TaskId, Waiting] = {}

    def possible(self, task: Task) -> bool:
        """True where one of its machines holds the task when it is empty."""
        return self._machines.kind(task, 0).possible

    def takes(self, view: View, waiting: Waiting) -> bool:
        """True for a task that goes there: each that no other machine can run, none that the broker cannot."""
        if not self.possible(waiting.task):
            return False

        return not waiting.kind.possible or self._management.brokered(view, waiting)

    def passed(self, waiting: Waiting) -> Pass:
        """The message that hands a task over."""
        self.tasks[waiting.task.id] = waiting
        self._passes += 1
        return message_of(self._passes, waiting)


PASSED = 0
"""The attempt of every passed task, to the upper level: attempts are counted by the lower one."""
TO_SCHEDULER = sent_to("scheduler", Completed)


class LocalManager(Component):
    """Queues the tasks that it is passed, gives them machines, and reports their ends.

    Args:
        cycle: The cycle that places tasks.
        above: The component that passes tasks.
        delay_us: Time that a task is held before it joins the queue.
    """

    __slots__ = ("_cycle", "_delay_us", "_delayed", "_last_number", "_open", "_state", "_upper")

    def __init__(self, cycle: Cycle, above: Address, delay_us: Time = 0) -> None:
        self._cycle = cycle
        self._state = cycle.state
        self._upper = above
        self._delay_us = delay_us
        self._delayed: dict[int, Pass] = {}
        self._open: dict[JobId, int] = {}
        self._last_number = 0

    def start(self, now: Time) -> None:
        """Place tasks from now on."""
        self._cycle.begin(self._port, self)

    def on_pass(self, message: Pass, source: Address, now: Time) -> None:
        """Queue the task; a repeated or overtaken message is ignored."""
        if message.number <= self._last_number:
            return
        self._last_number = message.number

        if self._delay_us:
            self._delayed[message.task.id] = message
            self._port.set_timer(message.task.id, now + self._delay_us)
        else:
            self._take(message, now)

    def _take(self, message: Pass, now: Time) -> None:
        task = message.task
        job = self._state.jobs.get(task.job)

        # A manager knows of a job only what comes with its tasks.
        if job is None:
            job = self._state.jobs[task.job] = JobRecord(
                task.job,
                message.user,
                message.priority,
                message.deadline_us,
                message.submit_us,
                task.estimate_us,
                message.task_count,
                eligible=True,
                limit_us=message.limit_us,
            )

        self._open[task.job] = self._open.get(task.job, 0) + 1

        work = self._state.work_us(task)
        job.work_us += work
        job.left_us += work

        waiting = self._cycle.record(task, job, self._cycle.kind(task, job), message.rank_us, message.came_us, now)
        self._cycle.enqueue(waiting)
        self._cycle.changed(now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Queue a task that was kept for a while, or pass the timer on to the cycle."""
        if isinstance(event.key, int):
            self._take(self._delayed.pop(event.key), now)
        else:
            self._cycle.on_timer(event.key, now)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        number = message.task
        if number in self._delayed:
            del self._delayed[number]
            self._port.cancel_timer(number)
            self._port.send(self._upper, Completed(number, PASSED))
            return

        waiting = self._state.waiting.get(number)
        running = self._state.running.get(number)

        if waiting is not None:
            self._cycle.withdraw(waiting)
            self.finish(waiting, now)
        elif running is not None and self._cycle.call_off(running, now):
            self.finish(running.waiting, now)

        # An attempt that is being evicted ends on its machine; its task is not to be queued then.
        for eviction in self._cycle.evictions.of_task(number):
            if eviction.then is AfterEviction.QUEUE:
                eviction.then = AfterEviction.OVER

        self._cycle.changed(now)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Report the end, and use the machine again."""
        waiting = self._cycle.ended(message, now)
        if waiting is not None:
            self.finish(waiting, now)
            self._cycle.changed(now)

    def finish(self, waiting: Waiting, now: Time) -> None:
        job = waiting.job
        job.left_us -= waiting.work_us
        self._open[job.id] -= 1

        if not self._open[job.id]:
            del self._open[job.id]
            del self._state.jobs[job.id]
            self._cycle.job_done(job.id, now)

        self._port.send(self._upper, Completed(waiting.task.id, PASSED))

    def admit(self, now: Time) -> None:
        """Do nothing: all jobs are eligible here."""

    def on_node(
        self, event: Cleaned | Report | PeerLost | PeerBack | Restarted | Ready, source: Address, now: Time
    ) -> None:
        """Pass the news of a node on to the cycle."""
        self._cycle.on_node(event, source, now)

    def check(self) -> None:
        self._cycle.check()

    def check_rest(self) -> None:
        self._cycle.check_rest()

    def emits(self) -> Sends:
        return TO_SCHEDULER | self._cycle.sends

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Pass: on_pass,
        Kill: on_kill,
        Completed: on_completed,
        Cleaned: on_node,
        Report: on_node,
        TimerFired: on_timer,
        PeerLost: on_node,
        PeerBack: on_node,
        Restarted: on_node,
        Ready: on_node,
    }
    sends = TO_SCHEDULER | sent_to("node", Launch, Kill) | SWITCHES
