"""Executor context: folders and environments of attempts, and the parts that the executors of one agent share.

The folder of an attempt is ROOT/JOB/TASK.NUMBER, and variables of its environment name it. It holds the output, and
beside that the folder that the task works in: whatever a task does to its working folder, its output stays readable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from volery.core.model import Address, Task
from volery.core.records import INCARNATION_ATTEMPTS
from volery.live.command import (
    API_VARIABLE,
    INDEX_VARIABLE,
    JOB_VARIABLE,
    TOKEN_VARIABLE,
    Payload,
    decode_payload,
)
from volery.live.messages import number_of
from volery.live.node.confinement import Confinement
from volery.live.node.descendants import Descendants, ProcessLedger
from volery.live.node.output import OutputRotation
from volery.live.node.shortage import StartPause
from volery.live.node.spawn import Account, Accounts, Spawners

GIVE_BACKS_MAX: Final = INCARNATION_ATTEMPTS // 4


class ExecutorContext(NamedTuple):
    """Shared by the executors of one agent, which closes them.

    Args:
        ledger: ledger of what runs.
        confinement: holds attempts to their amounts.
        outputs: bounds the output of attempts.
        descendants: finds the processes that attempts have started.
        pause: pauses starts while the machine lacks something.
        gives_back: true if attempts that cannot start here may end as "unstarted", to start elsewhere.
        accounts: accounts that attempts run as; None: the one of this process.
        environment: names of variables that they take over from the agent, see `inherited_environment`.
        by_incarnation: the way in which schedulers number attempts, see `attempt_number`.
        api: address of the API, for tasks.
    """

    folders: AttemptFolders
    ledger: ProcessLedger
    confinement: Confinement
    outputs: OutputRotation
    starters: Spawners
    descendants: Descendants
    pause: StartPause
    gives_back: bool = False
    accounts: Accounts | None = None
    environment: tuple[str, ...] = ()
    by_incarnation: bool = False
    api: str = ""

    def account_of(self, user: str) -> Account | None:
        """The account of a user's tasks; None: that of this process.

        Raises:
            ValueError: there is no account for this user.
        """
        return self.accounts.of(user) if self.accounts is not None else None

    def uid_of(self, account: Account | None) -> int:
        """The user of the operating system of an account's processes."""
        return os.geteuid() if account is None else account.uid

    def access_of(self, payload: Payload) -> dict[str, str]:
        """The variables by which a task finds its federation, and may ask it as its user."""
        access = {API_VARIABLE: self.api, TOKEN_VARIABLE: payload.token}
        return {name: value for name, value in access.items() if value}

    def may_give_back(self, attempt: int) -> bool:
        """True if an attempt that cannot start here may go back; one that did so often stays, as numbers are few."""
        return self.gives_back and attempt % INCARNATION_ATTEMPTS < GIVE_BACKS_MAX

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

    def watch_output(self, folder: str, account: Account | None) -> None:
        """Bound the output in the folder of an attempt that begins."""
        self.outputs.begin(folder, self.uid_of(account))


def attempt_name(task: Task, attempt: int) -> str:
    """The name of an attempt among all of one agent."""
    return f"{task.id}.{attempt}"


INHERITED: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR")
"""Names, or patterns, of the variables that tasks take over from the agent; a federation's file may add others."""
WORKER_VARIABLES: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""Variables by which a worker process finds its interpreter and this package."""
SECRET_VARIABLES: Final = frozenset({TOKEN_VARIABLE})
"""Variables of a program of ours that are never passed to tasks, whatever a file names; they get their own."""


class AttemptFolders:
    """Makes the folder of each attempt under a root.

    Args:
        root: folder that is made with the first attempt.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._path = str(self.root)

    def make(self, task: Task, number: int) -> tuple[str, int]:
        """The folder of an attempt, which is new and empty, and the attempt's number.

        One of that name may be there: an attempt ended with this machine before its start was reported, or an earlier
        federation has used the same numbers of tasks. The number is then the next one without a folder.

        Args:
            number: number of the attempt, see `attempt_number`.

        Raises:
            OSError: it cannot be made.
        """
        # Plain text: a Path takes several times as long, and every start of a task waits for it.
        stem = f"{self._path}/{number_of(task.job)}/{number_of(task.id)}."
        for free_number in count(number):
            folder = f"{stem}{free_number}"
            try:
                try:
                    os.mkdir(folder)  # noqa: PTH102 - as above
                except FileNotFoundError:  # the job's first, or its earlier ones were removed
                    os.makedirs(folder)  # noqa: PTH103 - as above
            except FileExistsError:
                continue

            return folder, free_number

        raise AssertionError("numbers do not end")


def inherited_environment(extra_names: Iterable[str] = ()) -> dict[str, str]:
    """The variables that tasks take over from the agent: those of `INHERITED`, and no others unless they are named.

    Args:
        extra_names: further names, or patterns with `*`.
    """
    patterns = (*INHERITED, *extra_names)
    return {
        name: value
        for name, value in os.environ.items()
        if name not in SECRET_VARIABLES and any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def attempt_number(payload: bytes, attempt: int, by_incarnation: bool) -> int:
    """The number of an attempt for people: 0 is the task's first, and restarts of the federation begin no new count.

    Args:
        attempt: number by the scheduler.
        by_incarnation: true if the scheduler numbers by `INCARNATION_ATTEMPTS`.
    """
    try:
        task_payload = decode_payload(payload)
    except ValueError:  # such an attempt fails whatever its number is
        earlier_attempts, launched = 0, -1
    else:
        earlier_attempts, launched = task_payload.attempts, task_payload.launched

    incarnation, place = divmod(attempt, INCARNATION_ATTEMPTS)
    if not by_incarnation or not incarnation:  # incarnations are counted from 1
        return earlier_attempts + attempt
    if incarnation == launched // INCARNATION_ATTEMPTS and attempt > launched:
        return earlier_attempts + attempt - launched - 1

    return earlier_attempts + place


def attempt_environment(node: Address, task: Task, number: int, index: int) -> dict[str, str]:
    """The variables with the numbers of a task; `number` is the attempt's, `index` its place in the job."""
    return {
        JOB_VARIABLE: str(number_of(task.job)),
        "VOLERY_TASK": str(number_of(task.id)),
        INDEX_VARIABLE: str(index),
        "VOLERY_ATTEMPT": str(number),
        "VOLERY_NODE": node,
    }
