"""Jobs that are submitted again to a scheduler that has received a part: no task is skipped, none runs twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from volery.core.events import JobDone, MoreTasks, Submit
from volery.core.model import Message, Task
from volery.live.config.fleet import Fleet
from volery.live.config.machine import Machine
from volery.live.jobs import job_from_table
from volery.live.service.admission import Submission
from volery.live.service.throttle import TASKS_PER_TURN
from volery.roles.submission import JobLedger
from volery.sim.effects import RecordingPort

FLEET = Fleet([Machine("x86_64", "linux", "6.1", 4, 1024, {})], [1])
FIRST = 1_000
SUBMITTER = "submitter"
LARGE_BYTES = 200_000


class Scheduler:
    """A ledger, and the tasks that it has brought: some wait, some have ended."""

    def __init__(self) -> None:
        self.port = RecordingPort("gm/0")
        self.ledger = JobLedger(self.port.send)
        self.received: Counter[int] = Counter()
        self.waiting: list[int] = []

    def take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, Submit):
                self._note(self.ledger.admit(message, SUBMITTER, 0))
            else:
                assert isinstance(message, MoreTasks)
                self._note(self.ledger.more(message))

    def _note(self, tasks: Sequence[Task]) -> None:
        numbers = [task.id - FIRST for task in tasks]
        self.received.update(numbers)
        self.waiting += numbers

    def end(self, count: int) -> list[int]:
        """The places of tasks that end now."""
        ended, self.waiting = self.waiting[:count], self.waiting[count:]
        for _ in ended:
            self.ledger.finished(0)
        return ended

    def is_told_done(self) -> bool:
        return any(effect.message == JobDone(0) for effect in self.port.sent())


def described(tasks: int, drawn: random.Random) -> Submission:
    large = [drawn.random() < 0.02 for _ in range(tasks)]
    listed = [{"stdin": "x" * (LARGE_BYTES if is_large else place % 7)} for place, is_large in enumerate(large)]
    description = job_from_table({"command": "cat", "tasks": listed}, "job")
    return Submission(0, FIRST, description, FLEET, tasks)


def again(sent: Submission, ended: set[int], begun: Sequence[int]) -> Submission:
    """What the desk submits after a restart."""
    carried = dict.fromkeys(begun, (1, 0))
    return sent._replace(left=sent.left - len(ended), ended=frozenset(ended), begun=carried, again=True)


@pytest.mark.parametrize("seed", range(40))
def test_a_job_whose_submitter_restarts_again_and_again_has_each_task_received_once(seed: int) -> None:
    drawn = random.Random(seed)
    tasks = drawn.choice([1, 7, TASKS_PER_TURN, TASKS_PER_TURN + 1, 3 * TASKS_PER_TURN + 17])
    first, scheduler, ended = described(tasks, drawn), Scheduler(), set[int]()
    submitted = first
    for _ in range(drawn.randrange(1, 4)):
        messages = list(submitted.messages(0))
        scheduler.take(messages[: drawn.randrange(1, len(messages) + 1)])
        ended.update(scheduler.end(drawn.randrange(tasks + 1)))
        if len(ended) == tasks:
            break
        submitted = again(first, ended, scheduler.waiting[:5])
    scheduler.take(list(submitted.messages(0)))
    scheduler.end(tasks)
    assert scheduler.received == Counter(range(tasks))
    assert scheduler.is_told_done()


@pytest.mark.parametrize("seed", range(20))
def test_tasks_that_end_elsewhere_before_their_scheduler_receives_them_keep_no_job_open(seed: int) -> None:
    """They ran when another scheduler had the job."""
    drawn = random.Random(seed)
    tasks = 3 * TASKS_PER_TURN + 17
    first, scheduler = described(tasks, drawn), Scheduler()
    messages = list(first.messages(1))
    scheduler.take(messages[: drawn.randrange(1, len(messages) - 1)])
    elsewhere = [place for place in range(tasks) if not scheduler.received[place] and drawn.random() < drawn.random()]
    if not seed:
        elsewhere = [place for place in range(tasks) if not scheduler.received[place]]
    ended = {*elsewhere, *scheduler.end(drawn.randrange(1, len(scheduler.waiting)))}
    scheduler.take(list(again(first, ended, ()).messages(1)))
    scheduler.end(tasks)
    assert scheduler.received == Counter({*range(tasks)} - {*elsewhere})
    assert scheduler.is_told_done()


def test_a_job_that_was_received_whole_is_not_sent_twice_when_it_is_submitted_again() -> None:
    sent = again(described(7, random.Random(1)), set(), ())
    (only,) = sent.messages(0)
    assert isinstance(only, Submit)
