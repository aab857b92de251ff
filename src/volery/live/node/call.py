"""The call executor: Python callables in a pool of worker processes, results and exceptions brought back.

Workers are processes and not threads: a call that hangs can be killed, one that crashes takes nobody along, and none
holds the host's interpreter. They stay alive between calls. One whose call was killed is replaced, and one that is not
what it was at its start (see `process_state`), or has made `calls_max` calls. An answer counts for the call whose
number it carries; a worker that answers anything else is replaced.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Final

from volery.core.errors import InputError
from volery.core.events import Outcome
from volery.core.model import Address, Task, TaskId
from volery.live.command import Call, decode_payload
from volery.live.node.confinement import Hold, out_of_memory, usage_of
from volery.live.node.context import (
    WORKER_VARIABLES,
    ExecutorContext,
    attempt_environment,
    attempt_name,
    inherited_environment,
)
from volery.live.node.executor import OnEnd, Report, report_now
from volery.live.node.processes import signal_name
from volery.live.node.shortage import GIVE_BACK_S, WorkerNotReadyError, lack_of, unstarted
from volery.live.node.spawn import Account, Accounts
from volery.live.node.worker import READY, UNANSWERED, CallAnswer, CallRequest
from volery.live.node.worker_process import WorkerProcess, WrongAnswerError

_COMMAND: Final = (sys.executable, "-m", "volery.live.node.worker")
_LEFT_S: Final = 1.0
"""Time in which processes that a call has left must end once they are killed; else the worker is ended, too."""
_LEFT_LOOK_S: Final = 0.002
READY_S: Final = 60.0
"""Time after which a worker that is not ready is replaced."""
GROW_S: Final = 1.0
"""Time without a new call after which calls that wait get one worker more."""

log = logging.getLogger(__name__)


class _CallAttempt:
    """One launch; `worker` is the process that makes the call, and `is_late` tells that its time was over."""

    __slots__ = (
        "attempt",
        "folder",
        "hold",
        "is_late",
        "node",
        "number",
        "on_end",
        "queued_at",
        "stopped",
        "task",
        "worker",
    )

    def __init__(self, node: Address, task: Task, attempt: int, number: int, on_end: OnEnd) -> None:
        self.node = node
        self.task = task
        self.attempt = attempt
        self.number = number
        self.on_end = on_end
        self.folder = ""
        self.hold: Hold | None = None
        self.stopped = False
        self.is_late = False
        self.worker: WorkerProcess | None = None
        self.queued_at = time.monotonic()

    @property
    def key(self) -> tuple[TaskId, int]:
        return self.task.id, self.attempt

    def expire(self) -> None:
        """End the call, whose time is over."""
        self.is_late = True
        if self.worker is not None:
            self.worker.kill()


class CallExecutor:
    """Makes calls in a pool of worker processes.

    Args:
        means: the context of attempts; a callable's output goes to its attempt's folder.
        workers: number of calls that run at once; where none is made for `GROW_S`, one more. 0: one per processor.
        report: is called for every start and end; the last report of a call holds its pickled result or exception.
        calls_max: calls after which a worker process is replaced; 0: never for that.
    """

    def __init__(
        self, means: ExecutorContext, workers: int = 0, report: Report | None = None, calls_max: int = 0
    ) -> None:
        self._means = means
        self._worker_max = workers or os.cpu_count() or 1
        self._report = report
        self._calls_max = calls_max
        self._attempts: dict[tuple[TaskId, int], _CallAttempt] = {}
        self._queue: asyncio.Queue[_CallAttempt] = asyncio.Queue()
        self._idle = 0
        self._serve_tasks: set[asyncio.Task[None]] = set()
        self._grow_timer: asyncio.TimerHandle | None = None
        self._has_progress = False
        self._workers_in_making = 0
        self._closed = False

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd) -> None:
        """Call as soon as a worker is free; an attempt that has been started already is ignored."""
        if self._closed or (task.id, attempt) in self._attempts:
            return

        launch = _CallAttempt(node, task, attempt, self._means.number_of(task, attempt), on_end)
        self._attempts[task.id, attempt] = launch
        self._queue.put_nowait(launch)

        if self._idle < self._queue.qsize():
            if len(self._serve_tasks) < self._worker_max:
                self._add_worker()
            elif self._grow_timer is None:
                self._has_progress = False
                self._grow_timer = asyncio.get_running_loop().call_later(GROW_S, self._grow)

    def _add_worker(self) -> None:
        serve_task = asyncio.get_running_loop().create_task(self._serve())
        self._serve_tasks.add(serve_task)
        serve_task.add_done_callback(self._serve_tasks.discard)

    def _grow(self) -> None:
        """Add a worker where calls wait and none is begun: those that are made may wait for them."""
        self._grow_timer = None
        if self._queue.qsize() > self._idle and not self._closed:
            # One more would take what is short, or what one that is being made waits for.
            if not (self._has_progress or self._workers_in_making or self._means.pause.words):
                self._add_worker()
            self._has_progress = False
            self._grow_timer = asyncio.get_running_loop().call_later(GROW_S, self._grow)

    def kill(self, task: TaskId, attempt: int) -> None:
        """Kill the worker that makes the call; Python code cannot be asked to stop."""
        launch = self._attempts.get((task, attempt))
        if launch is None or launch.stopped:
            return
        launch.stopped = True
        if launch.worker is None:
            self._end(launch, "killed", "ended before it was started")
        else:
            launch.worker.kill()

    def end_all(self) -> None:
        for task, attempt in [*self._attempts]:
            self.kill(task, attempt)

    async def close(self) -> None:
        self._closed = True
        if self._grow_timer is not None:
            self._grow_timer.cancel()
        for serve_task in self._serve_tasks:
            serve_task.cancel()
        await asyncio.gather(*self._serve_tasks, return_exceptions=True)

    async def _serve(self) -> None:
        """Make calls in one worker process after the other."""
        worker: WorkerProcess | None = None
        try:
            while True:
                self._idle += 1
                try:
                    attempt = await self._queue.get()
                finally:
                    self._idle -= 1

                self._has_progress = True

                # It may have been killed while it waited, and has then ended already.
                if not attempt.stopped:
                    try:
                        worker = await self._make_call(worker, attempt)
                    except Exception:  # whatever it is, this call ends, and others are made
                        worker = None
                        self._fail(attempt)

                # A worker that was added while calls waited for others ends when none waits any more.
                if len(self._serve_tasks) > self._worker_max and self._queue.empty():
                    return
        finally:
            if worker is not None:
                await self._bury(worker)

    async def _make_call(self, worker: WorkerProcess | None, attempt: _CallAttempt) -> WorkerProcess | None:
        """Make a call in a worker process, or in a new one; return the process if it can make another."""
        try:
            call = decode_payload(attempt.task.payload)
            if not isinstance(call, Call):
                raise ValueError("the task carries no callable")

            if worker is not None and not worker.can_make(attempt.task.job, call):
                await self._bury(worker)
                worker = None

            if worker is None:
                worker = await self._worker_for(attempt, call.user)
        except ValueError as error:
            self._end(attempt, "failed", f"not started: {error}")
            return worker

        if worker is None or attempt.stopped:  # while the worker was made
            return worker

        can_go_on = False
        try:
            can_go_on = await self._call(worker, attempt, call)
        finally:
            if not can_go_on:
                await self._bury(worker)
            self._means.pause.freed()

        return worker if can_go_on else None

    def _fail(self, attempt: _CallAttempt) -> None:
        """Log the exception that ended a call here, and end it."""
        log.exception("the call of attempt %s failed in its node agent", attempt_name(attempt.task, attempt.attempt))
        if attempt.key in self._attempts:
            self._end(attempt, "failed", "its node agent failed at it; see the log of its host")

    async def _worker_for(self, attempt: _CallAttempt, user: str) -> WorkerProcess | None:
        """A new worker for an attempt; None where that has ended."""
        while not attempt.stopped:
            self._workers_in_making += 1
            try:
                return await self._new_worker(user)
            except (OSError, ValueError, MemoryError, subprocess.SubprocessError, WorkerNotReadyError) as error:
                if not await self._is_delayed(attempt, error):
                    if not attempt.stopped:
                        self._end(attempt, "failed", f"not started: {_why_no_worker(error)}")
                    return None
            finally:
                self._workers_in_making -= 1
        return None

    async def _is_delayed(self, attempt: _CallAttempt, error: BaseException) -> bool:
        """Wait where the machine lacks something to start an attempt; false if it has ended, or is to fail."""
        pause = self._means.pause
        if attempt.stopped or not lack_of(error):
            return False

        pause.begin(attempt.key, error)
        if self._means.may_give_back(attempt.attempt) and attempt.queued_at <= time.monotonic() - GIVE_BACK_S:
            attempt.stopped = True
            self._end(attempt, "unstarted", unstarted(attempt.node, pause.words))
            return False

        await pause.over()
        return not attempt.stopped

    async def _new_worker(self, user: str) -> WorkerProcess:
        means = self._means
        name, value = means.ledger.mark
        account = means.account_of(user)
        environment = {**_worker_environment(means.environment, account), name: value}

        own_end, worker_end = socket.socketpair()

        with worker_end:
            reader, writer = await asyncio.open_unix_connection(sock=own_end)
            mark = means.descendants.mark()
            try:
                popen = means.starters.start(
                    account,
                    _COMMAND,
                    (),
                    mark,
                    stdin=worker_end,
                    stdout=worker_end,
                    start_new_session=True,
                    close_fds=False,
                    env=environment,
                )
            except BaseException:
                means.descendants.release(mark)
                writer.close()
                raise

        try:
            worker = WorkerProcess(_COMMAND, popen, mark, user, reader, writer)
        except OSError:
            popen.kill()
            popen.wait()
            means.descendants.release(mark)
            writer.close()
            raise

        means.began(popen.pid)
        await self._await_ready(worker)
        return worker

    async def _await_ready(self, worker: WorkerProcess) -> None:
        """Wait until a worker takes calls.

        Raises:
            WorkerNotReadyError: it has ended before, or is ended now, because it takes too long.
        """
        try:
            async with asyncio.timeout(READY_S):
                await worker.reader.readexactly(len(READY))
        except BaseException as error:
            code = await self._bury(worker)
            if not isinstance(error, asyncio.IncompleteReadError | ConnectionError | TimeoutError):
                raise  # this executor is being closed

            end = f"signal {signal_name(-code)}" if code < 0 else f"exit code {code}"
            raise WorkerNotReadyError(f"one has ended with {end} before it could take a call") from None

    async def _bury(self, worker: WorkerProcess) -> int:
        """End a worker, with all that its calls have started; of one that was ended before, only its exit code."""
        if worker.popen.returncode is not None:  # its pid may be that of another process by now
            return int(worker.popen.returncode)

        worker.kill()
        self._means.descendants.kill_all(worker.mark, worker.pid)

        end = asyncio.ensure_future(worker.wait())
        try:
            return await asyncio.shield(end)
        except asyncio.CancelledError:
            await end  # this executor is being closed: a killed process ends soon, and nobody else reaps it
            raise
        finally:
            self._means.ended(worker.pid)

            # Once more: a process that was just being started may have escaped the first time.
            self._means.descendants.kill_all(worker.mark, worker.pid)
            self._means.descendants.release(worker.mark)

    async def _call(self, worker: WorkerProcess, attempt: _CallAttempt, call: Call) -> bool:
        """Make one call; true if the worker can make another."""
        while True:
            try:
                request = self._prepare(worker, attempt, call)
                break
            except (OSError, ValueError, MemoryError) as error:
                is_free = attempt.hold is None
                self._undo(attempt)
                if await self._is_delayed(attempt, error):
                    # A worker that ended while the call waited is buried; the call gets another one.
                    if worker.lives:
                        continue
                    self._queue.put_nowait(attempt)
                    return False

                if not attempt.stopped:
                    self._end(attempt, "failed", f"not started: {error}")

                return is_free

        self._means.pause.started(attempt.key)
        attempt.worker = worker
        if self._report is not None:
            self._report(
                report_now(
                    attempt.node,
                    attempt.task,
                    attempt.attempt,
                    "running",
                    folder=attempt.folder,
                    counted=attempt.number,
                )
            )

        timer = asyncio.get_running_loop().call_later(call.timeout_s, attempt.expire) if call.timeout_s else None
        try:
            answer = await worker.ask(request)
        except (asyncio.IncompleteReadError, ConnectionError, WrongAnswerError) as error:
            is_wrong = isinstance(error, WrongAnswerError)
            outcome, reason = await self._unanswered(worker, attempt, call, is_wrong=is_wrong)
            self._end(attempt, outcome, reason)
            return False
        finally:
            if timer is not None:
                timer.cancel()

        if not answer.begun:
            await self._take_back(attempt, call, answer)
            return False

        is_free = self._leave_group(worker, attempt) and await self._is_cleared(worker)
        self._end(attempt, "failed" if answer.reason else "finished", answer.reason, answer.result)

        if answer.changed:
            name = attempt_name(attempt.task, attempt.attempt)
            log.info("a worker process is replaced after attempt %s: %s", name, answer.changed)

        # A kill may have come while the answer was on its way.
        is_unchanged = not (answer.changed or attempt.stopped or attempt.is_late)
        return is_free and is_unchanged and not worker.is_worn(self._calls_max)

    async def _take_back(self, attempt: _CallAttempt, call: Call, answer: CallAnswer) -> None:
        """Have a call wait again that its worker could not begin."""
        if attempt.stopped or attempt.is_late:
            self._end(attempt, *_ended_by_us(attempt, call))
            return

        self._undo(attempt)
        attempt.worker = None
        error = OSError(answer.lack, os.strerror(answer.lack))
        if await self._is_delayed(attempt, error if lack_of(error) else WorkerNotReadyError(answer.reason)):
            self._queue.put_nowait(attempt)

    def _prepare(self, worker: WorkerProcess, attempt: _CallAttempt, call: Call) -> CallRequest:
        """The request of an attempt, which has a folder then, and holds the worker.

        Raises:
            OSError, ValueError: it cannot be started.
        """
        task = attempt.task
        account = self._means.account_of(call.user)
        attempt.folder, attempt.number = self._means.folders.make(task, attempt.number)

        self._means.pause.demand(
            self._means.folders.root, 0, self._means.uid_of(account), running=0
        )  # its worker is there

        if account is not None:
            account.own(attempt.folder)  # the worker makes what is in it

        attempt.hold = hold = self._means.confinement.hold(attempt_name(task, attempt.attempt), call)
        if hold is not None:
            hold.take_in(worker.pid)

        self._means.watch_output(attempt.folder, account)
        worker.job = task.job
        numbers = attempt_environment(attempt.node, task, attempt.number, task.id - call.first)
        environment = self._means.access_of(call) | numbers

        if hold is None:
            return CallRequest(call.pickled, attempt.folder, environment)

        return CallRequest(call.pickled, attempt.folder, environment | hold.environment, hold.memory_mb, hold.cpus)

    def _undo(self, attempt: _CallAttempt) -> None:
        """Remove what was prepared for a call that has not begun."""
        if attempt.hold is not None:
            attempt.hold.release()
        if attempt.folder:
            self._means.outputs.end(attempt.folder)
            shutil.rmtree(attempt.folder, ignore_errors=True)
        attempt.hold, attempt.folder = None, ""
        attempt.number = self._means.number_of(attempt.task, attempt.attempt)

    async def _unanswered(
        self, worker: WorkerProcess, attempt: _CallAttempt, call: Call, *, is_wrong: bool
    ) -> tuple[Outcome, str]:
        """Outcome and reason of a call without an answer: what its process did before it is ended here."""
        has_ended = not is_wrong and await worker.ends()
        program = worker.program()
        code = await self._bury(worker)

        if attempt.stopped or attempt.is_late:
            return _ended_by_us(attempt, call)
        if usage_of(attempt.hold, None).out_of_memory:
            return "failed", out_of_memory(call.memory_mb)

        if is_wrong:
            return "failed", "its worker process sent an answer to another call, and was ended for it; does it fork?"
        if program:
            return "failed", f"it replaced its worker process by another program (exec), which was ended: {program}"
        if not has_ended:
            return "failed", "it closed the socket of its worker process, which could not answer any more"
        if code == UNANSWERED:
            problem = "its worker process could not send the answer (closed descriptors?); its stderr gives the reason"
            return "failed", f"{problem} (exit code {code})"

        end = f"by signal {signal_name(-code)}" if code < 0 else f"with exit code {code}"
        return "failed", f"its worker process ended {end}"

    def _leave_group(self, worker: WorkerProcess, attempt: _CallAttempt) -> bool:
        """Take the worker out of the group of its call, and end what else the call has started; true if it worked."""
        if attempt.hold is None:
            return True
        try:
            attempt.hold.move_out(worker.pid)
        except OSError:
            return False
        return True

    async def _is_cleared(self, worker: WorkerProcess) -> bool:
        """True if all that a call has started and left is gone."""
        for _ in range(round(_LEFT_S / _LEFT_LOOK_S)):
            if not self._means.descendants.kill_all(worker.mark, worker.pid):
                return True
            await asyncio.sleep(_LEFT_LOOK_S)
        return False

    def _end(self, attempt: _CallAttempt, outcome: Outcome, reason: str, result: bytes = b"") -> None:
        task = attempt.task
        del self._attempts[task.id, attempt.attempt]
        usage = usage_of(attempt.hold, None)
        if attempt.hold is not None:
            attempt.hold.end()

        self._means.outputs.end(attempt.folder)
        self._means.pause.forget(attempt.key)

        if self._report is not None:
            self._report(
                report_now(
                    attempt.node,
                    task,
                    attempt.attempt,
                    outcome,
                    reason=reason,
                    folder=attempt.folder,
                    result=result,
                    usage=usage,
                    counted=attempt.number,
                )
            )

        attempt.on_end(task, attempt.attempt, outcome)


def _ended_by_us(attempt: _CallAttempt, call: Call) -> tuple[Outcome, str]:
    if attempt.stopped:
        return "killed", "killed on request"
    return "failed", f"timeout: it ran for more than {call.timeout_s:g} s"


def _worker_environment(names: Iterable[str], account: Account | None) -> dict[str, str]:
    """The environment of a worker process; `names` are those of variables that tasks take over."""
    account_variables = account.environment() if account is not None else {}
    return {**inherited_environment((*names, *WORKER_VARIABLES)), **account_variables}


def demand_workers(accounts: Accounts, names: Iterable[str]) -> None:
    """Demand that every account of tasks can run a worker process, which ends as soon as its input does.

    Args:
        names: names of variables that tasks take over.

    Raises:
        InputError: one cannot.
    """
    for account in accounts.named():
        environment = _worker_environment(names, account)
        try:
            trial = subprocess.run(  # noqa: S603 - ours
                _COMMAND,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment,
                check=False,
                timeout=READY_S,
                **account.becoming(),
            )
        except PermissionError:
            problem = f"may not execute {_COMMAND[0]}"
        except (OSError, subprocess.SubprocessError) as error:
            problem = f"cannot start {_COMMAND[0]} ({error})"
        else:
            if not trial.returncode:
                continue
            lines = trial.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {trial.returncode}"]
            problem = f"cannot run {' '.join(_COMMAND)} ({lines[-1][:200]})"

        remedy = "install Volery where all accounts can read it, or write calls = false (up --no-calls) to do without"
        raise InputError("run_as", f"{account.name}, whom Python calls run as, {problem}; {remedy}")


def _why_no_worker(error: Exception) -> str:
    if isinstance(error, PermissionError) and error.filename:
        path = error.filename
        return f"the account that calls run as may not execute {path}; install Volery where all accounts can read it"
    return f"no worker process: {error}" if isinstance(error, OSError) else str(error)
