"""Executor context: the parts that the executors of one node agent share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from volery.core.model import Task
from volery.live.config.accounts import Account, Accounts
from volery.live.node.confinement import Confinement
from volery.live.node.descendants import Descendants
from volery.live.node.folders import AttemptFolders, attempt_number
from volery.live.node.orphans import ProcessLedger
from volery.live.node.rotation import OutputRotation
from volery.live.node.spawn import Spawners


class ExecutorContext(NamedTuple):
    """Shared by the executors of one agent, which closes them.

    Args:
        ledger: what runs is written down there.
        confinement: holds attempts to what they ask for.
        outputs: keeps what they write in bounds.
        descendants: finds what those processes have started.
        accounts: whom they run as; None: as this process.
        environment: names of variables that they take over from the agent, see `inherited_environment`.
        by_incarnation: how schedulers number attempts, see `attempt_number`.
    """

    folders: AttemptFolders
    ledger: ProcessLedger
    confinement: Confinement
    outputs: OutputRotation
    starters: Spawners
    descendants: Descendants
    accounts: Accounts | None = None
    environment: tuple[str, ...] = ()
    by_incarnation: bool = False

    def account_of(self, user: str) -> Account | None:
        """The account of a user's tasks; None: that of this process.

        Raises:
            ValueError: there is no account for this user.
        """
        return self.accounts.of(user) if self.accounts is not None else None

    def number_of(self, task: Task, attempt: int) -> int:
        """The number of an attempt for people, see `attempt_number`."""
        return attempt_number(task.payload, attempt, self.by_incarnation)

    def began(self, pid: int) -> None:
        """Record the first process of an attempt, or a worker."""
        self.ledger.add(pid)
        self.descendants.began(pid)

    def ended(self, pid: int) -> None:
        self.ledger.remove(pid)
        self.descendants.ended(pid)

    def watch_output(self, folder: Path, account: Account | None) -> None:
        """Bound the output in the folder of an attempt that begins."""
        self.outputs.begin(str(folder), account.uid if account is not None else os.geteuid())


def attempt_name(task: Task, attempt: int) -> str:
    """The name of an attempt among all of one agent."""
    return f"{task.id}.{attempt}"
