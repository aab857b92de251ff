"""The node agent: runs whatever a task carries, a command or a callable, for all nodes of this host."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from volery.core.errors import InputError
from volery.core.model import Address, Task, TaskId
from volery.live.command import Call, decode_payload
from volery.live.config.limits import NO_RULES, NodeRules
from volery.live.node.call import CallExecutor
from volery.live.node.confinement import confinement_of, limit_processes
from volery.live.node.context import AttemptFolders, ExecutorContext
from volery.live.node.descendants import Descendants, ProcessLedger
from volery.live.node.executor import OnEnd, Report
from volery.live.node.output import OutputRotation
from volery.live.node.processes import ProcessExecutor
from volery.live.node.shortage import StartPause
from volery.live.node.spawn import Accounts, Spawners


class NodeAgent:
    """An executor for commands and callables.

    Args:
        folder: folder of the attempts' folders: JOB/TASK.ATTEMPT, with `stdout`, `stderr` and, in `work`, the files
            of the task.
        state: a folder of this agent's own, for the record of what runs; by default FOLDER/agent.
        report: is called for every start and end.
        workers: number of callables that are called at once; 0: one per processor.
        accounts: accounts that tasks run as; None: the one of this process.
        by_incarnation: the way in which schedulers number attempts, see `attempt_number`.

    Attributes:
        orphans: processes that an earlier agent had left, which were killed.
        held: the means that hold tasks to their amounts, in words, or that there is none.

    Raises:
        InputError: a folder cannot be used, another agent uses it, or this is not Linux.
    """

    def __init__(
        self,
        folder: Path,
        state: Path | None = None,
        report: Report | None = None,
        workers: int = 0,
        accounts: Accounts | None = None,
        rules: NodeRules = NO_RULES,
        by_incarnation: bool = False,
    ) -> None:
        if not hasattr(os, "pidfd_open"):
            raise InputError("node agent", "real processes need Linux 5.3 or newer; elsewhere nodes can only sleep")

        folders = AttemptFolders(folder)
        if accounts is not None:
            accounts.check_folder(folder)

        self._ledger = ProcessLedger(state or folders.root / "agent")
        self.orphans: Sequence[int] = self._ledger.killed
        try:
            confinement = confinement_of(rules.isolation, self._ledger.folder, rules.amounts)
        except InputError:
            self._ledger.close()
            raise

        limit_processes(rules.isolation.account_pids_max)

        self._means = ExecutorContext(
            folders,
            self._ledger,
            confinement,
            OutputRotation(folders.root, rules.output),
            Spawners(),
            Descendants(self._ledger.folder),
            StartPause(self._tell_shortage),
            rules.gives_back,
            accounts,
            rules.environment,
            by_incarnation,
            rules.api,
        )

        self.held = confinement.words
        self._processes = ProcessExecutor(self._means, report)
        self._calls = CallExecutor(self._means, workers, report, rules.calls_max)
        self._closed = False
        self._shortage_changed: Callable[[], None] | None = None

    @property
    def shortage(self) -> str:
        """The shortage of the machine, for which tasks cannot start, in words; empty: none."""
        return self._means.pause.words

    def watch_shortage(self, on_change: Callable[[], None]) -> None:
        """Call a function whenever `shortage` changes."""
        self._shortage_changed = on_change

    def _tell_shortage(self) -> None:
        if self._shortage_changed is not None:
            self._shortage_changed()

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd, note: bytes = b"") -> None:  # noqa: ARG002 - nothing outlives it
        executor = self._calls if _is_call(task) else self._processes
        executor.start(node, task, attempt, on_end)

    def kill(self, task: TaskId, attempt: int) -> None:
        self._processes.kill(task, attempt)
        self._calls.kill(task, attempt)

    def end_all(self) -> None:
        """End everything that runs at once, without any grace, and report it as killed."""
        self._processes.end_all()
        self._calls.end_all()

    async def close(self) -> None:
        """End everything that runs here, and release the state folder."""
        if self._closed:
            return

        self._closed = True

        # Executors first: they use all the others until their last process has ended.
        await self._processes.close()
        await self._calls.close()
        self._means.pause.close()
        self._means.descendants.close()
        self._means.starters.close()
        self._means.outputs.close()
        self._means.confinement.close()
        self._ledger.close()


def _is_call(task: Task) -> bool:
    try:
        return isinstance(decode_payload(task.payload), Call)
    except ValueError:
        return False
