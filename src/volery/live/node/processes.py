"""The process executor: each attempt is a process in a session, a folder and an environment of its own.

What a command starts ends with it, daemons included (see `descendants`): when its first process has ended, the rest is
killed; a kill or a timeout asks all to end (SIGTERM), waits for the grace time, and then ends them (SIGKILL), and all
of the attempt's control group where it has one. What a task has asked for holds its processes as soon as the first one
has begun (see `confinement`). Linux only: ends are seen through pidfds, so no process that someone else in this
program has started is ever reaped here.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from volery.core.events import Outcome
from volery.core.model import Address, Task, TaskId
from volery.live.command import WORK, Command, decode_payload
from volery.live.messages import AttemptState, AttemptUsage
from volery.live.node.cgroups import ControlGroup
from volery.live.node.confinement import Hold, out_of_memory, usage_of
from volery.live.node.context import ExecutorContext, attempt_environment, attempt_name, inherited_environment
from volery.live.node.descendants import ProcessStatus, processes
from volery.live.node.executor import OnEnd, Report, report_now
from volery.live.node.interpreters import NOT_EXECUTED, missing_interpreter
from volery.live.node.output import input_file, opened_outputs
from volery.live.node.shortage import GIVE_BACK_S, lack_of, unstarted
from volery.live.node.spawn import SHELL, Account, StartGate, demand_program

SWEEP_S: Final = 0.01
SWEEP_MAX_S: Final = 0.2
PROGRAMS_MAX: Final = 1000
UNDYING_S: Final = 5.0
CLOSE_GRACE_S: Final = 2.0
WATCH_S: Final = 0.2
"""Time between two attempts to get a descriptor for a process that runs."""

Stop = Literal["", "killed", "timeout"]

log = logging.getLogger(__name__)


class _Attempt:
    """One launch, from the queue to the end of its last process."""

    __slots__ = (
        "attempt",
        "command",
        "deadline",
        "folder",
        "has_left",
        "hold",
        "mark",
        "node",
        "number",
        "on_end",
        "pidfd",
        "popen",
        "queued_at",
        "stop",
        "task",
        "timer",
    )

    def __init__(self, node: Address, task: Task, attempt: int, number: int, on_end: OnEnd) -> None:
        self.node = node
        self.task = task
        self.attempt = attempt
        self.number = number
        self.on_end = on_end
        self.command: Command | None = None
        self.folder = Path()
        self.hold: Hold | None = None
        self.popen: subprocess.Popen[bytes] | None = None
        self.pidfd = -1
        self.timer: asyncio.TimerHandle | None = None
        self.stop: Stop = ""
        self.has_left = False
        self.mark = 0
        self.deadline = 0.0
        self.queued_at = time.monotonic()

    @property
    def key(self) -> tuple[TaskId, int]:
        return self.task.id, self.attempt

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    @property
    def group(self) -> ControlGroup | None:
        return self.hold.group if self.hold is not None else None

    def signal_all(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to its control group, or to its process group where it has none."""
        if (group := self.group) is None:
            _signal_group(self.pid, number)
        elif number == signal.SIGKILL:
            group.kill()
        else:
            group.signal(number)


class ProcessExecutor:
    """Runs commands.

    Args:
        report: is called for every start and end.
    """

    def __init__(self, means: ExecutorContext, report: Report | None = None) -> None:
        self._means = means
        self._report = report
        self._inherited_variables = inherited_environment(means.environment)
        self._programs: dict[tuple[str, str], str] = {}
        self._null_input = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._queue: deque[_Attempt] = deque()
        self._attempts: dict[tuple[TaskId, int], _Attempt] = {}
        self._ending_attempts: dict[int, _Attempt] = {}
        self._sweep_s = SWEEP_S
        self._sweeper: asyncio.TimerHandle | None = None
        self._spawner: asyncio.Handle | None = None
        self._closed = False
        self._empty = asyncio.Event()

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd) -> None:
        """Start an attempt as soon as the loop is free; one that has been started already is ignored."""
        if self._closed or (task.id, attempt) in self._attempts:
            return
        launch = _Attempt(node, task, attempt, self._means.number_of(task, attempt), on_end)
        self._attempts[launch.key] = launch
        self._queue.append(launch)
        self._spawn_soon()

    def kill(self, task: TaskId, attempt: int) -> None:
        """Ask the attempt's processes to end, and end them after the grace time."""
        launch = self._attempts.get((task, attempt))
        if launch is not None:
            self._kill(launch)

    def _kill(self, attempt: _Attempt, grace_max_s: float = float("inf")) -> None:
        if attempt.popen is None:
            self._queue.remove(attempt)
            self._means.pause.forget(attempt.key)
            self._end(attempt, "killed", None, "ended before it was started")
        else:
            self._stop(attempt, "killed", grace_max_s)

    def end_all(self) -> None:
        for attempt in [*self._attempts.values()]:
            self._kill(attempt, 0.0)

    async def close(self) -> None:
        """End everything, with at most two seconds of grace."""
        self._closed = True
        for attempt in [*self._attempts.values()]:
            if attempt.popen is None:
                del self._attempts[attempt.key]
            else:
                self._stop(attempt, "killed", CLOSE_GRACE_S)

        self._queue.clear()
        if self._spawner is not None:
            self._spawner.cancel()

        # The attempts that were spawned still need the loop, until their processes have ended.
        if self._attempts:
            await self._empty.wait()

        os.close(self._null_input)

    def _spawn_soon(self) -> None:
        if self._queue and self._spawner is None and not self._means.pause.paused:
            self._spawner = asyncio.get_running_loop().call_soon(self._spawn_next)

    def _spawn_next(self) -> None:
        """Spawn one and let others have the event loop: it is blocked for 0.5 ms and more."""
        self._spawner = None
        if self._queue and not self._means.pause.paused:
            attempt = self._queue.popleft()
            try:
                self._spawn(attempt)
            except Exception as error:  # whatever it is, this attempt ends, and others start
                if lack_of(error):
                    self._put_back(attempt, error)
                else:
                    if not isinstance(error, OSError | ValueError | subprocess.SubprocessError):
                        log.exception("the start of attempt %d.%d failed in its node agent", *attempt.key)
                    self._means.pause.forget(attempt.key)
                    self._end(attempt, "failed", None, _why_not_started(error, attempt))
            else:
                self._means.pause.started(attempt.key)

        self._spawn_soon()

    def _put_back(self, attempt: _Attempt, error: BaseException) -> None:
        """Have an attempt wait that has not begun, because the machine lacks something; or end it, to start elsewhere.

        Those behind it would fare no better.
        """
        self._release(attempt)
        if attempt.folder != Path():
            shutil.rmtree(attempt.folder, ignore_errors=True)

        attempt.hold, attempt.mark, attempt.folder = None, 0, Path()
        attempt.number = self._means.number_of(attempt.task, attempt.attempt)
        self._queue.appendleft(attempt)

        pause = self._means.pause
        since = time.monotonic() - GIVE_BACK_S
        pause.begin(attempt.key, error)
        pause.when_over(self._spawn_soon)

        for late in [queued for queued in self._queue if queued.queued_at <= since]:
            if self._means.may_give_back(late.attempt):
                self._queue.remove(late)
                pause.forget(late.key)
                self._end(late, "unstarted", None, unstarted(late.node, pause.words))

    def _spawn(self, attempt: _Attempt) -> None:
        command = decode_payload(attempt.task.payload)
        if not isinstance(command, Command) or not command.argv:
            raise ValueError("the task carries no command with a program")

        attempt.command = command
        account = self._means.account_of(command.user)
        attempt.hold = hold = self._means.confinement.hold(attempt_name(attempt.task, attempt.attempt), command)

        folder_path, attempt.number = self._means.folders.make(attempt.task, attempt.number)
        attempt.folder = folder = Path(folder_path)
        work = f"{folder_path}/{WORK}"
        os.mkdir(work)  # noqa: PTH102 - every start of a task waits for it
        cwd = Path(command.cwd or work)

        environment = self._environment_of(attempt, command, account)
        words = command.argv
        program = self._program(command.argv[0], environment)
        stdin = self._null_input

        gate: StartGate | None = None
        opened: list[int] = []

        try:
            opened += opened_outputs(folder)

            # Checked before anything of the task runs: a shortage puts the attempt back into the queue.
            user = self._means.uid_of(account)
            running = len(self._attempts) - len(self._queue) - 1
            self._means.pause.demand(self._means.folders.root, opened[-1], user, running)
            if command.stdin:
                stdin = input_file(command.stdin, folder / "stdin" if hold is not None else None)
                opened.append(stdin)

            if account is not None:
                account.own(folder_path, (*opened, work))

            if hold is not None:
                # Behind the gate a shell would report what is missing, in its own words and as an exit code.
                if program is None:
                    demand_program(words[0], cwd, environment)
                gate = StartGate(folder / "stdin" if command.stdin else None, hold.memory_mb)
                words = gate.words(words)
                program = SHELL
                stdin = gate.outside

            # Popen spawns by vfork where it can, as fast as posix_spawn, and unlike it changes directories: changing
            # the directory of this program around a spawn would be seen by its other threads.
            attempt.mark = self._means.descendants.mark()
            attempt.popen = self._means.starters.start(
                account,
                words,
                hold.cpus if hold is not None else (),
                attempt.mark,
                executable=program,
                stdin=stdin,
                stdout=opened[0],
                stderr=opened[1],
                cwd=cwd,
                env=environment,
                start_new_session=True,
                close_fds=False,
            )

            self._confine(attempt, gate)
        finally:
            for descriptor in opened:
                os.close(descriptor)
            if gate is not None:
                gate.close()

        self._means.began(attempt.pid)
        self._watch(attempt)

        if command.timeout_s:
            attempt.timer = asyncio.get_running_loop().call_later(command.timeout_s, self._stop, attempt, "timeout")

        self._means.watch_output(folder_path, account)
        self._send_report(attempt, "running")

    def _confine(self, attempt: _Attempt, gate: StartGate | None) -> None:
        """Confine the process that has just been started before anything of the task runs."""
        assert attempt.popen is not None
        try:
            if attempt.hold is not None:
                attempt.hold.take_in(attempt.pid)
        except OSError:
            # It waits at the gate, and nothing of the task has run: it can be ended at once.
            attempt.signal_all()
            attempt.popen.wait()
            attempt.popen = None
            raise

        if gate is not None:
            gate.open()

    def _watch(self, attempt: _Attempt) -> None:
        """Wait for the end of the first process, which the task runs in by now; a shortage delays that alone."""
        loop = asyncio.get_running_loop()
        try:
            attempt.pidfd = os.pidfd_open(attempt.pid)
            loop.add_reader(attempt.pidfd, self._on_first_exit, attempt)
        except OSError as error:
            log.warning("the end of process %d is noticed later: %s", attempt.pid, error)
            if attempt.pidfd >= 0:
                os.close(attempt.pidfd)
            attempt.pidfd = -1
            loop.call_later(WATCH_S, self._watch, attempt)

    def _environment_of(self, attempt: _Attempt, command: Command, account: Account | None) -> dict[str, str]:
        return {
            **self._inherited_variables,
            **(account.environment() if account is not None else {}),
            **self._means.access_of(command),
            **command.env,
            **attempt_environment(attempt.node, attempt.task, attempt.number, attempt.task.id - command.first),
            **(attempt.hold.environment if attempt.hold is not None else {}),
            self._means.ledger.mark[0]: self._means.ledger.mark[1],
        }

    def _program(self, name: str, environment: Mapping[str, str]) -> str | None:
        """The path of a program, so that the kernel need not search the PATH; None: it has to."""
        path = environment.get("PATH", os.defpath)
        program = self._programs.get((name, path))
        if program is None or not os.access(program, os.X_OK):
            program = None if "/" in name else shutil.which(name, path=path)
            # What is relative means another place in the directory that the task runs in.
            if program is None or not program.startswith("/"):
                return None

            if len(self._programs) == PROGRAMS_MAX:
                self._programs.clear()
            self._programs[name, path] = program

        return program

    def _on_first_exit(self, attempt: _Attempt) -> None:
        """The first process has ended. It stays a zombie until its group is gone, and so keeps the group's number."""
        asyncio.get_running_loop().remove_reader(attempt.pidfd)
        attempt.has_left = True
        if attempt.stop:
            self._await_end(attempt)
            return

        if attempt.timer is not None:
            attempt.timer.cancel()

        attempt.signal_all()

        # A killed process of the group still exists for a moment, and its children may be outside of the group.
        lives = self._means.descendants.kill_all(attempt.mark, attempt.pid)
        if lives or ((group := attempt.group) is not None and group.lives):
            attempt.deadline = time.monotonic()
            self._await_end(attempt)
        else:
            self._reap(attempt)

    def _await_end(self, attempt: _Attempt) -> None:
        self._ending_attempts[attempt.pid] = attempt
        self._sweep_soon(SWEEP_S)

    def _stop(self, attempt: _Attempt, reason: Stop, grace_max_s: float = float("inf")) -> None:
        assert attempt.command is not None
        if attempt.has_left and not attempt.stop:
            return  # it has ended by itself, and the rest of it is killed already

        if not attempt.stop:
            attempt.stop = reason
            # A stopped process handles no signal until it goes on.
            for number in (signal.SIGTERM, signal.SIGCONT):
                attempt.signal_all(number)
                if attempt.group is None:
                    self._means.descendants.signal(attempt.mark, attempt.pid, number)
        elif not self._closed:
            # The second order of the same kind; only the end of this program shortens a grace that runs.
            return

        if attempt.timer is not None:
            attempt.timer.cancel()

        grace_s = min(attempt.command.grace_s, grace_max_s)
        attempt.deadline = time.monotonic() + grace_s
        attempt.timer = asyncio.get_running_loop().call_later(grace_s, self._grace_over, attempt)

    def _grace_over(self, attempt: _Attempt) -> None:
        attempt.timer = None
        attempt.signal_all()
        self._means.descendants.signal(attempt.mark, attempt.pid)
        self._await_end(attempt)

    def _sweep_soon(self, after_s: float) -> None:
        self._sweep_s = after_s
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(after_s, self._sweep)

    def _sweep(self) -> None:
        """Look once for processes of all attempts that are being stopped."""
        self._sweeper = None
        now = time.monotonic()

        alive: dict[int, list[ProcessStatus]] = {}
        for status in processes():
            if status.lives and (status.session in self._ending_attempts or status.group in self._ending_attempts):
                alive.setdefault(
                    status.session if status.session in self._ending_attempts else status.group, []
                ).append(status)

        adopted = self._means.descendants.adopted()

        for pid, attempt in [*self._ending_attempts.items()]:
            if outside := self._means.descendants.left(attempt.mark, pid, adopted):
                alive.setdefault(pid, []).extend(outside)

            if now > attempt.deadline:
                for status in alive.get(pid, ()):
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(status.pid, signal.SIGKILL)

            group = attempt.group
            if now > attempt.deadline and group is not None:
                group.kill()

            lives = pid in alive or (group is not None and group.lives)

            # A process that even SIGKILL does not end, in an uninterruptible wait, holds the attempt no longer.
            if attempt.has_left and (not lives or now > attempt.deadline + UNDYING_S):
                del self._ending_attempts[pid]
                self._reap(attempt)

        if self._ending_attempts:
            self._sweep_soon(min(self._sweep_s * 2, SWEEP_MAX_S))

    def _reap(self, attempt: _Attempt) -> None:
        # It is our child and a zombie: nothing else has its number.
        _, status, spent = os.wait4(attempt.pid, 0)
        os.close(attempt.pidfd)
        code = os.waitstatus_to_exitcode(status)

        assert attempt.popen is not None
        attempt.popen.returncode = code  # the object would otherwise wait for its process once more
        self._means.ended(attempt.pid)

        usage = usage_of(attempt.hold, spent)
        outcome, reason = _judge(attempt, code, usage)
        self._end(attempt, outcome, code, reason, usage)
        self._means.pause.freed()

    def _end(
        self, attempt: _Attempt, outcome: Outcome, exit_code: int | None, reason: str, usage: AttemptUsage | None = None
    ) -> None:
        del self._attempts[attempt.key]
        self._release(attempt)
        self._means.outputs.end(str(attempt.folder))
        if attempt.timer is not None:
            attempt.timer.cancel()

        if not self._closed:
            self._send_report(attempt, outcome, exit_code, reason, usage)
            attempt.on_end(attempt.task, attempt.attempt, outcome)
        elif not self._attempts:
            self._empty.set()

    def _release(self, attempt: _Attempt) -> None:
        self._means.descendants.release(attempt.mark)
        if attempt.hold is not None:
            attempt.hold.release()

    def _send_report(
        self,
        attempt: _Attempt,
        state: AttemptState,
        exit_code: int | None = None,
        reason: str = "",
        usage: AttemptUsage | None = None,
    ) -> None:
        if self._report is not None:
            folder = str(attempt.folder) if attempt.popen is not None else ""
            self._report(
                report_now(
                    attempt.node,
                    attempt.task,
                    attempt.attempt,
                    state,
                    exit_code,
                    reason,
                    folder,
                    usage=usage,
                    counted=attempt.number,
                )
            )


def _signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a group whose first process has not been reaped, so that the number is still its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _judge(attempt: _Attempt, code: int, usage: AttemptUsage) -> tuple[Outcome, str]:
    """The outcome of an attempt, with a reason if it failed."""
    command = attempt.command
    assert command is not None

    if attempt.stop == "killed":
        return "killed", "killed on request"
    if attempt.stop == "timeout":
        return "failed", f"timeout: it ran for more than {command.timeout_s:g} s"
    if code and usage.out_of_memory:
        return "failed", out_of_memory(command.memory_mb)

    hold = attempt.hold
    per_process = hold is not None and hold.memory_mb
    limit = f"; each of its processes may have {command.memory_mb} MiB" if per_process else ""

    if code < 0:
        return "failed", f"ended by signal {signal_name(-code)}{limit}"
    if code in NOT_EXECUTED and (reason := _missing_interpreter(attempt, command)):
        return "failed", f"exit code {code}: {reason}"
    if code:
        return "failed", f"exit code {code}{limit}"

    folder = Path(command.cwd or attempt.folder / WORK)
    missing = [name for name in command.outputs if not (folder / name).exists()]
    return ("failed", f"it left no {', '.join(missing)} in {folder}") if missing else ("finished", "")


def _missing_interpreter(attempt: _Attempt, command: Command) -> str:
    environment = {"PATH": os.environ.get("PATH", os.defpath), **command.env}
    return missing_interpreter(command.argv, Path(command.cwd or attempt.folder / WORK), environment)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _why_not_started(error: Exception, attempt: _Attempt) -> str:
    command = attempt.command
    if isinstance(error, OSError) and command is not None:
        if command.cwd and not Path(command.cwd).is_dir():
            return f"not started: the working directory {command.cwd} is no directory on {attempt.node}"
        if reason := _missing_interpreter(attempt, command):
            return f"not started: {reason}"
        hint = "; a script begins with #!, as #!/bin/sh" if error.errno == errno.ENOEXEC else ""
        return f"not started: {error.filename or command.argv[0]}: {error.strerror or error}{hint}"
    return f"not started: {error}"
