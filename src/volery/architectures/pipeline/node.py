"""The machine's side: stages files in and deletes them, runs tasks, reports on them, and is switched on and off.

The messages of all roles are here: between a machine and the component that places tasks, and `Pass` between those.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from volery.core.component import Component, Sends, role_of, sent_to
from volery.core.events import PeerBack, PeerLost, Switched, TaskFinished, TimerFired
from volery.core.model import NEVER, Address, Message, Task, TaskId, Time
from volery.roles.node import Completed, Kill


class Launch(Message, frozen=True):
    """Scheduler, or local manager > node: run the task.

    Args:
        number: Number that grows per sender, so that a repeated or overtaken message is recognised.
        task: The task to run.
        attempt: Number of the attempt; 0 is the first.
        stage_us: Time to stage files in before (stage T5); the machine is taken meanwhile.
        incarnation: Incarnation of the node for which this is meant.
        clean_us: Time to delete files after it (stage T8); the machine is taken meanwhile, and Cleaned follows.
    """

    number: int
    task: Task
    attempt: int = 0
    stage_us: Time = 0
    incarnation: int = 0
    clean_us: Time = 0


class Cleaned(Message, frozen=True):
    """Node > its manager: the files of an attempt that has completed are deleted."""

    task: TaskId
    attempt: int = 0


class Report(Message, frozen=True):
    """Node > its manager: the tasks that run, periodically (stage T6).

    Args:
        tasks: Task, attempt, time for which it has run, and thousandths of its request that it uses.
    """

    tasks: tuple[tuple[TaskId, int, Time, int], ...]


class Restarted(Message, frozen=True):
    """Node > its manager: a new incarnation has begun, and all that ran before is lost."""

    incarnation: int


class SwitchOn(Message, frozen=True):
    """Scheduler, or local manager > node: boot the machine; Ready follows.

    Args:
        number: Number that is counted with those of launches.
        boot_us: Duration of the boot.
        incarnation: Incarnation of the node for which this is meant.
    """

    number: int
    boot_us: Time
    incarnation: int = 0


class Ready(Message, frozen=True):
    """Node > its manager: the machine is on.

    Args:
        number: Number of the SwitchOn that asked for it.
    """

    number: int


class SwitchOff(Message, frozen=True):
    """Scheduler, or local manager > node: nothing runs there; switch the machine off.

    Args:
        number: Number that is counted with those of launches.
        incarnation: Incarnation of the node for which this is meant.
    """

    number: int
    incarnation: int = 0


class Pass(Message, frozen=True):
    """Scheduler > local resource manager, or broker: manage this task; Completed follows when it has ended.

    Args:
        number: Number that grows per sender, so that a repeated or overtaken message is recognised.
        task: The task.
        user, priority, deadline_us, submit_us, task_count, limit_us: Facts of its job.
        rank_us: Length of the longest chain of tasks that begins with it.
        came_us: Time when the task was submitted.
    """

    number: int
    task: Task
    user: str
    priority: int
    deadline_us: Time
    submit_us: Time
    task_count: int
    rank_us: Time
    came_us: Time
    limit_us: Time = NEVER


BOOT, CLEAN = "boot", "clean"
REPORT = "report"
ALL: Final = 1000


class Use(msgspec.Struct, frozen=True):
    """A model of what tasks use of their requests: a share that each task draws, and may draw again at a report.

    Args:
        least, most: Limits of the share, in thousandths; it is uniform between them.
        jumps: Probability that a task draws again at a report.
    """

    least: int = ALL
    most: int = ALL
    jumps: float = 0.0


class Upkeep(msgspec.Struct, frozen=True):
    """The work of a node beside running tasks.

    Args:
        cleans: Whether launches may ask for the deletion of files (stage T8).
        report_us: Period of reports on running tasks (stage T6); 0: none.
        use: Model of the use of requests, which a real machine would measure.
    """

    cleans: bool = False
    report_us: Time = 0
    use: Use = Use()


NONE: Final = Upkeep()


class Monitored(msgspec.Struct):
    """A task that runs, as its node reports it."""

    attempt: int
    begun_us: Time
    use: int


class Node(Component):
    """One machine.

    Args:
        manager: The component that launches here.
        incarnation: Number of this incarnation, 0 for the first; messages for others are refused.
        rented: Number of the machine in the whole cluster where it is switched on and off; -1: it is always on.
        on: Whether a rented machine is on when the run begins.
        upkeep: Reports and deletions.
        stream: Stream of the use of tasks; None: there are no reports.
    """

    __slots__ = (
        "_files",
        "_incarnation",
        "_last_number",
        "_manager",
        "_monitored",
        "_on",
        "_rented",
        "_staging",
        "_stream",
        "_upkeep",
    )

    def __init__(
        self,
        manager: Address,
        incarnation: int = 0,
        rented: int = -1,
        *,
        on: bool = False,
        upkeep: Upkeep = NONE,
        stream: Random | None = None,
    ) -> None:
        self._manager = manager
        self._incarnation = incarnation
        self._rented = rented
        self._on = on
        self._last_number = 0
        # Most nodes of large clusters never stage, delete or report: their tables are made on demand.
        self._staging: dict[TaskId, Launch] | None = None
        self._upkeep = upkeep
        self._stream = stream
        self._files: dict[tuple[TaskId, int], Time] | None = None
        self._monitored: dict[TaskId, Monitored] | None = None

    def start(self, now: Time) -> None:
        """Announce a new incarnation, and observe a machine that is on."""
        if self._incarnation:
            self._port.send(self._manager, Restarted(self._incarnation))
        if self._on:
            self._port.observe(Switched(now, self._rented, "on"))

    def _is_new(self, message: Launch | SwitchOn | SwitchOff) -> bool:
        """True for a message that is meant for this incarnation, and neither repeated nor overtaken."""
        if message.incarnation != self._incarnation or message.number <= self._last_number:
            return False

        self._last_number = message.number
        return True

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        """Start the task, once its files are here."""
        if not self._is_new(message):
            return

        if message.clean_us:
            if self._files is None:
                self._files = {}
            self._files[message.task.id, message.attempt] = message.clean_us

        if not message.stage_us:
            self._run(message.task, message.attempt, now)
            return

        if self._staging is None:
            self._staging = {}
        self._staging[message.task.id] = message
        self._port.set_timer(message.task.id, now + message.stage_us)

    def _run(self, task: Task, attempt: int, now: Time) -> None:
        self._port.launch(task, attempt)
        if self._upkeep.report_us:
            if not self._monitored:
                self._monitored = {}
                period_us = self._upkeep.report_us
                self._port.set_timer(REPORT, (now // period_us + 1) * period_us)

            self._monitored[task.id] = Monitored(attempt, now, self._draw_use())

    def _draw_use(self) -> int:
        use = self._upkeep.use
        assert self._stream is not None, "a node that reports has one"
        return use.least if use.least == use.most else self._stream.randint(use.least, use.most)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Start the task whose files have come, report, or announce a machine that has booted or deleted files."""
        key = event.key
        if key == REPORT:
            self.report(now)
        elif isinstance(key, tuple) and key[0] == CLEAN:
            self._port.send(self._manager, Cleaned(int(key[1]), int(key[2])))
        elif isinstance(key, tuple):
            self._port.observe(Switched(now, self._rented, "on"))
            self._port.send(self._manager, Ready(int(key[1])))
        else:
            assert self._staging is not None and isinstance(key, int)  # noqa: PT018 - one condition: what was set
            message = self._staging.pop(key)
            self._run(message.task, message.attempt, now)

    def report(self, now: Time) -> None:
        """Stage T6: send progress and use of all tasks that run; nothing where none does."""
        if not self._monitored:
            return

        rows = []
        for task, monitored in self._monitored.items():
            if self._upkeep.use.jumps and self._stream is not None and self._stream.random() < self._upkeep.use.jumps:
                monitored.use = self._draw_use()
            rows.append((task, monitored.attempt, now - monitored.begun_us, monitored.use))

        self._port.send(self._manager, Report(tuple(rows)))
        self._port.set_timer(REPORT, now + self._upkeep.report_us)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the task, if it still runs or waits for its files."""
        # Nothing has been started: there is no end that the machine would report.
        if self._staging and message.task in self._staging and self._staging[message.task].attempt == message.attempt:
            del self._staging[message.task]
            self._port.cancel_timer(message.task)
            self._port.send(self._manager, Completed(message.task, message.attempt, killed=True))
            return

        self._port.kill(message.task, message.attempt)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report the end, and then delete what the task has left."""
        task = event.task.id
        attempt = event.attempt
        is_killed = event.outcome == "killed"

        if self._monitored:
            self._monitored.pop(task, None)

        self._port.send(self._manager, Completed(task, attempt, is_killed))

        if self._files:
            self.clean(task, attempt, is_killed, now)

    def clean(self, task: TaskId, attempt: int, killed: bool, now: Time) -> None:
        """Stage T8: delete files; those of an attempt that was ended go at once."""
        assert self._files is not None, "a launch has named them"
        clean_us = self._files.pop((task, attempt), 0)

        if clean_us and not killed:
            self._port.set_timer((CLEAN, task, attempt), now + clean_us)

    def on_switch_on(self, message: SwitchOn, source: Address, now: Time) -> None:
        if self._is_new(message):
            self._port.observe(Switched(now, self._rented, "booting"))
            self._port.set_timer((BOOT, message.number), now + message.boot_us)

    def on_switch_off(self, message: SwitchOff, source: Address, now: Time) -> None:
        """Switch off; the manager knows that no task runs."""
        if self._is_new(message):
            self._port.observe(Switched(now, self._rented, "off"))

    def on_peer(self, event: PeerLost | PeerBack, source: Address, now: Time) -> None:
        """The manager does not fail."""

    def emits(self) -> Sends:
        ready = (Ready,) if self._rented >= 0 else ()
        cleaned = (Cleaned,) if self._upkeep.cleans else ()
        report = (Report,) if self._upkeep.report_us else ()
        return sent_to(role_of(self._manager), Completed, Restarted, *ready, *cleaned, *report)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Launch: on_launch,
        Kill: on_kill,
        TaskFinished: on_task_finished,
        TimerFired: on_timer,
        SwitchOn: on_switch_on,
        SwitchOff: on_switch_off,
        PeerLost: on_peer,
        PeerBack: on_peer,
    }
    sends = frozenset().union(
        *(sent_to(role, Completed, Restarted, Ready, Cleaned, Report) for role in ("scheduler", "lrm", "broker"))
    )
