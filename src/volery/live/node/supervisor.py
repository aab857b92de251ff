"""Task supervisor of a node host: the parent process of its tasks, which outlives it.

python -m volery.live.node.supervisor TASKS STATE; a node host starts it, writes accounts and rules on its standard
input, and sends over its socket what is to run. If the host has failed, the supervisor reaps the tasks that end, stores
how, and reports to the host's next incarnation. When no host has sent anything for the length of the lease, it ends
what runs: the tasks may be given to others by then. It ends when it is told to, or when no host needs it any more.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.errors import InputError
from volery.core.events import Outcome
from volery.core.model import Task, TaskId
from volery.live.clock import unix_now_us
from volery.live.config.accounts import Accounts
from volery.live.config.limits import NodeRules
from volery.live.messages import TaskReport
from volery.live.node.agent import NodeAgent
from volery.live.node.folders import attempt_number
from volery.live.node.supervisor_protocol import (
    SOCKET,
    AttemptInventory,
    AttemptReport,
    Channel,
    ForgetAttempt,
    FromHost,
    KeepAlive,
    KillAttempt,
    Shutdown,
    StartAttempt,
    SupervisedAttempt,
    TakeOver,
    socket_in,
)

READY: Final = b"ready\n"
FIRST_S: Final = 60.0
"""How long a supervisor waits for the host that has started it."""
ALONE_S: Final = 1.0
"""Between two looks whether a supervisor without a host can end."""
LATE_S: Final = 0.2
"""A look that comes so late means that this process was stopped: its host may have sent something meanwhile."""
LISTEN_S: Final = 0.05
EXPIRED: Final = "its node host was silent for longer than its lease"
LINGER_S: Final = 3600.0
"""How long ends are kept for a host that does not come back."""


class TaskSupervisor:
    """Runs attempts for one host after the other.

    Args:
        tasks, state, accounts, rules: of the agent, see `NodeAgent`.

    Raises:
        InputError: as the agent.
    """

    def __init__(self, tasks: Path, state: Path, accounts: Accounts, rules: NodeRules) -> None:
        self._agent = NodeAgent(tasks, state, self._take_report, accounts=accounts, rules=rules, by_incarnation=True)
        self._attempts: dict[tuple[TaskId, int], SupervisedAttempt] = {}
        self._host: Channel | None = None
        self._lease_s = 0.0
        self._expired = False
        self._finishing = False
        self._coming: tuple[Channel, TakeOver] | None = None
        self._renewed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()
        folder = os.open(state, os.O_RDONLY)
        try:
            (state / SOCKET).unlink(missing_ok=True)  # its last owner is gone: the state folder is ours
            self._socket = socket_in(folder, connect=False)
            (state / SOCKET).chmod(0o600)
        finally:
            os.close(folder)

    async def serve(self) -> None:
        """Serve hosts until one orders the end, or none needs this process."""
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: Channel(FromHost, self._take, self._gone), sock=self._socket)
        os.write(1, READY)
        self._renewed_at = loop.time()
        self._timer = loop.call_later(FIRST_S, self._look)
        try:
            await self._over.wait()
        finally:
            server.close()
            await self._agent.close()

    def _take(self, host: Channel, message: Any) -> None:
        if isinstance(message, TakeOver):
            if self._host is not None:
                self._host.close()
                self._host = None
            self._coming = (host, message)
            self._maybe_serve()
        elif host is self._host:
            self._obey(host, message)

    def _obey(self, host: Channel, message: Any) -> None:
        match message:
            case StartAttempt():
                self._begin(message)
            case KillAttempt():
                self._agent.kill(message.task, message.attempt)
            case ForgetAttempt():
                self._attempts.pop((message.task, message.attempt), None)
            case KeepAlive():
                self._renewed_at = asyncio.get_running_loop().time()
            case Shutdown(keep=False):
                self._over.set()
            case Shutdown():
                self._finish(host)

    def _runs(self) -> bool:
        return any(attempt.end is None for attempt in self._attempts.values())

    def _maybe_serve(self) -> None:
        """Serve the new host, once what is ended because the lease was over is gone: its room is given away."""
        if self._coming is None or (self._expired and self._runs()):
            return
        (host, message), self._coming = self._coming, None
        self._host, self._lease_s, self._finishing = host, message.lease_s, False
        host.send(AttemptInventory(tuple(self._attempts.values()), self._expired, self._agent.held))
        if self._expired:
            self._forget_killed()
        self._expired = False
        self._renewed_at = asyncio.get_running_loop().time()
        self._look()

    def _forget_killed(self) -> None:
        for key in [key for key, it in self._attempts.items() if it.end is not None and it.end.state == "killed"]:
            del self._attempts[key]

    def _begin(self, message: StartAttempt) -> None:
        key = (message.task.id, message.attempt)
        if key in self._attempts:
            return
        bare = msgspec.structs.replace(message.task, payload=b"")
        self._attempts[key] = SupervisedAttempt(message.node, bare, message.attempt, message.note)
        if self._expired:  # sent before the host got the inventory, and void
            at = unix_now_us()
            number = attempt_number(message.task.payload, message.attempt, by_incarnation=True)
            self._take_report(
                TaskReport(
                    bare.id, bare.job, message.attempt, message.node, "killed", at, reason=EXPIRED, counted=number
                )
            )  # fmt: skip
        else:
            self._agent.start(message.node, message.task, message.attempt, _nobody_else)

    def _finish(self, host: Channel) -> None:
        """End what runs, then release the host; attempts that ended by themselves are kept for its next incarnation."""
        if host is not self._host:
            return
        self._finishing = True
        running = [key for key, attempt in self._attempts.items() if attempt.end is None]
        for key in running:
            self._agent.kill(*key)
        if not running:
            self._dismiss()

    def _dismiss(self) -> None:
        self._forget_killed()
        if self._host is not None:
            self._host.close()

    def _take_report(self, report: TaskReport) -> None:
        attempt = self._attempts.get((report.task, report.attempt))
        if attempt is not None and report.state == "running":
            attempt.begun = report
        elif attempt is not None:
            attempt.end = report
            if self._finishing and not self._runs():
                self._dismiss()
                return
        if self._host is not None:
            self._host.send(AttemptReport(report))
        self._maybe_serve()

    def _gone(self, host: Channel) -> None:
        if self._coming is not None and host is self._coming[0]:
            self._coming = None
        if host is self._host:
            self._host = None
            self._look()

    def _look(self) -> None:
        """End what runs when the lease is over, and this process when no host needs it."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        silent_s = loop.time() - self._renewed_at
        running = self._runs()
        if self._lease_s and silent_s >= self._lease_s and not self._expired and (running or self._host is None):
            self._expired = True
            self._agent.end_all()
        if self._host is None and not running and (not self._attempts or silent_s > LINGER_S):
            self._over.set()
        elif self._lease_s and not self._expired:
            self._look_after(max(self._lease_s - silent_s, self._lease_s / 10))
        elif self._host is None:
            self._look_after(ALONE_S)

    def _look_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._due, loop.time() + seconds)

    def _due(self, at: float) -> None:
        """Look; a process that was stopped reads what its host has sent first."""
        loop = asyncio.get_running_loop()
        if loop.time() > at + LATE_S:
            self._timer = loop.call_later(LISTEN_S, self._look)
        else:
            self._look()


def _nobody_else(_task: Task, _attempt: int, _outcome: Outcome) -> None:
    """Do nothing: the report holds everything."""


def main() -> None:
    """Serve; print what cannot be used on standard error."""
    from volery.live.clock import run_loop

    async def serve() -> None:
        try:
            run_as, rules = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[str | dict[str, str], NodeRules])
            supervisor = TaskSupervisor(Path(sys.argv[1]), Path(sys.argv[2]), Accounts(run_as), rules)
        except (InputError, OSError) as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(2)
        with suppress(asyncio.CancelledError):
            await supervisor.serve()

    run_loop(serve())


if __name__ == "__main__":
    main()
