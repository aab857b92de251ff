"""Client of the task supervisor: the executor of a node host whose tasks outlive it."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.errors import InputError
from volery.core.events import Adopted
from volery.core.model import Address, Task, TaskId
from volery.live.clock import is_set_within
from volery.live.config.limits import NO_RULES, NodeRules
from volery.live.messages import TaskReport
from volery.live.node.executor import OnEnd, Report
from volery.live.node.supervisor import (
    READY,
    AttemptInventory,
    AttemptReport,
    Channel,
    ForgetAttempt,
    FromHost,
    FromSupervisor,
    KeepAlive,
    KillAttempt,
    NodeShortage,
    Shutdown,
    StartAttempt,
    SupervisedAttempt,
    TakeOver,
    socket_in,
)

TICKS_PER_LEASE: Final = 9
START_S: Final = 60.0
ANSWER_S: Final = 30.0
"""Longest wait for the inventory. It takes milliseconds, unless the attempts of an expired lease have yet to end."""
END_S: Final = 60.0
"""Longest wait for the ends of tasks; tasks with longer times of grace go on with the supervisor alone."""

log = logging.getLogger(__name__)


class SupervisorLost(RuntimeError):  # noqa: N818 - it names a state
    """The tasks of this node host are lost: the host has to restart."""


class SupervisorClient:
    """The executor of a node host whose tasks outlive it: the supervisor of a state folder runs them.

    Args:
        tasks, state: folders, see `NodeAgent`.
        lease_s: silence of this program after which what runs is ended; 0: never.
        run_as: the accounts of tasks, see `Accounts`.

    Attributes:
        held: the means that hold tasks to their amounts, in words; known once it is open.
        shortage: shortage of the machine, for which attempts cannot start, in words; empty: none.
    """

    def __init__(
        self, tasks: Path, state: Path, lease_s: float, run_as: str | dict[str, str] = "", rules: NodeRules = NO_RULES
    ) -> None:
        self._run_as = run_as
        self._rules = rules
        self.held = ""
        self.shortage = ""
        self._shortage_changed: Callable[[], None] | None = None
        self._tasks = tasks
        self._state = state
        self._lease_s = lease_s
        self._attempts: dict[tuple[TaskId, int], tuple[Task, OnEnd]] = {}
        self._start_reports: list[TaskReport] = []
        self._end_reports: list[TaskReport] = []
        self._channel: Channel | None = None
        self._child = 0
        self._closing = False
        self._is_resumed = False
        self._adopted_attempts: list[SupervisedAttempt] = []
        self._kill_requests: set[tuple[TaskId, int]] = set()
        self._strays: set[tuple[TaskId, int]] = set()
        self._strays_ended = asyncio.Event()
        self._keep_alive_timer: asyncio.TimerHandle | None = None
        self._disconnected = asyncio.Event()

    async def open(
        self, nodes: Collection[Address], report: Report, lost: Callable[[Exception], None]
    ) -> tuple[tuple[Address, Adopted], ...]:
        """Find or start the supervisor; end what runs for nodes that this host has no more, before it runs elsewhere.

        Args:
            nodes: nodes that this host has.
            report: is called for every start and end.
            lost: is called when the supervisor is gone.

        Returns:
            What is adopted: attempts that run, and those that have ended since the host was last there; and on which
            node. When the lease was over nothing runs any more, and what was ended for it is only reported.

        Raises:
            InputError: there can be none.
        """
        self._report, self._lost = report, lost
        loop = asyncio.get_running_loop()
        self._inventory: asyncio.Future[AttemptInventory] = loop.create_future()
        connection = await asyncio.to_thread(self._connected)
        _, self._channel = await loop.create_unix_connection(
            lambda: Channel(FromSupervisor, self._take, self._on_disconnect), sock=connection
        )

        self._send(TakeOver(self._lease_s))
        await asyncio.wait((self._inventory,), timeout=ANSWER_S)
        if not self._inventory.done():
            self._inventory.cancel()
            raise SupervisorLost(f"its task supervisor has not answered for {ANSWER_S:g} s")

        inventory = self._inventory.result()
        self.held, self.shortage = inventory.held, inventory.shortage
        if self.held:
            log.info("%s", self.held)

        self._tick()
        if inventory.attempts:
            overdue = f"have ended, or were ended: the host was away for longer than its lease of {self._lease_s:g} s"
            fate = overdue if inventory.expired else "go on, or have ended meanwhile"
            log.warning("%d attempts of this host's last incarnation %s", len(inventory.attempts), fate)

        self._start_reports = [attempt.begun for attempt in inventory.attempts if attempt.begun is not None]
        self._end_reports[:0] = [attempt.end for attempt in inventory.attempts if attempt.end is not None]

        if inventory.expired:  # what had come to its own end by then is done nevertheless
            self._adopted_attempts = [
                item for item in inventory.attempts if item.end is not None and item.end.state != "killed"
            ]
        else:
            self._adopted_attempts = [
                item for item in inventory.attempts if item.end is None or item.end.state != "killed"
            ]

        await self._end_strays([item for item in inventory.attempts if item.node not in nodes])
        self._adopted_attempts = [item for item in self._adopted_attempts if item.node in nodes]
        return tuple([(item.node, Adopted(item.task, item.attempt, item.note)) for item in self._adopted_attempts])

    async def _end_strays(self, attempts: Sequence[SupervisedAttempt]) -> None:
        """End attempts of nodes that this host had in an earlier incarnation, and wait for that."""
        running = [item for item in attempts if item.end is None]
        if not running:
            return

        names = ", ".join(dict.fromkeys(item.node for item in running))
        log.warning(
            "%d attempts ran on %s, which this host has no more: ended, to run again elsewhere",
            len(running),
            names[:200],
        )
        self._strays = {(item.task.id, item.attempt) for item in running}

        # Some may have ended since the inventory was made.
        self._strays -= {(report.task, report.attempt) for report in self._end_reports}

        for task, attempt in self._strays:
            self.kill(task, attempt)

        if self._strays and not self._disconnected.is_set():
            self._strays_ended.clear()  # ends of other attempts may have set it
            if not await is_set_within(self._strays_ended, END_S):
                raise SupervisorLost(f"{len(self._strays)} attempts on {names[:200]} have not ended within {END_S:g} s")

    def _connected(self) -> Any:
        self._state.mkdir(parents=True, exist_ok=True)
        folder = os.open(self._state, os.O_RDONLY)
        try:
            try:
                return socket_in(folder, connect=True)
            except OSError:
                self._start_supervisor()
                return socket_in(folder, connect=True)
        finally:
            os.close(folder)

    def _start_supervisor(self) -> None:
        words = [sys.executable, "-m", "volery.live.node.supervisor", str(self._tasks), str(self._state)]
        log_file = os.open(self._state / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

        with os.fdopen(log_file, "ab") as errors:
            log_start = errors.tell()
            started = subprocess.Popen(  # noqa: S603 - our own module
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )

        assert started.stdin is not None
        assert started.stdout is not None
        with suppress(BrokenPipeError), started.stdin as arguments:  # arguments are seen by all users of the machine
            arguments.write(msgspec.json.encode((self._run_as, self._rules)))

        with started.stdout as output:
            answer = select.poll()
            answer.register(output, select.POLLIN)
            if not answer.poll(1000 * START_S):
                started.kill()
            ready = output.readline()

        self._child = started.pid
        started.returncode = 0  # it may outlive this program: the object is not to look after it

        if ready != READY:
            problem = (self._state / "supervisor.log").read_text()[log_start:].strip()
            raise InputError("node agent", f"its supervisor does not start: {problem}")

    def resume(self, end_of: Callable[[Address], OnEnd]) -> None:
        """Report adopted attempts to the host that has started, and their starts and ends to the submitter.

        Args:
            end_of: a node's `OnEnd`.
        """
        for attempt in self._adopted_attempts:
            self._attempts[attempt.task.id, attempt.attempt] = (attempt.task, end_of(attempt.node))
        self._is_resumed = True
        start_reports, self._start_reports = self._start_reports, []
        for report in start_reports:
            self._report(report)
        end_reports, self._end_reports = self._end_reports, []
        for report in end_reports:
            self._end(report)

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd, note: bytes = b"") -> None:
        if (task.id, attempt) not in self._attempts:
            self._attempts[task.id, attempt] = (task, on_end)
            self._send(StartAttempt(node, task, attempt, note))

    def kill(self, task: TaskId, attempt: int) -> None:
        self._kill_requests.add((task, attempt))
        self._send(KillAttempt(task, attempt))

    def watch_shortage(self, on_change: Callable[[], None]) -> None:
        """Call a function whenever `shortage` changes."""
        self._shortage_changed = on_change

    def forget(self, task: TaskId, attempt: int) -> None:
        """Have the supervisor forget an attempt whose end is stored."""
        self._send(ForgetAttempt(task, attempt))

    def _send(self, message: FromHost) -> None:
        assert self._channel is not None, "it has not been opened"
        self._channel.send(message)

    def _tick(self) -> None:
        if self._lease_s and not self._closing:
            self._send(KeepAlive())
            self._keep_alive_timer = asyncio.get_running_loop().call_later(self._lease_s / TICKS_PER_LEASE, self._tick)

    async def close(self) -> None:
        """End everything that runs; ends that were not received stay with the supervisor.

        A host without a lease is a whole federation: what its submitter has received is stored when that closes.
        """
        if self._closing or self._channel is None:
            return

        self._stop_ticking()
        keep = self._lease_s > 0
        self._send(Shutdown(keep))
        if not await is_set_within(self._disconnected, END_S):
            log.error("tasks have not ended within %g s: their supervisor goes on without this host", END_S)
            self._channel.close()
            return

        if self._child and not keep:
            with suppress(ChildProcessError):
                await asyncio.to_thread(os.waitpid, self._child, 0)

    def _take(self, _: Channel, message: Any) -> None:
        if isinstance(message, AttemptInventory):
            self._inventory.set_result(message)
            return
        if isinstance(message, NodeShortage):
            self.shortage = message.words
            log.warning("%s", self.shortage or "tasks can start here again")
            if self._shortage_changed is not None:
                self._shortage_changed()
            return

        assert isinstance(message, AttemptReport)
        if self._closing:
            return

        if message.report.state == "running":
            self._report(message.report)
        elif not self._is_resumed:  # it has ended since the inventory, and the components have not started yet
            self._end_reports.append(message.report)
            self._strays.discard((message.report.task, message.report.attempt))
            if not self._strays:
                self._strays_ended.set()
        else:
            self._end(message.report)

    def _end(self, report: TaskReport) -> None:
        key = (report.task, report.attempt)
        attempt = self._attempts.pop(key, None)

        # Nobody here has ordered this end: the supervisor has ended what runs because it did not hear from this host.
        if report.state == "killed" and attempt is not None and key not in self._kill_requests:
            self._give_up(SupervisorLost("this host has been silent for longer than its lease, and what ran was ended"))
            return

        self._kill_requests.discard(key)
        self._report(report)
        if attempt is not None:
            assert report.state != "running", "an end"
            attempt[1](attempt[0], report.attempt, report.state)

    def leave(self) -> None:
        """Disconnect; the supervisor goes on with what runs, for the next incarnation of this host."""
        if not self._closing and self._channel is not None:
            self._stop_ticking()
            self._channel.close()

    def _stop_ticking(self) -> None:
        self._closing = True
        if self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()

    def _give_up(self, error: SupervisorLost) -> None:
        self.leave()
        self._lost(error)

    def _on_disconnect(self, _: Channel) -> None:
        self._disconnected.set()
        self._strays_ended.set()
        if not self._inventory.done():
            self._inventory.set_exception(SupervisorLost("the supervisor has ended"))
        elif not self._closing:
            self._give_up(SupervisorLost("the supervisor has ended, and what ran here is nobody's any more"))
