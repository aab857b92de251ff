"""Captions of a recording: a sentence for the first message and the first fact of each kind.

An architecture may declare them (`DeclaredCaptions`); else the caption of a message is its documentation. Sender,
receiver and tasks are read from the message.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from volery.core.events import Counted, Fact, JobDone, Submit
from volery.core.model import Address, Job, JobId, Message, Task, TaskId, Time
from volery.core.reasons import Decision
from volery.playback.run_log import flat, task_fields

KINDS_MAX: Final = 30
"""Kinds of messages that get a caption."""
_ARROW: Final = re.compile(r"^([^:>]{1,60})>[^:]{1,60}: ")
_WAITS: Final = "{sender} finds no free machine for {tasks}: it waits. Passed over: {passed}."


class Captions:
    """Writes a caption for the first of each kind.

    Args:
        declared: captions by the name of a message or of a counted fact; empty: those of the documentation.
        place_of_task: task -> its job and its index in the job; None: no job has it.
    """

    def __init__(
        self, declared: Mapping[str, str], place_of_task: Callable[[TaskId], tuple[JobId, int] | None]
    ) -> None:
        self.moments: list[tuple[Time, str]] = []
        self._declared = declared
        self._captioned: set[str] = set()
        self._place_of_task = place_of_task

    def sent(self, now: Time, sender: Address, receiver: Address, message: Message) -> None:
        name = type(message).__name__
        if name in self._captioned:
            return
        template = self._template(type(message))
        self._captioned.add(name)
        if template:
            self._write(now, template, sender, receiver, list(tasks_of(message)), message)

    def _template(self, kind: type[Message]) -> str:
        name = kind.__name__

        if name in self._declared:
            return self._declared[name]
        if kind in _OF_ALL:
            return _OF_ALL[kind]

        if self._declared or len(self._captioned) >= KINDS_MAX:
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
            # The first task that has to wait is worth a caption; those after it are not.
            if fact.chosen != "queued" or "queued" in self._captioned:
                return False
            self._captioned.add("queued")
            counts = [
                f"{rejection.count:,} {_SCOPES[rejection.scope]} {_REASONS[rejection.reason]}"
                for rejection in fact.rejected
            ]
            rejections = ", ".join(counts) or "nothing"
            words = _WAITS.format(sender=address, tasks=self._in_words([fact.task]), passed=rejections)
            self.moments.append((now, words))
            return True

        if name in self._captioned or name not in self._declared:
            return False
        self._captioned.add(name)
        if self._declared[name]:
            self._write(now, self._declared[name], address, "", [], None)
        return True

    def once(self, now: Time, subject: str, words: str) -> None:
        """Write a caption, unless there is one for this already."""
        if subject not in self._captioned:
            self._captioned.add(subject)
            self.moments.append((now, words))

    def again(self, subject: str) -> None:
        """Permit a second caption for this."""
        self._captioned.discard(subject)

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
        return in_words([place for place in map(self._place_of_task, tasks[:TASKS_MAX]) if place is not None])


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
    for name, has_whole_tasks in task_fields(type(message)):
        for named in flat(getattr(message, name)):
            if isinstance(named, Job):
                yield from (task.id for task in named.tasks)
            elif isinstance(named, Task):
                yield named.id
            elif not has_whole_tasks and isinstance(named, int):
                yield named


def in_words(tasks: Sequence[tuple[JobId, int]]) -> str:
    """A phrase for tasks that are given by job and index."""
    if not tasks:
        return "no task"
    jobs = sorted({job for job, _ in tasks})
    of = f" of job {jobs[0]}" if len(jobs) == 1 else f" of {len(jobs)} jobs"
    return f"task {tasks[0][1]}{of}" if len(tasks) == 1 else f"{len(tasks):,} tasks{of}"
