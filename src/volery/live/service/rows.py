"""Rows of the store: what is kept of a job and of a task, and how it is read again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from volery.core.model import JobId, TaskId, Time
from volery.live.jobs import JobDescription
from volery.live.messages import TaskReport
from volery.live.service.tally import NOTHING, Counts, counts_of
from volery.live.status import JobState, TaskState, TaskStatus, TaskUsage


class OpenJob(NamedTuple):
    """A job that had not ended when the store was last closed."""

    id: JobId
    first_task: TaskId
    description: JobDescription


class JobRow(msgspec.Struct):
    """A job that is under way, as its row will be."""

    id: JobId
    first_task: TaskId
    user: str
    tasks: int
    unsatisfiable: int
    answered: bool = False
    cancelling: bool = False
    state: JobState = "pending"
    reason: str = ""
    running: int = 0
    finished: int = 0
    failed: int = 0
    killed: int = 0
    started_us: Time | None = None
    ended_us: Time | None = None

    heard: bytearray | None = None
    """Per task, whether it may have a row; None: each may."""
    counted: Counts = NOTHING
    """What it adds to its user's load."""

    def count(self, state: TaskState, by: int) -> None:
        """So many more of its tasks are in a state."""
        if state == "running":
            self.running += by
        elif state == "finished":
            self.finished += by
        elif state == "failed":
            self.failed += by
        elif state == "killed":
            self.killed += by

    def load(self) -> Counts:
        """What it adds to its user's load now."""
        if self.ended_us is not None:
            return NOTHING
        ended = self.finished + self.failed + self.killed + self.unsatisfiable
        return counts_of(self.state, self.tasks - self.running - ended, self.running)

    def row(self, revision: int) -> tuple[Any, ...]:
        """Its columns that change, in the order in which the store updates them, and its number."""
        return (
            self.answered, self.cancelling, self.state, self.reason, self.running, self.finished, self.failed,
            self.killed, self.started_us, self.ended_us, revision, self.id,
        )  # fmt: skip


def state_after(report: TaskReport, job: JobRow) -> TaskState:
    """The state that a report puts its task in: one that was killed runs again, unless its job is given up."""
    return "pending" if report.state == "killed" and not job.cancelling else report.state


def encoded(description: JobDescription) -> bytes:
    """A merged description as it is kept: equal ones are equal bytes."""
    return msgspec.json.encode(description, order="deterministic")


def digest_of(content: bytes) -> bytes:
    """The key under which the store keeps an encoded description once."""
    return hashlib.sha256(content).digest()


def key_of(user: str, key: str) -> str | None:
    """A key as it is kept: each user has its own; no name or key holds what stands between them."""
    return f"{user}\n{key}" if key else None


def task_status(row: Sequence[Any], usage: TaskUsage | None = None) -> TaskStatus:
    """A task as its row tells it, with what its last attempt has used."""
    job, index, state, reason, attempt, node, exit_code, started_us, ended_us, folder, revision = row
    return TaskStatus(
        job=job, index=index, state=state, reason=reason, attempt=attempt, node=node, exit_code=exit_code,
        started_us=started_us, ended_us=ended_us, folder=folder, revision=revision, usage=usage,
    )  # fmt: skip
