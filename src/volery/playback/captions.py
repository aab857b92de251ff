"""Captions of a recording: a sentence for the first message and the first fact of each kind.

An architecture may declare them (`Architecture.captions`); else the caption of a message is its documentation. Sender,
receiver and tasks are read from the message.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from volery.core.events import Counted, Fact, JobDone, Submit
from volery.core.model import Address, Job, JobId, Message, Task, TaskId, Time
from volery.core.why import Decision
from volery.playback.run_log import flat, task_fields

KINDS_MAX: Final = 30
"""Kinds of messages that get a caption."""
_ARROW: Final = re.compile(r"^([^:>]{1,60})>[^:]{1,60}: ")
_WAITS: Final = "{sender} finds no free machine for {tasks}: it waits. Passed over: {passed}."


class Captions:
    """Writes a caption for the first of each kind.

    Args:
        declared: captions by the name of a message or of a counted fact; empty: those of the documentation.
        where: task -> its job and its index in the job; None: no job has it.
    """

    def __init__(self, declared: Mapping[str, str], where: Callable[[TaskId], tuple[JobId, int] | None]) -> None:
        self.moments: list[tuple[Time, str]] = []
        self._declared = declared
        self._known: set[str] = set()
        self._where = where

    def sent(self, now: Time, sender: Address, receiver: Address, message: Message) -> None:
        name = type(message).__name__
        if name in self._known:
            return
        template = self._template(type(message))
        self._known.add(name)
        if template:
            self._write(now, template, sender, receiver, list(tasks_of(message)), message)

    def _template(self, kind: type[Message]) -> str:
        name = kind.__name__
        if name in self._declared:
            return self._declared[name]
        if kind in _OF_ALL:
            return _OF_ALL[kind]
        if self._declared or len(self._known) >= KINDS_MAX:
            return ""
        doc = (inspect.getdoc(kind) or "").partition("\n")[0].replace("{", "(").replace("}", ")")
        arrow = _ARROW.match(doc)
        if arrow is None:
            return ""  # an answer to the submitter, or a part of other messages
        return "{sender} > {receiver}: " + doc[arrow.end() :].rstrip(".") + " ({tasks})."

    def observed(self, now: Time, address: Address, fact: Fact) -> bool:
        """Write the caption of a fact; False where it has none."""
        name = fact.name if isinstance(fact, Counted) else type(fact).__name__
        if isinstance(fact, Decision):
            if fact.chosen != "queued" or "queued" in self._known:
                return False
            self._known.add("queued")
            counts = [f"{one.count:,} {_SCOPES[one.scope]} {_REASONS[one.reason]}" for one in fact.rejected]
            passed = ", ".join(counts) or "nothing"
            words = _WAITS.format(sender=address, tasks=self._in_words([fact.task]), passed=passed)
            self.moments.append((now, words))
            return True
        if name in self._known or name not in self._declared:
            return False
        self._known.add(name)
        if self._declared[name]:
            self._write(now, self._declared[name], address, "", [], None)
        return True

    def once(self, now: Time, what: str, words: str) -> None:
        """Write a caption, unless there is one for this already."""
        if what not in self._known:
            self._known.add(what)
            self.moments.append((now, words))

    def again(self, what: str) -> None:
        """Permit a second caption for this."""
        self._known.discard(what)

    def _write(
        self,
        now: Time,
        template: str,
        sender: Address,
        receiver: Address,
        tasks: Sequence[TaskId],
        message: Message | None,
    ) -> None:
        job = message.job if isinstance(message, Submit) else None
        words = template.format(
            sender=sender,
            receiver=receiver,
            tasks=self._in_words(tasks),
            count=len(tasks),
            job=job.id if job is not None else getattr(message, "job", ""),
            user=_user(job),
            tasks_of_job=f"{job.task_count:,} task{'s' if job.task_count != 1 else ''}" if job is not None else "",
        )
        self.moments.append((now, words.replace(" (no task)", "")))

    def _in_words(self, tasks: Sequence[TaskId]) -> str:
        return in_words([found for found in map(self._where, tasks[:TASKS_MAX]) if found is not None])


_OF_ALL: Final[Mapping[type[Message], str]] = {
    Submit: "Job {job}{user} comes to {receiver}: {tasks_of_job}.",
    JobDone: "{sender} reports to the submitter that job {job} is done.",
}
_SCOPES: Final = {"internal": "own", "external": "of others"}
_REASONS: Final = {
    "constraint": "that do not suit it",
    "resource": "too small",
    "busy": "taken",
    "share": "due to others",
    "inconsistency": "taken after all",
}
NAME_MAX: Final = 60
TASKS_MAX: Final = 1_000


def _user(job: Job | None) -> str:
    if job is None or not job.user:
        return ""
    return f" of {job.user[:NAME_MAX]}" + ("\N{HORIZONTAL ELLIPSIS}" if len(job.user) > NAME_MAX else "")


def tasks_of(message: Message) -> Iterator[TaskId]:
    """The tasks that a message names."""
    for name, whole in task_fields(type(message)):
        for found in flat(getattr(message, name)):
            if isinstance(found, Job):
                yield from (task.id for task in found.tasks)
            elif isinstance(found, Task):
                yield found.id
            elif not whole and isinstance(found, int):
                yield found


def in_words(tasks: Sequence[tuple[JobId, int]]) -> str:
    """A phrase for tasks that are given by job and index."""
    if not tasks:
        return "no task"
    jobs = sorted({job for job, _ in tasks})
    of = f" of job {jobs[0]}" if len(jobs) == 1 else f" of {len(jobs)} jobs"
    return f"task {tasks[0][1]}{of}" if len(tasks) == 1 else f"{len(tasks):,} tasks{of}"
