"""What an attempt finds on its node's host: a folder, ROOT/JOB/TASK.ATTEMPT, and variables that say what it is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from volery.core.model import Address, JobId, Task

SECRET_VARIABLES: Final = frozenset({"VOLERY_TOKEN"})
"""What whoever has started a program of ours may have told it, and is nothing for tasks."""


class AttemptFolders:
    """Makes the folder of each attempt under a root.

    Args:
        root: made when the first attempt is.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._jobs: set[JobId] = set()

    def make(self, task: Task, attempt: int) -> Path:
        """The folder of an attempt, empty unless an earlier federation has used the same numbers.

        Raises:
            OSError: it cannot be made.
        """
        job = self.root / str(task.job)
        if task.job not in self._jobs:
            job.mkdir(parents=True, exist_ok=True)
            self._jobs.add(task.job)
        folder = job / f"{task.id}.{attempt}"
        with suppress(FileExistsError):
            folder.mkdir()
        return folder


def inherited_environment() -> dict[str, str]:
    """What tasks take over from the agent: all but its secrets."""
    return {name: value for name, value in os.environ.items() if name not in SECRET_VARIABLES}


def attempt_environment(node: Address, task: Task, attempt: int, index: int) -> dict[str, str]:
    """The variables that tell a task its numbers; `index` is its place in the job."""
    return {
        "VOLERY_JOB": str(task.job),
        "VOLERY_TASK": str(task.id),
        "VOLERY_INDEX": str(index),
        "VOLERY_ATTEMPT": str(attempt),
        "VOLERY_NODE": node,
    }
