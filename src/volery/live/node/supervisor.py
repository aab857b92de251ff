"""Task supervisor of a node host: the parent process of its tasks, which outlives it.

python -m volery.live.node.supervisor TASKS STATE; a node host starts it, writes accounts and rules on its standard
input, and sends over its socket what is to run. If the host has failed, the supervisor reaps the tasks that end, stores
how, and reports to the host's next incarnation. When no host has sent anything for the length of the lease, it ends
what runs: the tasks may be given to others by then. It ends when it is told to, or when no host needs it any more.

A message on the socket is its length (4 bytes, little endian) and MessagePack. Both sides are processes of one user on
one machine and of one version: a supervisor is started by the host that it serves, or was by its predecessor.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.errors import InputError
from volery.core.events import Outcome
from volery.core.model import Address, Task, TaskId
from volery.live.clock import unix_now_us
from volery.live.config.limits import NodeRules
from volery.live.messages import TaskReport
from volery.live.node.agent import NodeAgent
from volery.live.node.context import attempt_number
from volery.live.node.spawn import Accounts

READY: Final = b"ready\n"
FIRST_S: Final = 60.0
"""Longest wait of a supervisor for the host that has started it."""
ALONE_S: Final = 1.0
"""Time between two checks whether a supervisor without a host can end."""
LATE_S: Final = 0.2
"""Delay of a check that shows that this process was stopped: its host may have sent something meanwhile."""
LISTEN_S: Final = 0.05
EXPIRED: Final = "its node host was silent for longer than its lease"
LINGER_S: Final = 3600.0
"""Time for which ends are kept for a host that does not come back."""


SOCKET: Final = "supervisor.sock"
CHUNK_BYTES: Final = 1 << 16
_LENGTH: Final = struct.Struct("<I")


class TakeOver(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor, first: the host that is served from now on. `AttemptInventory` answers.

    Args:
        lease_s: time without a `KeepAlive` after which the supervisor ends what runs; 0: never.
    """

    lease_s: float


class StartAttempt(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor: start an attempt."""

    node: Address
    task: Task
    attempt: int
    note: bytes


class KillAttempt(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor: end an attempt."""

    task: TaskId
    attempt: int


class ForgetAttempt(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor: the end of this attempt is stored elsewhere."""

    task: TaskId
    attempt: int


class KeepAlive(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor: the host runs."""


class Shutdown(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor: end all attempts and this process.

    Args:
        keep: stay while there are ends that are not stored elsewhere, for the host's next incarnation.
    """

    keep: bool


class SupervisedAttempt(msgspec.Struct, array_like=True):
    """An attempt in the supervisor; `task` without its payload, `begun` and `end` once that was reported."""

    node: Address
    task: Task
    attempt: int
    note: bytes
    end: TaskReport | None = None
    begun: TaskReport | None = None


class AttemptInventory(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Supervisor > host: all attempts.

    Args:
        attempts: attempts that run, or have ended and were not forgotten.
        expired: true if the lease was over before the host came, so that the attempts are void.
        held: the means that hold tasks to their amounts, in words.
        shortage: shortage of the machine, see `NodeShortage`.
    """

    attempts: tuple[SupervisedAttempt, ...]
    expired: bool
    held: str = ""
    shortage: str = ""


class NodeShortage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Supervisor > host: the present shortage of the machine, for which attempts cannot start; empty: none."""

    words: str


class AttemptReport(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Supervisor > host: a start or an end."""

    report: TaskReport


FromHost = TakeOver | StartAttempt | KillAttempt | ForgetAttempt | KeepAlive | Shutdown
FromSupervisor = AttemptInventory | NodeShortage | AttemptReport


class Channel(asyncio.BufferedProtocol):
    """One end of the socket.

    Args:
        kind: type of the messages of the other end.
        lost: is called when the other end is gone.
    """

    def __init__(self, kind: Any, take: Callable[[Channel, Any], None], lost: Callable[[Channel], None]) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._take = take
        self._lost = lost
        self._chunk = bytearray(CHUNK_BYTES)
        self._buffer = bytearray()
        self._transport: Any = None  # uvloop's transports are no asyncio.Transport to isinstance

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, _: int) -> bytearray:
        return self._chunk

    def buffer_updated(self, byte_count: int) -> None:
        """Take all messages that are whole."""
        received, at, size = self._buffer, 0, _LENGTH.size

        received += memoryview(self._chunk)[:byte_count]
        while len(received) - at >= size:
            (length,) = _LENGTH.unpack_from(received, at)
            if len(received) - at - size < length:
                break
            message = self._decode(bytes(received[at + size : at + size + length]))
            at += size + length
            self._take(self, message)

        del received[:at]

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._lost(self)

    def send(self, message: FromHost | FromSupervisor) -> None:
        """Send a message; drop it where the other end is gone."""
        if self._transport is not None:
            encoded_message = self._encode(message)
            self._transport.write(_LENGTH.pack(len(encoded_message)) + encoded_message)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


CONNECT_S: Final = 10.0


def socket_in(folder: int, connect: bool) -> socket.socket:
    """A socket in a folder, by its descriptor: the path of a socket may have 107 bytes only.

    Raises:
        OSError: no process listens there, or it cannot be made.
    """
    path = f"/proc/self/fd/{folder}/{SOCKET}"
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if connect:
            end.settimeout(CONNECT_S)  # one that is stopped takes a few connections, and then none
            end.connect(path)
        else:
            end.bind(path)
    except OSError:
        end.close()
        raise

    end.setblocking(False)
    return end


class TaskSupervisor:
    """Runs attempts for one host after the other.

    Args:
        tasks, state, accounts, rules: arguments of the agent, see `NodeAgent`.

    Raises:
        InputError: as the agent.
    """

    def __init__(self, tasks: Path, state: Path, accounts: Accounts, rules: NodeRules) -> None:
        self._agent = NodeAgent(tasks, state, self._take_report, accounts=accounts, rules=rules, by_incarnation=True)
        self._agent.watch_shortage(self._tell_shortage)
        self._attempts: dict[tuple[TaskId, int], SupervisedAttempt] = {}
        self._host: Channel | None = None
        self._lease_s = 0.0
        self._is_expired = False
        self._is_finishing = False
        self._next_host: tuple[Channel, TakeOver] | None = None
        self._renewed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._end_ordered = asyncio.Event()

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
        server = await loop.create_unix_server(
            lambda: Channel(FromHost, self._take, self._on_disconnect), sock=self._socket
        )
        os.write(1, READY)
        self._renewed_at = loop.time()
        self._timer = loop.call_later(FIRST_S, self._check_lease)

        try:
            await self._end_ordered.wait()
        finally:
            server.close()
            await self._agent.close()

    def _take(self, host: Channel, message: Any) -> None:
        if isinstance(message, TakeOver):
            # One host at a time: an older incarnation that still runs must order nothing any more.
            if self._host is not None:
                self._host.close()
                self._host = None
            self._next_host = (host, message)
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
                self._end_ordered.set()
            case Shutdown():
                self._finish(host)

    def _runs(self) -> bool:
        return any(attempt.end is None for attempt in self._attempts.values())

    def _maybe_serve(self) -> None:
        """Serve the new host, once what is ended because the lease was over is gone: its room is given away."""
        if self._next_host is None or (self._is_expired and self._runs()):
            return

        (host, message), self._next_host = self._next_host, None
        self._host, self._lease_s, self._is_finishing = host, message.lease_s, False
        attempts = tuple(self._attempts.values())
        agent = self._agent
        host.send(AttemptInventory(attempts, self._is_expired, agent.held, agent.shortage))

        # Attempts that were ended for the lease are void; those that ended by themselves are kept.
        if self._is_expired:
            self._forget_killed()

        self._is_expired = False

        self._renewed_at = asyncio.get_running_loop().time()
        self._check_lease()

    def _forget_killed(self) -> None:
        for key in [
            key for key, attempt in self._attempts.items() if attempt.end is not None and attempt.end.state == "killed"
        ]:
            del self._attempts[key]

    def _begin(self, message: StartAttempt) -> None:
        key = (message.task.id, message.attempt)
        if key in self._attempts:
            return

        bare_task = msgspec.structs.replace(message.task, payload=b"")
        self._attempts[key] = SupervisedAttempt(message.node, bare_task, message.attempt, message.note)
        if self._is_expired:  # sent before the host got the inventory, and void
            now_us = unix_now_us()
            number = attempt_number(message.task.payload, message.attempt, by_incarnation=True)
            self._take_report(
                TaskReport(
                    bare_task.id,
                    bare_task.job,
                    message.attempt,
                    message.node,
                    "killed",
                    now_us,
                    reason=EXPIRED,
                    counted=number,
                )
            )
        else:
            self._agent.start(message.node, message.task, message.attempt, _nobody_else)

    def _finish(self, host: Channel) -> None:
        """End what runs, then release the host; attempts that ended by themselves are kept for its next incarnation."""
        if host is not self._host:
            return
        self._is_finishing = True

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
            if self._is_finishing and not self._runs():
                self._dismiss()
                return

        if self._host is not None:
            self._host.send(AttemptReport(report))

        self._maybe_serve()

    def _tell_shortage(self) -> None:
        if self._host is not None:
            self._host.send(NodeShortage(self._agent.shortage))

    def _on_disconnect(self, host: Channel) -> None:
        if self._next_host is not None and host is self._next_host[0]:
            self._next_host = None
        if host is self._host:
            self._host = None
            self._check_lease()

    def _check_lease(self) -> None:
        """End what runs when the lease is over, and this process when no host needs it."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()

        silent_s = loop.time() - self._renewed_at
        running = self._runs()
        if self._lease_s and silent_s >= self._lease_s and not self._is_expired and (running or self._host is None):
            self._is_expired = True
            self._agent.end_all()

        if self._host is None and not running and (not self._attempts or silent_s > LINGER_S):
            self._end_ordered.set()
        elif self._lease_s and not self._is_expired:
            # At least a tenth: an expired lease with nothing to end would make a busy loop of the checks.
            self._check_lease_after(max(self._lease_s - silent_s, self._lease_s / 10))
        elif self._host is None:
            self._check_lease_after(ALONE_S)

    def _check_lease_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._on_check_due, loop.time() + seconds)

    def _on_check_due(self, at: float) -> None:
        """Check the lease; a process that was stopped reads first what its host has sent."""
        loop = asyncio.get_running_loop()
        if loop.time() > at + LATE_S:
            self._timer = loop.call_later(LISTEN_S, self._check_lease)
        else:
            self._check_lease()


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
