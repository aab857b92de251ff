"""What an attempt finds on its node's host: a folder, ROOT/JOB/TASK.ATTEMPT, and variables that say what it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from volery.core.model import Address, Task

SECRET_VARIABLES: Final = frozenset({"VOLERY_TOKEN"})
"""What whoever has started a program of ours may have told it, and is nothing for tasks."""


class AttemptFolders:
    """Makes the folder of each attempt under a root.

    Args:
        root: made when the first attempt is.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def make(self, task: Task, attempt: int) -> Path:
        """The folder of an attempt, empty unless an earlier federation has used the same numbers.

        Raises:
            OSError: it cannot be made.
        """
        folder = self.root / str(task.job) / f"{task.id}.{attempt}"
        try:
            folder.mkdir()
        except FileNotFoundError:  # the job's first, or its earlier ones were removed
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            pass
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
