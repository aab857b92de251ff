"""The call executor: Python callables in a pool of worker processes, results and exceptions brought back.

Workers are processes and not threads: a call that hangs can be killed, one that crashes takes nobody along, and none
holds the host's interpreter. They stay alive between calls; one whose call was killed is replaced.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from subprocess import SubprocessError
from typing import Final

import msgspec

from volery.core.events import Outcome
from volery.core.model import Address, Task, TaskId
from volery.live.command import Call, decode_payload
from volery.live.node.confinement import Hold, out_of_memory, usage_of
from volery.live.node.executor import OnEnd, Report, report_now
from volery.live.node.folders import attempt_environment, inherited_environment
from volery.live.node.means import Means, attempt_name
from volery.live.node.processes import signal_name
from volery.live.node.worker import LENGTH, Answer, Request, frame

_COMMAND: Final = (sys.executable, "-m", "volery.live.node.worker")


class _Attempt:
    """One launch; `worker` is the process that it is being called in."""

    __slots__ = ("attempt", "folder", "held", "node", "on_end", "stopped", "task", "worker")

    def __init__(self, node: Address, task: Task, attempt: int, on_end: OnEnd) -> None:
        self.node = node
        self.task = task
        self.attempt = attempt
        self.on_end = on_end
        self.folder = ""
        self.held: Hold | None = None
        self.stopped = False
        self.worker: Process | None = None


class CallExecutor:
    """Calls callables.

    Args:
        means: what attempts are run with; what a callable prints goes to its attempt's folder.
        workers: how many calls run at once; others wait. 0: one per processor.
        report: hears of every start and end; the last report of a call holds its pickled result or exception.
    """

    def __init__(self, means: Means, workers: int = 0, report: Report | None = None) -> None:
        self._means = means
        self._ledger = means.ledger
        self._worker_max = workers or os.cpu_count() or 1
        self._report = report
        self._attempts: dict[tuple[TaskId, int], _Attempt] = {}
        self._waiting: asyncio.Queue[_Attempt] = asyncio.Queue()
        self._idle = 0
        self._serving: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd) -> None:
        """Call as soon as a worker is free; an attempt that has been started already is ignored."""
        started = _Attempt(node, task, attempt, on_end)
        if self._closed or (task.id, attempt) in self._attempts:
            return
        self._attempts[task.id, attempt] = started
        self._waiting.put_nowait(started)
        if self._idle < self._waiting.qsize() and len(self._serving) < self._worker_max:
            serving = asyncio.get_running_loop().create_task(self._serve())
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)

    def kill(self, task: TaskId, attempt: int) -> None:
        """Kill the worker that makes the call; Python code cannot be asked to stop."""
        found = self._attempts.get((task, attempt))
        if found is None or found.stopped:
            return
        found.stopped = True
        if found.worker is None:
            self._end(found, "killed", "ended before it was started")
        else:
            _kill(found.worker)

    def end_all(self) -> None:
        """Kill every call."""
        for task, attempt in [*self._attempts]:
            self.kill(task, attempt)

    async def close(self) -> None:
        """Kill all workers."""
        self._closed = True
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self) -> None:
        """One worker's life, and that of those that replace it."""
        worker: Process | None = None
        served = ""
        try:
            while True:
                self._idle += 1
                try:
                    attempt = await self._waiting.get()
                finally:
                    self._idle -= 1
                user = _user_of(attempt.task)
                if worker is not None and user != served:
                    # What one user's code has left in a process is nothing for another's.
                    await self._bury(worker)
                    worker = None
                if worker is None and not attempt.stopped:
                    try:
                        worker, served = await self._new_worker(user), user
                    except (OSError, ValueError, SubprocessError) as error:
                        self._end(attempt, "failed", f"not started: no worker process: {error}")
                # It may have been killed while it waited, and has then ended already.
                if attempt.stopped or worker is None:
                    continue
                if not await self._call(worker, attempt):
                    await self._bury(worker)
                    worker = None
        finally:
            if worker is not None:
                await self._bury(worker)

    async def _new_worker(self, user: str) -> Process:
        name, value = self._ledger.mark
        account = self._means.account_of(user)
        whose, becoming = (account.environment(), account.becoming()) if account is not None else ({}, {})
        worker = await asyncio.create_subprocess_exec(
            *_COMMAND, stdin=PIPE, stdout=PIPE, start_new_session=True,
            env={**inherited_environment(), **whose, name: value}, **becoming,
        )  # fmt: skip
        self._ledger.add(worker.pid)
        return worker

    async def _bury(self, worker: Process) -> int:
        _kill(worker)
        code = await worker.wait()
        self._ledger.remove(worker.pid)
        return code

    async def _call(self, worker: Process, attempt: _Attempt) -> bool:
        """Make one call; whether the worker can make another."""
        task = attempt.task
        try:
            call = decode_payload(task.payload)
            if not isinstance(call, Call):
                raise ValueError("the task carries no callable")
            account = self._means.account_of(call.user)
            folder = self._means.folders.make(task, attempt.attempt)
            if account is not None:
                account.own(folder)
            attempt.folder = str(folder)
            attempt.held = held = self._means.confinement.hold(attempt_name(task, attempt.attempt), call)
            if held is not None:
                held.take_in(worker.pid)
        except (OSError, ValueError) as error:
            self._end(attempt, "failed", f"not started: {error}")
            return attempt.held is None
        self._means.watch_output(folder, account)
        attempt.worker = worker
        if self._report is not None:
            self._report(report_now(attempt.node, task, attempt.attempt, "running", folder=attempt.folder))
        environment = attempt_environment(attempt.node, task, attempt.attempt, task.id - call.first)
        request = Request(call.pickled, attempt.folder, environment)
        if held is not None:
            environment |= held.environment
            request = Request(call.pickled, attempt.folder, environment, held.memory_mb, held.cpus)
        try:
            async with asyncio.timeout(call.timeout_s or None):
                answer = await _ask(worker, request)
        except TimeoutError:
            await self._bury(worker)
            self._end(attempt, "failed", f"timeout: it ran for more than {call.timeout_s:g} s")
            return False
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._bury(worker)
            how = f"by signal {signal_name(-code)}" if code < 0 else f"with exit code {code}"
            if attempt.stopped:
                self._end(attempt, "killed", "killed on request")
            elif usage_of(attempt.held, None).out_of_memory:
                self._end(attempt, "failed", out_of_memory(call.memory_mb))
            else:
                self._end(attempt, "failed", f"its worker process ended {how}")
            return False
        free = self._freed(worker, attempt)
        self._end(attempt, "failed" if answer.reason else "finished", answer.reason, answer.result)
        # A kill may have come while the answer was on its way.
        return free and not attempt.stopped

    def _freed(self, worker: Process, attempt: _Attempt) -> bool:
        """Whether the worker is out of what has held its call; what else the call has started is ended."""
        if attempt.held is None:
            return True
        try:
            attempt.held.let_go(worker.pid)
        except OSError:
            return False
        return True

    def _end(self, attempt: _Attempt, outcome: Outcome, reason: str, result: bytes = b"") -> None:
        task = attempt.task
        del self._attempts[task.id, attempt.attempt]
        usage = None
        if attempt.held is not None:
            usage = usage_of(attempt.held, None)
            attempt.held.end()
        self._means.outputs.end(attempt.folder)
        if self._report is not None:
            self._report(
                report_now(
                    attempt.node, task, attempt.attempt, outcome, reason=reason, folder=attempt.folder, result=result,
                    usage=usage,
                )
            )  # fmt: skip
        attempt.on_end(task, attempt.attempt, outcome)


def _user_of(task: Task) -> str:
    """Whose call it is; nobody's where the task carries none, which fails later."""
    try:
        return decode_payload(task.payload).user
    except ValueError:
        return ""


async def _ask(worker: Process, request: Request) -> Answer:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(frame(request))
    await worker.stdin.drain()
    (length,) = LENGTH.unpack(await worker.stdout.readexactly(LENGTH.size))
    return msgspec.msgpack.decode(await worker.stdout.readexactly(length), type=Answer)


def _kill(worker: Process) -> None:
    """End a worker and all that its calls have started."""
    if worker.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
